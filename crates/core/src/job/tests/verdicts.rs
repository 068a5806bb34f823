//! What the doctor's verdict changes, and what it leaves as the exit code has it.

use std::collections::BTreeMap;

use super::*;
use crate::diagnose::{Confidence, Depth, Retry, VerdictSummary};

/// Changes a verdict to one on something outside the program.
fn timed_out(verdict: &mut VerdictSummary) {
    verdict.place = Some("ReadTimeoutError at File \"/app/data.py\", line 3, in get".into());
    verdict.exception = Some("ReadTimeoutError".into());
}

/// Moves a mistake to a file whose name reads like such an exception.
fn in_network_file(verdict: &mut VerdictSummary) {
    verdict.place = Some("KeyError at File \"/app/Network.py\", line 7, in main".into());
}

/// A GPU that broke.
pub(super) fn broken_gpu() -> VerdictSummary {
    VerdictSummary {
        label: "gpu_fallen_off_bus".into(),
        sentence: "a GPU has fallen off the bus".into(),
        account: Account::Infrastructure,
        retry: Retry::Helps,
        place: None,
        ..mistake()
    }
}

fn running() -> World {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
    world.run_all();
    world
}

/// Worker 0 fails in the attempt that runs, with `verdict` on it.
pub(super) fn fail(world: &mut World, code: i32, verdict: Option<VerdictSummary>) -> Decision {
    let attempt = world.observed.status.trainyard.attempt;
    world.observed.verdict = verdict.map(|verdict| VerdictSummary { attempt, ..verdict });
    world.exit(worker(0), code);
    world.pass()
}

/// Lets the next attempt run.
pub(super) fn again(world: &mut World) {
    if let Some(retry_at) = world.observed.status.trainyard.retry_at {
        world.now = retry_at.as_second() - at(0).as_second();
    }
    world.run_all();
}

#[test]
fn the_verdict_says_who_pays_where_it_is_sure() {
    let infrastructure = Account::Infrastructure;
    let with = |change: fn(&mut VerdictSummary)| {
        let mut verdict = broken_gpu();
        change(&mut verdict);
        Some(verdict)
    };
    let medium = || with(|verdict| verdict.confidence = Confidence::Medium);
    let low = || with(|verdict| verdict.confidence = Confidence::Low);
    let symptom = || with(|verdict| verdict.depth = Depth::Symptom);
    let platform = || with(|verdict| verdict.account = Account::Platform);
    let cases = [
        ("no verdict", 1, None, Account::User),
        ("sure", 1, with(|_| ()), infrastructure),
        ("likely, and an exit code", 1, medium(), Account::User),
        ("likely, and a signal", 134, medium(), infrastructure),
        ("a guess, and a signal", 137, low(), Account::User),
        ("follows from something else", 1, symptom(), Account::User),
        ("the platform's", 1, platform(), Account::Platform),
        ("the program's", 1, Some(mistake()), Account::User),
    ];
    for (name, code, verdict, want) in cases {
        let mut world = running();
        let sentence = verdict.as_ref().map(|verdict| verdict.sentence.clone());
        let decision = fail(&mut world, code, verdict);
        let record = &world.observed.status.trainyard;
        let paid = Account::ALL.map(|account| record.spent.of(account));
        let paid = Account::ALL.into_iter().zip(paid);
        let paid: Vec<_> = paid.filter(|(_, count)| *count > 0).collect();
        assert_eq!(paid, [(want, 1)], "{name}");
        let last = record.last_failure.as_ref().expect("a failure");
        assert_eq!(last.account, want, "{name}");
        let kept = last.verdict.as_ref().map(|kept| kept.sentence.clone());
        assert_eq!(kept, sentence, "{name}");
        let event = &decision.events[0].message;
        assert_eq!(
            sentence.is_some_and(|sentence| event.contains(&sentence)),
            kept.is_some(),
            "{name}: {event}"
        );
    }
}

#[test]
fn what_came_from_outside_is_not_the_programs() {
    let mut world = running();
    world.observed.verdict = Some(mistake());
    let pod = world.pod(worker(0));
    pod.phase = PodPhase::Failed;
    pod.disruption = Some(Disruption::NodeGone);
    world.pass();
    let record = &world.observed.status.trainyard;
    assert_eq!(record.spent.infrastructure, 1);
    let last = record.last_failure.as_ref().expect("a failure");
    assert_eq!(last.verdict, None, "nor is it reported as one");
}

#[test]
fn the_kernels_word_on_memory_stands() {
    let mut world = running();
    world.observed.verdict = Some(broken_gpu());
    world.exit(worker(0), 137);
    let exit = world.pod(worker(0)).exit.as_mut().expect("it has ended");
    exit.out_of_memory = true;
    world.pass();
    assert_eq!(world.observed.status.trainyard.spent.user, 1);
}

#[test]
fn a_verdict_on_another_attempt_says_nothing() {
    let mut world = running();
    fail(&mut world, 1, None);
    again(&mut world);
    world.observed.verdict = Some(broken_gpu());
    world.exit(worker(0), 1);
    world.pass();
    assert_eq!(world.observed.status.trainyard.spent.user, 2);
}

#[test]
fn same_error_twice_in_a_row_ends_job() {
    type Change = fn(&mut VerdictSummary);
    let cases: [(&str, Change, Change, bool); 10] = [
        ("the same", |_| (), |_| (), true),
        (
            "other words for it",
            |_| (),
            |second| second.sentence = "KeyError: 'size'".into(),
            true,
        ),
        (
            "at another place",
            |_| (),
            |second| {
                second.place = Some("KeyError at File \"/app/train.py\", line 9, in main".into());
            },
            false,
        ),
        (
            "another mistake",
            |_| (),
            |second| second.label = "data_path_missing".into(),
            false,
        ),
        (
            "nobody knows where",
            |first| first.place = None,
            |second| second.place = None,
            false,
        ),
        (
            "something outside did not answer",
            timed_out,
            timed_out,
            false,
        ),
        (
            "something outside did not answer, as an earlier version stores it",
            |first| {
                timed_out(first);
                first.exception = None;
            },
            |second| {
                timed_out(second);
                second.exception = None;
            },
            false,
        ),
        (
            "in a file of such a name",
            in_network_file,
            in_network_file,
            true,
        ),
        (
            "a retry may help",
            |first| first.retry = Retry::MayHelp,
            |second| second.retry = Retry::MayHelp,
            false,
        ),
        (
            "not the program's",
            |first| first.account = Account::Platform,
            |second| second.account = Account::Platform,
            false,
        ),
    ];
    for (name, first, second, ends) in cases {
        let mut world = running();
        let changed = |change: Change| {
            let mut verdict = mistake();
            change(&mut verdict);
            Some(verdict)
        };
        fail(&mut world, 1, changed(first));
        again(&mut world);
        fail(&mut world, 1, changed(second));
        assert_eq!(
            world.state() == "Failed",
            ends,
            "{name}: {}",
            world.message()
        );
        if ends {
            let sentence = "because attempts 1 and 2 ended with the same error at the same place: ";
            assert!(world.message().contains(sentence), "{}", world.message());
            let record = &world.observed.status.trainyard;
            assert_eq!((record.attempt, record.spent.user), (2, 2), "{name}");
        }
    }
}

#[test]
fn another_failure_between_breaks_the_row() {
    let mut world = running();
    for verdict in [mistake(), broken_gpu(), mistake()] {
        fail(&mut world, 1, Some(verdict));
        assert_ne!(world.state(), "Failed");
        again(&mut world);
    }
}

#[test]
fn an_attempt_that_came_further_is_not_in_vain() {
    let reach = |world: &mut World, step| {
        let attempt = world.observed.status.trainyard.attempt;
        world.observed.progress = Some(Progress::new(attempt, step, at(world.now)));
    };
    for (second, ends) in [(100, true), (90, true), (101, false)] {
        let mut world = running();
        reach(&mut world, 100);
        fail(&mut world, 1, Some(mistake()));
        again(&mut world);
        reach(&mut world, second);
        fail(&mut world, 1, Some(mistake()));
        assert_eq!(world.state() == "Failed", ends, "step {second}");
    }
}

#[test]
fn compat_charges_by_exit_code() {
    let mut job = policy(job(Kind::PyTorch), RestartPolicy::OnFailure);
    job.settings.compat.insert(Compat::IgnoreVerdicts);
    let mut world = World::new(job);
    world.run_all();
    for verdict in [mistake(), mistake(), broken_gpu()] {
        fail(&mut world, 1, Some(verdict));
        again(&mut world);
    }
    let record = &world.observed.status.trainyard;
    assert_eq!((world.state(), record.spent.user), ("Running", 3));
    let last = record.last_failure.as_ref().expect("a failure");
    let kept = last.verdict.as_ref().map(|verdict| verdict.label.as_str());
    assert_eq!(
        kept,
        Some("gpu_fallen_off_bus"),
        "it is reported all the same"
    );
}

#[test]
fn a_node_that_is_blamed_is_avoided() {
    let seats: BTreeMap<Slot, String> = [MASTER, worker(0), worker(1)]
        .into_iter()
        .zip(["node-9", "node-0", "node-1"].map(str::to_owned))
        .collect();
    let cases = [
        ("a node of ours", Some(broken_gpu()), Some("node-0")),
        (
            "a node of others",
            Some(VerdictSummary {
                nodes: vec!["node-7".into()],
                ..broken_gpu()
            }),
            None,
        ),
        ("the program", Some(mistake()), None),
        ("nobody", None, None),
    ];
    for (name, verdict, want) in cases {
        let mut world = running();
        world.observed.seating = Seating::Given(seats.clone());
        let decision = fail(&mut world, 1, verdict);
        let mut actions = decision.actions.iter();
        let avoided = actions.find_map(|action| match action {
            Action::ReleaseSeats { avoid, .. } => avoid.first().map(String::as_str),
            _ => None,
        });
        assert_eq!(avoided, want, "{name}");
        let creates = |action: &Action| matches!(action, Action::CreatePod { .. });
        assert!(!decision.actions.iter().any(creates), "{name}");
    }
}

#[test]
fn doctor_reads_log_of_first_failure() {
    let mut world = running();
    assert_eq!(failed_first(&world.job, &world.observed), None);
    world.exit(worker(1), 1);
    world.exit(worker(0), 1);
    for pod in &mut world.observed.pods {
        if let Some(exit) = &mut pod.exit {
            exit.at = Some(at(i64::from(10 - pod.slot.index)));
        }
    }
    let first = |world: &World| failed_first(&world.job, &world.observed).map(|pod| pod.slot);
    assert_eq!(first(&world), Some(worker(1)), "by time");
    for pod in &mut world.observed.pods {
        if pod.slot == worker(1) {
            pod.disruption = Some(Disruption::Evicted);
        }
    }
    assert_eq!(
        first(&world),
        Some(worker(0)),
        "a removed pod has no verdict"
    );
    world.observed.being_deleted = true;
    assert_eq!(first(&world), None);
}

/// A script that is not there, as Python says it.
fn typo() -> VerdictSummary {
    VerdictSummary {
        label: "data_path_missing".into(),
        sentence: "a file that the program needs does not exist: '/app/trian.py'".into(),
        place: None,
        signature: Some("python: can't open file '/app/trian.py'".into()),
        next: "correct the path".into(),
        ..mistake()
    }
}

/// How many attempts a job has made when it fails with `verdict` in each, at most five.
fn attempts_of(job: Job, verdict: &VerdictSummary, attended: bool) -> u32 {
    let mut world = World::new(policy(job, RestartPolicy::OnFailure));
    world.observed.attended = attended;
    world.run_all();
    for attempt in 1..=5 {
        fail(&mut world, 1, Some(verdict.clone()));
        if world.state() == "Failed" {
            return attempt;
        }
        again(&mut world);
    }
    6
}

#[test]
fn hopeless_retry_ends_job_without_limit() {
    let limited = |change: fn(&mut Job)| {
        let mut job = job(Kind::PyTorch);
        change(&mut job);
        job
    };
    let free = || job(Kind::PyTorch);
    let backoff = || limited(|job| job.run_policy.backoff_limit = Some(4));
    let cases = [
        ("no limit", free(), typo(), false, 2),
        ("no limit, somebody waits", free(), typo(), true, 1),
        ("an exception, somebody waits", free(), mistake(), true, 1),
        ("backoffLimit", backoff(), typo(), false, 4),
        ("backoffLimit, somebody waits", backoff(), typo(), true, 4),
        (
            "an exception within backoffLimit",
            backoff(),
            mistake(),
            false,
            4,
        ),
        (
            "a budget of its own",
            limited(|job| job.settings.budget.user = Some(crate::spec::Limit::Unlimited)),
            typo(),
            true,
            6,
        ),
        (
            "a deadline",
            limited(|job| job.run_policy.active_deadline_seconds = Some(1_000_000)),
            typo(),
            false,
            6,
        ),
        (
            "old behaviour",
            limited(|job| {
                job.settings.compat.insert(Compat::IgnoreVerdicts);
            }),
            typo(),
            true,
            6,
        ),
        (
            "a default is not a limit of the user",
            policy(job(Kind::MpiV2), RestartPolicy::OnFailure),
            typo(),
            false,
            2,
        ),
        (
            "nothing says that it is the same",
            free(),
            VerdictSummary {
                signature: None,
                ..typo()
            },
            false,
            6,
        ),
    ];
    for (name, job, verdict, attended, want) in cases {
        assert_eq!(attempts_of(job, &verdict, attended), want, "{name}");
    }
}

#[test]
fn the_end_says_why_and_what_to_do() {
    let mut world = running();
    fail(&mut world, 2, Some(typo()));
    again(&mut world);
    let decision = fail(&mut world, 2, Some(typo()));
    let message = world.message();
    for part in [
        "attempts 1 and 2 ended with the same error: a file",
        "'/app/trian.py'. To fix it: correct the path. To retry in any case, set `backoffLimit`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(decision.reasons[0].code(), Code::RetryDoesNotHelp);
    let event = decision.events.last().expect("an event");
    assert!(
        event.message.contains("ended with the same error"),
        "{}",
        event.message
    );
    let last = world.observed.status.trainyard.last_failure.as_ref();
    assert_eq!(last.and_then(|last| last.since_attempt), Some(1));
}

#[test]
fn a_program_that_trained_is_given_a_second_chance() {
    let mut world = running();
    world.observed.attended = true;
    world.observed.progress = Some(Progress::new(1, 100, at(world.now)));
    fail(&mut world, 1, Some(mistake()));
    assert_ne!(world.state(), "Failed", "{}", world.message());
}

#[test]
fn equal_attempts_are_counted() {
    let mut job = policy(job(Kind::PyTorch), RestartPolicy::OnFailure);
    job.run_policy.backoff_limit = Some(9);
    let mut world = World::new(job);
    world.run_all();
    let since = |world: &World| {
        let last = world.observed.status.trainyard.last_failure.as_ref();
        last.and_then(|last| last.since_attempt)
    };
    for (verdict, want) in [
        (typo(), None),
        (typo(), Some(1)),
        (typo(), Some(1)),
        (broken_gpu(), None),
        (typo(), None),
        (typo(), Some(5)),
    ] {
        fail(&mut world, 2, Some(verdict));
        assert_eq!(since(&world), want);
        again(&mut world);
    }
}

#[test]
fn two_ooms_without_limit_end_job() {
    let memory = || VerdictSummary {
        label: "host_oom_killed".into(),
        place: None,
        signature: Some("pod `j-worker-#` ran out of memory".into()),
        ..mistake()
    };
    let end = |world: &mut World| {
        let attempt = world.observed.status.trainyard.attempt;
        world.observed.verdict = Some(VerdictSummary {
            attempt,
            ..memory()
        });
        world.exit(worker(0), 137);
        let exit = world.pod(worker(0)).exit.as_mut().expect("it has ended");
        exit.out_of_memory = true;
        world.pass();
    };
    let mut world = running();
    end(&mut world);
    assert_ne!(world.state(), "Failed");
    again(&mut world);
    end(&mut world);
    assert_eq!(world.state(), "Failed", "{}", world.message());

    // One that ran for long may have come further.
    let mut world = running();
    end(&mut world);
    again(&mut world);
    world.now += 3600;
    end(&mut world);
    assert_ne!(world.state(), "Failed", "{}", world.message());
}
