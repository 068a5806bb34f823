//! What ends or drops a barrier before its gang starts in place.

use super::*;

#[test]
fn what_ends_a_barrier() {
    type Change = fn(&mut Gang);
    let cases: [(&str, u32, ConditionType, Change); 8] = [
        ("suspended", 1, ConditionType::Suspended, |gang| {
            gang.world.job.run_policy.suspend = true;
        }),
        ("deadline", 1, ConditionType::Failed, |gang| {
            gang.world.job.run_policy.active_deadline_seconds = Some(1);
            gang.world.now += 60;
        }),
        ("resized", 2, ConditionType::Restarting, |gang| {
            gang.world
                .job
                .roles
                .get_mut(&Role::Worker)
                .unwrap()
                .replicas = 3;
        }),
        ("unsupervised", 2, ConditionType::Restarting, |gang| {
            gang.world.observed.gang = SeenGang::Unused;
        }),
        ("too long", 2, ConditionType::Restarting, |gang| {
            gang.clock += Duration::from_hours(1);
        }),
        ("evicted", 2, ConditionType::Restarting, |gang| {
            gang.world.observed.status.trainyard.gang = GangPhase::Whole;
            gang.world.observed.seating = Seating::Evicted("for `b`".to_owned());
        }),
        ("asked to restart", 2, ConditionType::Restarting, |gang| {
            gang.world.job.settings.restart = Some("now".to_owned());
        }),
        ("another template", 2, ConditionType::Restarting, |gang| {
            let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
            let pod = role.template.spec.get_or_insert_default();
            pod.node_name = Some("another".to_owned());
        }),
    ];
    for (name, attempt, condition, change) in cases {
        let mut gang = Gang::of_three();
        gang.ends(worker(1), 1);
        gang.pass();
        gang.pass();
        assert!(gang.record().barrier.is_some(), "{name}");
        change(&mut gang);
        gang.pass();
        assert_eq!(gang.record().barrier, None, "{name}");
        assert_eq!(gang.record().attempt, attempt, "{name}");
        let charged = Spent {
            user: 1,
            ..Spent::default()
        };
        assert_eq!(gang.record().spent, charged, "{name}: charged once");
        assert!(gang.holds(condition), "{name}");
    }
}

#[test]
fn resumed_job_begins_another_attempt() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.world.job.run_policy.suspend = true;
    gang.pass();
    gang.pass();
    assert!(gang.world.observed.pods.is_empty());
    gang.world.job.run_policy.suspend = false;
    gang.pass();
    assert_eq!(
        (gang.record().attempt, gang.record().barrier.clone()),
        (2, None)
    );
}

#[test]
fn barrier_of_another_attempt_is_dropped() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.summary.ended.clear();
    gang.receive();
    gang.world.observed.status.trainyard.attempt = 2;
    for pod in &mut gang.world.observed.pods {
        pod.attempt = 2;
    }
    gang.pass();
    assert_eq!(gang.record().barrier, None);
    assert_eq!(gang.record().attempt, 2);
}

/// A program that saves when it is stopped and ends with 0 has not finished.
#[test]
fn no_pod_succeeds_in_a_barrier() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.pass();
    let pods = &mut gang.world.observed.pods;
    let master = Slot::new(Role::Master, 0);
    let saved = pods.iter_mut().find(|pod| pod.slot == master).unwrap();
    saved.phase = PodPhase::Succeeded;
    gang.pass();
    assert!(!gang.holds(ConditionType::Succeeded));
    assert!(gang.record().succeeded.is_empty());
}

/// An older operator gave the prepared attempt new pods, which train; it kept the barrier as a field that it does not know.
#[test]
fn barrier_that_was_passed_over_is_dropped() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    let barrier = gang.record().barrier.clone().unwrap();
    assert_eq!(barrier.phase, BarrierPhase::Preparing);
    gang.summary.ended.clear();
    gang.receive();
    gang.world.observed.status.trainyard.formed = true;
    for pod in &mut gang.world.observed.pods {
        pod.attempt = 2;
    }
    gang.pass();
    assert_eq!(gang.record().barrier, None);
    assert_eq!(gang.record().attempt, 2);
    let command = gang.command();
    assert!(
        !matches!(command, Some(Command::Prepare { .. })),
        "programs run: {command:?}"
    );
}
