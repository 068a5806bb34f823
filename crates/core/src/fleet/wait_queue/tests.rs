//! Gangs in the wait queue, as an adapter sees them come and go.

mod crowded;
mod hunted;
mod priority;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

use super::*;
use crate::{
    gang::testing::{GPU, node, time},
    job::testing,
    spec::Kind,
};

/// A day after the job was made: older than any patience.
const NOW: i64 = 86_400;

/// A wait queue for nodes `a`, `b` and `c` of eight GPUs each.
fn queue() -> WaitQueue {
    let mut queue = WaitQueue::default();
    for name in ["a", "b", "c"] {
        queue.update_node(name, node(&[], 8));
    }
    queue
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

fn running<'a>(name: &'a str, node: &'a str) -> GangPod<'a> {
    GangPod {
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

fn look(queue: &mut WaitQueue, attempt: u32, pods: &[GangPod<'_>], now: i64) -> Seating {
    look_at(queue, &job(), (attempt, 0), pods, now)
}

/// Looks at a job in this attempt, after this one released its seats.
fn look_at(
    queue: &mut WaitQueue,
    job: &Job,
    (attempt, released): (u32, u32),
    pods: &[GangPod<'_>],
    now: i64,
) -> Seating {
    let revision = GangRevision {
        generation: 1,
        created: time(0),
        attempt,
        released,
        runs_since: Some(time(now - 600)),
        saved_at: None,
    };
    let pods = pods.iter().copied();
    queue.seating(job, revision, &Cluster::default(), pods, time(now))
}

fn given(seating: &Seating) -> Vec<&str> {
    match seating {
        Seating::Given(seats) => seats.values().map(String::as_str).collect(),
        other => panic!("no seats: {other:?}"),
    }
}

/// A wait queue in which the gang has got its three seats.
fn seated() -> WaitQueue {
    let mut queue = queue();
    assert_eq!(look(&mut queue, 1, &[], NOW), Seating::Unasked);
    queue.ask(&GangKey::of(&job()), time(NOW));
    assert_eq!(look(&mut queue, 1, &[], NOW), Seating::Queued(None));
    assert_eq!(queue.place(time(NOW)).seated.len(), 1);
    assert_eq!(given(&look(&mut queue, 1, &[], NOW)), ["a", "b", "c"]);
    queue
}

#[test]
fn lost_node_keeps_other_seats_until_timeout() {
    for (name, hit) in [
        (
            "gone",
            (|queue| queue.forget_node("b")) as fn(&mut WaitQueue),
        ),
        ("silent", |queue| queue.set_node_responding("b", false)),
        ("cordoned", |queue| {
            let mut cordoned = node(&[], 8);
            cordoned.unschedulable = true;
            queue.update_node("b", cordoned);
        }),
    ] {
        let mut queue = seated();
        hit(&mut queue);
        assert_eq!(
            look(&mut queue, 2, &[], NOW),
            Seating::Queued(None),
            "{name}"
        );
        queue.place(time(NOW));
        let key = GangKey::of(&job());
        assert_eq!(queue.gangs[&key].gang.held.len(), 2, "{name}: held");
        assert!(queue.gangs[&key].why.is_some(), "{name}: and says why");
        let patience = i64::try_from(job().settings.start_within.as_secs()).unwrap();
        queue.place(time(NOW + patience - 1));
        assert_eq!(queue.gangs[&key].gang.held.len(), 2, "{name}: still");
        queue.place(time(NOW + patience));
        assert_eq!(queue.gangs[&key].gang.held.len(), 0, "{name}: no longer");
        queue.update_node("b", node(&[], 8));
        queue.place(time(NOW + patience + 1));
        let back = look(&mut queue, 2, &[], NOW + patience + 1);
        assert_eq!(given(&back), ["a", "b", "c"], "{name}: as before");
    }
}

/// A restart in place keeps pods, which keep their seats; the pod that replaces a lost one gets a spare seat, also before labels are patched.
#[test]
fn lost_pod_gets_a_spare_seat() {
    for label in [1, 2] {
        let mut queue = seated();
        queue.update_node("d", node(&[], 8));
        queue.set_node_responding("b", false);
        let pods = [("j-master-0", "a"), ("j-worker-1", "c")].map(|(name, node)| GangPod {
            attempt: label,
            ..running(name, node)
        });
        let asks = look(&mut queue, 2, &pods, NOW);
        assert_eq!(asks, Seating::Queued(None));
        queue.place(time(NOW));
        assert_eq!(
            given(&look(&mut queue, 2, &pods, NOW)),
            ["a", "d", "c"],
            "{label}"
        );
    }
}

#[test]
fn restart_reads_seats_from_pods() {
    let mut queue = queue();
    let tied = GangPod {
        phase: PodPhase::Pending,
        node: None,
        ..running("j-worker-1", "c")
    };
    let pods = [running("j-master-0", "b"), running("j-worker-0", "a"), tied];
    assert_eq!(given(&look(&mut queue, 1, &pods, NOW)), ["b", "a", "c"]);
}

#[test]
fn succeeded_pod_needs_no_seat() {
    let mut queue = seated();
    let done = GangPod {
        phase: PodPhase::Succeeded,
        ..running("j-worker-0", "b")
    };
    let pods = [running("j-master-0", "a"), done, running("j-worker-1", "c")];
    assert_eq!(given(&look(&mut queue, 1, &pods, NOW)), ["a", "c"]);
    let next = look(&mut queue, 2, &[], NOW);
    assert_eq!(next, Seating::Unasked, "the next attempt runs it again");
}

#[test]
fn failed_node_is_avoided_for_five_minutes() {
    let mut queue = seated();
    let key = GangKey::of(&job());
    queue.release_seats(&key, &["b".to_owned()], time(NOW));
    queue.ask(&key, time(NOW));
    queue.place(time(NOW));
    let Seating::Queued(Some(_)) = look(&mut queue, 2, &[], NOW) else {
        panic!("two nodes are not enough");
    };
    queue.place(time(NOW + 300));
    assert_eq!(given(&look(&mut queue, 2, &[], NOW + 300)), ["a", "b", "c"]);
}

#[test]
fn recreated_job_avoids_no_node() {
    let mut queue = seated();
    let key = GangKey::of(&job());
    queue.release_seats(&key, &["b".to_owned()], time(NOW));
    let again = GangRevision {
        generation: 1,
        created: time(NOW + 1),
        attempt: 1,
        released: 0,
        runs_since: None,
        saved_at: None,
    };
    let cluster = Cluster::default();
    let look = |queue: &mut WaitQueue| queue.seating(&job(), again, &cluster, [], time(NOW + 1));
    assert_eq!(look(&mut queue), Seating::Unasked);
    queue.ask(&key, time(NOW + 1));
    queue.place(time(NOW + 1));
    assert_eq!(given(&look(&mut queue)), ["a", "b", "c"]);
}

#[test]
fn which_jobs_wait_for_seats() {
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
            with(|job| job.settings.gang = Some(GangBy::Nobody)),
            false,
            false,
        ),
        (
            "by Volcano",
            with(|job| job.settings.gang = Some(GangBy::Volcano)),
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
    let asks = with(|job| job.settings.gang = Some(GangBy::Seats));
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
    urgent.settings.preemption = Some(crate::spec::Switch::On);
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
fn gated(names: &[String], priority: i32) -> Vec<GangPod<'_>> {
    let pods = names.iter().map(|name| GangPod {
        phase: PodPhase::Pending,
        node: None,
        tied: None,
        priority,
        ..running(name, "")
    });
    pods.collect()
}

/// Queues the urgent gang, with pods of priority 1000.
fn ask_urgently(queue: &mut WaitQueue) -> Seating {
    let names = names(&urgent());
    let pods = gated(&names, 1_000);
    let before = look_at(queue, &urgent(), (1, 0), &[], NOW);
    assert!(matches!(before, Seating::Unadmitted(_)), "{before:?}");
    let seating = look_at(queue, &urgent(), (1, 0), &pods, NOW);
    queue.ask(&GangKey::of(&urgent()), time(NOW));
    seating
}

/// The pods of the first attempt of the job, as they run on the three nodes, and in the snapshot too.
fn run(queue: &mut WaitQueue, leaving: bool) {
    let gang = queue.gangs[&GangKey::of(&job())].gang.clone();
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
        queue.update_pod(key, Some(resident));
    }
}

#[test]
fn low_priority_gang_is_evicted() {
    let names = names(&job());
    let pods: Vec<GangPod<'_>> = names
        .iter()
        .zip(["a", "b", "c"])
        .map(|(name, node)| running(name, node))
        .collect();
    let (low, high) = (GangKey::of(&job()), GangKey::of(&urgent()));
    let mut queue = seated();
    queue.set_class("high", Some(class(1_000)));
    run(&mut queue, false);
    look(&mut queue, 1, &pods, NOW);

    assert_eq!(ask_urgently(&mut queue), Seating::Unasked);
    let looked = queue.place(time(NOW));
    assert!(looked.changed.contains(&low), "{looked:?}");
    let Seating::Evicted(why) = look(&mut queue, 1, &pods, NOW) else {
        panic!("it stays: {:?}", look(&mut queue, 1, &pods, NOW));
    };
    assert!(
        why.contains("evicted for `n/urgent`: priority 1000 is above 0"),
        "{why}"
    );
    assert!(
        why.contains("the 10 min since it began to run are lost on 24 GPUs"),
        "{why}"
    );

    // The eviction is decided once and holds until the gang has left.
    assert_eq!(queue.place(time(NOW + 1)).seated, []);
    queue.release_seats(&low, &[], time(NOW + 1));
    assert_eq!(
        queue.place(time(NOW + 1)).seated,
        [],
        "its pods are still there"
    );
    // Also an operator that starts now knows that these pods have no seats any more.
    assert_eq!(
        look_at(&mut queue, &job(), (2, 1), &pods, NOW + 1),
        Seating::Unasked
    );
    queue.ask(&low, time(NOW + 1));
    run(&mut queue, true);
    assert_eq!(
        queue.place(time(NOW + 2)).seated,
        [],
        "they are on their way out"
    );
    for name in &names {
        let namespace = low.namespace.clone();
        queue.update_pod(
            PodKey {
                namespace,
                name: name.clone(),
            },
            None,
        );
    }
    look_at(&mut queue, &job(), (2, 1), &[], NOW + 3);
    assert_eq!(
        queue.place(time(NOW + 3)).seated,
        std::slice::from_ref(&high),
        "what was freed was kept for it"
    );
    assert!(matches!(
        look_at(&mut queue, &job(), (2, 1), &[], NOW + 3),
        Seating::Queued(_)
    ));
    queue.forget(&high);
    assert_eq!(
        queue.place(time(NOW + 4)).seated,
        [low],
        "and back to where it was"
    );
}

#[test]
fn eviction_is_cancelled_when_beneficiary_is_gone() {
    let mut queue = seated();
    queue.set_class("high", Some(class(1_000)));
    run(&mut queue, false);
    let high = GangKey::of(&urgent());
    ask_urgently(&mut queue);
    queue.place(time(NOW));
    assert!(matches!(look(&mut queue, 1, &[], NOW), Seating::Evicted(_)));
    queue.forget(&high);
    assert!(
        queue.take_placement_due(),
        "no gang waits, and placement is still due"
    );
    queue.place(time(NOW));
    assert_eq!(given(&look(&mut queue, 1, &[], NOW)), ["a", "b", "c"]);
}

#[test]
fn seen_checkpoint_comes_before_the_annotation() {
    let stated = Some(time(NOW - 300));
    let cases = [
        (None, None, None),
        (None, stated, stated),
        (Some(time(NOW - 60)), stated, Some(time(NOW - 60))),
        (Some(time(NOW - 900)), stated, Some(time(NOW - 900))),
        (Some(time(NOW + 900)), None, Some(time(NOW))),
    ];
    for (saved_at, checkpointed_at, want) in cases {
        let mut queue = queue();
        let mut job = job();
        job.settings.checkpointed_at = checkpointed_at;
        let revision = GangRevision {
            generation: 1,
            created: time(0),
            attempt: 1,
            released: 0,
            runs_since: None,
            saved_at,
        };
        queue.seating(&job, revision, &Cluster::default(), [], time(NOW));
        let gang = &queue.gangs[&GangKey::of(&job)].gang;
        assert_eq!(gang.safe_at, want, "{saved_at:?} {checkpointed_at:?}");
    }
}
