//! A preflight between hosts with links of their own: network namespaces of this machine, joined by
//! bridges.
//!
//! The suite `hosts` of `cargo xtask test` runs it, which needs root; without the variable
//! `TRAINYARD_TEST_HOSTS` it says that it is skipped. `TRAINYARD_TEST_SEED` chooses other faults.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says why and ends"
)]

mod hosts;
mod pulse;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use trainyard_core::probe::{Layer, Outcome, Report};

use self::{
    hosts::{Fault, Hosts},
    pulse::Pulse,
};

/// How many times a random fault is put on a random host.
const INJECTIONS: u32 = 50;
/// Hosts, the first of which is the leader. Five is odd, and not a power of two.
const COUNT: usize = 5;
/// The links are made of this machine's own processors. Where a thread waited so long for one, or so much of them was stolen, a turn
/// measured the machine: one that names the wrong host is made again, so many times in all.
const WAIT: Duration = Duration::from_millis(60);
const STOLEN: f64 = 0.05;
const MADE_AGAIN: u32 = 40;

/// Numbers that depend on a seed only (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 1).unwrap() % bound
    }
}

/// The nodes that a check of interfaces or of paths failed, and what failed between nodes.
fn named(report: &Report) -> (BTreeSet<String>, Vec<String>) {
    let looked_at = |layer| matches!(layer, Layer::Path | Layer::Network);
    let unfit = report.nodes.iter().filter(|(_, node)| {
        let mut checks = node.checks.iter();
        checks.any(|check| check.outcome == Outcome::Fail && looked_at(check.layer))
    });
    let shared = report
        .shared
        .iter()
        .filter(|check| check.outcome == Outcome::Fail);
    (
        unfit.map(|(name, _)| name.clone()).collect(),
        shared
            .map(|check| format!("{} {}: {}", check.name, check.subject, check.found))
            .collect(),
    )
}

fn variable(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "tests have no module that reads variables"
    )]
    std::env::var(name).ok()
}

#[test]
fn the_right_host_is_named_and_no_other() {
    if variable("TRAINYARD_TEST_HOSTS").is_none() {
        eprintln!("skipped: the suite `hosts` of `cargo xtask test` runs it");
        return;
    }
    let seed = variable("TRAINYARD_TEST_SEED").map_or(8, |seed| seed.parse().unwrap());
    eprintln!("TRAINYARD_TEST_SEED={seed}");
    let mut dice = Dice(seed);
    let hosts = Hosts::make(COUNT);

    let (unfit, shared) = named(&hosts.preflight(&[], 0));
    assert!(
        unfit.is_empty() && shared.is_empty(),
        "healthy: {unfit:?} {shared:?}"
    );

    // Whoever dies does so before it sent half of this, so never after its last measurement.
    let whole = (0..COUNT).map(|host| hosts.sent(host)).min().unwrap_or(0);
    let half = usize::try_from(whole / 2).unwrap();
    assert!(half > 1 << 20, "a host sent {whole} bytes in a preflight");

    let mut wrong = Vec::new();
    let mut made_again = 0;
    let start = Instant::now();
    for turn in 0..INJECTIONS {
        // Each fault as often as the others, in an order that the seed gives.
        let fault = Fault::ALL[turn as usize % Fault::ALL.len()];
        // A leader that dies reports nothing: its caller starts another.
        let least = usize::from(fault == Fault::Dead);
        let victim = least + dice.below(COUNT - least);
        let dies_after = dice.below(half) as u64;
        let (report, unfit, shared, right) = loop {
            let begin = Instant::now();
            let pulse = Pulse::start();
            let report = hosts.preflight(&[(victim, fault)], dies_after);
            let lack = pulse.stop();
            let (unfit, shared) = named(&report);
            let right = unfit.iter().eq([&Hosts::name(victim)]) && shared.is_empty();
            let lacked = lack.wait >= WAIT || lack.stolen >= STOLEN;
            let again = !right && lacked && made_again < MADE_AGAIN;
            let word = match (right, again) {
                (true, _) => "right",
                (false, true) => "wrong, and made again,",
                (false, false) => "WRONG",
            };
            let took = begin.elapsed().as_secs_f64();
            eprintln!(
                "{turn:2} {fault:?} on {}: {word} in {took:.1} s (waited {} ms for a processor, {:.0} % stolen)",
                Hosts::name(victim),
                lack.wait.as_millis(),
                100.0 * lack.stolen,
            );
            if !again {
                break (report, unfit, shared, right);
            }
            made_again += 1;
        };
        if !right {
            wrong.push(format!(
                "turn {turn}, {fault:?} on {}: {unfit:?} {shared:?}\n{}",
                Hosts::name(victim),
                summary(&report)
            ));
        }
    }
    eprintln!(
        "{INJECTIONS} injections in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    assert!(wrong.is_empty(), "seed {seed}: {}", wrong.join("\n"));
}

/// The checks between hosts, for whoever looks into a failure.
fn summary(report: &Report) -> String {
    let mut lines = Vec::new();
    for (name, node) in &report.nodes {
        for check in node
            .checks
            .iter()
            .filter(|check| check.layer == Layer::Path)
        {
            lines.push(format!(
                "  {name} {} {:?}: {}",
                check.name, check.outcome, check.found
            ));
        }
    }
    for check in &report.shared {
        lines.push(format!(
            "  {} {:?}: {}",
            check.name, check.outcome, check.found
        ));
    }
    lines.join("\n")
}
