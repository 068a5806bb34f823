//! Prints how long `decide` takes for a gang in steady state, by its number of pods.
//!
//! One line per size: pods, a tab, microseconds (median of many passes), a tab, nanoseconds per
//! pod. `cargo xtask bench core` reads it.
#![expect(clippy::print_stdout, reason = "the curve is the program's output")]

use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_core::{
    job::{Action, Observed, ObservedPod, PodPhase, decide},
    spec::{
        Framework, Job, JobName, JobSettings, Kind, Namespace, RestartPolicy, Role, RoleSpec,
        RunPolicy, Slot,
    },
};

fn main() {
    for pods in [64, 256, 1024, 4096, 16_384, 65_536, 100_000] {
        let (job, observed, now) = steady_gang(pods);
        let micros = median_micros(&job, &observed, now);
        println!(
            "{pods}\t{micros:.1}\t{:.1}",
            micros * 1000.0 / f64::from(pods)
        );
    }
}

/// A `JAXJob` of `pods` workers that all run and whose status says so.
fn steady_gang(pods: u32) -> (Job, Observed, Timestamp) {
    let name = |text| JobName::parse(text).expect("a valid name");
    let job = Job {
        kind: Kind::Jax,
        name: name("curve"),
        namespace: Namespace::parse("default").expect("a valid name"),
        uid: None,
        annotations: std::collections::BTreeMap::new(),
        roles: [(
            Role::Worker,
            RoleSpec {
                replicas: pods,
                restart_policy: RestartPolicy::OnFailure,
                ..RoleSpec::default()
            },
        )]
        .into(),
        run_policy: RunPolicy::default(),
        framework: Framework::Jax,
        settings: JobSettings::default(),
    };
    let now = Timestamp::from_second(1_800_000_000).expect("a time in range");
    let mut observed = Observed {
        version: 1,
        ..Observed::default()
    };
    loop {
        let decision = decide(&job, &observed, now);
        let settled = decision.actions.is_empty() && decision.status == observed.status;
        observed.status = decision.status;
        if settled {
            return (job, observed, now);
        }
        for action in decision.actions {
            match action {
                Action::CreatePod { slot, attempt, .. } => {
                    observed.pods.push(running(slot, attempt));
                }
                Action::CreateService(slot) => {
                    observed
                        .services
                        .entry(slot.role)
                        .or_default()
                        .insert(slot.index);
                }
                _ => {}
            }
        }
    }
}

fn running(slot: Slot, attempt: u32) -> ObservedPod {
    ObservedPod {
        // As long as a real one.
        uid: format!("{:08x}-5f0e-4d6b-9a57-{:012x}", slot.index, attempt),
        slot,
        attempt,
        phase: PodPhase::Running,
        ready: true,
        deleted_at: None,
        grace_seconds: 30,
        node: Some(format!("node-{}", slot.index / 8)),
        restarts: 0,
        ends: 0,
        exit: None,
        start_error: None,
        wait: None,
        disruption: None,
        gated: false,
    }
}

fn median_micros(job: &Job, observed: &Observed, now: Timestamp) -> f64 {
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 9 || (begin.elapsed() < Duration::from_millis(300) && times.len() < 1001) {
        let start = Instant::now();
        let decision = std::hint::black_box(decide(job, observed, now));
        times.push(start.elapsed());
        assert!(
            decision.actions.is_empty(),
            "the gang is not in its steady state"
        );
    }
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}
