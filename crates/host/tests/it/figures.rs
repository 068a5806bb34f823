//! Figures that must hold on a small machine; each bound is far from what is measured.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::harness::{Harness, sh};

/// Measured 1.1 to 2.4 s with a release build and 6.5 s with a debug build, on two cores with a load
/// average of 12 to 16.
const START: Duration = Duration::from_secs(30);
/// Far more than it takes where nobody else wants the cores.
const SEEN_NANOS: i128 = 20_000_000;
/// How often it is tried. Whoever else wants the cores only adds to what is measured.
const SEEN_TRIES: u32 = 30;
/// Measured 12.2 MB with a release build and 11.2 MB with a debug build.
const ENGINE_KILOBYTES: u64 = 60 << 10;

#[test]
fn five_hundred_pods_start_quickly_in_little_memory() {
    let count = 500;
    let mut template = sh("exec sleep 1000");
    template["spec"]["terminationGracePeriodSeconds"] = json!(5);
    let harness = Harness::new(count, template);
    // Built here where it is older than its sources, which is not part of the start.
    crate::harness::engine();
    let began = Instant::now();
    let mut run = harness.start();
    for _ in 0..count {
        run.wait_for("a running pod", |line| !line["running"].is_null());
    }
    let took = began.elapsed();
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.child.id())).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    run.signal(Signal::SIGTERM);
    let ended = run.finish();
    println!("{count} pods in {took:?}, {kilobytes} kB");
    assert_eq!(ended.report()["outcome"], "stopped");
    assert!(took < START, "{took:?}");
    assert!(kilobytes < ENGINE_KILOBYTES, "{kilobytes} kB");
}

#[test]
fn many_pods_start_with_few_descriptors() {
    // The engine holds three for each pod. Four more are on their way to each pod that is not there
    // yet, and the kernel lets an ordinary user have no more on their way than open.
    let count = 100;
    let harness = Harness::new(count, sh("exec sleep 0.1"));
    let ended = harness.for_ordinary_user().open_files(3 * count + 40).run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen.last());
}

#[test]
fn a_dead_rank_is_seen_at_once() {
    let script = "[ -e again ] && exit 0; touch again; date +%s%N > died; kill -9 $$$$";
    let took = || {
        let harness = Harness::new(1, sh(script));
        let ended = harness.run();
        assert_eq!(ended.code, Some(0));
        let died: i128 = harness.read("died").trim().parse().unwrap();
        let failure = &ended.report()["failures"][0];
        let seen: jiff::Timestamp = failure["at"].as_str().unwrap().parse().unwrap();
        seen.as_nanosecond() - died
    };
    // The program still has to end itself after it has asked for the time.
    let mut all = Vec::new();
    while all.len() < SEEN_TRIES as usize && all.last().is_none_or(|last| *last >= SEEN_NANOS) {
        all.push(took());
    }
    println!("seen after {all:?} ns");
    assert!(all.iter().any(|took| *took < SEEN_NANOS), "{all:?} ns");
}
