use super::*;

#[test]
fn line_prefixes() {
    // Line, text, rank, node, whether it has a stamp.
    type Case = (
        &'static str,
        &'static str,
        Option<u32>,
        Option<&'static str>,
        bool,
    );
    let cases: &[Case] = &[
        ("plain", "plain", None, None, false),
        (
            "      [1,3]<stderr>:node-1:1:2 [0] NCCL INFO x",
            "node-1:1:2 [0] NCCL INFO x",
            Some(3),
            None,
            false,
        ),
        (
            "      [1,3] is a list",
            "      [1,3] is a list",
            None,
            None,
            false,
        ),
        (
            " 0: node-1:1:2 [0] NCCL INFO x",
            "node-1:1:2 [0] NCCL INFO x",
            Some(0),
            None,
            false,
        ),
        ("128: text", "text", Some(128), None, false),
        ("12:30 lunch", "12:30 lunch", None, None, false),
        ("10.2.0.5: text", "text", None, Some("10.2.0.5"), false),
        (
            "10.2.0.5:29500 text",
            "10.2.0.5:29500 text",
            None,
            None,
            false,
        ),
        ("1.2.3: text", "1.2.3: text", None, None, false),
        ("(rank 2) text", "text", Some(2), None, false),
        ("(rank7): text", "text", Some(7), None, false),
        ("(ranking 2) text", "(ranking 2) text", None, None, false),
        ("[1,3]<stdout>:text", "text", Some(3), None, false),
        ("[2]<stderr>:text", "text", Some(2), None, false),
        (
            "bench.node-4 [stderr] [rank14]:text",
            "text",
            Some(14),
            None,
            false,
        ),
        (
            "[prterun-node-1-25@1,4]<stderr>: text",
            "text",
            Some(4),
            None,
            false,
        ),
        ("[rank7]: Traceback", "Traceback", Some(7), None, false),
        (
            "[rank1]:[E409 05:10:01.93 P.cpp:1] x",
            "[E409 05:10:01.93 P.cpp:1] x",
            Some(1),
            None,
            true,
        ),
        ("[default0]:text", "text", Some(0), None, false),
        ("[0]: text", "[0]: text", None, None, false),
        (
            "[pod/job-worker-0/pytorch] text",
            "text",
            None,
            Some("job-worker-0"),
            false,
        ),
        (
            "(WorkerDict pid=34, ip=10.0.0.1) text",
            "text",
            None,
            None,
            false,
        ),
        ("(a, b) text", "(a, b) text", None, None, false),
        (
            "2023-05-18T12:23:48.59Z stdout F text",
            "text",
            None,
            None,
            true,
        ),
        (
            "2023-05-18T12:23:48.59Z 3: text",
            "text",
            Some(3),
            None,
            true,
        ),
        (
            "Nov 15 07:57:42 node-9 kernel: NVRM: x",
            "NVRM: x",
            None,
            Some("node-9"),
            true,
        ),
        ("[ 4254.1] NVRM: Xid", "NVRM: Xid", None, None, true),
        ("<4>[ 4254.1] NVRM: Xid", "NVRM: Xid", None, None, true),
        ("\u{1b}[31mred\u{1b}[0m", "red", None, None, false),
        ("\u{1b}]0;title\u{7}text", "text", None, None, false),
        (
            r#"{"log":"a \"b\"\n","stream":"stdout","time":"2023-05-18T12:23:48.59Z"}"#,
            "a \"b\"",
            None,
            None,
            true,
        ),
        ("{\"log\":\"broken", "{\"log\":\"broken", None, None, false),
        (
            r#"{"stream": "stderr", "log": "text\n", "time": "2023-05-18T12:23:48.59Z"}"#,
            "text",
            None,
            None,
            true,
        ),
        (
            r#"{"step": 7, "loss": 0.5}"#,
            r#"{"step": 7, "loss": 0.5}"#,
            None,
            None,
            false,
        ),
        ("trainer-1  | text", "text", None, Some("trainer-1"), false),
        ("trainer_12 | text", "text", None, Some("trainer_12"), false),
        ("step10 | loss 2", "step10 | loss 2", None, None, false),
        (
            "a table | of words",
            "a table | of words",
            None,
            None,
            false,
        ),
        ("0: [rank5]: text", "text", Some(5), None, false),
        ("3: [default1]:text", "text", Some(3), None, false),
        (
            "Tue Nov 14 10:00:00 2023[1,2]<stderr>:text",
            "text",
            Some(2),
            None,
            true,
        ),
        (
            "(train pid=71) text [repeated 15x across cluster] (Ray deduplicates logs by default.)",
            "text",
            None,
            None,
            false,
        ),
        (
            ":::MLLOG {\"time_ms\": 1691619015571}",
            ":::MLLOG {\"time_ms\": 1691619015571}",
            None,
            None,
            true,
        ),
    ];
    for (raw, text, rank, node, stamped) in cases {
        let mut scratch = Vec::new();
        let line = read(raw.as_bytes(), &mut scratch);
        assert_eq!(String::from_utf8_lossy(line.text), *text, "{raw}");
        assert_eq!(line.rank, *rank, "{raw}");
        assert_eq!(line.node, node.map(str::as_bytes), "{raw}");
        assert_eq!(line.stamp.is_some(), *stamped, "{raw}");
    }
}

#[test]
fn ranks_in_names() {
    let cases = [
        ("rank3.log", Some(3)),
        ("logs/RANK_12/stderr", Some(12)),
        ("trank.log", None),
        ("attempt_0/5/stderr.log", Some(5)),
        ("nccl_trace_rank_7", Some(7)),
        ("worker.log", None),
        ("task-4.out", Some(4)),
    ];
    for (name, want) in cases {
        assert_eq!(rank_of_name(name), want, "{name}");
    }
}

#[test]
fn tags_of_host_and_rank() {
    let mut scratch = Vec::new();
    let line = read(b"[node-7:3]: step 4", &mut scratch);
    assert_eq!((line.rank, line.node), (Some(3), Some(&b"node-7"[..])));
    assert_eq!(line.text, b"step 4");
    for (text, host) in [("[gpu12:0]: x", "gpu12"), ("[a.b:0]: x", "a.b")] {
        let line = read(text.as_bytes(), &mut scratch);
        let wanted = (Some(0), Some(host.as_bytes()));
        assert_eq!((line.rank, line.node), wanted, "{text}");
    }
    for text in [
        "[train.py:88]: step 4",
        "[node-7:3] step 4",
        "[12:30]: step 4",
        "[train:88]: step 4",
        "[cuda:0]: step 4",
        "[epoch:3]: loss 0.5",
    ] {
        let line = read(text.as_bytes(), &mut scratch);
        assert_eq!((line.rank, line.node), (None, None), "{text}");
    }
}
