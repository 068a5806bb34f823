//! Logs that programs really printed, and what must be concluded from them.

use std::path::Path;

use super::*;

mod behind;
mod ends;
mod known;
mod order;
mod traps;
mod written;

#[expect(
    clippy::disallowed_methods,
    reason = "a test reads its data; nothing of the library does"
)]
fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/doctor/logs");
    std::fs::read(folder.join(name)).unwrap()
}

fn doctor() -> Doctor {
    Doctor::new(Arc::new(Rules::builtin()))
}

/// The report on one file, with the rules of `empty`.
fn diagnose(empty: &Doctor, name: &str) -> Report {
    let bytes = file(name);
    let mut doctor = empty.clone();
    let head = &bytes[..bytes.len().min(4096)];
    if looks_like_dump(name, head) {
        doctor.dump(Dump::read(name, &bytes).unwrap());
    } else {
        let id = doctor.source(name);
        doctor.bytes(id, &bytes);
    }
    doctor.finish()
}

fn labels(report: &Report) -> Vec<&str> {
    let verdicts = report.verdicts.iter();
    verdicts.map(|verdict| verdict.label.as_str()).collect()
}

#[test]
fn real_logs() {
    let empty = doctor();
    let expected = file("expected.txt");
    let expected = std::str::from_utf8(&expected).unwrap();
    let mut wrong = Vec::new();
    for line in expected.lines().filter(|line| !line.starts_with('#')) {
        let (name, want) = line.split_once(": ").unwrap();
        let want: Vec<&str> = want.split_whitespace().collect();
        let report = diagnose(&empty, name);
        let have = labels(&report);
        if !have.starts_with(&want) {
            wrong.push(format!("{name}: want {want:?}, have {have:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn a_verdict_names_who_failed_and_where() {
    let empty = doctor();
    let report = diagnose(&empty, "cpu-exception.log");
    let verdict = &report.verdicts[0];
    assert_eq!(verdict.ranks, [1]);
    assert!(
        verdict.sentence.contains("KeyError: 'learning_rate'"),
        "{}",
        verdict.sentence
    );
    assert!(
        verdict.sentence.contains("in exception"),
        "{}",
        verdict.sentence
    );
    assert_eq!(verdict.evidence[0].file, "cpu-exception.log");
    assert!(!report.is_healthy());

    let report = diagnose(&empty, "gpu-single-rank.log");
    assert!(report.is_healthy());
    let facts = &report.facts.ranks[0];
    assert_eq!((facts.rank, facts.world), (Some(0), Some(1)));
    assert_eq!(facts.nccl.version.as_deref(), Some("2.28.9+cuda13.0"));
    assert_eq!(facts.nccl.network.as_deref(), Some("Socket"));
}

/// Rank 3 runs out of memory; ten minutes later the others' watchdogs fire.
#[test]
fn first_failure_is_not_its_symptom() {
    let mut doctor = doctor();
    for rank in 0..4 {
        let id = doctor.source(&format!("rank{rank}.log"));
        let text = if rank == 3 {
            "2024-07-25 06:00:00,000 step 10\n\
             Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n\
             torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB.\n"
                .to_owned()
        } else {
            format!(
                "2024-07-25 06:10:00,000 x\n[rank{rank}]:[E ProcessGroupNCCL.cpp:563] [Rank {rank}] \
                 Watchdog caught collective operation timeout: WorkNCCL(SeqNum=57, OpType=ALLREDUCE, \
                 NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600052 milliseconds before timing out.\n"
            )
        };
        doctor.bytes(id, text.as_bytes());
    }
    let report = doctor.report();
    assert_eq!(labels(&report), ["cuda_oom", "collective_timeout"]);
    assert_eq!(report.verdicts[0].ranks, [3]);
    // A snapshot changes nothing.
    assert_eq!(labels(&doctor.report()), labels(&report));
}

#[test]
fn late_ranks_are_named() {
    let mut doctor = doctor();
    let id = doctor.source("all.log");
    for rank in [0, 1, 2] {
        let line = format!(
            "[rank{rank}]:[E ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=57, OpType=ALLGATHER, NumelIn=1, NumelOut=4, Timeout(ms)=600000) ran"
        );
        doctor.line(id, None, Some(i64::from(rank)), line.as_bytes());
    }
    let late = "[rank3]:[E ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump \
                signal due to a collective timeout from rank 0 and we will try our best to dump the debug \
                info. Last enqueued NCCL work: 56, last completed NCCL work: 56.";
    doctor.line(id, None, Some(9), late.as_bytes());
    let report = doctor.finish();
    assert_eq!(
        labels(&report),
        ["collective_timeout", "straggler_or_missing_rank"]
    );
    let verdict = &report.verdicts[0];
    assert_eq!(verdict.ranks, [3]);
    assert_eq!(
        verdict.sentence,
        "a collective did not complete in time: rank 3 did not enter ALLGATHER number 57, while \
         ranks 0-2 waited in it"
    );
}

#[test]
fn absorb_equals_reading_in_one_doctor() {
    let mut one = doctor();
    let mut other = one.clone();
    let (first, second) = (one.source("rank0.log"), other.source("rank1.log"));
    one.bytes(first, b"step 1 loss 0.5\n");
    other.bytes(second, b"RuntimeError: CUDA error: out of memory");
    one.absorb(other);
    let report = one.finish();
    assert_eq!(labels(&report), ["cuda_oom"]);
    assert_eq!(report.verdicts[0].ranks, [1]);
    assert_eq!(report.facts.lines, 2);
}

#[test]
fn survived_exception_has_lower_confidence() {
    let trace = "Traceback (most recent call last):\n  File \"/app/train.py\", line 7, in main\n    \
                 load()\nKeyError: 'rate'\n";
    let cases = [
        ("it ended the program", trace.to_owned(), Confidence::High),
        (
            "the summary of a launcher follows",
            trace.to_owned() + &"Root Cause (first observed failure):\n".repeat(60),
            Confidence::High,
        ),
        (
            "the program went on training",
            trace.to_owned() + &"step 10 loss 2.0\n".repeat(20),
            Confidence::Medium,
        ),
        (
            "the program went on for long",
            trace.to_owned() + &"hello\n".repeat(400),
            Confidence::Medium,
        ),
    ];
    let empty = doctor();
    for (name, log, want) in cases {
        let mut doctor = empty.clone();
        let id = doctor.source("rank1.log");
        doctor.bytes(id, log.as_bytes());
        let verdict = doctor.finish().summary(1).expect("a verdict");
        assert_eq!(verdict.label, "user_code_error", "{name}");
        assert_eq!(verdict.confidence, want, "{name}");
        let place = "KeyError at File \"/app/train.py\", line 7, in main";
        assert_eq!(verdict.place.as_deref(), Some(place), "{name}");
        assert_eq!(verdict.exception.as_deref(), Some("KeyError"), "{name}");
    }
    let mut doctor = empty;
    let id = doctor.source("rank1.log");
    doctor.bytes(id, b"step 10 loss 2.0\n");
    assert_eq!(doctor.finish().summary(1), None, "nothing failed");
}

/// The labels of the report on one log.
fn labels_of(log: &str) -> Vec<String> {
    let mut doctor = doctor();
    let id = doctor.source("a.log");
    doctor.bytes(id, log.as_bytes());
    let report = doctor.finish();
    labels(&report).into_iter().map(str::to_owned).collect()
}

#[test]
fn bare_exception_at_the_end_counts() {
    let bare = "RuntimeError: shapes (3, 4) and (5, 6) do not fit\n";
    assert_eq!(labels_of(bare), ["user_code_error"]);
    // The bar of another rank is drawn once more.
    let bar = " 11%|█         | 11/100 [00:05<00:44,  2.00it/s, loss=2.30]\n";
    let tagged = format!("[rank1]: {bare}");
    assert_eq!(
        labels_of(&format!("{tagged}{bar}{bar}")),
        ["user_code_error"]
    );
    assert_eq!(
        labels_of(&format!("{bare}step 12 loss 0.5\n")),
        ["user_code_error"]
    );
    let steps = "step 12 loss 0.5\nstep 13 loss 0.5\nstep 14 loss 0.5\n";
    assert_eq!(labels_of(&format!("{bare}{steps}")), ["healthy"]);
    let silent = format!("[rank1]: step 11 loss 0.6\n{tagged}{steps}");
    assert_eq!(
        labels_of(&silent),
        ["user_code_error"],
        "rank 1 logs no later step"
    );
    let known = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    assert_eq!(labels_of(known), ["cuda_oom"]);
    let ignored = "Exception ignored in: <function x>\nTraceback (most recent call last):\n  \
                   File \"a.py\", line 3, in x\nAttributeError: 'NoneType' object\n";
    assert_eq!(labels_of(ignored), ["inconclusive"]);
    assert_eq!(
        labels_of(&format!("step 12 loss 0.5\n{ignored}")),
        ["healthy"]
    );
}

#[test]
fn wrapper_error_is_not_healthy() {
    let aborted = "RuntimeError: NCCL communicator was aborted.\n";
    assert_eq!(labels_of(aborted), ["worker_exit_nonzero"]);
    let one = format!("{aborted}step 12 loss 0.5\n");
    assert_eq!(labels_of(&one), ["worker_exit_nonzero"]);
    let more = format!("{one}step 13 loss 0.5\nstep 14 loss 0.4\n");
    assert_eq!(labels_of(&more), ["healthy"]);
    assert_eq!(labels_of("step 12 loss 0.5\nSystemExit: 0\n"), ["healthy"]);
}

#[test]
fn error_on_last_line_is_not_healthy() {
    let last = "step 11 loss 0.6\nFATAL: the store of widgets is gone\n";
    assert_eq!(labels_of(last), ["inconclusive"]);
    assert_eq!(labels_of(&format!("{last}\nleaving\n\n")), ["inconclusive"]);
    let one = "step 12 loss 0.5\n";
    assert_eq!(labels_of(&format!("{last}{one}")), ["inconclusive"]);
    let more = "step 13 loss 0.5\nstep 14 loss 0.4\n";
    assert_eq!(labels_of(&format!("{last}{one}{more}")), ["healthy"]);
    assert_eq!(labels_of(&format!("{last}a\nb\nc\n")), ["inconclusive"]);
    let known = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
    assert_eq!(labels_of(&format!("{known}FATAL: left\n")), ["cuda_oom"]);
}

#[test]
fn uneven_collectives_are_not_mismatches() {
    let line = |rank: u32, operation: &str, elements: u32| {
        format!(
            "[rank{rank}]:[E ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective \
             operation timeout: WorkNCCL(SeqNum=61, OpType={operation}, NumelIn={elements}, \
             NumelOut=4, Timeout(ms)=600000) ran for 600007 milliseconds before timing out.\n"
        )
    };
    let own = line(0, "ALLTOALL_BASE", 5) + &line(1, "ALLTOALL_BASE", 7);
    assert_eq!(labels_of(&own), ["collective_timeout"]);
    let shared = line(0, "ALLREDUCE", 5) + &line(1, "ALLREDUCE", 7);
    assert_eq!(labels_of(&shared)[0], "collective_mismatch");
}

#[test]
fn nccl_tests_without_mpi() {
    let row = |process: u32, host: &str| {
        format!("#  Rank  0 Group  0 Pid {process} on {host} device  0 [0x1a] NVIDIA H100\n")
    };
    let log = row(11, "node-1") + &row(12, "node-2");
    assert_eq!(
        labels_of(&log),
        ["mpi_launch_failure", "mpi_world_size_one"]
    );
    assert_eq!(labels_of(&row(11, "node-1")), ["inconclusive"]);
}

#[test]
fn redacted_host_has_no_name() {
    let mut doctor = doctor();
    let id = doctor.source("job.log");
    let line = b":7:9 [2] NCCL INFO comm 0x1 rank 2 nranks 4 cudaDev 2 busId 1 - Init COMPLETE\n";
    doctor.bytes(id, line);
    let report = doctor.finish();
    assert_eq!(report.facts.ranks.len(), 1);
    assert_eq!(report.facts.ranks[0].node, None);
}

#[test]
fn an_epoch_is_not_shown_as_the_step() {
    let step = |text: &str| {
        let mut doctor = Doctor::new(Arc::new(Rules::builtin()));
        let source = doctor.source("rank0.log");
        doctor.bytes(source, text.as_bytes());
        let facts = doctor.finish().facts;
        let rank = facts.ranks.first();
        rank.and_then(|rank| rank.fields.get("step").cloned())
    };
    assert_eq!(step("Epoch 3 loss 0.5\n"), None);
    assert_eq!(step("{'loss': 0.5, 'epoch': 3.0}\n"), None);
    assert_eq!(step("Epoch 3 step 40 loss 0.5\n").as_deref(), Some("40"));
    let bar = "Epoch 0: 10%|#| 10/100 [00:01<00:09, 8.00it/s, v_num=0]\r\
               Epoch 3: 12%|#| 12/100 [00:01<00:09, 8.00it/s, v_num=0]\n";
    assert_eq!(step(bar).as_deref(), Some("312"));
}
