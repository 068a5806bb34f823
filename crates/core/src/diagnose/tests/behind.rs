//! What stands behind a failure: the rest of its message, steps, another start, the end of helper processes.

use super::*;

fn first(log: &str) -> String {
    let mut doctor = doctor();
    let id = doctor.source("job.log");
    doctor.bytes(id, log.as_bytes());
    doctor.finish().verdicts[0].label.clone()
}

fn table(cases: &[(&str, String, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(name, log, want)| {
            let have = first(log);
            (have != *want).then(|| format!("{name}: want {want}, have {have}"))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn steps(from: u32, to: u32) -> String {
    let steps = (from..=to).map(|step| format!("step {step} loss 0.5\n"));
    steps.collect()
}

fn raised(exception: &str) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"train.py\", line 3, in main\n{exception}\n"
    )
}

#[test]
fn cause_behind_an_exception() {
    let other = "loading the data\n".repeat(300);
    let report = "\n----\n- Device Report:\n----\nEI0005: The arguments are inconsistent between ranks: tag [a]\n";
    let refers = raised("RuntimeError: Run failed. The details refer to 'Device Report'.") + report;
    let silent = raised("RuntimeError: Run failed.") + report;
    table(&[
        (
            "a report that is named",
            refers.clone(),
            "collective_mismatch",
        ),
        (
            "the same far down, where rules need an anchor",
            other.clone() + &refers + &other,
            "collective_mismatch",
        ),
        (
            "a report that is not named is still a cause by itself",
            silent,
            "user_code_error",
        ),
        (
            "the next line of the message",
            raised("OSError: (External) driver error")
                + "  [Hint: CUDA_ERROR_OUT_OF_MEMORY] (at a.cc:3)\n",
            "cuda_oom",
        ),
        (
            "another rank fails later, with a traceback of its own",
            raised("KeyError: 'lr'") + &raised("torch.OutOfMemoryError: CUDA out of memory. Tried"),
            "user_code_error",
        ),
        (
            "a symptom behind a message that ends",
            raised("KeyError: 'lr'") + "Connection closed by remote peer node-1\n",
            "user_code_error",
        ),
    ]);
}

#[test]
fn failure_that_was_trained_past() {
    let missing = raised("ModuleNotFoundError: No module named 'logger'");
    let oom = raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.");
    let key = raised("KeyError: 'lr'");
    table(&[
        (
            "an optional module, one step",
            missing.clone() + &steps(1, 1) + &oom,
            "cuda_oom",
        ),
        ("no step between", missing + &oom, "module_missing"),
        (
            "an exception, several steps",
            key.clone() + &steps(1, 5) + &oom,
            "cuda_oom",
        ),
        (
            "steps that other ranks still finish",
            key.clone() + &steps(8, 9) + &oom,
            "user_code_error",
        ),
        (
            "what is behind is no cause",
            key.clone() + &steps(1, 5) + "Connection closed by remote peer node-1\n",
            "user_code_error",
        ),
    ]);
    let mut doctor = doctor();
    let id = doctor.source("job.log");
    let log = key + &steps(1, 5) + &raised("ValueError: x");
    doctor.bytes(id, log.as_bytes());
    let verdict = &doctor.finish().verdicts[0];
    assert_eq!(verdict.label, "user_code_error");
    let shown = format!("{:?}", verdict.evidence);
    let (first, second) = (shown.contains("KeyError"), shown.contains("ValueError: x"));
    assert!(!first && second, "{shown}");
}

#[test]
fn job_that_was_started_again() {
    let exit = "failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python3\n";
    let failed = raised("KeyError: 'lr'") + exit;
    let killed = "Reason: OOMKilled\nExit Code: 137\n".to_owned();
    let done = "Training completed\n";
    table(&[
        (
            "to its end",
            failed.clone() + &steps(1, 5) + done,
            "healthy",
        ),
        ("and trains", failed.clone() + &steps(1, 5), "healthy"),
        ("an OOM kill", killed + &steps(1, 5), "healthy"),
        (
            "fails again",
            failed.clone() + &steps(1, 5) + &failed,
            "user_code_error",
        ),
        (
            "lines of a buffer come before the exit",
            raised("KeyError: 'lr'") + &steps(1, 5) + exit,
            "user_code_error",
        ),
        (
            "no exit, few lines",
            raised("KeyError: 'lr'") + &steps(1, 5),
            "user_code_error",
        ),
        (
            "no exit, more lines than a buffer holds",
            raised("KeyError: 'lr'") + &steps(1, 400),
            "healthy",
        ),
    ]);
}

#[test]
fn helper_processes_at_the_end() {
    let trained = steps(1, 5);
    let done = trained.clone() + "Training completed\n";
    let reset = raised("ConnectionResetError: [Errno 104] Connection reset by peer");
    let end = raised("EOFError");
    table(&[
        ("a reset", done.clone() + &reset, "healthy"),
        ("an end of file", done.clone() + &end, "healthy"),
        (
            "a reset while it trains",
            trained.clone() + &reset,
            "remote_peer_died",
        ),
        (
            "an end of file while it trains",
            trained + &end,
            "user_code_error",
        ),
        (
            "another exception",
            done.clone() + &raised("KeyError: 'lr'"),
            "user_code_error",
        ),
        (
            "and an exit",
            done + &end + "failed (exitcode: 1) local_rank: 0 (pid: 7)\n",
            "user_code_error",
        ),
    ]);
}

/// Whoever waits is never named, whatever the lines say first.
#[test]
fn waiting_ranks_are_not_named() {
    let cases = [
        "[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:31412\n",
        "[rank1]: ValueError: (InvalidArgument) TCP receive error. Details: Success.\n",
        "[rank0]: torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined.\n",
        "[rank3]:[E203 10:11:12.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran\n",
        "[rank5]: torch.distributed.DistNetworkError: The client socket has timed out after 900000ms while trying to connect to (node-0, 29500).\n",
        "[rank4]: EI0006: Getting socket times out. Reason: the remote does not connect.\n",
        "[rank6]: horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.\n",
    ];
    for log in cases {
        let mut doctor = doctor();
        let id = doctor.source("job.log");
        doctor.bytes(id, log.as_bytes());
        let report = doctor.finish();
        let verdict = &report.verdicts[0];
        assert!(
            verdict.ranks.is_empty(),
            "{}: {:?}",
            verdict.label,
            verdict.ranks
        );
    }
}
