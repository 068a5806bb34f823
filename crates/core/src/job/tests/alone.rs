//! Pods that restart alone and fail again and again: when their job ends, and when it continues.

use super::*;
use crate::diagnose::VerdictSummary;
use crate::spec::Limit;

fn tf(change: impl FnOnce(&mut Job)) -> World {
    let mut job = policy(job(Kind::Tf), RestartPolicy::OnFailure);
    change(&mut job);
    assert_eq!(job.restart_scope(), RestartScope::Pod);
    let mut world = World::new(job);
    world.run_all();
    world
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

/// Adds what the doctor says about the last end of the pod in `slot`.
fn judge(world: &mut World, slot: Slot, verdict: Option<VerdictSummary>) {
    let pod = world.pod(slot);
    let judged = JudgedEnd {
        uid: pod.uid.clone(),
        ends: pod.ends,
        verdict,
    };
    world.observed.judged.push(judged);
}

/// The container of the pod in `slot` ends with code 2. Its kubelet pauses before it starts it again.
fn end(world: &mut World, slot: Slot, verdict: Option<VerdictSummary>) -> Decision {
    world.observed.judged.clear();
    let now = world.now;
    let pod = world.pod(slot);
    (pod.ends, pod.ready) = (pod.ends + 1, false);
    pod.exit = Some(Exit {
        code: 2,
        out_of_memory: false,
        at: Some(at(now)),
    });
    judge(world, slot, verdict);
    world.pass()
}

/// It starts it again.
fn start_again(world: &mut World, slot: Slot) {
    world.now += 10;
    let pod = world.pod(slot);
    (pod.restarts, pod.ready) = (pod.ends, true);
    world.pass();
}

/// How often the container of worker 0 ended before the job failed, at most five times.
fn ends_until_failed(world: &mut World, verdict: &VerdictSummary) -> u32 {
    for ends in 1..=5 {
        end(world, worker(0), Some(verdict.clone()));
        if world.state() == "Failed" {
            return ends;
        }
        start_again(world, worker(0));
        if world.state() == "Failed" {
            return ends;
        }
    }
    6
}

#[test]
fn two_equal_ends_of_a_pod_end_a_job_without_a_limit() {
    let attended = || {
        let mut world = tf(|_| ());
        world.observed.attended = true;
        world
    };
    let deadline = |job: &mut Job| job.run_policy.active_deadline_seconds = Some(1_000_000);
    let own_budget = |job: &mut Job| job.settings.budget.user = Some(Limit::Unlimited);
    let old = |job: &mut Job| {
        job.settings.compat.insert(Compat::IgnoreVerdicts);
    };
    let unlike = VerdictSummary {
        signature: None,
        ..typo()
    };
    let cases = vec![
        ("no limit", tf(|_| ()), typo(), 2),
        ("an exception", tf(|_| ()), mistake(), 2),
        ("somebody waits", attended(), typo(), 1),
        (
            "a limit",
            tf(|job| job.run_policy.backoff_limit = Some(4)),
            typo(),
            4,
        ),
        ("a deadline", tf(deadline), typo(), 6),
        ("a budget of its own", tf(own_budget), typo(), 6),
        ("old behaviour", tf(old), typo(), 6),
        ("nothing says that it is the same", tf(|_| ()), unlike, 6),
    ];
    for (name, mut world, verdict, want) in cases {
        assert_eq!(ends_until_failed(&mut world, &verdict), want, "{name}");
        let record = &world.observed.status.trainyard;
        assert_eq!(record.attempt, 1, "{name}");
        assert_eq!(
            record.spent.user,
            want.min(5),
            "{name}: each end is paid once"
        );
        let last = record.last_failure.as_ref().expect("a failure");
        assert_eq!(last.pod, "j-worker-0", "{name}");
    }
}

#[test]
fn every_kind_whose_pods_restart_alone_follows_the_rule() {
    let mut annotated = job(Kind::PyTorch);
    annotated.settings.restart_scope = Some(RestartScope::Pod);
    let cases = [
        ("TFJob", job(Kind::Tf)),
        ("XGBoostJob", job(Kind::XgBoost)),
        ("elastic PyTorchJob", elastic(job(Kind::PyTorch), 1, 4)),
        ("restart-scope: pod", annotated),
    ];
    for (name, job) in cases {
        let mut world = World::new(policy(job, RestartPolicy::Always));
        world.run_all();
        assert_eq!(ends_until_failed(&mut world, &typo()), 2, "{name}");
    }
}

#[test]
fn the_end_says_which_pod_and_what_to_do() {
    let mut world = tf(|_| ());
    end(&mut world, worker(0), Some(typo()));
    start_again(&mut world, worker(0));
    let decision = end(&mut world, worker(0), Some(typo()));
    let message = world.message();
    for part in [
        "because pod `j-worker-0` ended twice in a row with the same error: a file that",
        "To fix it: correct the path. To retry in any case, set `backoffLimit`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(decision.reasons[0].code(), Code::RetryDoesNotHelp);
    let last = world.observed.status.trainyard.last_failure.as_ref();
    let verdict = last.and_then(|last| last.verdict.as_ref());
    assert_eq!(verdict, Some(&typo()));
}

#[test]
fn ends_that_differ_do_not_end_a_job() {
    let mut world = tf(|_| ());
    for verdict in [
        Some(typo()),
        Some(mistake()),
        Some(typo()),
        None,
        Some(typo()),
    ] {
        end(&mut world, worker(0), verdict);
        assert_ne!(world.state(), "Failed", "{}", world.message());
        start_again(&mut world, worker(0));
    }
}

#[test]
fn pods_are_compared_with_themselves() {
    // Worker 1 fails in between because worker 0 is not there; and each makes the mistake for the first time.
    let mut world = tf(|_| ());
    for slot in [worker(0), worker(1), CHIEF] {
        end(&mut world, slot, Some(typo()));
        start_again(&mut world, slot);
        assert_ne!(world.state(), "Failed", "{}", world.message());
    }
    end(&mut world, worker(1), None);
    start_again(&mut world, worker(1));
    assert_ne!(world.state(), "Failed", "{}", world.message());
    end(&mut world, worker(0), Some(typo()));
    assert_eq!(world.state(), "Failed", "{}", world.message());
}

#[test]
fn an_end_counts_once_however_often_it_is_seen() {
    let mut world = tf(|_| ());
    end(&mut world, worker(0), Some(typo()));
    for _ in 0..3 {
        world.pass();
    }
    start_again(&mut world, worker(0));
    assert_ne!(world.state(), "Failed", "{}", world.message());
    assert_eq!(
        unjudged_ends(&world.job, &world.observed),
        Vec::<&ObservedPod>::new()
    );
}

#[test]
fn a_job_that_came_further_goes_on() {
    for (second, ends) in [(100, true), (101, false)] {
        let mut world = tf(|_| ());
        world.observed.progress = Some(Progress::new(1, 100, at(0)));
        end(&mut world, worker(0), Some(mistake()));
        start_again(&mut world, worker(0));
        world.observed.progress = Some(Progress::new(1, second, at(5)));
        end(&mut world, worker(0), Some(mistake()));
        assert_eq!(world.state() == "Failed", ends, "step {second}");
    }
    // Without a step: a container that ran for long may have come further.
    let mut world = tf(|_| ());
    end(&mut world, worker(0), Some(typo()));
    start_again(&mut world, worker(0));
    world.now += 3600;
    end(&mut world, worker(0), Some(typo()));
    assert_ne!(world.state(), "Failed", "{}", world.message());
}

#[test]
fn a_pod_that_is_replaced_is_the_same_pod() {
    let mut world = tf(|job| {
        for role in job.roles.values_mut() {
            role.restart_policy = RestartPolicy::ExitCode;
        }
    });
    let memory = || VerdictSummary {
        label: "host_oom_killed".into(),
        place: None,
        signature: Some("pod `j-worker-#` ran out of memory".into()),
        ..mistake()
    };
    for ends in 1..=2 {
        world.observed.judged.clear();
        world.exit(worker(0), 137);
        let pod = world.pod(worker(0));
        pod.ends = 1;
        pod.exit.as_mut().expect("it has ended").out_of_memory = true;
        judge(&mut world, worker(0), Some(memory()));
        world.pass();
        assert_eq!(world.state() == "Failed", ends == 2, "{}", world.message());
        if ends == 1 {
            world.run_all();
        }
    }
    assert_eq!(world.observed.status.trainyard.spent.user, 2);
}

#[test]
fn doctor_judges_repeated_ends_first() {
    let mut world = World::new(policy(
        with_roles(job(Kind::Tf), &[(Role::Worker, 40)]),
        RestartPolicy::OnFailure,
    ));
    world.run_all();
    let asked = |world: &World| {
        let pods = unjudged_ends(&world.job, &world.observed);
        pods.iter().map(|pod| pod.slot.index).collect::<Vec<_>>()
    };
    assert_eq!(asked(&world), Vec::<u32>::new());
    end(&mut world, worker(7), Some(typo()));
    start_again(&mut world, worker(7));
    for index in 0..40 {
        let pod = world.pod(worker(index));
        (pod.ends, pod.ready) = (pod.ends + 1, false);
        pod.exit = Some(Exit {
            code: 2,
            out_of_memory: false,
            at: Some(at(i64::from(100 - index))),
        });
    }
    assert_eq!(asked(&world), [7, 39, 38, 37]);
    world.pod(worker(39)).disruption = Some(Disruption::Evicted);
    assert_eq!(
        asked(&world),
        [7, 38, 37, 36],
        "a removed pod has no verdict"
    );
    // However many fail, the status stays small.
    for index in 0..40 {
        if index != 7 {
            judge(&mut world, worker(index), None);
        }
    }
    world.pass();
    assert_eq!(world.observed.status.trainyard.last_ends.len(), 32);
    assert_eq!(asked(&world), [7], "no other pod is remembered");
}

#[test]
fn a_pod_that_ends_its_job_is_explained() {
    let mut world = tf(|job| {
        for role in job.roles.values_mut() {
            role.restart_policy = RestartPolicy::Never;
        }
    });
    world.exit(worker(0), 1);
    world.pod(worker(0)).ends = 1;
    assert_eq!(unjudged_ends(&world.job, &world.observed).len(), 1);
    judge(&mut world, worker(0), Some(typo()));
    world.pass();
    assert_eq!(world.state(), "Failed");
    let last = world.observed.status.trainyard.last_failure.as_ref();
    assert!(last.is_some_and(|last| last.verdict.is_some()), "{last:?}");
}

#[test]
fn a_new_attempt_forgets_the_ends_before_it() {
    let mut world = tf(|_| ());
    end(&mut world, worker(0), Some(typo()));
    world.job.settings.restart = Some("now".into());
    world.observed.judged.clear();
    world.run_all();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert!(world.observed.status.trainyard.last_ends.is_empty());
    end(
        &mut world,
        worker(0),
        Some(VerdictSummary {
            attempt: 2,
            ..typo()
        }),
    );
    assert_ne!(world.state(), "Failed", "{}", world.message());
}
