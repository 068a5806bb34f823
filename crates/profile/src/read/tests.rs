use proptest::prelude::*;

use super::*;

const TRACE: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
  "baseTimeNanoseconds": 1700000000000000000,
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
    {"ph": "X", "cat": "kernel", "name": "gemm \"a\"", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2.25,
     "args": {"device": 0, "stream": 7, "correlation": 12, "queued": NaN}},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 20, "ts": 13, "dur": 1,
     "args": {"correlation": 13, "Process Group Ranks": "[0, 1]"}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": 1, "dur": 3, "args": {"bytes": 4096}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 99, "ts": 9, "dur": 1, "args": {"correlation": 12}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 99, "ts": 8.001, "dur": 3},
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#4", "tid": 99, "ts": 0, "dur": 20},
    {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler", "ts": 0, "dur": 9},
    {"ph": "s", "cat": "ac2g", "id": 12, "ts": 9},
    {"ph": "X", "cat": "cpu_op", "name": "aten::negative", "ts": 8, "dur": -3},
    {"ph": "X", "cat": "cpu_op", "name": "aten::untimed"}
  ],
  "traceName": "x.json"
}"#;

fn read_in(bytes: &[u8], block: usize) -> Result<Trace, ReadError> {
    let mut reader = Reader::new(Bounds::default());
    for block in bytes.chunks(block.max(1)) {
        if !reader.push(block) {
            break;
        }
    }
    reader.finish()
}

fn read(text: &str) -> Result<Trace, ReadError> {
    read_in(text.as_bytes(), 1 << 18)
}

#[test]
fn everything_that_is_kept() {
    let trace = read(TRACE).unwrap();
    assert_eq!(
        (trace.rank, trace.base),
        (Some(3), 1_700_000_000_000_000_000)
    );
    assert_eq!((trace.events, trace.truncated), (11, false));
    assert_eq!(trace.skipped.damaged, 2);
    let [gemm, reduce, copy] = trace.rows.as_slice() else {
        panic!("three rows: {:?}", trace.rows);
    };
    assert_eq!(trace.name(gemm.name), "gemm \"a\"");
    assert_eq!(
        (gemm.start, gemm.duration, gemm.correlation),
        (10_500, 2_250, 12)
    );
    assert_eq!(
        (gemm.kind, reduce.kind, copy.kind),
        (RowKind::Compute, RowKind::Communication, RowKind::Memory)
    );
    assert_eq!(trace.name(reduce.group), "[0, 1]");
    assert_eq!(trace.copied_bytes.values().sum::<u64>(), 4096);
    assert_eq!(
        (
            trace.calls.len(),
            trace.calls[0].thread,
            trace.calls[0].correlation
        ),
        (1, 99, 12)
    );
    assert_eq!(
        (trace.operators.len(), trace.operators[0].start),
        (1, 8_001)
    );
    assert_eq!(trace.annotations.len(), 1);
}

#[test]
fn blocks_of_any_size_give_the_same() {
    let whole = format!("{:?}", read(TRACE).unwrap());
    for block in [1, 2, 3, 7, 64, 1000] {
        let found = read_in(TRACE.as_bytes(), block).unwrap();
        assert_eq!(format!("{found:?}"), whole, "blocks of {block}");
    }
}

#[test]
fn a_cut_file_is_used_as_far_as_it_goes() {
    let mut events = 0;
    for end in 0..TRACE.len() {
        match read_in(&TRACE.as_bytes()[..end], 1 << 18) {
            Ok(trace) => {
                assert!(trace.events >= events, "cut at {end}");
                assert_eq!(
                    trace.truncated,
                    end < TRACE.len() - 1 || trace.truncated,
                    "cut at {end}"
                );
                events = trace.events;
            }
            Err(_) => assert_eq!(events, 0, "cut at {end}"),
        }
    }
    assert_eq!(events, 11);
}

#[test]
fn files_that_are_no_traces() {
    let cases = [
        ("", ReadError::Empty),
        (" \n\n", ReadError::Empty),
        ("hello", ReadError::NoTrace),
        ("\u{0}\u{1}ELF", ReadError::NoTrace),
        ("{}", ReadError::NoTrace),
        ("{\"a\": 1}", ReadError::NoTrace),
        ("{\"traceEvents\": 7}", ReadError::NoTrace),
        ("{\"traceEvents\"", ReadError::NoTrace),
        ("{\"traceEvents\": []}", ReadError::NoEvents),
        ("{\"traceEvents\": [{\"ph\": \"X\"", ReadError::NoEvents),
        ("[]", ReadError::NoEvents),
        ("[1, 2]", ReadError::NoEvents),
    ];
    for (text, want) in cases {
        assert_eq!(read(text).map(|trace| trace.events), Err(want), "{text}");
    }
}

#[test]
fn a_bare_array_is_a_trace() {
    let text = r#"[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1},{"ph":"X","cat":"cpu_op","name":"a","ts":3,"dur":1}]"#;
    let trace = read(text).unwrap();
    assert_eq!(
        (trace.operators.len(), trace.names.len(), trace.truncated),
        (2, 2, false)
    );
}

#[test]
fn huge_and_deep_events_cost_only_themselves() {
    let event = r#"{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}"#;
    let deep = format!(
        "{{\"args\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    let huge = format!("{{\"name\":\"{}\"}}", "x".repeat(split::MOST_PIECE + 1));
    let text = format!(
        "{{\"huge\":\"{}\",\"traceEvents\":[{event},{deep},{huge},{event}]}}",
        "y".repeat(split::MOST_PIECE + 1)
    );
    for block in [4096, 1 << 24] {
        let trace = read_in(text.as_bytes(), block).unwrap();
        assert_eq!(
            (trace.operators.len(), trace.skipped.oversized),
            (2, 2),
            "blocks of {block}"
        );
    }
}

#[test]
fn bounds_of_events_and_names() {
    let bounds = Bounds {
        events: 4,
        names: 3,
        name_bytes: 100,
    };
    let event = |category: &str, name: usize| {
        format!(r#"{{"ph":"X","cat":"{category}","name":"n{name}","ts":{name},"dur":1}}"#)
    };
    let events: Vec<String> = (0..8)
        .map(|at| event(if at < 4 { "cpu_op" } else { "kernel" }, at))
        .collect();
    let mut reader = Reader::new(bounds);
    reader.push(format!("[{}]", events.join(",")).as_bytes());
    let trace = reader.finish().unwrap();
    assert_eq!(
        (trace.operators.len(), trace.rows.len()),
        (2, 2),
        "rows of the GPU have room left"
    );
    assert_eq!((trace.skipped.beyond_bound, trace.skipped.unnamed), (4, 2));
    assert_eq!(trace.names.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Nothing that a file holds causes a panic, and the size of blocks does not matter.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(
        prop_oneof![
            Just(b"{\"traceEvents\":[".to_vec()),
            Just(b"{\"ph\":\"X\",\"cat\":\"kernel\",\"ts\":1,\"dur\":2}".to_vec()),
            Just(b"\"baseTimeNanoseconds\":".to_vec()),
            prop::sample::select(b"{}[]\",:\\ 01eN.\x00\xff".to_vec()).prop_map(|byte| vec![byte]),
        ], 0..60), block in 1_usize..40)
    {
        let bytes = bytes.concat();
        let whole = read_in(&bytes, usize::MAX).map(|trace| format!("{trace:?}"));
        let blocks = read_in(&bytes, block).map(|trace| format!("{trace:?}"));
        prop_assert_eq!(whole, blocks);
    }
}
