//! No process of a job outlives its run.

use nix::sys::signal::Signal;

use crate::harness::{Harness, sh, until};

/// A program that leaves its parent, its session and its group behind.
const DAEMON: &str = "(setsid sh -c 'exec sleep 98765' >/dev/null 2>&1 </dev/null & ) & wait";

/// How many processes run `sleep` with this mark as their last argument.
fn marked(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|command| {
            let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
            words.first() == Some(&b"sleep".as_slice()) && words.contains(&mark.as_bytes())
        })
        .count()
}

#[test]
fn a_daemon_ends_with_its_pod() {
    let mark = "98761";
    let script = format!(
        "{}; until grep -q 1 up 2>/dev/null; do echo 1 > up; done",
        DAEMON.replace("98765", mark)
    );
    let ended = Harness::new(2, sh(&script)).run();
    assert_eq!(ended.code, Some(0));
    assert_eq!(marked(mark), 0);
}

#[test]
fn nothing_survives_an_engine_that_is_killed() {
    let mark = "98762";
    let script = format!(
        "{}; echo up; exec sleep {mark}",
        DAEMON.replace("98765", mark)
    );
    for ordinary in [false, true] {
        let harness = Harness::new(2, sh(&script));
        let harness = if ordinary {
            harness.for_ordinary_user()
        } else {
            harness
        };
        let mut run = harness.start();
        for pod in ["Worker 0", "Worker 1"] {
            run.wait_for_output(pod, "up");
        }
        until("two programs and two daemons", || marked(mark) == 4);
        run.signal(Signal::SIGKILL);
        until("all gone", || marked(mark) == 0);
        drop(run);
        // The lock went with the engine: the job can run again.
        let store = trainyard_host::store::Store::open(harness.path().join(".trainyard")).unwrap();
        assert!(!store.latest("j").unwrap().is_live());
    }
}
