use super::*;

/// A dump as JSON, of collectives `(group, number, name, elements, state)`.
fn dump(rank: u32, entries: &[(&str, i64, &str, u64, &str)]) -> Dump {
    let entries: Vec<serde_json::Value> = entries
        .iter()
        .map(|(group, sequence, name, elements, state)| {
            serde_json::json!({
                "process_group": [group, "desc"],
                "collective_seq_id": sequence,
                "profiling_name": name,
                "input_sizes": [[elements]],
                "output_sizes": [[elements]],
                "state": state,
                "is_p2p": false,
                "frames": [{"name": "main", "filename": "train.py", "line": 7}],
            })
        })
        .collect();
    let json = serde_json::json!({
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
        "entries": entries,
    });
    Dump::read(
        &format!("nccl_trace_rank_{rank}"),
        json.to_string().as_bytes(),
    )
    .unwrap()
}

#[test]
fn rank_that_did_not_enter_is_late() {
    let all = ("0", 1, "nccl:all_reduce", 8, "completed");
    let waiting = ("0", 2, "nccl:broadcast", 8, "started");
    let wait = compare(&[
        dump(0, &[all, waiting]),
        dump(1, &[all]),
        dump(2, &[all, waiting]),
    ])
    .unwrap();
    assert_eq!(wait.late, BTreeSet::from([1]));
    assert_eq!(wait.waiting, BTreeSet::from([0, 2]));
    assert!(wait.silent.is_empty());
    assert_eq!(wait.collective.unwrap().operation, "broadcast");
}

#[test]
fn ranks_that_disagree() {
    let one = ("0", 2, "nccl:broadcast", 8, "started");
    let two = ("0", 2, "nccl:all_reduce", 8, "scheduled");
    let wait = compare(&[dump(0, &[one]), dump(1, &[two])]).unwrap();
    assert_eq!(wait.mismatch_ranks, BTreeSet::from([1]));
    let mismatch = wait.mismatch.unwrap();
    assert_eq!(
        mismatch,
        "all_reduce of 8 elements at train.py:7 against broadcast of 8 elements at train.py:7"
    );
    assert_eq!(wait.silent, BTreeSet::from([2]));
}

#[test]
fn complete_recorder_has_no_wait() {
    let all = ("0", 1, "nccl:all_reduce", 8, "completed");
    assert!(compare(&[dump(0, &[all]), dump(1, &[all])]).is_none());
}

#[test]
fn names_of_dumps() {
    assert_eq!(rank("/tmp/nccl_trace_rank_3"), Some(3));
    assert_eq!(rank("dump_12.json"), Some(12));
    assert_eq!(rank("dump"), None);
    assert!(looks_like_dump("x", &[0x80, 2, b'}']));
    assert!(!looks_like_dump("x.log", b"{\"log\":\"a\"}"));
}

#[test]
fn pickles() {
    // {"a": [1, -2, 3.5, None, True, ("x", "x")]} as CPython writes it with protocol 2.
    let plain = b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffG@\x0c\x00\x00\x00\x00\x00\x00N\x88X\x01\x00\x00\x00xq\x03h\x03\x86q\x04es.";
    let value = pickle::read(plain).unwrap();
    let list = value.get("a").unwrap().list().unwrap();
    assert_eq!(list.len(), 6);
    assert_eq!(list[1], Value::Int(-2));
    assert_eq!(list[5].list().unwrap().len(), 2);

    // A call of `os.system` is a name and an argument, and is not made.
    let call = b"cos\nsystem\n(X\x04\x00\x00\x00true\x85R.";
    assert!(pickle::read(b"cos\nsystem\nX\x04\x00\x00\x00true\x85R.").is_ok());
    assert!(pickle::read(call).is_ok());

    let cases: [(&[u8], &str); 6] = [
        (b"", "it is truncated within an instruction"),
        (
            b"X\xff\xff\xff\xff",
            "it is truncated within an instruction",
        ),
        (
            b"a.",
            "an instruction at byte 1 has no operand on the stack",
        ),
        (b"b.", "instruction 0x62 at byte 0 is not supported"),
        (
            b"h\x05.",
            "an instruction at byte 0 has no operand on the stack",
        ),
        (b"X\x01\x00\x00\x00\xff.", "text at byte 1 is not UTF-8"),
    ];
    for (bytes, want) in cases {
        assert_eq!(pickle::read(bytes).unwrap_err().to_string(), want);
    }
}

#[test]
fn pickle_bomb_is_refused() {
    // Each round doubles what is on the stack.
    let mut bomb = b"]".to_vec();
    for _ in 0..40 {
        bomb.extend(b"q\x00h\x00h\x00\x86");
    }
    bomb.push(b'.');
    let error = pickle::read(&bomb).unwrap_err();
    assert!(matches!(
        error,
        pickle::PickleError::Large(_) | pickle::PickleError::Deep
    ));
    // Each round makes a list of eighty copies of the list before it: found by fuzzing, 710 bytes made millions.
    let mut copies = b"N".to_vec();
    for _ in 0..9 {
        copies.push(b'(');
        copies.extend(b"N");
        copies.extend(std::iter::repeat_n(b'2', 79));
        copies.push(b'l');
    }
    copies.extend(b"2222222222.");
    assert!(pickle::read(&copies).is_ok(), "lists of nothing are few");
    let mut copies = b"(".repeat(9);
    copies.push(b'N');
    for _ in 0..9 {
        copies.extend(std::iter::repeat_n(b'2', 79));
        copies.push(b'l');
    }
    copies.push(b'.');
    let most = copies.len() * 64 + (64 << 10);
    assert_eq!(
        pickle::read(&copies),
        Err(pickle::PickleError::Large(most)),
        "refused before they are made"
    );
    let mut deep = Vec::new();
    deep.extend(std::iter::repeat_n(b']', 100));
    deep.extend(std::iter::repeat_n(b'a', 99));
    deep.push(b'.');
    assert_eq!(pickle::read(&deep), Err(pickle::PickleError::Deep));
}

#[test]
fn groups_of_a_rank() {
    let done = ("0", 1, "nccl:all_reduce", 8, "completed");
    let begun = ("0", 2, "nccl:broadcast", 8, "started");
    let queued = ("0", 3, "nccl:all_reduce", 8, "scheduled");
    let other = ("7", 4, "nccl:all_gather", 2, "completed");
    let groups: Vec<GroupState> = dump(0, &[done, begun, queued, other]).groups().collect();
    let [all, seven] = &groups[..] else {
        panic!("{groups:?}");
    };
    assert_eq!((all.name.as_str(), all.last), ("0 default_pg", 3));
    let pending = all.pending.as_ref().unwrap();
    assert_eq!(
        (
            pending.sequence,
            pending.operation.as_str(),
            pending.started
        ),
        (2, "broadcast", true)
    );
    assert_eq!(
        (seven.name.as_str(), seven.last, &seven.pending),
        ("7", 4, &None)
    );
}
