//! `plan` and `simulate`: answers, and refusals of questions that make no sense.

use std::fs;

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
    ];
    let outcomes: Vec<_> = lines.map(|line| Call::new(&words(line)).run()).into();
    golden::check("plan", &outcomes);
}

#[test]
fn an_outlook_reads_well() {
    let lines = [
        "simulate --gpus 16384 --days 54 --runs 20 --sensitivity",
        "simulate --gpus 4096 --days 14 --runs 10 --path requeue --saving in-memory --bursts 0.5 --bad-share 0.1",
    ];
    let outcomes: Vec<_> = lines.map(|line| Call::new(&words(line)).run()).into();
    golden::check("simulate", &outcomes);
}

#[test]
fn invalid_input_refused_in_one_sentence() {
    let lines = [
        "plan",
        "plan --model lama3-8b",
        "plan --model llama3-8b --gpu H101",
        "plan --model llama3-8b --gpus 0",
        "plan --model llama3-8b --gpus 64 --tp 3",
        "plan --model llama3-8b --gpus 30 --pp 5",
        "plan --model llama3-8b --batch 0",
        "plan --model llama3-8b --network carrier-pigeon",
        "plan --model llama3-8b --precision fp3",
        "plan --model llama3-8b --tokens many",
        "plan --layers 32 --hidden 4096 --heads 0",
        "plan --model llama3-405b --gpu A100-40GB --gpus 64",
        "plan --config config.json",
        "plan --rows broken.csv",
        "simulate --gpus 0",
        "simulate --bad-share 2",
        "simulate --days -1",
    ];
    let outcomes: Vec<_> = lines
        .map(|line| {
            Call::new(&words(line))
                .file("config.json", "{\"hidden_size\": 4096, \"num_hid")
                .file("broken.csv", "gpu,gpu_count,seq_len,global_batch\nH100,8\n")
                .run()
        })
        .into();
    golden::check("plan-refused", &outcomes);
}

#[test]
fn the_emitted_job_passes_lint_and_becomes_pods() {
    for line in [
        "plan --model llama3-70b --gpu H100 --gpus 512 --emit job",
        "plan --model gpt3-1.3b --gpus 1 --batch 8 --emit job",
        "plan --model deepseek-v3 --gpu GB200 --gpus 256 --batch 4096 --emit job",
    ] {
        let planned = Call::new(&words(line));
        let emitted = planned.run();
        assert_eq!(emitted.code, Some(0), "{line}: {}", emitted.stderr);
        let lint = Call::new(&["lint", "job.yaml"])
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
    assert_eq!(lines.len(), 241);
    assert!(lines[0].ends_with(
        ",note,pred_iter_time_s,pred_tflops_per_gpu,pred_mfu_pct,pred_memory_gib,pred_fits,pred_note"
    ));
    assert!(
        outcome.stderr.contains("221 of 240 rows predicted"),
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
