//! `plan` and `simulate`: answers, and refusals of questions that make no sense.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{call::Call, golden};

/// What was published, with the source of every row.
const PUBLISHED: &str = include_str!("../../../../testdata/plan/published-runs.csv");

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn a_plan_reads_well() {
    let lines = [
        "plan --model llama3-8b --gpu H100 --gpus 64 --top 3 --what-if --scaling --groups device-mesh",
        "plan --model mixtral-8x7b --gpu A100-80GB --gpus 128 --top 3 --tokens 1T",
        "plan --model meta-llama/Llama-3.1-8B --qlora rank=16 --gpu RTX-4090 --gpus 1 --sequence 2048 --software torch --top 2",
        "plan --model qwen2.5-7b --finetune --optimizer adam8bit --offload --gradient-checkpointing --gpu A10G --gpus 8 --network 25gbe --top 2",
        "plan --model bert-large --gpu TPU-v5e --gpus 8 --top 1",
        "plan --list software",
        "plan --list networks",
    ];
    let outcomes: Vec<_> = lines.map(|line| Call::new(&words(line)).run()).into();
    golden::check("plan", &outcomes);
}

#[test]
fn an_emitted_job_reads_well() {
    let line = "plan --model llama3-70b --gpu H100 --gpus 512 --emit job";
    golden::check("plan-emit", &[Call::new(&words(line)).run()]);
}

#[test]
fn an_outlook_reads_well() {
    let lines = [
        "simulate --gpus 16384 --days 54 --runs 20 --sensitivity",
        "simulate --gpus 4096 --days 14 --runs 10 --path requeue --saving in-memory --bursts 0.5 --bad-share 0.1",
        "simulate --gpus 512 --days 30 --runs 10 --job status.json",
    ];
    let status = r#"{"job":"a","timeline":[[1,"starting",60000],[1,"training",30000000],[1,"saving",20000],
        [2,"restarting",190000],[2,"starting",80000],[2,"training",50000000],[2,"saving",20000]]}"#;
    let outcomes: Vec<_> = lines
        .map(|line| Call::new(&words(line)).file("status.json", status).run())
        .into();
    golden::check("simulate", &outcomes);
}

#[test]
fn invalid_input_refused_in_one_sentence() {
    let lines = [
        "plan",
        "plan --model lama3-8b",
        "plan --model llama3-8b --gpu H101",
        "plan --model llama3-8b --gpu A1",
        "plan --model llama3-8b --gpu-spec memory=24,tflops=90",
        "plan --model llama3-8b --gpu-spec memory=24,tflops=90,speed=3",
        "plan --model llama3-8b --lora rank=0",
        "plan --model llama3-8b --software pytorch",
        "plan --model llama3-8b --profile broken.csv",
        "plan --calibrate --python no-such-python",
        "plan --calibrate --python cat",
        "plan --learn broken.csv",
        "plan --learn empty.csv",
        "plan --model llama3-8b --gpus 0",
        "plan --model llama3-8b --gpus 64 --tp 3",
        "plan --model llama3-8b --gpus 30 --pp 6",
        "plan --model llama3-8b --batch 0",
        "plan --model llama3-8b --network carrier-pigeon",
        "plan --model llama3-8b --precision fp3",
        "plan --model llama3-8b --gpu A100 --precision fp8",
        "plan --model llama3-8b --tokens many",
        "plan --model llama3-8b --storage 0",
        "plan --model llama3-8b --gpus 48 --cp 3",
        "plan --model llama3-8b --lora rank=16 --emit job",
        "plan --layers 32 --hidden 4096 --heads 0",
        "plan --model llama3-405b --gpu A100-40GB --gpus 64",
        "plan --config config.json",
        "plan --rows broken.csv",
        "simulate --gpus 0",
        "simulate --bad-share 2",
        "simulate --days -1",
        "simulate --restart nan",
        "simulate --job broken.csv",
    ];
    let outcomes: Vec<_> = lines
        .map(|line| {
            Call::new(&words(line))
                .file("config.json", "{\"hidden_size\": 4096, \"num_hid")
                .file("empty.csv", "gpu,gpu_count,seq_len,global_batch\n")
                .file("broken.csv", "gpu,gpu_count,seq_len,global_batch\nH100,8\n")
                .run()
        })
        .into();
    golden::check("plan-refused", &outcomes);
}

/// What the script measured on one H200.
const MEASURED: &str = include_str!("../../../../testdata/plan/h200-calibrate.json");

#[test]
fn calibrated_profile_changes_later_plans() {
    let call =
        Call::new(&words("plan --calibrate --python ./python")).file("measured.json", MEASURED);
    let script = call.folder().join("python");
    fs::write(
        &script,
        "#!/bin/sh\ncat > /dev/null\nexec cat measured.json\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let calibrated = call.run();
    assert_eq!(calibrated.code, Some(0), "{}", calibrated.stderr);
    assert!(
        calibrated
            .stderr
            .contains("H200: large matrix products reach 71 % of the bf16 peak"),
        "{}",
        calibrated.stderr
    );
    let step = |more: &str| {
        let line = format!(
            "plan --model llama3.2-1b --gpu H200 --gpus 1 --software torch --sequence 4096 --batch 4 --micro-batch 4 --format json{more}"
        );
        let planned = Call::new(&words(&line))
            .file("h200.json", &calibrated.stdout)
            .run();
        assert_eq!(planned.code, Some(0), "{}", planned.stderr);
        let json: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
        json["layouts"][0]["tokensPerSecond"].as_f64().unwrap()
    };
    // 4 sequences of 4,096 tokens were measured to take 0.2587 s.
    let measured = 4.0 * 4096.0 / 0.2587;
    assert!((step(" --profile h200.json") / measured - 1.0).abs() < 0.1);
    assert!((step("") / measured - 1.0).abs() > 0.1);
}

#[test]
fn records_of_jobs_are_learned_from() {
    let asked = "--model llama3-8b --gpu H100 --gpus 64 --sequence 8192 --batch 512";
    let report =
        r#"{"job":"a","outcome":"succeeded","progress":{"step":900,"stepSeconds":"7.20e0"}}"#;
    let learned = Call::new(&words(&format!(
        "plan {asked} --learn a.json --learn b.json"
    )))
    .file("a.json", report)
    .file("b.json", report)
    .run();
    assert_eq!(learned.code, Some(0), "{}", learned.stderr);
    assert!(
        learned.stderr.contains("2 finished runs"),
        "{}",
        learned.stderr
    );
    let planned = Call::new(&words(&format!(
        "plan {asked} --profile own.json --format json"
    )))
    .file("own.json", &learned.stdout)
    .run();
    let json: serde_json::Value = serde_json::from_str(&planned.stdout).unwrap();
    let step = 512.0 * 8192.0 / json["layouts"][0]["tokensPerSecond"].as_f64().unwrap();
    assert!((step / 7.2 - 1.0).abs() < 0.02, "{step}");
    let silent = Call::new(&words(&format!("plan {asked} --learn a.json")))
        .file("a.json", r#"{"progress":null}"#)
        .run();
    assert_eq!(silent.code, Some(2));
    assert!(
        silent
            .stderr
            .starts_with("error: cannot learn from `a.json`: its `progress` has no `stepSeconds`"),
        "{}",
        silent.stderr
    );
}

#[test]
fn refusing_python_gives_its_reason() {
    let call = Call::new(&words("plan --calibrate --python ./python"));
    let script = call.folder().join("python");
    fs::write(
        &script,
        "#!/bin/sh\ncat > /dev/null\necho 'PyTorch finds no GPU on this machine' >&2\nexit 3\n",
    )
    .unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = call.run();
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.starts_with(
            "error: cannot calibrate: PyTorch finds no GPU on this machine\n\nhint: run it"
        ),
        "{}",
        refused.stderr
    );
}

#[test]
fn listed_names_are_accepted() {
    for what in ["gpus", "models"] {
        let listed = Call::new(&["plan", "--list", what]).run();
        assert_eq!(listed.code, Some(0));
        assert!(
            listed.stdout.lines().count() > 30,
            "{what}: {}",
            listed.stdout
        );
    }
    let custom = Call::new(&words(
        "plan --model llama3.2-1b --gpu-spec memory=48,tflops=180,bandwidth=900,link=32,per-node=4 --gpus 8 --format json",
    ))
    .run();
    assert_eq!(custom.code, Some(0), "{}", custom.stderr);
}

#[test]
fn the_emitted_job_passes_lint_and_becomes_pods() {
    for line in [
        "plan --model llama3-70b --gpu H100 --gpus 512 --emit job",
        "plan --model gpt3-1.3b --gpus 1 --batch 8 --emit job",
        "plan --model gpt3-1.3b --gpus 12 --batch 24 --emit job",
        "plan --model llama3-405b --gpus 16384 --batch 2048 --tokens 1B --emit job",
        "plan --model deepseek-v3 --gpu GB200 --gpus 256 --batch 4096 --emit job",
    ] {
        let planned = Call::new(&words(line));
        let emitted = planned.run();
        assert_eq!(emitted.code, Some(0), "{line}: {}", emitted.stderr);
        let lint = Call::new(&["lint", "--profile", "production", "job.yaml"])
            .file("job.yaml", &emitted.stdout)
            .run();
        assert_eq!(lint.code, Some(0), "{line}: {}", lint.stdout);
        assert!(lint.stdout.is_empty(), "{line}: {}", lint.stdout);
        let render = Call::new(&["render", "job.yaml"])
            .file("job.yaml", &emitted.stdout)
            .run();
        assert_eq!(render.code, Some(0), "{line}: {}", render.stderr);
    }
}

#[test]
fn every_row_is_answered_or_says_why_not() {
    let outcome = Call::new(&["plan", "--rows", "runs.csv"])
        .file("runs.csv", PUBLISHED)
        .run();
    assert_eq!(outcome.code, Some(0));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 244);
    assert!(lines[0].ends_with(
        ",note,pred_iter_time_s,pred_tflops_per_gpu,pred_mfu_pct,pred_memory_gib,pred_fits,pred_note"
    ));
    assert!(
        outcome.stderr.contains("224 of 243 rows predicted"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn pictures_are_written_and_json_is_versioned() {
    let call = Call::new(&words(
        "plan --model llama3-8b --gpus 64 --svg pictures --format json",
    ));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for name in ["memory", "time", "scaling", "ranks"] {
        let path = call.folder().join(format!("pictures/{name}.svg"));
        let svg = fs::read_to_string(path).expect("the picture is written");
        assert!(
            svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
            "{name}"
        );
    }
    let json: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("it is JSON");
    assert_eq!(json["version"], 1);
    assert!(
        json["layouts"]
            .as_array()
            .is_some_and(|layouts| !layouts.is_empty())
    );
    let again = Call::new(&words(
        "simulate --gpus 1024 --days 7 --runs 5 --svg t.svg --format json",
    ));
    let (one, other) = (again.run().stdout, again.run().stdout);
    assert!(!one.is_empty());
    assert_eq!(one, other, "the same seed gives the same bytes");
}
