mod devices;
mod host;
mod network;
mod rdma;
mod storage;

use std::collections::BTreeSet;

use super::{
    rdma::is_listed,
    testing::{bus, needs, reading, value},
    *,
};
use crate::probe::{CATALOGUE, Interface, Layer, Outcome, Probed, RdmaPort, VolumeTrial, XidSeen};

use Outcome::{Fail, Warn};
use Probed::{Absent, Hung, Read, Unreadable};

type Break = fn(&mut Reading, &mut Needs);
/// A name, what is broken, and the checks that must then not pass: name, subject, outcome.
type Case = (
    &'static str,
    Break,
    &'static [(&'static str, &'static str, Outcome)],
);

fn gpu(reading: &mut Reading, index: usize) -> &mut crate::probe::Gpu {
    &mut value(&mut reading.gpus)[index]
}

fn port(reading: &mut Reading, index: usize) -> &mut RdmaPort {
    let ports = value(&mut reading.rdma);
    ports.get_mut(&format!("mlx5_{index}/1")).unwrap()
}

fn net1(reading: &mut Reading) -> &mut Interface {
    value(&mut reading.interfaces).get_mut("net1").unwrap()
}

fn volume(reading: &mut Reading) -> &mut VolumeTrial {
    value(reading.volumes.get_mut("/ckpt").unwrap())
}

fn xid(reading: &mut Reading, number: u32, age_seconds: u64) {
    value(&mut reading.xids).push(XidSeen {
        bus: "0000:07:00".to_owned(),
        number,
        age_seconds: Some(age_seconds),
    });
}

/// The checks that did not pass.
fn troubles(reading: &Reading, needs: &Needs) -> Vec<(String, String, Outcome)> {
    let checks = examine(reading, needs);
    for check in &checks {
        let is_bad = check.outcome >= Warn;
        assert_eq!(is_bad, !check.cause.is_empty(), "{check:?}");
        assert_eq!(is_bad, !check.next.is_empty(), "{check:?}");
        assert!(
            !check.found.is_empty() && !check.needed.is_empty(),
            "{check:?}"
        );
    }
    let bad = checks.into_iter().filter(|check| check.outcome >= Warn);
    bad.map(|check| (check.name, check.subject, check.outcome))
        .collect()
}

/// Everything that is broken, layer by layer.
fn cases() -> impl Iterator<Item = &'static Case> {
    let layers = [
        host::CASES,
        devices::CASES,
        network::CASES,
        rdma::CASES,
        storage::CASES,
    ];
    layers.into_iter().flatten()
}

#[test]
fn what_is_broken_is_named_and_nothing_else() {
    assert_eq!(troubles(&reading(), &needs()), [], "the machine is well");
    for (name, break_it, want) in cases() {
        let (mut reading, mut needs) = (reading(), needs());
        break_it(&mut reading, &mut needs);
        let found = troubles(&reading, &needs);
        let found: Vec<(&str, &str, Outcome)> = found
            .iter()
            .map(|(name, subject, outcome)| (name.as_str(), subject.as_str(), *outcome))
            .collect();
        assert_eq!(found, *want, "{name}");
    }
}

#[test]
fn every_check_passes_and_fails_once() {
    let compared = |name: &str| name.starts_with("same-") || name == "clock-skew";
    // What takes two machines, or an external program, is made elsewhere.
    let elsewhere = ["volume-shared", "gpu-collective"];
    let between = |entry: &&Entry| entry.layer == Layer::Path || elsewhere.contains(&entry.name);
    let all: BTreeSet<&str> = CATALOGUE
        .iter()
        .filter(|entry| !between(entry))
        .map(|entry| entry.name)
        .filter(|name| !compared(name))
        .collect();
    let checks = examine(&reading(), &needs());
    let passed: BTreeSet<&str> = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Pass)
        .map(|check| check.name.as_str())
        .collect();
    assert_eq!(passed, all);
    let broken: BTreeSet<&str> = cases()
        .flat_map(|(_, _, want)| want.iter().map(|(name, _, _)| *name))
        .collect();
    assert_eq!(broken, all);
    let order: Vec<usize> = checks
        .iter()
        .filter_map(|check| CATALOGUE.iter().position(|entry| entry.name == check.name))
        .collect();
    assert!(
        order.is_sorted(),
        "in the order of the catalogue: {order:?}"
    );
}

#[test]
fn without_a_job_a_machine_is_held_to_what_it_has() {
    let nothing = Needs::default();
    assert_eq!(troubles(&reading(), &nothing), []);
    let mut broken = reading();
    value(&mut broken.gpus).pop();
    gpu(&mut broken, 0).uncorrected = Read(1);
    port(&mut broken, 1).state = Read("DOWN".to_owned());
    let want = [
        ("gpu-count", String::new(), Warn),
        ("gpu-ecc", bus(0), Warn),
        ("rdma-ports", "mlx5_1/1".to_owned(), Warn),
    ];
    let want = want.map(|(name, subject, outcome)| (name.to_owned(), subject, outcome));
    assert_eq!(
        troubles(&broken, &nothing),
        want,
        "nothing fails that nobody needs"
    );
}

#[test]
fn nothing_passes_because_nobody_looked() {
    let checks = examine(&Reading::default(), &Needs::default());
    assert!(!checks.is_empty());
    for check in &checks {
        assert_eq!(check.outcome, Outcome::NotApplicable, "{check:?}");
    }
    let checks = examine(&Reading::default(), &needs());
    let passed: Vec<_> = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Pass)
        .collect();
    assert_eq!(passed, Vec::<&Check>::new());
}

#[test]
fn ports_are_chosen_as_nccl_chooses_them() {
    let cases = [
        ("mlx5_1", "mlx5_1/1", true),
        ("mlx5_1", "mlx5_10/1", true),
        ("=mlx5_1", "mlx5_10/1", false),
        ("=mlx5_1,mlx5_2", "mlx5_2/1", true),
        ("mlx5_1:1", "mlx5_1/2", false),
        ("^mlx5_1", "mlx5_1/1", false),
        ("^=mlx5_1", "mlx5_10/1", true),
    ];
    for (list, name, want) in cases {
        assert_eq!(is_listed(list, name), want, "{list} {name}");
    }
}
