//! Gangs in line, as an adapter sees them come and go.

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

use super::{
    super::testing::{GPU, node, time},
    *,
};
use crate::{job::testing, spec::Kind};

/// A day after the job was made: older than any patience.
const NOW: i64 = 86_400;

/// A line before nodes `a`, `b` and `c` of eight GPUs each.
fn line() -> Line {
    let mut line = Line::default();
    for name in ["a", "b", "c"] {
        line.hear_node(name, node(&[], 8));
    }
    line
}

/// A job of a master and two workers, each with a whole node.
fn job() -> Job {
    let mut job = testing::job(Kind::PyTorch);
    for role in job.roles.values_mut() {
        let gpus = [(GPU.to_owned(), serde_json::from_value("8".into()).unwrap())];
        role.template.spec = Some(PodSpec {
            containers: vec![Container {
                name: "pytorch".to_owned(),
                resources: Some(ResourceRequirements {
                    limits: Some(gpus.into()),
                    ..ResourceRequirements::default()
                }),
                ..Container::default()
            }],
            ..PodSpec::default()
        });
    }
    job
}

fn running<'a>(name: &'a str, node: &'a str) -> Sitter<'a> {
    Sitter {
        name,
        phase: PodPhase::Running,
        attempt: 1,
        leaving: false,
        node: Some(node),
        tied: Some(node),
    }
}

fn look(line: &mut Line, attempt: u32, pods: &[Sitter<'_>], now: i64) -> Seating {
    let edition = Edition {
        generation: 1,
        created: time(0),
        attempt,
    };
    let pods = pods.iter().copied();
    line.seating(&job(), edition, &Cluster::default(), pods, time(now))
}

fn given(seating: &Seating) -> Vec<&str> {
    match seating {
        Seating::Given(seats) => seats.values().map(String::as_str).collect(),
        other => panic!("no seats: {other:?}"),
    }
}

/// A line in which the gang has got its three seats.
fn seated() -> Line {
    let mut line = line();
    assert_eq!(look(&mut line, 1, &[], NOW), Seating::Unasked);
    line.ask(&GangKey::of(&job()), time(NOW));
    assert_eq!(look(&mut line, 1, &[], NOW), Seating::InLine(None));
    assert_eq!(line.place(time(NOW)).seated.len(), 1);
    assert_eq!(given(&look(&mut line, 1, &[], NOW)), ["a", "b", "c"]);
    line
}

#[test]
fn a_gang_that_lost_a_node_holds_the_others_for_as_long_as_it_may() {
    for (name, hit) in [
        ("gone", (|line| line.forget_node("b")) as fn(&mut Line)),
        ("silent", |line| line.hear_sign("b", false)),
        ("cordoned", |line| {
            let mut cordoned = node(&[], 8);
            cordoned.unschedulable = true;
            line.hear_node("b", cordoned);
        }),
    ] {
        let mut line = seated();
        hit(&mut line);
        assert_eq!(
            look(&mut line, 2, &[], NOW),
            Seating::InLine(None),
            "{name}"
        );
        line.place(time(NOW));
        let key = GangKey::of(&job());
        assert_eq!(line.gangs[&key].gang.held.len(), 2, "{name}: held");
        assert!(line.gangs[&key].why.is_some(), "{name}: and says why");
        let patience = i64::try_from(job().knobs.start_within.as_secs()).unwrap();
        line.place(time(NOW + patience - 1));
        assert_eq!(line.gangs[&key].gang.held.len(), 2, "{name}: still");
        line.place(time(NOW + patience));
        assert_eq!(line.gangs[&key].gang.held.len(), 0, "{name}: no longer");
        line.hear_node("b", node(&[], 8));
        line.place(time(NOW + patience + 1));
        let back = look(&mut line, 2, &[], NOW + patience + 1);
        assert_eq!(given(&back), ["a", "b", "c"], "{name}: as before");
    }
}

#[test]
fn seats_are_read_from_the_pods_after_a_start() {
    let mut line = line();
    let tied = Sitter {
        phase: PodPhase::Pending,
        node: None,
        ..running("j-worker-1", "c")
    };
    let pods = [running("j-master-0", "b"), running("j-worker-0", "a"), tied];
    assert_eq!(given(&look(&mut line, 1, &pods, NOW)), ["b", "a", "c"]);
}

#[test]
fn a_pod_that_ended_well_needs_no_seat_in_its_attempt() {
    let mut line = seated();
    let done = Sitter {
        phase: PodPhase::Succeeded,
        ..running("j-worker-0", "b")
    };
    let pods = [running("j-master-0", "a"), done, running("j-worker-1", "c")];
    assert_eq!(given(&look(&mut line, 1, &pods, NOW)), ["a", "c"]);
    let next = look(&mut line, 2, &[], NOW);
    assert_eq!(next, Seating::Unasked, "the next attempt runs it again");
}

#[test]
fn a_node_that_did_not_serve_is_avoided_for_a_while() {
    let mut line = seated();
    let key = GangKey::of(&job());
    line.give_back(&key, Some("b"), time(NOW));
    line.ask(&key, time(NOW));
    line.place(time(NOW));
    let Seating::InLine(Some(_)) = look(&mut line, 2, &[], NOW) else {
        panic!("two nodes are not enough");
    };
    line.place(time(NOW + 300));
    assert_eq!(given(&look(&mut line, 2, &[], NOW + 300)), ["a", "b", "c"]);
}

#[test]
fn who_waits_for_seats() {
    let with = |change: fn(&mut Job)| {
        let mut job = job();
        change(&mut job);
        job
    };
    let scheduler = |job: &mut Job, name: &str| {
        for role in job.roles.values_mut() {
            let spec = role.template.spec.get_or_insert_default();
            spec.scheduler_name = Some(name.to_owned());
        }
    };
    let own = Cluster::default();
    let cases = [
        ("any job", job(), false, true),
        (
            "off",
            with(|job| job.knobs.gang = Some(GangBy::Nobody)),
            false,
            false,
        ),
        (
            "by Volcano",
            with(|job| job.knobs.gang = Some(GangBy::Volcano)),
            false,
            false,
        ),
        ("queued elsewhere", job(), true, false),
    ];
    for (name, job, queued, want) in cases {
        assert_eq!(waits_for_seats(&job, &own, queued), want, "{name}");
    }
    let others = Cluster {
        gang_scheduler: GangScheduler::named("volcano"),
        ..Cluster::default()
    };
    let asks = with(|job| job.knobs.gang = Some(GangBy::Seats));
    for (name, job, want) in [("any job", job(), false), ("on", asks, true)] {
        let found = waits_for_seats(&job, &others, false);
        assert_eq!(found, want, "{name} where Volcano starts gangs");
    }
    for (name, want) in [("volcano", false), ("default-scheduler", true), ("", true)] {
        let mut job = job();
        scheduler(&mut job, name);
        assert_eq!(
            waits_for_seats(&job, &own, false),
            want,
            "scheduler `{name}`"
        );
    }
}
