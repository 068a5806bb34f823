//! What came first, who was late, and logs that do not show it.

use super::*;

/// The report on one log.
fn report(log: &str) -> Report {
    let mut doctor = doctor();
    let id = doctor.source("job.log");
    doctor.bytes(id, log.as_bytes());
    doctor.finish()
}

fn watchdog(rank: u32, group: &str, sequence: u32) -> String {
    format!(
        "[rank{rank}]:[E1116 10:11:12.131415 ProcessGroupNCCL.cpp:616] {group} Watchdog caught collective operation \
         timeout: WorkNCCL(SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran\n"
    )
}

#[test]
fn healthy_needs_a_sign_of_health() {
    let cases = [
        (
            "only a start",
            "loading the data\nbuilding the model\n",
            "inconclusive",
        ),
        ("a step", "loading the data\nstep 3 loss 0.5\n", "healthy"),
        (
            "an end",
            "loading the data\nTraining completed\n",
            "healthy",
        ),
        (
            "a value that is written while it runs, too",
            "loading the data\nprecision: 0.5\nloading the data\n",
            "inconclusive",
        ),
        (
            "a table at the end",
            "loading the data\n***** eval metrics *****\n  eval_accuracy = 0.5\n",
            "healthy",
        ),
        (
            "results that were saved",
            "loading the data\nResults saved to out.json\n",
            "healthy",
        ),
        (
            "an error, and a value behind it",
            "loading the data\nCUDA out of memory. Tried to allocate 2.00 GiB\nprecision: 0.5\n",
            "cuda_oom",
        ),
        (
            "a start of NCCL",
            "n:7:9 [2] NCCL INFO comm 0x1 rank 2 nranks 4 cudaDev 2 busId 1 - Init COMPLETE\n",
            "healthy",
        ),
        (
            "an error of its level, no step behind it",
            "step 3 loss 0.5\n2026-01-02 03:04:05,678 ERROR widgets are gone\nbye\nbye\nbye\nbye\n",
            "inconclusive",
        ),
        (
            "the same with a step behind it",
            "step 3 loss 0.5\n2026-01-02 03:04:05,678 ERROR widgets are gone\nstep 4 loss 0.4\n",
            "healthy",
        ),
        (
            "a table of nccl-tests",
            "     1048576        262144     float     sum      -1    42.15   24.88   46.65      0\n",
            "healthy",
        ),
    ];
    for (name, log, want) in cases {
        let report = report(log);
        assert_eq!(labels(&report)[0], want, "{name}: {:?}", report.verdicts[0]);
    }
    let unknown = report("loading the data\nthe widget is missing\nleaving\n");
    let verdict = &unknown.verdicts[0];
    assert_eq!(verdict.evidence[0].line, 2, "{verdict:?}");
    assert!(
        verdict.sentence.contains("the widget is missing"),
        "{}",
        verdict.sentence
    );
    assert!(
        unknown.summary(1).is_none(),
        "it decides nothing about a job"
    );
    let mut succeeded = doctor();
    let id = succeeded.source("job.log");
    succeeded.bytes(id, b"hello\n");
    succeeded.set_succeeded();
    assert!(succeeded.finish().is_healthy());
}

#[test]
fn a_failed_task_goes_before_the_time_limit() {
    let failed = "srun: error: node-1: task 3: Exited with exit code 1\n";
    let limit = "slurmstepd: error: *** STEP 7.0 ON node-1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n";
    let first = report(&format!("step 3 loss 0.5\n{failed}{limit}"));
    assert_eq!(labels(&first)[0], "worker_exit_nonzero");
    assert_eq!(first.verdicts[0].ranks, [3]);
    let stopped = report(&format!("step 3 loss 0.5\n{limit}{failed}"));
    assert_eq!(labels(&stopped)[0], "sigterm_preemption");
    let hung = watchdog(0, "[Rank 0]", 57) + limit;
    assert_eq!(labels(&report(&hung))[0], "collective_timeout");

    let killed = "srun: error: node-1: tasks 0-2: Killed\nsrun: Terminating StepId=7.0\n";
    let step = "slurmstepd: error: *** STEP 7.0 ON node-1 CANCELLED AT 2026-01-02T03:04:05 ***\n";
    for log in [
        format!("{failed}{step}{killed}"),
        format!("{step}{failed}{killed}"),
    ] {
        let report = report(&log);
        assert_eq!(labels(&report)[0], "worker_exit_nonzero", "{log}");
        assert_eq!(report.verdicts[0].ranks, [3], "{log}");
    }
}

#[test]
fn summaries_of_launchers_name_the_first_rank() {
    let trace = "Traceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    load()\nKeyError: 'rate'\n";
    let elastic = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n\
                   Failures:\n[1]:\n  host      : node-2\n  rank      : 5 (local_rank: 1)\n  exitcode  : 1 (pid: 71)\n\
                   Root Cause (first observed failure):\n[0]:\n  host      : node-1\n  rank      : 2 (local_rank: 2)\n  \
                   exitcode  : 1 (pid: 81)\n";
    let open_mpi = "mpirun detected that one or more processes exited with non-zero status, thus causing\n\
                    the job to be terminated. The first process to do so was:\n\n  \
                    Process name: [[31459,1],2]\n  Exit code:    1\n";
    let prrte = "prterun detected that one or more processes exited with non-zero status, thus causing\n\
                 the job to be terminated. The first process to do so was:\n\n   \
                 Process name: [prterun-node-1-25@1,2]\n   Exit code:    1\n";
    let intel =
        "=   RANK 2 PID 71 RUNNING AT node-1\n=   KILLED BY SIGNAL: 11 (Segmentation fault)\n";
    for (name, summary) in [
        ("torchrun", elastic),
        ("Open MPI", open_mpi),
        ("PRRTE", prrte),
        ("Intel MPI", intel),
    ] {
        let alone = report(summary);
        assert_eq!(
            alone.verdicts[0].ranks,
            [2],
            "{name}: {:?}",
            alone.verdicts[0]
        );
        let explained = report(&format!("{trace}{summary}"));
        assert_eq!(labels(&explained)[0], "user_code_error", "{name}");
        assert_eq!(explained.verdicts[0].ranks, [2], "{name}");
    }
}

#[test]
fn exits_that_say_nothing_about_one_rank() {
    let alike = "Process 3 exit with status code 250.\nProcess 2 exit with status code 250.\n";
    let several = report(alike);
    assert_eq!(labels(&several)[0], "worker_exit_nonzero");
    assert_eq!(several.verdicts[0].ranks, [0_u32; 0]);
    // DeepSpeed always prints the command of the last process of the node.
    let deepspeed = "[2026-01-02 03:04:05,6] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'train.py', \
                     '--local_rank=7'] exits with return code = 1\n";
    let last = report(deepspeed);
    assert_eq!(labels(&last)[0], "worker_exit_nonzero");
    assert_eq!(last.verdicts[0].ranks, [0_u32; 0]);
    let restarted =
        "Process 3 exit with status code 250.\nstep 4 loss 0.4\nstep 5 loss 0.4\nstep 6 loss 0.3\n";
    assert!(report(restarted).is_healthy());
}

#[test]
fn numbers_are_compared_within_one_group() {
    // Rank 1 waits in its own group; its smaller number there says nothing about the group of the others.
    let expert = "[PG ID 2 PG GUID 9(EXPERT) Rank 0]";
    let all = "[PG ID 0 PG GUID 0(default_pg) Rank 0]";
    let status = "[rank1]:[E1116 10:11:12.131415 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 9(EXPERT) Rank 0] Exception \
                  detected by watchdog at work: 3, last enqueued NCCL work: 5, last completed NCCL work: 2.\n";
    let log = watchdog(0, all, 57) + &watchdog(2, all, 57) + &watchdog(1, expert, 3) + status;
    let mixed = report(&log);
    assert_eq!(labels(&mixed), ["collective_timeout"]);
    assert_eq!(mixed.verdicts[0].ranks, [0_u32; 0], "nobody is accused");
    assert!(
        mixed.verdicts[0].sentence.contains("waited"),
        "{}",
        mixed.verdicts[0].sentence
    );
    assert!(
        !mixed.verdicts[0].next.contains("that is reported late"),
        "{}",
        mixed.verdicts[0].next
    );
}

#[test]
fn a_rank_whose_log_stops_is_named() {
    let mut doctor = doctor();
    for rank in 0..4 {
        let id = doctor.source(&format!("rank{rank}.log"));
        doctor.bytes(id, b"step 59 loss 0.5\nstep 60 loss 0.5\n");
        if rank != 1 {
            doctor.bytes(id, watchdog(rank, &format!("[Rank {rank}]"), 57).as_bytes());
        }
    }
    let report = doctor.finish();
    assert_eq!(report.verdicts[0].ranks, [1], "{:?}", report.verdicts[0]);
    let sentence = &report.verdicts[0].sentence;
    assert!(
        sentence.contains("rank 1 wrote nothing after step 60"),
        "{sentence}"
    );
    assert!(sentence.contains("ranks 0, 2, 3 waited"), "{sentence}");
}

#[test]
fn the_exact_exception_goes_before_its_wrapper() {
    let log = "Traceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    for batch in loader:\n\
               ValueError: Caught ValueError in DataLoader worker process 0.\n\
               Original Traceback (most recent call last):\n  File \"/app/data.py\", line 3, in __getitem__\n    \
               raise ValueError(name)\nValueError: sample 17 has no label\n";
    let report = report(log);
    assert_eq!(labels(&report)[0], "user_code_error");
    let sentence = &report.verdicts[0].sentence;
    assert!(sentence.contains("sample 17 has no label"), "{sentence}");
    assert!(sentence.contains("data.py"), "{sentence}");
    let late = "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Timed out task names:\n\
                /job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:1\n";
    let late = self::report(late);
    assert_eq!(labels(&late)[0], "straggler_or_missing_rank");
    assert_eq!(late.verdicts[0].ranks, [1, 3]);
}

#[test]
fn what_progress_follows_is_harmless() {
    let steps = "step 4 loss 0.4\nstep 5 loss 0.4\nstep 6 loss 0.3\n";
    let harmless = [
        "bash: line 3: nvidia-smi: command not found\n",
        "/a/b.py:3: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n",
        "libfabric:71:1::core:core:fi_getinfo_():1161<warn> fi_getinfo: provider efa failed\n",
        "ERROR: widgets are gone\n",
        "RuntimeError: Connection reset by peer\n",
    ];
    for line in harmless {
        let report = report(&format!("{line}{steps}"));
        assert!(report.is_healthy(), "{line}: {:?}", labels(&report));
    }
    let fatal = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    assert_eq!(labels(&report(&format!("{fatal}{steps}")))[0], "cuda_oom");
}

#[test]
fn events_of_kubernetes() {
    let cases = [
        (
            "Events:\n  Warning  FailedScheduling  3s  default-scheduler  0/6 nodes are available: 6 Insufficient nvidia.com/gpu.\n",
            "pod_unschedulable",
        ),
        (
            "train-worker-0   0/1   ImagePullBackOff   0   2m\n",
            "image_pull_failure",
        ),
        (
            "Warning  Failed  5s  kubelet  Error: secret \"hub-token\" not found\n",
            "config_missing",
        ),
        ("The node was low on resource: memory.\n", "pod_evicted"),
        (
            "Warning  FailedMount  2s  kubelet  MountVolume.SetUp failed for volume \"data\" : mount failed: exit status 32\n",
            "container_mount_error",
        ),
        (
            "Error creating: pods \"a\" is forbidden: exceeded quota: gpus, requested: 8, used: 56, limited: 60\n",
            "admission_refused",
        ),
    ];
    for (log, want) in cases {
        for before in ["", &"a line of the description\n".repeat(200)] {
            let report = report(&format!("{before}{log}"));
            assert_eq!(labels(&report)[0], want, "{log}: {:?}", labels(&report));
        }
    }
    let started = "Warning  FailedScheduling  9s  default-scheduler  0/6 nodes are available: 6 Insufficient cpu.\n\
                   Normal  Scheduled  3s  default-scheduler  Successfully assigned ml/a to node-3\nstep 1 loss 0.5\n";
    assert!(report(started).is_healthy());
}
