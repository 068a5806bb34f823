//! Attempts in a row that reach no later step.

use super::{
    verdicts::{again, broken_gpu, fail},
    *,
};
use crate::{
    diagnose::{Rules, VerdictSummary},
    job::no_progress,
    progress::Figure,
};

/// What an attempt reaches and why it ends.
type Ends = (Option<u64>, Option<VerdictSummary>);

#[test]
fn attempts_without_progress_end_a_job() {
    type Case = (&'static str, fn(&mut Job), Vec<Ends>, Option<&'static str>);
    // A failure that a retry may help, so that nothing else ends the job.
    let crash = |step| (Some(step), None);
    let gpu = |step| (Some(step), Some(broken_gpu()));
    let cases: [Case; 9] = [
        (
            "three in a row",
            |_| {},
            vec![crash(100), crash(100), crash(80), crash(100)],
            Some("attempts 2 to 4 reached no step later than 100"),
        ),
        (
            "a later step between",
            |_| {},
            vec![
                crash(100),
                crash(90),
                crash(90),
                crash(101),
                crash(101),
                crash(101),
            ],
            None,
        ),
        (
            "others end attempts between",
            |_| {},
            vec![
                crash(100),
                crash(100),
                gpu(90),
                crash(80),
                gpu(70),
                crash(100),
            ],
            Some("3 of the attempts 2 to 6 failed and reached no step later than 100"),
        ),
        (
            "only others end attempts",
            |_| {},
            vec![gpu(100), gpu(90), gpu(80), gpu(70), gpu(60)],
            None,
        ),
        (
            "no step is known",
            |_| {},
            vec![crash(100), (None, None), (None, None), (None, None)],
            None,
        ),
        (
            "one is enough",
            |job| job.settings.no_progress = Some(1),
            vec![crash(100), crash(100)],
            Some("attempt 2 reached no step later than 100"),
        ),
        (
            "off",
            |job| job.settings.no_progress = Some(0),
            vec![crash(100), crash(100), crash(100), crash(100), crash(100)],
            None,
        ),
        (
            "a limit of the user",
            |job| job.run_policy.backoff_limit = Some(9),
            vec![crash(100), crash(100), crash(100), crash(100), crash(100)],
            None,
        ),
        (
            "a limit of the user, and this one",
            |job| {
                job.run_policy.backoff_limit = Some(9);
                job.settings.no_progress = Some(2);
            },
            vec![crash(100), crash(100), crash(100)],
            Some("attempts 2 to 3 reached no step later than 100"),
        ),
    ];
    for (name, change, attempts, want) in cases {
        let mut job = policy(job(Kind::PyTorch), RestartPolicy::OnFailure);
        change(&mut job);
        let mut world = World::new(job);
        world.run_all();
        for (at_attempt, (step, verdict)) in attempts.iter().enumerate() {
            let attempt = world.observed.status.trainyard.attempt;
            world.observed.progress = step.map(|step| Progress {
                // All but the first begin at a checkpoint.
                first_step: Some(if attempt == 1 { 0 } else { 50 }),
                ..Progress::new(attempt, step, at(world.now))
            });
            fail(&mut world, 1, verdict.clone());
            let last = at_attempt + 1 == attempts.len();
            let ends = last && want.is_some();
            assert_eq!(world.state() == "Failed", ends, "{name}: attempt {attempt}");
            if !ends {
                again(&mut world);
            }
        }
        let record = &world.observed.status.trainyard;
        let Some(want) = want else {
            continue;
        };
        assert_eq!(record.failed_by, Some(FailedBy::RetryDoesNotHelp), "{name}");
        let verdict = record.last_failure.as_ref().unwrap().verdict.as_ref();
        let verdict = verdict.unwrap();
        assert_eq!(verdict.label, no_progress::LABEL, "{name}");
        assert!(verdict.sentence.starts_with(want), "{name}: {verdict:?}");
        let rules = Rules::builtin();
        let label = rules.label(&verdict.label).unwrap();
        assert_eq!(
            (&label.next, label.account),
            (&verdict.next, verdict.account)
        );
        assert_eq!(label.retry, verdict.retry);
        let message = &world.observed.status.conditions.last().unwrap().message;
        assert!(message.contains(want), "{name}: {message}");
    }
}

/// First step, last step and epoch of an attempt.
type Reached = (Option<u64>, u64, Option<f64>);

#[test]
fn jobs_that_may_have_progressed_go_on() {
    type Case = (&'static str, Option<u32>, fn(u32) -> Reached, Option<u32>);
    // Steps are a function of the attempt, from 1; the last column is the attempt after which the job fails.
    let cases: [Case; 10] = [
        (
            "resumed",
            None,
            |n| (Some(u64::from(n > 1) * 90), 100, None),
            Some(4),
        ),
        (
            "counted in each attempt",
            None,
            |_| (Some(0), 100, None),
            None,
        ),
        (
            "counted in each attempt, less each time",
            None,
            |n| (Some(1), 1_000 - u64::from(n), None),
            None,
        ),
        (
            "counted in each attempt, written now and then",
            None,
            |n| (Some(30 + u64::from(n)), 100, None),
            None,
        ),
        (
            "the beginning is not known",
            None,
            |n| ((n == 1).then_some(0), 100, None),
            None,
        ),
        ("set by the user", Some(3), |_| (None, 100, None), Some(4)),
        (
            "a later epoch",
            Some(3),
            |n| (Some(0), 100 - u64::from(n), Some(f64::from(n))),
            None,
        ),
        (
            "later in the same epoch",
            None,
            |n| (Some(u64::from(n > 1) * 50), 100 - u64::from(n), Some(2.0)),
            None,
        ),
        (
            "the same part of an epoch",
            None,
            |n| (Some(u64::from(n > 1) * 50), 100, Some(2.5)),
            Some(4),
        ),
        (
            "an earlier epoch",
            None,
            |n| {
                let epoch = if n == 1 { 5.0 } else { 4.0 };
                (Some(u64::from(n > 1) * 50), 100, Some(epoch))
            },
            Some(4),
        ),
    ];
    for (name, limit, reached, fails_after) in cases {
        let mut job = policy(job(Kind::PyTorch), RestartPolicy::OnFailure);
        job.settings.no_progress = limit;
        let mut world = World::new(job);
        world.run_all();
        for attempt in 1..=6 {
            let (first_step, step, epoch) = reached(attempt);
            world.observed.progress = Some(Progress {
                first_step,
                epoch: epoch.map(Figure),
                ..Progress::new(attempt, step, at(world.now))
            });
            fail(&mut world, 1, None);
            let failed = world.state() == "Failed";
            assert_eq!(failed, fails_after == Some(attempt), "{name}: {attempt}");
            if failed {
                break;
            }
            again(&mut world);
        }
    }
}

#[test]
fn asked_restart_resets_no_progress() {
    let mut job = policy(job(Kind::PyTorch), RestartPolicy::OnFailure);
    job.settings.no_progress = Some(2);
    let mut world = World::new(job);
    world.run_all();
    for step in [100, 100] {
        let attempt = world.observed.status.trainyard.attempt;
        world.observed.progress = Some(Progress::new(attempt, step, at(world.now)));
        fail(&mut world, 1, None);
        again(&mut world);
    }
    let attempts = |world: &World| {
        let stuck = world.observed.status.trainyard.without_progress;
        stuck.map(|stuck| (stuck.best_step, stuck.attempts))
    };
    assert_eq!(attempts(&world), Some((100, 1)));
    world.job.settings.restart = Some("now".to_owned());
    world.pass();
    assert_eq!(attempts(&world), Some((100, 0)));
}
