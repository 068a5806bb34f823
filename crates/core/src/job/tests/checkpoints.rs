//! What follows from the store of a job's checkpoints.

use super::*;
use crate::{
    barrier::{self, Coordinator, Envelope, StoreReport, Summary},
    checkpoint::{CompleteStep, JobAttempt, NewestAttempt, ResumedFrom, StoreSeen},
};

fn save(step: u64, attempt: u32, snapshot_ms: u64) -> CompleteStep {
    CompleteStep {
        step,
        attempt,
        bytes: 100,
        snapshot_ms: Some(snapshot_ms),
        write_ms: Some(10),
        saved_at: None,
    }
}

fn seen(newest: Option<CompleteStep>, attempt: u32, from: ResumedFrom, now: i64) -> SeenStore {
    SeenStore::Seen {
        store: Box::new(StoreSeen {
            saves: newest.clone().into_iter().collect(),
            newest,
            attempt: Some(NewestAttempt {
                attempt,
                from,
                job: None,
            }),
            ..StoreSeen::default()
        }),
        at: at(now),
    }
}

fn empty(now: i64) -> SeenStore {
    SeenStore::Seen {
        store: Box::default(),
        at: at(now),
    }
}

/// A job that says where its checkpoints are, and whose store shows `store` before it has pods.
fn world(store: SeenStore) -> World {
    let mut job = job(Kind::PyTorch);
    job.settings.checkpoints = Some("/checkpoints".to_owned());
    let mut world = World::new(job);
    world.observed.store = store;
    world.run_all();
    world
}

fn record(world: &World) -> &CheckpointRecord {
    let record = world.observed.status.trainyard.checkpoint.as_ref();
    record.expect("the job says where its checkpoints are")
}

/// An attempt that runs reports a step.
fn step(world: &mut World, first: u64, step: u64) -> Decision {
    let attempt = world.observed.status.trainyard.attempt;
    let progress = Progress::new(attempt, step, at(world.now));
    world.observed.progress = Some(Progress {
        first_step: Some(first),
        ..progress
    });
    world.pass()
}

/// The attempt fails, and the store shows `store` when the next one has no pods yet.
fn fail(world: &mut World, store: SeenStore) {
    world.observed.store = store;
    world.exit(worker(0), 1);
    world.now += 60;
    world.run_all();
    world.now += 600;
    world.run_all();
}

#[test]
fn what_pods_are_given_when_they_are_created() {
    let unknown = || SeenStore::Unknown("it does not respond".to_owned());
    let complete = |step| Some(save(step, 3, 0));
    // What is seen before there are pods; the attempts of others, and the step.
    let cases = [
        ("nobody looked", SeenStore::Unused, Some(0), None),
        ("not readable", unknown(), None, None),
        ("empty", empty(0), Some(0), None),
        (
            "nothing complete",
            seen(None, 3, ResumedFrom::Nothing, 0),
            Some(3),
            None,
        ),
        (
            "complete",
            seen(complete(40), 3, ResumedFrom::Nothing, 0),
            Some(3),
            Some(40),
        ),
    ];
    for (case, store, earlier, want) in cases {
        let mut world = world(store);
        let found = record(&world);
        assert_eq!(
            (found.attempt, found.earlier_attempts, found.resume_step),
            (1, earlier, want),
            "{case}"
        );
        // What is seen later is shown and changes nothing of that.
        world.observed.store = seen(complete(50), 4, ResumedFrom::Nothing, 5);
        world.pass();
        let found = record(&world);
        assert_eq!(found.newest.as_ref().map(|newest| newest.step), Some(50));
        assert_eq!(
            (found.earlier_attempts, found.resume_step),
            (earlier, want),
            "{case}"
        );
    }
}

#[test]
fn next_attempt_resumes_and_redoes_exactly() {
    let mut world = world(empty(0));
    step(&mut world, 1, 70);
    fail(
        &mut world,
        seen(Some(save(60, 1, 0)), 1, ResumedFrom::Nothing, 1),
    );
    let found = record(&world);
    assert_eq!((found.attempt, found.resume_step), (2, Some(60)));
    assert_eq!(found.resumed_from, None, "it has no record yet");
    world.observed.store = seen(Some(save(60, 1, 0)), 2, ResumedFrom::Step(60), world.now);
    let phase = |world: &World| world.observed.status.trainyard.ledger.open.unwrap().phase;
    for (reported, want) in [
        (61, Phase::Redoing),
        (70, Phase::Redoing),
        (71, Phase::Training),
    ] {
        world.now += 1;
        step(&mut world, 61, reported);
        assert_eq!(phase(&world), want, "step {reported}");
    }
    assert_eq!(record(&world).resumed_from, Some(ResumedFrom::Step(60)));
    assert!(!world.events.iter().any(|it| it.contains("NotRestored")));
    // The next one resumes from a step that nobody printed: nothing is redone, however it counts.
    let store = seen(Some(save(90, 2, 0)), 2, ResumedFrom::Step(60), world.now);
    fail(&mut world, store);
    assert_eq!(world.observed.status.trainyard.ledger.best_step, Some(90));
    world.observed.store = seen(Some(save(90, 2, 0)), 3, ResumedFrom::Step(90), world.now);
    world.now += 1;
    step(&mut world, 1, 1);
    assert_eq!(phase(&world), Phase::Training);
}

#[test]
fn unreadable_store_is_unknown_not_old() {
    let mut world = world(empty(0));
    step(&mut world, 1, 70);
    world.observed.store = seen(Some(save(60, 1, 0)), 1, ResumedFrom::Nothing, 1);
    world.pass();
    fail(&mut world, SeenStore::Unknown("it hangs".to_owned()));
    let found = record(&world);
    assert_eq!((found.attempt, found.resume_step), (2, None));
    assert_eq!(found.newest.as_ref().map(|newest| newest.step), Some(60));
    assert_eq!(found.why.as_deref(), Some("it hangs"));
    assert!(found.unreadable_since.is_some());
    world.observed.store = empty(world.now);
    world.pass();
    let found = record(&world);
    assert_eq!((&found.newest, &found.why), (&None, &None));
    assert_eq!(found.unreadable_since, None);
}

#[test]
fn only_the_stall_counts_as_saving() {
    let mut world = world(empty(0));
    world.now = 10;
    step(&mut world, 1, 10);
    world.now = 20;
    world.observed.store = seen(Some(save(10, 1, 1_500)), 1, ResumedFrom::Nothing, 20);
    step(&mut world, 1, 20);
    // The program prints that it saves in the background, and the same save is seen again.
    world.now = 25;
    world.observed.progress.as_mut().unwrap().saving = true;
    world.pass();
    world.now = 30;
    world.pass();
    let totals = world.observed.status.trainyard.ledger.totals(at(30));
    assert_eq!(totals.get(&Phase::Saving), Some(&1_500));
    assert_eq!(totals.get(&Phase::Training), Some(&18_500));
    // A stall that is longer than all training before it turns that into saving, and no more.
    world.observed.store = seen(Some(save(20, 1, 900_000)), 1, ResumedFrom::Nothing, 30);
    world.pass();
    let ledger = &world.observed.status.trainyard.ledger;
    let all: u64 = ledger.totals(at(30)).values().sum();
    assert_eq!(all, 30_000);
    assert_eq!(ledger.totals(at(30)).get(&Phase::Training), Some(&8_500));
}

#[test]
fn attempt_that_ignores_a_complete_step() {
    let complete = || Some(save(60, 1, 0));
    // First step, what its record says, seconds between first step and look, whether that is reported.
    let cases = [
        (1, ResumedFrom::Nothing, 2, 0, true),
        (0, ResumedFrom::Nothing, 2, 0, true),
        (61, ResumedFrom::Step(60), 2, 0, false),
        (1, ResumedFrom::Step(60), 2, 0, false),
        (1, ResumedFrom::Unknown, 2, 0, false),
        (2, ResumedFrom::Nothing, 2, 0, false),
        // Without a record of attempt 2 it uses no checkpoints at all.
        (1, ResumedFrom::Nothing, 1, 0, true),
        // The record may have come since.
        (1, ResumedFrom::Nothing, 1, -1, false),
    ];
    for (first, from, attempt, look, want) in cases {
        let mut world = world(empty(0));
        fail(&mut world, seen(complete(), 1, ResumedFrom::Nothing, 1));
        world.observed.store = seen(complete(), attempt, from, world.now + look);
        step(&mut world, first, first + 1);
        world.pass();
        let reported = world.events.iter().filter(|it| it.contains("NotRestored"));
        assert_eq!(reported.count(), usize::from(want), "{first} {from:?}");
    }
}

#[test]
fn last_save_is_seen_after_the_end() {
    let mut world = world(empty(0));
    step(&mut world, 1, 70);
    for slot in [MASTER, worker(0), worker(1)] {
        world.exit(slot, 0);
    }
    world.settle();
    assert_eq!(world.state(), "Succeeded");
    let ledger = world.observed.status.trainyard.ledger.clone();
    world.observed.store = seen(Some(save(70, 1, 500)), 1, ResumedFrom::Nothing, 1);
    world.pass();
    let newest = record(&world).newest.as_ref().map(|newest| newest.step);
    assert_eq!(newest, Some(70));
    assert_eq!(world.observed.status.trainyard.ledger, ledger);
}

#[test]
fn leader_of_a_gang_reports_the_store() {
    let mut world = world(SeenStore::Unused);
    world.job.uid = Some("uid".to_owned());
    assert_eq!(record(&world).earlier_attempts, Some(0));
    let limits = barrier::Limits::default();
    let mut coordinator = Coordinator::new("job".to_owned(), limits);
    let report = |seen: Option<StoreSeen>, why: &str| Envelope {
        job: "job".to_owned(),
        message: Summary {
            store: Some(StoreReport {
                attempt: 1,
                seen: seen.map(Box::new),
                why: why.to_owned(),
            }),
            ..Summary::default()
        },
    };
    let store = StoreSeen {
        newest: Some(save(60, 5, 0)),
        attempt: Some(NewestAttempt {
            attempt: 5,
            from: ResumedFrom::Nothing,
            job: Some(JobAttempt {
                uid: "uid".to_owned(),
                attempt: 1,
            }),
        }),
        why: Some("odd \u{1b}[31m text".to_owned()),
        ..StoreSeen::default()
    };
    let gang = |coordinator: &Coordinator| {
        SeenGang::Here(Box::new(Supervised {
            coordinator: coordinator.clone(),
            leader_connected: true,
            now: Duration::ZERO,
        }))
    };
    coordinator.receive(&report(Some(store), ""));
    world.observed.gang = gang(&coordinator);
    world.pass();
    let found = record(&world);
    assert_eq!(found.newest.as_ref().map(|newest| newest.step), Some(60));
    assert_eq!(found.resumed_from, Some(ResumedFrom::Nothing));
    // Four attempts of a job before it, which was deleted.
    assert_eq!(found.earlier_attempts, Some(4));
    assert!(!found.why.as_ref().unwrap().contains('\u{1b}'));
    // The store is gone; another start of the leader, which has not looked yet, changes nothing.
    coordinator.receive(&report(None, "it hangs"));
    coordinator.receive(&Envelope {
        job: "job".to_owned(),
        message: Summary::default(),
    });
    world.observed.gang = gang(&coordinator);
    world.pass();
    assert_eq!(record(&world).why.as_deref(), Some("it hangs"));
    // Numbers that no JSON reader keeps are not believed: they would come back as others, and the status would never be at rest.
    let absurd = StoreSeen {
        newest: Some(save(u64::MAX, 1, 0)),
        uncommitted: Some(u64::MAX),
        attempt: Some(NewestAttempt {
            attempt: 5,
            from: ResumedFrom::Step(u64::MAX),
            job: None,
        }),
        ..StoreSeen::default()
    };
    coordinator.receive(&report(Some(absurd), ""));
    world.observed.gang = gang(&coordinator);
    world.pass();
    let found = record(&world);
    assert_eq!((&found.newest, found.uncommitted), (&None, None));
    assert_eq!(found.resumed_from, Some(ResumedFrom::Unknown));
    assert!(found.why.as_ref().unwrap().contains("larger than 2^53"));
}

#[test]
fn records_of_the_job_before_are_not_its_own() {
    let mut world = world(SeenStore::Unused);
    world.job.uid = Some("uid".to_owned());
    assert_eq!(record(&world).earlier_attempts, Some(0));
    // A job of this name had one attempt, which saved, and was deleted. The first attempt of the new one has no record yet.
    let mut before = seen(Some(save(60, 1, 0)), 1, ResumedFrom::Step(40), 1);
    if let SeenStore::Seen { store, .. } = &mut before {
        store.attempt.as_mut().unwrap().job = Some(JobAttempt {
            uid: "deleted".to_owned(),
            attempt: 1,
        });
    }
    world.observed.store = before;
    world.pass();
    let found = record(&world);
    assert_eq!(found.earlier_attempts, Some(1));
    assert_eq!((found.resumed_from, found.counted_step), (None, None));
    assert_eq!(found.saved_by(1), None);
}

#[test]
fn step_of_an_attempt_that_died_is_not_given_again() {
    for (from, want) in [
        (ResumedFrom::Step(40), Some(60)),
        (ResumedFrom::Nothing, Some(60)),
        (ResumedFrom::Step(60), None),
    ] {
        let mut world = world(SeenStore::Unused);
        world.observed.store = seen(Some(save(60, 1, 0)), 1, from, 1);
        world.pass();
        fail(&mut world, SeenStore::Unused);
        assert_eq!(record(&world).attempt, 2);
        assert_eq!(record(&world).resume_step, want, "{from:?}");
    }
}

#[test]
fn save_longer_than_the_grace_is_reported_once() {
    // What pods have from SIGTERM to SIGKILL, how long the write took, and whether that is reported. 30 s is the default of Kubernetes.
    for (grace, write_ms, want) in [
        (None, 29_000, 0),
        (None, 92_000, 1),
        (Some(120), 92_000, 0),
        (Some(0), 1, 1),
    ] {
        let mut world = world(SeenStore::Unused);
        for role in world.job.roles.values_mut() {
            let spec = role.template.spec.get_or_insert_default();
            spec.termination_grace_period_seconds = grace;
        }
        let slow = CompleteStep {
            write_ms: Some(write_ms),
            ..save(60, 1, 0)
        };
        for now in 1..4 {
            world.observed.store = seen(Some(slow.clone()), 1, ResumedFrom::Nothing, now);
            world.pass();
        }
        let reported = world
            .events
            .iter()
            .filter(|it| it.contains("GraceTooShort"));
        assert_eq!(reported.count(), want, "{grace:?} {write_ms}");
    }
}

#[test]
fn job_without_the_annotation_has_no_record() {
    let mut world = World::new(job(Kind::PyTorch));
    world.observed.store = empty(0);
    world.run_all();
    assert_eq!(world.observed.status.trainyard.checkpoint, None);
}
