//! Gangs that are kept for inspection after a failure.

use k8s_openapi::{
    api::core::v1::{Container, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::*;
use crate::job::in_place;

const HALF_HOUR: Duration = Duration::from_mins(30);
/// Ended programs leave their containers.
const AT_ONCE: Command = Command::Hold {
    attempt: 1,
    within: Duration::ZERO,
};

fn delete_worker(gang: &mut Gang) {
    let now = at(gang.world.now);
    gang.world.pod(worker(0)).deleted_at = Some(now);
}

/// That of worker 1.
fn lose_node(gang: &mut Gang) {
    let node = gang.world.pod(worker(1)).node.clone().unwrap();
    let nodes = &mut gang.world.observed.nodes;
    nodes.insert(node, NodeHealth::Deleted);
}

fn held_gang() -> Gang {
    let mut gang = Gang::of_three();
    gang.world.job.settings.hold_on_failure = Some(HALF_HOUR);
    gang
}

/// Devices of the training container of every worker.
fn with_devices(gang: &mut Gang, resource: &str, count: u32) {
    let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
    let spec = role.template.spec.get_or_insert_default();
    let limits = [(resource.to_owned(), Quantity(count.to_string()))];
    spec.containers = vec![Container {
        name: "pytorch".to_owned(),
        resources: Some(ResourceRequirements {
            limits: Some(limits.into()),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }];
}

fn messages(decision: &Decision, reason: &str) -> Vec<String> {
    let events = decision.events.iter();
    let events = events.filter(|event| event.reason.ends_with(reason));
    events.map(|event| event.message.clone()).collect()
}

#[test]
fn broken_gang_is_kept_and_restarts_later() {
    let mut gang = held_gang();
    with_devices(&mut gang, "nvidia.com/gpu", 4);
    // The pods were made from this template.
    let digest = in_place::template_digest(&gang.world.job);
    gang.world.observed.status.trainyard.pod_template = Some(digest);
    let pods = gang.uids();
    gang.ends(worker(1), 1);
    let decision = gang.pass();
    let event = messages(&decision, "HeldOnFailure");
    assert_eq!(event.len(), 1, "{:?}", decision.events);
    let until = format!("held for inspection until {}", at(1_800));
    for words in [
        until.as_str(),
        "pod `j-worker-1`: it ended with exit code 1",
        "It holds 3 pods with 8 GPUs for 30 min.",
    ] {
        assert!(event[0].contains(words), "{words}: {}", event[0]);
    }
    assert_eq!(decision.reasons[0].code(), Code::HeldOnFailure);
    assert_eq!(decision.wake_at, Some(at(1_800)));
    assert_eq!(gang.record().spent, Spent::default());
    let open = gang.record().ledger.open.unwrap();
    assert_eq!((open.attempt, open.phase), (1, Phase::Restarting));

    gang.pass();
    let hold = Command::Hold {
        attempt: 1,
        within: HALF_HOUR,
    };
    assert_eq!(gang.command(), Some(hold));
    gang.world.now = 1_799;
    let decision = gang.pass();
    assert!(decision.actions.is_empty() && decision.events.is_empty());
    assert_eq!(gang.record().barrier, None);
    assert_eq!(gang.uids(), pods);

    gang.world.now = 1_800;
    let decision = gang.pass();
    let event = messages(&decision, "HoldEnded");
    let want = "The hold of attempt 1 is over: 3 pods with 8 GPUs held for 30 min.";
    assert_eq!(event, [want]);
    let event = messages(&decision, "Restarting");
    assert!(
        event[0].ends_with("The gang restarts in place."),
        "{event:?}"
    );
    assert_eq!(gang.record().spent.user, 1);
    assert_eq!(gang.record().hold, None);
    gang.go();
    gang.pass();
    assert_eq!((gang.record().attempt, gang.record().spent.user), (2, 1));
    assert_eq!(gang.uids(), pods);
}

#[test]
fn what_ends_a_hold() {
    type Change = fn(&mut Gang);
    // Name, attempt afterwards, whether it restarts in place, what is charged, the change.
    let cases: [(&str, u32, bool, u32, Change); 10] = [
        ("annotation removed", 1, true, 1, |gang| {
            gang.world.job.settings.hold_on_failure = None;
        }),
        ("annotation shortened", 1, true, 1, |gang| {
            gang.world.job.settings.hold_on_failure = Some(Duration::from_secs(10));
        }),
        ("restart asked for", 2, false, 1, |gang| {
            gang.world.job.settings.restart = Some("now".to_owned());
        }),
        ("suspended", 1, false, 0, |gang| {
            gang.world.job.run_policy.suspend = true;
        }),
        ("deadline", 1, false, 0, |gang| {
            gang.world.job.run_policy.active_deadline_seconds = Some(1);
        }),
        ("resized", 1, true, 1, |gang| {
            let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
            role.replicas = 3;
        }),
        ("evicted", 1, true, 1, |gang| {
            gang.world.observed.seating = Seating::Evicted("for `default/urgent`".to_owned());
        }),
        ("no supervisors", 2, false, 1, |gang| {
            gang.world.observed.gang = SeenGang::Unused;
        }),
        // What is lost meanwhile does not end it.
        ("pod deleted", 1, false, 0, delete_worker),
        ("node lost", 1, false, 0, lose_node),
    ];
    for (name, attempt, in_place, charged, change) in cases {
        let mut gang = held_gang();
        gang.ends(worker(1), 1);
        gang.pass();
        assert!(gang.record().hold.is_some(), "{name}");
        gang.world.now += 60;
        change(&mut gang);
        gang.pass();
        let record = gang.record();
        let held = record.hold.as_ref().is_some_and(|hold| !hold.ended);
        let lasts = ["pod deleted", "node lost"].contains(&name);
        assert_eq!(held, lasts, "{name}: {:?}", record.hold);
        assert_eq!(record.attempt, attempt, "{name}");
        assert_eq!(record.barrier.is_some(), in_place, "{name}");
        let want = Spent {
            user: charged,
            ..Spent::default()
        };
        assert_eq!(record.spent, want, "{name}");
        if ["suspended", "deadline"].contains(&name) {
            assert_eq!(gang.command(), Some(AT_ONCE), "{name}");
        }
    }
}

/// What the attempt failed for is charged, and not what happened while people looked at it.
#[test]
fn held_failure_is_charged_whatever_is_lost_meanwhile() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Slot, Change); 4] = [
        ("a pod is deleted", worker(0), delete_worker),
        ("a node is lost", worker(1), lose_node),
        ("a pod is gone", worker(0), |gang| {
            let pods = &mut gang.world.observed.pods;
            pods.retain(|pod| pod.slot != worker(0));
        }),
        ("the pod of the program is gone", worker(1), |gang| {
            let pods = &mut gang.world.observed.pods;
            pods.retain(|pod| pod.slot != worker(1));
        }),
    ];
    for (name, lost, change) in cases {
        let mut gang = held_gang();
        gang.ends(worker(1), 1);
        gang.pass();
        gang.pass();
        change(&mut gang);
        gang.pass();
        assert_eq!(gang.record().spent, Spent::default(), "{name}");
        gang.world.now += 1_800;
        let decision = gang.pass();
        let record = gang.record();
        let want = Spent {
            user: 1,
            ..Spent::default()
        };
        assert_eq!(record.spent, want, "{name}");
        let failure = record.last_failure.as_ref().unwrap();
        assert_eq!(failure.pod, "j-worker-1", "{name}");
        let barrier = record.barrier.as_ref();
        let barrier = barrier.unwrap_or_else(|| panic!("{name}: {:?}", decision.events));
        assert_eq!(barrier.lost.iter().collect::<Vec<_>>(), [lost], "{name}");
    }
}

#[test]
fn transport_of_a_held_gang_ends_nothing() {
    let mut gang = held_gang();
    gang.ends(worker(1), 1);
    gang.pass();
    answers::use_another_transport(&mut gang);
    let decision = gang.pass();
    assert_eq!(decision.reasons[0].code(), Code::HeldOnFailure);
    assert_eq!(
        (gang.record().attempt, gang.record().spent),
        (1, Spent::default())
    );
}

#[test]
fn what_a_hold_keeps_is_named() {
    let cases = [
        ("nvidia.com/gpu", 1, "It holds 3 pods with 2 GPUs for"),
        ("amd.com/gpu", 4, "It holds 3 pods with 8 GPUs for"),
        (
            "google.com/tpu",
            4,
            "It holds 3 pods with 8 accelerators for",
        ),
        (
            "nvidia.com/mig-1g.5gb",
            1,
            "It holds 3 pods with 2 accelerators for",
        ),
        ("cpu", 4, "It holds 3 pods for"),
    ];
    for (resource, count, words) in cases {
        let mut gang = held_gang();
        with_devices(&mut gang, resource, count);
        gang.ends(worker(1), 1);
        let event = messages(&gang.pass(), "HeldOnFailure").remove(0);
        assert!(event.contains(words), "{words}: {event}");
    }
}

#[test]
fn longer_setting_holds_longer() {
    let mut gang = held_gang();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.world.job.settings.hold_on_failure = Some(HALF_HOUR * 2);
    gang.world.now = 3_599;
    let decision = gang.pass();
    assert_eq!(decision.reasons[0].code(), Code::HeldOnFailure);
    assert_eq!(decision.wake_at, Some(at(3_600)));
    let within = HALF_HOUR * 2;
    assert_eq!(gang.command(), Some(Command::Hold { attempt: 1, within }));
}

#[test]
fn hang_is_held_and_stopped_without_grace_later() {
    let mut gang = held_gang();
    gang.hangs("hang_cpu_side");
    gang.pass();
    assert!(gang.record().hold.is_some());
    assert_eq!(gang.record().barrier, None);
    gang.world.now += 1_800;
    gang.pass();
    let barrier = gang.record().barrier.clone().unwrap();
    assert_eq!(barrier.how, StopHow::Hang);
    let last = gang.record().last_failure.clone().unwrap();
    assert_eq!(last.verdict.unwrap().label, "hang_cpu_side");
}

#[test]
fn failure_that_ends_the_job_is_held_first() {
    let mut gang = held_gang();
    let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
    role.restart_policy = RestartPolicy::ExitCode;
    gang.ends(worker(1), 3);
    gang.pass();
    assert!(!gang.holds(ConditionType::Failed));
    let mut asked = gang.clone();
    gang.world.now += 1_800;
    gang.pass();
    assert!(gang.holds(ConditionType::Failed));
    assert_eq!(gang.record().hold, None);
    assert_eq!(gang.command(), Some(AT_ONCE), "their logs are kept");
    asked.world.job.settings.restart = Some("now".to_owned());
    asked.pass();
    assert!(asked.holds(ConditionType::Failed));
    assert_eq!(asked.command(), Some(AT_ONCE), "before the time is over");
}

/// Another operator knows of the hold only what is stored, and that is enough.
#[test]
fn another_operator_handles_the_held_failure() {
    let mut gang = held_gang();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.seen().coordinator = Coordinator::new("job".to_owned(), Limits::default());
    let decision = gang.pass();
    assert_eq!(decision.reasons[0].code(), Code::HeldOnFailure);
    gang.world.now += 1_800;
    gang.pass();
    assert_eq!(gang.record().spent.user, 1);
    assert!(gang.record().barrier.is_some());
    assert_eq!(gang.record().hold, None);
}

/// An earlier version stored no failure: it is handled once it is seen again, and not held again.
#[test]
fn hold_survives_the_operator_and_is_not_repeated() {
    let mut gang = held_gang();
    gang.ends(worker(1), 1);
    gang.pass();
    let hold = &mut gang.world.observed.status.trainyard.hold;
    hold.as_mut().unwrap().failure = None;
    let ended = gang.summary.clone();
    gang.seen().coordinator = Coordinator::new("job".to_owned(), Limits::default());
    let decision = gang.pass();
    assert_eq!(decision.reasons[0].code(), Code::HeldOnFailure);
    assert!(matches!(gang.command(), Some(Command::Hold { .. })));
    gang.world.now += 1_800;
    let decision = gang.pass();
    assert_eq!(messages(&decision, "HoldEnded").len(), 1);
    assert_eq!(gang.record().barrier, None, "no failure is seen");
    assert!(gang.record().hold.as_ref().unwrap().ended);
    gang.world.now += 60;
    gang.summary = ended;
    gang.receive();
    let decision = gang.pass();
    assert!(messages(&decision, "HeldOnFailure").is_empty());
    assert!(messages(&decision, "HoldEnded").is_empty());
    assert!(gang.record().barrier.is_some());
    assert_eq!(gang.record().hold, None);
}

#[test]
fn what_is_not_held_says_what_is_lost() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Change); 3] = [
        ("the pod did not fail by itself", |gang| {
            gang.world.observed.pods.remove(0);
        }),
        ("(this operator runs none)", |gang| {
            gang.world.observed.gang = SeenGang::Unused;
            gang.world.pod(worker(1)).phase = PodPhase::Failed;
        }),
        ("(the job is odd)", |gang| {
            gang.world.observed.gang = SeenGang::Unable("the job is odd".to_owned());
            gang.world.pod(worker(1)).phase = PodPhase::Failed;
        }),
    ];
    for (words, change) in cases {
        let mut gang = held_gang();
        change(&mut gang);
        let decision = gang.world.pass();
        assert_eq!(gang.record().attempt, 2, "{words}");
        let event = &messages(&decision, "Restarting")[0];
        assert!(event.contains("Nothing is held for inspection"), "{event}");
        assert!(event.contains(words), "{words}: {event}");
        let lost = ": processes and files of all pods are lost.";
        assert!(event.ends_with(lost), "{event}");
    }
    // Kept pods keep their files.
    let mut gang = held_gang();
    gang.world.observed.pods.retain(|pod| pod.slot != worker(1));
    let event = messages(&gang.pass(), "Restarting").remove(0);
    let lost = "the processes of all pods and the files of the pod that is replaced are lost.";
    assert!(
        gang.record().barrier.is_some() && event.ends_with(lost),
        "{event}"
    );
    // Nobody asked for a hold.
    let mut gang = Gang::of_three();
    gang.world.observed.pods.remove(0);
    let decision = gang.world.pass();
    assert!(!messages(&decision, "Restarting")[0].contains("held"));
}

/// The time that a gang was held is not time that it ran.
#[test]
fn held_time_does_not_make_an_attempt_steady() {
    let mut gang = held_gang();
    for attempt in [1, 2] {
        gang.ends(worker(attempt - 1), 1);
        gang.pass();
        gang.world.now += 1_800;
        gang.pass();
        if attempt == 1 {
            gang.go();
            gang.pass();
        }
    }
    assert_eq!(gang.record().quick_failures, 2);
    assert_eq!(gang.record().attempt, 3, "new pods after a pause");
}
