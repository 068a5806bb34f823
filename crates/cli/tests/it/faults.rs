//! Injected faults: what became of each is reported, and a run that finds its work done says so.

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    run::{job, run},
};

/// A job that trains to step 30 and saves it in a volume, from which the next run resumes.
fn resuming() -> String {
    let script = "n=0; test -e /ckpt/step && n=$(cat /ckpt/step) && echo resumed from step $n; \
                  while test $n -lt 30; do n=$((n + 1)); echo $n > /ckpt/step; echo step $n loss 0.5; \
                  if test $n = ${WAIT:-0}; then exec sleep 100; fi; done; echo done";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: ckpt}\nspec:\n  \
                 accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 1Mi}}\n---\n";
    let mount = "              volumeMounts: [{name: ckpt, mountPath: /ckpt}]\n          volumes: \
                 [{name: ckpt, persistentVolumeClaim: {claimName: ckpt}}]\n";
    format!("{claim}{}{mount}", job(1, script))
}

fn report(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).expect("stdout is one JSON document")
}

fn holds(outcome: &Outcome, parts: &[&str]) {
    for part in parts {
        assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
}

#[test]
fn each_fault_is_reported() {
    // Both wait in the first attempt for a fault that ends it.
    let script = "test -e again-$RANK && echo step 3 && exit 0; touch again-$RANK; \
                  while ! test -e again-0 || ! test -e again-1; do sleep 0.02; done; \
                  echo step 3; exec sleep 100";
    let faults = [
        "--inject",
        "kill rank=1 at=step:3",
        "--inject",
        "hang rank=0 at=step:20",
        "--inject",
        "slow rank=1 factor=2 at=1000s",
    ];
    let call = run(&faults, &job(2, script));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    holds(
        &outcome,
        &[
            "warning: 2 of 3 faults were not injected",
            "faults         `kill rank=1 at=step:3` injected at ",
            ", step 3, in attempt 1, on `j-worker-0`",
            "`hang rank=0 at=step:20` was not injected: the job ended at step 3, before step 20",
            "`slow factor=2 rank=1 at=1000s` was not injected: the job ended after ",
        ],
    );
    for rank in 0..2 {
        let marker = call.folder().join(format!("again-{rank}"));
        std::fs::remove_file(marker).expect("the rank has made it");
    }
    let words: Vec<&str> = ["run", "job.yaml", "--format", "json"]
        .into_iter()
        .chain(faults)
        .collect();
    let json = call.again(&words).run();
    assert_eq!(json.code, Some(0), "{json:?}");
    holds(&json, &["warning: 2 of 3 faults"]);
    let faults = &report(&json)["injections"];
    assert_eq!(faults[0]["fired"], true, "{faults}");
    assert_eq!(faults[0]["pods"][0], "j-worker-0", "{faults}");
    assert_eq!(faults[0]["attempt"], 1, "{faults}");
    assert_eq!(faults[1]["fired"], false, "{faults}");
    assert_eq!(
        faults[1]["reason"],
        "the job ended at step 3, before step 20"
    );
}

#[test]
fn a_fault_at_a_step_needs_steps() {
    let outcome = run(
        &["--inject", "kill rank=0 at=step:5"],
        &job(1, "echo hello"),
    )
    .run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    holds(
        &outcome,
        &["was not injected: no step was found in the output"],
    );
    // Where all took place there is nothing to warn of.
    let script = "test -e again && exit 0; touch again; echo step 5; exec sleep 100";
    let fired = run(&["--inject", "kill rank=0 at=step:5"], &job(1, script)).run();
    assert_eq!(fired.code, Some(0), "{fired:?}");
    holds(&fired, &["injected at", "2 attempts"]);
    assert!(!fired.stderr.contains("warning:"), "{}", fired.stderr);
}

#[test]
fn a_run_that_finds_its_work_done_says_so() {
    let call = run(&[], &resuming());
    let first = call.run();
    assert_eq!(first.code, Some(0), "{first:?}");
    holds(&first, &["j succeeded after", "step 30"]);

    let second = call.again(&["run", "job.yaml"]).run();
    assert_eq!(second.code, Some(0), "{second:?}");
    holds(
        &second,
        &[
            "note: run `20",
            "`--fresh` starts with empty volumes",
            "j had already succeeded in run 20",
            "and trained no steps",
            "run it with `--fresh` to start with",
        ],
    );
    assert!(
        !second.stderr.contains("succeeded after"),
        "{}",
        second.stderr
    );
    let third = call.again(&["run", "job.yaml", "--format", "json"]).run();
    let first_run = std::fs::read_dir(call.folder().join(".trainyard/runs/j"))
        .expect("the job has runs")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("20"))
        .min();
    let already = report(&third)["alreadySucceeded"]
        .as_str()
        .map(str::to_owned);
    assert_eq!(already, first_run, "the run that did the work is named");

    let fresh = call.again(&["run", "job.yaml", "--fresh"]).run();
    assert_eq!(fresh.code, Some(0), "{fresh:?}");
    holds(&fresh, &["volume `ckpt` starts empty", "j succeeded after"]);
    assert!(fresh.stdout.contains("step 1 loss"), "{}", fresh.stdout);
    let kept = call.folder().join(".trainyard/replaced");
    let kept = std::fs::read_dir(kept).expect("it is kept").next();
    let kept = kept.expect("one run replaced it").expect("it can be read");
    let step = std::fs::read_to_string(kept.path().join("ckpt/step"));
    assert_eq!(step.expect("what it held is kept"), "30\n");
}

/// The first two commands of the README, pasted one after the other.
#[test]
fn a_finished_run_does_not_swallow_a_fault() {
    let call = run(&["--format", "json"], &resuming());
    let first = call.run();
    assert_eq!(first.code, Some(0), "{first:?}");
    let inject = ["--inject", "kill rank=0 at=step:10", "--env", "WAIT=10"];
    let words: Vec<&str> = ["run", "job.yaml"].into_iter().chain(inject).collect();
    let faulty = call.again(&words).run();
    assert_eq!(faulty.code, Some(0), "{faulty:?}");
    holds(
        &faulty,
        &[
            "gets its own empty volumes, and volume `ckpt` does not change",
            "`kill rank=0 at=step:10` injected at",
            "j succeeded after",
            "2 attempts",
        ],
    );
    assert!(
        faulty.stdout.contains("resumed from step 1"),
        "{}",
        faulty.stdout
    );
    assert!(!faulty.stderr.contains("warning:"), "{}", faulty.stderr);
    // The volume of the first run was not touched.
    let step = call.folder().join(".trainyard/volumes/ckpt/step");
    assert_eq!(std::fs::read_to_string(step).expect("it is there"), "30\n");
    let plain = call.again(&["run", "job.yaml", "--format", "json"]).run();
    let first_run = &report(&first)["runId"];
    assert_eq!(&report(&plain)["alreadySucceeded"], first_run, "{plain:?}");
}

#[test]
fn a_volume_elsewhere_is_not_emptied() {
    let call = run(&[], &resuming());
    let data = call.folder().join("data");
    std::fs::create_dir(&data).expect("the folder takes folders");
    std::fs::write(data.join("step"), "29\n").expect("the folder takes files");
    let volumes = call.folder().join(".trainyard/volumes");
    std::fs::create_dir_all(&volumes).expect("the folder takes folders");
    std::os::unix::fs::symlink(&data, volumes.join("ckpt")).expect("links can be made");
    let refused = Call::again(&call, &["run", "job.yaml", "--fresh"]).run();
    assert_eq!(refused.code, Some(2), "{refused:?}");
    holds(&refused, &["it is a symbolic link"]);
    assert!(data.join("step").exists());
    assert_eq!(call.run().code, Some(0));
}

const TICKS: &str = "[[rule]]\nid = \"our-trainer\"\nany = [\"tick\"]\n\
                     pattern = 'tick #(?<step>\\d+)/(?<last_step>\\d+) cost=(?<loss>\\S+)'\nstage = \"progress\"\n";

#[test]
fn rules_of_a_user_read_steps() {
    // Waits at the step at which the fault is to end it.
    let script = "test -e again && echo 'tick #30/30 cost=0.25' && exit 0; touch again; \
                  echo 'tick #12/30 cost=0.5'; exec sleep 100";
    let words = [
        "run",
        "job.yaml",
        "--rules",
        "ours.toml",
        "--inject",
        "kill rank=0 at=step:12",
        "--format",
        "json",
    ];
    let job = job(1, script);
    let call = Call::new(&words)
        .file("job.yaml", &job)
        .file("ours.toml", TICKS);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = report(&outcome);
    assert_eq!(report["injections"][0]["fired"], true, "{report}");
    assert_eq!(report["injections"][0]["step"], 12, "{report}");
    assert_eq!(report["lastStep"], 30, "{report}");
    assert_eq!(report["progress"]["totalSteps"], 30, "{report}");
    assert_eq!(report["progress"]["loss"], "0.25", "{report}");
}

#[test]
fn bad_rules_refused_before_run() {
    let cases = [
        (None, "cannot read the rules in `ours.toml`"),
        (Some("[[rule]]\nid = 5\n"), "cannot use the rules"),
    ];
    for (rules, want) in cases {
        let mut call = Call::new(&["run", "--rules", "ours.toml", "--", "touch", "ran"]);
        if let Some(rules) = rules {
            call = call.file("ours.toml", rules);
        }
        let outcome = call.run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        holds(&outcome, &[want]);
        assert!(!call.folder().join("ran").exists());
    }
}
