//! How logs end: stopped from outside, or with results.

use super::*;

fn report_on(log: &str) -> Report {
    let mut doctor = doctor();
    let id = doctor.source("train.log");
    doctor.bytes(id, log.as_bytes());
    doctor.finish()
}

/// Forty steps, then `end`.
fn trained_until(end: &str) -> Report {
    let steps: Vec<String> = (1..=40)
        .map(|step| format!("step {step} loss 0.5\n"))
        .collect();
    report_on(&(steps.concat() + end))
}

#[test]
fn training_that_was_ended_is_not_healthy() {
    let cases = [
        ("Killed\n", "host_oom_killed"),
        (
            "40%|##   | 40/100 [00:40<01:00, 1.00it/s, loss=0.5]\r41%|##   | 41/100 [00:41<00:59, 1.00it/s, loss=0.5]Killed\n",
            "host_oom_killed",
        ),
        (
            "41%|##   | 41/100 [00:41<00:59, 1.00s/it]/app/run.sh: line 7: 4711 Killed                  python train.py\n",
            "host_oom_killed",
        ),
        (
            "[1]+  Killed                  python train.py\n",
            "host_oom_killed",
        ),
        ("zsh: killed     python train.py\n", "host_oom_killed"),
        (
            "make: *** [Makefile:7: train] Error 137\n",
            "host_oom_killed",
        ),
        ("Command terminated by signal 9\n", "host_oom_killed"),
        (
            "node-7.cluster.test: rank 3 died from signal 9\n",
            "host_oom_killed",
        ),
        ("Terminated\n", "sigterm_preemption"),
        (
            "/app/run.sh: line 7: 4711 Hangup                  python train.py\n",
            "sigterm_preemption",
        ),
        (
            "/app/run.sh: line 7: 4711 User defined signal 1   python train.py\n",
            "sigterm_preemption",
        ),
        (
            "CPU time limit exceeded (core dumped)\n",
            "sigterm_preemption",
        ),
        ("zsh: interrupt  python train.py\n", "sigterm_preemption"),
        ("^C\n", "sigterm_preemption"),
        (
            "41%|##   | 41/100 [00:41<00:59, 1.00it/s]^C\n",
            "sigterm_preemption",
        ),
        (
            "[2026-01-02 03:04:05,6] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 71\n\
             [2026-01-02 03:04:05,7] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting\n",
            "sigterm_preemption",
        ),
        (
            "Detected KeyboardInterrupt, attempting graceful shutdown ...\n",
            "sigterm_preemption",
        ),
        (
            "Received 1 death signal, shutting down workers\n",
            "sigterm_preemption",
        ),
        (
            "*** SIGTERM received at time=1767322800 on cpu 3 ***\n",
            "sigterm_preemption",
        ),
        ("srun: sending Ctrl-C to StepId=7.0\n", "sigterm_preemption"),
        (
            "TERM_OWNER: job killed by owner.\nExited with exit code 130.\n",
            "sigterm_preemption",
        ),
        ("Job 'raysubmit_widget' was stopped\n", "sigterm_preemption"),
        (
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Interrupt (signal 2)\n",
            "sigterm_preemption",
        ),
        (
            "[2026-01-02 03:04:05,6] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 71\n",
            "worker_exit_nonzero",
        ),
        ("srun: Terminating StepId=7.0\n", "worker_exit_nonzero"),
        ("Aborted\n", "worker_exit_nonzero"),
        (
            "[1]+  Exit 3                  python train.py\n",
            "worker_exit_nonzero",
        ),
        ("exit status 2\n", "worker_exit_nonzero"),
        ("The system is going down for reboot NOW!\n", "node_lost"),
        (
            "Connection to node-7 closed by remote host.\n",
            "remote_peer_died",
        ),
    ];
    for (end, want) in cases {
        let report = trained_until(end);
        assert_eq!(labels(&report)[0], want, "{end}: {:?}", labels(&report));
    }
}

#[test]
fn lines_that_only_mention_an_end_are_healthy() {
    let ends = [
        "",
        "[1]+  Done                    python train.py\n",
        "exit status 0\n",
        "Press Ctrl+C to quit the server\n",
        "the run will save and leave when SIGTERM is received\n",
        "SIGTERM handler is not set because this is not the main thread\n",
        "early stopping: training was stopped after 3 epochs of patience\n",
        "Killed is the title of document 7, tokenized\nstep 41 loss 0.4\nstep 42 loss 0.4\nstep 43 loss 0.4\n",
        "salloc: Relinquishing job allocation 7\n",
        "^C\n$ python train.py --resume\nstep 41 loss 0.4\nstep 42 loss 0.4\nstep 43 loss 0.4\n",
    ];
    for end in ends {
        let report = trained_until(end);
        assert!(report.is_healthy(), "{end}: {:?}", labels(&report));
    }
}

#[test]
fn results_at_the_end_are_a_sign_of_health() {
    let ends = [
        "***** predict metrics *****\n  predict_runtime = 0:12:01\n",
        "result file saved to /out/widgets.json\n",
        "Evaluation Total time: 0:12:01 (1.2 s / it)\n",
        "Optimizer stripped from runs/widget/last.pt, 7.1MB\n",
        "Model trained\nMean squared error: 0.25\n",
        "Inference finished: 12 of 12 samples\n",
    ];
    for end in ends {
        let report = report_on(&format!("reading widgets\n{end}"));
        assert!(report.is_healthy(), "{end}: {:?}", labels(&report));
    }
    let others = [
        "results will be saved to /out\n",
        "Loading widgets: 100%|####| 12/12 [00:01<00:00, 12.0it/s]\n",
        "evaluation not finished\n",
    ];
    for end in others {
        let report = report_on(&format!("reading widgets\n{end}"));
        assert_eq!(labels(&report), ["inconclusive"], "{end}");
    }
    // Results of one part say nothing about what followed.
    let early = format!("results saved to /out/a.json\n{}", "reading\n".repeat(40));
    assert_eq!(labels(&report_on(&early)), ["inconclusive"]);
}

#[test]
fn an_error_that_was_caught_is_not_a_failure() {
    let caught = "request 7 was given up: CUDA out of memory. Tried to allocate 66.00 MiB.\n";
    let saved = "saved 7 results to /out/widgets.json\n";
    assert!(report_on(&format!("{caught}{saved}")).is_healthy());
    assert_eq!(labels(&report_on(caught)), ["cuda_oom"]);
    assert_eq!(
        labels(&report_on(&format!("{saved}{caught}"))),
        ["cuda_oom"]
    );
    // What ended the program may stand before what it had written to stdout.
    let raised = "Traceback (most recent call last):\n  File \"/app/eval.py\", line 3, in main\n    run()\n\
                  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 66.00 MiB.\n";
    assert_eq!(
        labels(&report_on(&format!("{raised}{saved}"))),
        ["cuda_oom"]
    );
    let exited = format!("{caught}{saved}command terminated with exit code 1\n");
    assert_eq!(labels(&report_on(&exited))[0], "cuda_oom");
}

#[test]
fn a_job_that_succeeded_has_no_failure() {
    let log = "Traceback (most recent call last):\n  File \"/app/train.py\", line 3, in main\n    fetch()\n\
               KeyError: 'widget'\n";
    let mut doctor = doctor();
    let id = doctor.source("train.log");
    doctor.bytes(id, log.as_bytes());
    assert_eq!(labels(&doctor.clone().finish()), ["user_code_error"]);
    doctor.set_succeeded();
    let report = doctor.finish();
    assert!(report.is_healthy(), "{:?}", labels(&report));
    assert!(
        report
            .facts
            .labels
            .iter()
            .any(|label| label == "user_code_error")
    );
}

/// A line of level F ends its process, whatever is written after it.
#[test]
fn fatal_line_after_steps_is_not_healthy() {
    let report = trained_until(
        "2026-01-02 03:04:05.678901: F widgets/kernels/widget.cc:7] Run failed\n/usr/lib/python3/tracker.py:1: UserWarning: 9 leaked objects\n",
    );
    assert_eq!(labels(&report), ["inconclusive"]);
}
