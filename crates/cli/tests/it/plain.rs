//! `run -- COMMAND`, and options that change a job: `--env`, `--set`, `--name`, `--restarts`.

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    run::{job, run},
};

fn record(call: &Call, name: &str) -> Value {
    let runs = call.folder().join(".trainyard/runs").join(name);
    let run = std::fs::read_dir(runs).expect("the job has runs");
    let run = run.filter_map(Result::ok).find(|run| run.path().is_dir());
    let record = run.expect("it has one").path().join("job.json");
    let text = std::fs::read_to_string(record).expect("it has a record");
    serde_json::from_str(&text).expect("it is JSON")
}

fn says(outcome: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
}

#[test]
fn a_command_runs_as_ranks() {
    let script = "echo rank $RANK of $WORLD_SIZE, local $LOCAL_RANK, at $MASTER_ADDR:$MASTER_PORT";
    let call = Call::new(&[
        "run", "--nproc", "3", "--name", "hello", "--", "sh", "-c", script,
    ]);
    let outcome = call.run();
    says(
        &outcome,
        0,
        &["PyTorchJob as 3 pods", "\nhello succeeded after"],
    );
    for rank in 0..3 {
        let want = format!("rank {rank} of 3, local 0, at hello-master-0:");
        assert!(outcome.stdout.contains(&want), "{}", outcome.stdout);
    }
    assert!(!outcome.stderr.contains("image"), "{}", outcome.stderr);
    let list = call.again(&["ps"]).run();
    assert!(
        list.stdout.contains("hello   PyTorchJob   Succeeded"),
        "{}",
        list.stdout
    );
    let log = call.again(&["logs", "hello", "--rank", "2"]).run();
    assert!(log.stdout.starts_with("rank 2 of 3"), "{}", log.stdout);
    let words = &record(&call, "hello")["job"]["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
        ["spec"]["containers"][0]["command"];
    let stored = script.replace('$', "$$");
    assert_eq!(words[2], stored, "the stored job shows the command");
}

#[test]
fn command_restarts_after_signal_not_exit_code() {
    let own = Call::new(&["run", "--", "sh", "-c", "exit 3"]).run();
    says(&own, 1, &["1 attempt\n", "exit code 3"]);
    let script = "test -e again && exit 0; touch again; kill -9 $$";
    let killed = Call::new(&["run", "--", "sh", "-c", script]).run();
    says(&killed, 0, &["2 attempts\n"]);
    let script = "test -e again && exit 0; touch again; exit 3";
    let asked = Call::new(&["run", "--restarts", "1", "--", "sh", "-c", script]).run();
    says(&asked, 0, &["2 attempts\n"]);
    let script = "test -e again-$RANK && exit 0; touch again-$RANK; exec sleep 20";
    let words = [
        "run",
        "--nproc",
        "2",
        "--inject",
        "kill rank=1 at=100ms",
        "--",
        "sh",
        "-c",
        script,
    ];
    says(
        &Call::new(&words).run(),
        0,
        &["succeeded after", "injected at", "2 attempts\n"],
    );
}

#[test]
fn a_command_and_a_file_exclude_each_other() {
    let fine = job(1, "true");
    let cases: [(&[&str], &str); 5] = [
        (
            &["run", "job.yaml", "--", "true"],
            "takes a job file or a command after `--`, not both",
        ),
        (&["run"], "needs a job file, or a command after `--`"),
        (
            &["run", "--nproc", "2", "job.yaml"],
            "`--nproc` needs a command after `--`",
        ),
        (
            &["run", "--gpus", "1", "job.yaml"],
            "`--gpus` needs a command after `--`",
        ),
        (
            &["run", "--", "no-such-program"],
            "`no-such-program`, which is not on its `PATH`",
        ),
    ];
    for (words, want) in cases {
        let outcome = Call::new(words).file("job.yaml", &fine).run();
        says(&outcome, 2, &[want]);
    }
}

#[test]
fn fields_and_variables_are_set() {
    let script = "echo world $WORLD_SIZE mode $MODE";
    let words = [
        "--set",
        "spec.pytorchReplicaSpecs.Worker.replicas=2",
        "--set",
        "metadata.labels.team=a",
        "--env",
        "MODE=x=y",
        "--name",
        "other",
    ];
    let call = run(&words, &job(2, script));
    let outcome = call.run();
    says(&outcome, 0, &["\nother succeeded after"]);
    assert!(
        outcome.stdout.contains("world 3 mode x=y"),
        "{}",
        outcome.stdout
    );
    let job = &record(&call, "other")["job"];
    assert_eq!(job["metadata"]["labels"]["team"], "a");
    assert_eq!(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"], 2);
}

#[test]
fn what_cannot_be_set_is_refused() {
    let cases: [(&[&str], &str); 6] = [
        (
            &["--set", "spec.pytorchReplicaSpecs.Worker.replica=2"],
            "`--set spec.pytorchReplicaSpecs.Worker.replica=2`: `spec.pytorchReplicaSpecs.Worker` has no \
             field `replica`\n\nhint: did you mean `replicas`?",
        ),
        (
            &["--set", "spec.runPolicy.backofLimit=2"],
            "did you mean `backoffLimit`?",
        ),
        (
            &["--set", "metadata.name.x=1"],
            "`metadata.name` is a single value",
        ),
        (&["--set", "spec.runPolicy.backoffLimit=many"], "error[TY"),
        (&["--set", "spec"], "expected a path and a value"),
        (&["--env", "MODE"], "expected a name and a value"),
    ];
    for (words, want) in cases {
        let outcome = run(words, &job(2, "true")).run();
        says(&outcome, 2, &[want]);
    }
}
