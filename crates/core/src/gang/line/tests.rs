//! Gangs in line, as an adapter sees them come and go.

mod hunted;
mod priority;

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
        priority: 0,
        never_preempts: false,
        requests: None,
    }
}

fn look(line: &mut Line, attempt: u32, pods: &[Sitter<'_>], now: i64) -> Seating {
    look_at(line, &job(), (attempt, 0), pods, now)
}

/// Looks at a job in this attempt, after this one gave its seats back.
fn look_at(
    line: &mut Line,
    job: &Job,
    (attempt, released): (u32, u32),
    pods: &[Sitter<'_>],
    now: i64,
) -> Seating {
    let edition = Edition {
        generation: 1,
        created: time(0),
        attempt,
        released,
        runs_since: Some(time(now - 600)),
    };
    let pods = pods.iter().copied();
    line.seating(job, edition, &Cluster::default(), pods, time(now))
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
    line.give_back(&key, &["b".to_owned()], time(NOW));
    line.ask(&key, time(NOW));
    line.place(time(NOW));
    let Seating::InLine(Some(_)) = look(&mut line, 2, &[], NOW) else {
        panic!("two nodes are not enough");
    };
    line.place(time(NOW + 300));
    assert_eq!(given(&look(&mut line, 2, &[], NOW + 300)), ["a", "b", "c"]);
}

#[test]
fn a_job_made_again_under_the_same_name_avoids_nothing() {
    let mut line = seated();
    let key = GangKey::of(&job());
    line.give_back(&key, &["b".to_owned()], time(NOW));
    let again = Edition {
        generation: 1,
        created: time(NOW + 1),
        attempt: 1,
        released: 0,
        runs_since: None,
    };
    let cluster = Cluster::default();
    let look = |line: &mut Line| line.seating(&job(), again, &cluster, [], time(NOW + 1));
    assert_eq!(look(&mut line), Seating::Unasked);
    line.ask(&key, time(NOW + 1));
    line.place(time(NOW + 1));
    assert_eq!(given(&look(&mut line)), ["a", "b", "c"]);
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

/// A job that may end others of the same size.
fn urgent() -> Job {
    let mut urgent = job();
    urgent.name = crate::spec::JobName::parse("urgent").unwrap();
    urgent.knobs.preemption = Some(crate::spec::Switch::On);
    for role in urgent.roles.values_mut() {
        let spec = role.template.spec.as_mut().unwrap();
        spec.priority_class_name = Some("high".to_owned());
    }
    urgent
}

/// A class of this value.
fn class(value: i32) -> PriorityClass {
    PriorityClass {
        value,
        is_default: false,
        never_preempts: false,
    }
}

fn names(job: &Job) -> Vec<String> {
    job.slots().map(|slot| job.pod_name(slot)).collect()
}

/// Pods that were admitted with this priority and are held back.
fn gated(names: &[String], priority: i32) -> Vec<Sitter<'_>> {
    let pods = names.iter().map(|name| Sitter {
        phase: PodPhase::Pending,
        node: None,
        tied: None,
        priority,
        ..running(name, "")
    });
    pods.collect()
}

/// Puts the urgent gang in line, with pods of priority 1000.
fn ask_urgently(line: &mut Line) -> Seating {
    let names = names(&urgent());
    let pods = gated(&names, 1_000);
    let before = look_at(line, &urgent(), (1, 0), &[], NOW);
    assert!(matches!(before, Seating::Unadmitted(_)), "{before:?}");
    let seating = look_at(line, &urgent(), (1, 0), &pods, NOW);
    line.ask(&GangKey::of(&urgent()), time(NOW));
    seating
}

/// The pods of the first attempt of the job, as they run on the three nodes, and in the snapshot too.
fn run(line: &mut Line, leaving: bool) {
    let gang = line.gangs[&GangKey::of(&job())].gang.clone();
    for (pod, node) in gang.pods.iter().zip(["a", "b", "c"]) {
        let resident = Resident {
            node: node.to_owned(),
            gang: Some(gang.key.clone()),
            leaving,
            requests: gang.shapes[pod.shape].requests.clone(),
            ..Resident::default()
        };
        let key = PodKey {
            namespace: gang.key.namespace.clone(),
            name: pod.name.clone(),
        };
        line.hear_pod(key, Some(resident));
    }
}

#[test]
fn a_gang_of_low_priority_leaves_and_the_other_gets_its_seats() {
    let names = names(&job());
    let pods: Vec<Sitter<'_>> = names
        .iter()
        .zip(["a", "b", "c"])
        .map(|(name, node)| running(name, node))
        .collect();
    let (low, high) = (GangKey::of(&job()), GangKey::of(&urgent()));
    let mut line = seated();
    line.set_class("high", Some(class(1_000)));
    run(&mut line, false);
    look(&mut line, 1, &pods, NOW);

    assert_eq!(ask_urgently(&mut line), Seating::Unasked);
    let looked = line.place(time(NOW));
    assert!(looked.changed.contains(&low), "{looked:?}");
    let Seating::Evicted(why) = look(&mut line, 1, &pods, NOW) else {
        panic!("it stays: {:?}", look(&mut line, 1, &pods, NOW));
    };
    assert!(
        why.contains("ends for `n/urgent`, whose priority 1000 is above 0"),
        "{why}"
    );
    assert!(
        why.contains("the 10 min since it began to run are lost on 24 GPUs"),
        "{why}"
    );

    // It is told once, and it stays so until it has left.
    assert_eq!(line.place(time(NOW + 1)).seated, []);
    line.give_back(&low, &[], time(NOW + 1));
    assert_eq!(
        line.place(time(NOW + 1)).seated,
        [],
        "its pods are still there"
    );
    // Also an operator that starts now knows that these pods have no seats any more.
    assert_eq!(
        look_at(&mut line, &job(), (2, 1), &pods, NOW + 1),
        Seating::Unasked
    );
    line.ask(&low, time(NOW + 1));
    run(&mut line, true);
    assert_eq!(
        line.place(time(NOW + 2)).seated,
        [],
        "they are on their way out"
    );
    for name in &names {
        let namespace = low.namespace.clone();
        line.hear_pod(
            PodKey {
                namespace,
                name: name.clone(),
            },
            None,
        );
    }
    look_at(&mut line, &job(), (2, 1), &[], NOW + 3);
    assert_eq!(
        line.place(time(NOW + 3)).seated,
        std::slice::from_ref(&high),
        "what was freed was kept for it"
    );
    assert!(matches!(
        look_at(&mut line, &job(), (2, 1), &[], NOW + 3),
        Seating::InLine(_)
    ));
    line.forget(&high);
    assert_eq!(
        line.place(time(NOW + 4)).seated,
        [low],
        "and back to where it was"
    );
}

#[test]
fn a_gang_stays_when_the_one_it_was_to_leave_for_is_gone_first() {
    let mut line = seated();
    line.set_class("high", Some(class(1_000)));
    run(&mut line, false);
    let high = GangKey::of(&urgent());
    ask_urgently(&mut line);
    line.place(time(NOW));
    assert!(matches!(look(&mut line, 1, &[], NOW), Seating::Evicted(_)));
    line.forget(&high);
    assert!(
        line.take_stirred(),
        "nobody waits, and still it is worth a look"
    );
    line.place(time(NOW));
    assert_eq!(given(&look(&mut line, 1, &[], NOW)), ["a", "b", "c"]);
}
