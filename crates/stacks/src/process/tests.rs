//! Lines as the kernel writes them, and processes of this machine.

use std::process::{Command, Stdio};

use super::*;
use crate::proc_file::printable;

#[test]
fn stat_lines() {
    let line = |name: &str, state: char| {
        let rest = "1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 9 0 77001 1 2";
        Stat::parse(format!("42 ({name}) {state} {rest}\n").as_bytes())
    };
    let plain = line("python3", 'S').unwrap();
    assert_eq!(plain.name, "python3");
    assert_eq!((plain.parent, plain.cpu_ticks), (1, 175));
    assert_eq!((plain.thread_count, plain.started_ticks), (9, 77001));
    let odd = line("a) R (b\u{1b}[2J", 'D').unwrap();
    assert_eq!(odd.name, "a) R (b\u{fffd}[2J", "a name of its own choice");
    assert_eq!(odd.state, State::DiskWait);
    let states = ['R', 'S', 'I', 'T', 't', 'Z', 'P'].map(|letter| line("x", letter).unwrap().state);
    let expected = [
        State::Running,
        State::Sleeping,
        State::Sleeping,
        State::Stopped,
        State::Traced,
        State::Zombie,
        State::Other('P'),
    ];
    assert_eq!(states, expected);
    for bad in ["", "42", "42 (x", "42 (x) S", "42 (x) S a b c", ")("] {
        assert_eq!(Stat::parse(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn only_rank_is_read_of_the_environment() {
    let cases: &[(&[u8], Option<u32>)] = &[
        (b"A=1\0RANK=3\0B=2\0", Some(3)),
        (b"LOCAL_RANK=1\0", None),
        (b"RANK=\0", None),
        (b"RANK=-1\0", None),
        (b"RANK=99999999999\0", None),
        (b"RANK=7", Some(7)),
        (b"\xff\0RANK=\xff\0", None),
        (b"", None),
    ];
    for (environment, expected) in cases {
        assert_eq!(variable(environment, "RANK"), *expected, "{environment:?}");
    }
}

#[test]
fn ranks_that_a_launcher_gave() {
    let cases: &[(&[u8], Option<u32>)] = &[
        (b"RANK=3\0", None),
        (b"RANK=3\0LOCAL_RANK=1\0", Some(3)),
        (b"LOCAL_RANK=1\0", None),
        (b"RANK=0\0OMPI_COMM_WORLD_RANK=2\0", Some(2)),
        (b"PMIX_RANK=4\0", Some(4)),
        (b"PMI_RANK=5\0PMI_SIZE=8\0", Some(5)),
        (b"", None),
    ];
    for (environment, expected) in cases {
        assert_eq!(launched_rank(environment), *expected, "{environment:?}");
    }
}

#[test]
fn io_counters() {
    let text = b"rchar: 10\nwchar: 20\nsyscr: 1\nsyscw: 2\nread_bytes: 30\nwrite_bytes: 40\n";
    let expected = IoBytes {
        read_by_calls: 10,
        written_by_calls: 20,
        read_from_storage: 30,
        written_to_storage: 40,
    };
    assert_eq!(io_bytes(text), Some(expected));
    assert_eq!(io_bytes(b"rchar: 10\n"), None);
    assert_eq!(io_bytes(b"rchar: x\n"), None);
}

#[test]
fn a_child_with_a_rank() {
    let mut child = Command::new("cat")
        .env("RANK", "5")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    // The environment is that of `cat` only after `exec`.
    let process = loop {
        let process = Process::read(child.id()).unwrap();
        let waits = process
            .tasks
            .first()
            .is_some_and(|task| task.system_call.is_some() && task.state == State::Sleeping);
        if process.name == "cat" && waits {
            break process;
        }
    };
    assert_eq!(process.rank, Some(5));
    assert_eq!(process.parent, std::process::id());
    assert_eq!(process.thread_count, 1);
    assert_eq!(process.task(child.id()).unwrap().name, "cat");
    assert!(process.io.is_some());
    assert!(
        Process::read(std::process::id())
            .unwrap()
            .children
            .contains(&child.id())
    );
    same_process(child.id(), process.started_ticks).unwrap();
    let reused = same_process(child.id(), process.started_ticks + 1);
    assert!(matches!(reused, Err(Error::Reused { .. })), "{reused:?}");
    drop(child.stdin.take());
    child.wait().unwrap();
    let gone = Process::read(child.id());
    assert!(matches!(gone, Err(Error::Gone { .. })), "{gone:?}");
}

#[test]
fn control_characters_are_replaced() {
    assert_eq!(printable("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
}
