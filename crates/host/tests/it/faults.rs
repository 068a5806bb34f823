//! Injected faults.

use serde_json::json;

use crate::harness::{Harness, sh};

/// Waits in the first attempt and succeeds in the second.
const SECOND_TIME: &str = "[ $ATTEMPT = 2 ] && exit 0; echo step 5; exec sleep 100";

#[test]
fn faults_end_the_attempt_as_they_would_by_accident() {
    let cases = [
        ("kill rank=1 at=0s", 137, Some("SIGKILL")),
        ("exit code=42 rank=1 at=0s", 42, None),
        ("exit code=137 rank=1 at=0s", 137, None),
        ("kill rank=1 at=step:5", 137, Some("SIGKILL")),
    ];
    for (fault, code, signal) in cases {
        let harness = Harness::new(2, sh(SECOND_TIME)).set("inject", json!([fault]));
        let ended = harness.run();
        assert_eq!(ended.code, Some(0), "{fault}: {:#?}", ended.seen);
        let report = ended.report();
        assert_eq!(report["attempts"], 2, "{fault}");
        let failure = &report["failures"][0];
        assert_eq!(failure["rank"], 1, "{fault}");
        assert_eq!(failure["code"], code, "{fault}");
        assert_eq!(failure["signal"].as_str(), signal, "{fault}");
        assert_eq!(failure["injected"], fault);
    }
}

#[test]
fn fault_at_step_fires_for_any_trainer() {
    // Of the last case only the last rank prints, as Megatron-LM does it; bars end without a newline.
    let cases = [
        (
            "HF Trainer",
            r"printf '\r  0%%|  | 0/100 [00:00<?, ?it/s]'; printf '\r 20%%|##  | 20/100 [00:10<00:40,  2.00it/s]' >&2",
        ),
        (
            "Lightning",
            r"printf '\rEpoch 0: 100%%|##| 12/12 [00:01<00:00, 8.00it/s, v_num=0, train_loss=2.30]';
              printf '\rEpoch 1:  67%%|#4| 8/12 [00:01<00:00, 8.00it/s, v_num=0, train_loss=2.10]'",
        ),
        (
            "tqdm",
            r"printf '\rTraining:  20%%|## | 20/100 [00:10<00:40,  2.00it/s, loss=0.5]' >&2",
        ),
        (
            "torchtitan",
            r"printf '\033[31mstep: 20  \033[32mloss:  8.2500  \033[34mtps: 12,345\033[39m\n'",
        ),
        (
            "Megatron-LM",
            "[ $HOSTNAME = j-worker-1 ] && echo ' iteration       20/     100 | consumed samples: 10240 | lm loss: 1.025E+01 | number of nan iterations:   0 |'",
        ),
    ];
    for (trainer, prints) in cases {
        let script = format!("[ $ATTEMPT = 2 ] && exit 0; {prints}; exec sleep 100");
        let fault = "kill rank=1 at=step:20";
        let ended = Harness::new(2, sh(&script))
            .set("inject", json!([fault]))
            .run();
        assert_eq!(ended.code, Some(0), "{trainer}: {:#?}", ended.seen);
        let report = ended.report();
        assert_eq!(report["failures"][0]["injected"], fault, "{trainer}");
        assert_eq!(report["lastStep"], 20, "{trainer}");
    }
}

#[test]
fn a_lost_node_is_paid_by_the_infrastructure() {
    let harness =
        Harness::new(3, sh(SECOND_TIME)).set("inject", json!(["node-loss pods=1,2 at=0s"]));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let report = ended.report();
    assert_eq!(report["attempts"], 2);
    assert_eq!(report["spent"]["infrastructure"], 1);
    assert_eq!(report["spent"]["user"], 0);
}

#[test]
fn a_rank_that_hangs_stops_where_it_is() {
    let mut template = sh("while :; do echo tick; sleep 0.01; done");
    template["spec"]["terminationGracePeriodSeconds"] = json!(0);
    let harness = Harness::new(1, template).set("inject", json!(["hang rank=0 at=0s"]));
    let mut run = harness.start();
    let sentence = run.wait_for("the hang", |line| !line["injected"].is_null());
    assert_eq!(
        sentence["injected"],
        "injecting fault `hang rank=0 at=0s` into `j-worker-0`"
    );
    let stopped = |line: &str| line.starts_with("State:") && line.contains('T');
    crate::harness::until("a stopped process", || {
        let processes = std::fs::read_dir("/proc").unwrap();
        processes
            .filter_map(|entry| {
                let path = entry.ok()?.path();
                let command = std::fs::read_to_string(path.join("cmdline")).ok()?;
                let status = std::fs::read_to_string(path.join("status")).ok()?;
                Some(command.contains("echo tick") && status.lines().any(stopped))
            })
            .any(|found| found)
    });
    run.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(run.finish().report()["outcome"], "stopped");
}

#[test]
fn a_slow_rank_takes_longer_for_the_same_work() {
    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; date +%s%N";
    let harness = Harness::new(1, sh(&format!("sleep 0.2; date +%s%N; {work}")));
    let time = |harness: &Harness| {
        let ended = harness.run();
        let output = &ended.output(1)["Worker 0"];
        let times: Vec<u128> = output.lines().map(|line| line.parse().unwrap()).collect();
        times[1] - times[0]
    };
    let usual = time(&harness);
    let slow = time(&harness.set("inject", json!(["slow rank=0 factor=10 at=0s"])));
    assert!(slow > usual * 3, "{slow} against {usual}");
}

#[test]
fn a_fault_on_a_rank_that_is_not_there_is_refused() {
    for (fault, want) in [
        (
            "kill rank=2 at=0s",
            "injection `kill rank=2 at=0s` names rank 2, but the job has only 2",
        ),
        (
            "node-loss pods=0,5 at=0s",
            "injection `node-loss pods=0,5 at=0s` names pod 5, but the job has only 2",
        ),
    ] {
        let ended = Harness::new(2, sh("true"))
            .set("inject", json!([fault]))
            .run();
        assert_eq!(ended.code, Some(2));
        assert_eq!(ended.error(), want);
    }
}
