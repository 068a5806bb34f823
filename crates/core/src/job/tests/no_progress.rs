//! Attempts in a row that reach no later step.

use super::{
    verdicts::{again, broken_gpu, fail},
    *,
};
use crate::{
    diagnose::{Rules, VerdictSummary},
    job::no_progress,
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
            world.observed.progress = step.map(|step| Progress::new(attempt, step, at(world.now)));
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
