//! Restarts in place, with members that report what they are asked for.

mod answers;
mod ends;
mod hold;
mod lost;

use std::time::Duration;

use super::*;
use crate::{
    barrier::{
        Command, Coordinator, EndedMember, Envelope, Group, HangReport, Limits, OperatorMessage,
        Order, Phase as BarrierPhase, ProgramExit, Roster, StateName, StopHow, Summary,
    },
    spec::{OnNan, RestartIn, Supervise, WatchMode},
};

/// A gang of a master and two workers that runs under supervisors.
#[derive(Clone)]
struct Gang {
    world: World,
    order: Option<Order>,
    /// The monotonic clock of the operator.
    clock: Duration,
    summary: Summary,
}

impl Gang {
    fn new(job: Job) -> Self {
        let job = Job {
            uid: Some("job".to_owned()),
            ..job
        };
        let mut gang = Self {
            world: World::new(job),
            order: None,
            clock: Duration::ZERO,
            summary: Summary::default(),
        };
        gang.world.observed.gang = SeenGang::Here(Box::new(Supervised {
            coordinator: Coordinator::new("job".to_owned(), Limits::default()),
            leader_connected: true,
            now: Duration::ZERO,
        }));
        gang.pass();
        gang.all_run();
        gang.pass();
        gang.report(1, StateName::Running);
        gang.pass();
        gang
    }

    /// Every pod that waits runs.
    fn all_run(&mut self) {
        let pods = self.world.observed.pods.iter_mut();
        for pod in pods.filter(|pod| pod.phase == PodPhase::Pending) {
            (pod.phase, pod.ready) = (PodPhase::Running, true);
        }
    }

    fn holds(&self, kind: ConditionType) -> bool {
        conditions::holds(&self.world.observed.status.conditions, kind)
    }

    fn of_three() -> Self {
        Self::new(job(Kind::PyTorch))
    }

    fn seen(&mut self) -> &mut Supervised {
        match &mut self.world.observed.gang {
            SeenGang::Here(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    /// One pass; what it says about the gang is kept.
    fn pass(&mut self) -> Decision {
        self.clock += Duration::from_millis(100);
        let clock = self.clock;
        if let SeenGang::Here(seen) = &mut self.world.observed.gang {
            seen.now = clock;
        }
        let decision = self.world.pass();
        if let Some(step) = &decision.gang {
            self.seen().coordinator = step.coordinator.clone();
            if let Some(OperatorMessage::Order(order)) =
                step.send.as_ref().map(|send| &send.message)
            {
                self.order = Some(order.clone());
            }
        }
        decision
    }

    fn command(&self) -> Option<Command> {
        self.order.as_ref().map(|order| order.command)
    }

    fn receive(&mut self) {
        let envelope = Envelope {
            job: "job".to_owned(),
            message: self.summary.clone(),
        };
        self.seen().coordinator.receive(&envelope);
    }

    /// All members that the last order named report this.
    fn report(&mut self, attempt: u32, state: StateName) {
        let order = self.order.clone();
        let roster = order.as_ref().map(|order| order.roster.clone());
        let slots = roster.iter().flat_map(Roster::iter);
        let group = Group {
            attempt,
            state,
            slots: slots.map(|(slot, _)| slot).collect(),
        };
        self.summary.fence = order.map(|order| order.command.fence());
        self.summary.roster = roster.map_or(0, |roster| roster.digest());
        self.summary.groups = vec![group];
        self.receive();
    }

    /// The program in `slot` ends by itself.
    fn ends(&mut self, slot: Slot, code: i32) {
        let pods = &self.world.observed.pods;
        let uid = pods
            .iter()
            .find(|pod| pod.slot == slot)
            .unwrap()
            .uid
            .clone();
        self.summary.ended = vec![EndedMember {
            slot,
            uid,
            attempt: self.record().attempt,
            exit: ProgramExit { code, signal: None },
        }];
        self.receive();
    }

    fn hangs(&mut self, label: &str) {
        self.summary.hang = Some(HangReport {
            attempt: self.record().attempt,
            slot: worker(1),
            rank: Some(2),
            label: label.to_owned(),
            sentence: "rank 2 sleeps at train.py:11".to_owned(),
        });
        self.receive();
    }

    fn record(&self) -> &JobRecord {
        &self.world.observed.status.trainyard
    }

    fn uids(&self) -> Vec<String> {
        let pods = self.world.observed.pods.iter();
        pods.map(|pod| pod.uid.clone()).collect()
    }

    /// From a stored barrier to Go.
    fn go(&mut self) {
        let attempt = self.record().attempt;
        self.pass();
        assert!(matches!(self.command(), Some(Command::Stop { .. })));
        self.report(attempt, StateName::Stopped);
        self.pass();
        assert_eq!(self.record().attempt, attempt + 1);
        self.pass();
        self.pass();
        let prepare = Command::Prepare {
            attempt: attempt + 1,
        };
        assert_eq!(self.command(), Some(prepare));
        self.report(attempt + 1, StateName::Ready);
        self.pass();
        let go = Command::Go {
            attempt: attempt + 1,
        };
        assert_eq!(self.command(), Some(go));
        self.report(attempt + 1, StateName::Running);
    }
}

#[test]
fn program_restarts_in_its_pods() {
    let mut gang = Gang::of_three();
    let pods = gang.uids();
    gang.ends(worker(1), 1);
    let decision = gang.pass();
    let barrier = gang.record().barrier.clone().unwrap();
    assert_eq!(barrier.phase, BarrierPhase::Stopping);
    assert_eq!(barrier.how, StopHow::Grace(Duration::from_secs(5)));
    assert_eq!((gang.record().attempt, gang.record().spent.user), (1, 1));
    assert!(decision.actions.is_empty(), "{:?}", decision.actions);
    let event = &decision.events[0].message;
    assert!(event.ends_with("The gang restarts in place."), "{event}");
    assert_eq!(decision.reasons[0].code(), Code::RestartingInPlace);
    let open = gang.record().ledger.open.unwrap();
    assert_eq!((open.attempt, open.phase), (1, Phase::Restarting));
    assert!(gang.holds(ConditionType::Restarting));

    gang.pass();
    gang.report(1, StateName::Stopped);
    let decision = gang.pass();
    assert_eq!(gang.record().attempt, 2);
    assert!(decision.actions.is_empty(), "{:?}", decision.actions);
    let decision = gang.pass();
    let relabelled = |action: &&Action| {
        matches!(
            action,
            Action::RelabelPod {
                from: 1,
                attempt: 2,
                ..
            }
        )
    };
    assert_eq!(decision.actions.iter().filter(relabelled).count(), 3);
    assert_eq!(decision.actions.len(), 3, "{:?}", decision.actions);
    gang.pass();
    assert_eq!(gang.command(), Some(Command::Prepare { attempt: 2 }));
    gang.report(2, StateName::Ready);
    let decision = gang.pass();
    assert_eq!(gang.command(), Some(Command::Go { attempt: 2 }));
    assert!(decision.actions.is_empty(), "{:?}", decision.actions);
    assert_eq!(gang.uids(), pods);
    let record = gang.record();
    assert_eq!((record.barrier.clone(), record.formed), (None, true));
    assert_eq!(record.spent.user, 1, "charged once");
    let last = record.last_restart.unwrap();
    assert_eq!(last.attempt, 2);
    assert!(
        last.stopping_ms > 0 && last.preparing_ms > Some(0),
        "{last:?}"
    );
    assert!(gang.holds(ConditionType::Running));
    assert!(gang.pass().actions.is_empty());
    // A pod that is gone after Go has vanished, as one of an attempt with new pods.
    gang.world.observed.pods.remove(0);
    gang.pass();
    assert_eq!(gang.record().attempt, 3);
}

#[test]
fn well_ended_programs_are_no_failure() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 0);
    gang.pass();
    assert_eq!((gang.record().attempt, gang.record().spent.user), (1, 0));
    assert_eq!(gang.record().barrier, None);
}

#[test]
fn new_pods_and_why() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Change); 9] = [
        ("not all pods of the gang have started", |gang| {
            gang.world.pod(MASTER).phase = PodPhase::Pending;
        }),
        ("`trainyard.dev/restart-in` is `pods`", |gang| {
            gang.world.job.settings.restart_in = RestartIn::Pods;
        }),
        ("has no connection to the operator", |gang| {
            gang.seen().leader_connected = false;
        }),
        ("the pod of the leader was lost", |gang| {
            let silent = NodeHealth::SilentSince(at(gang.world.now));
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-0".to_owned(), silent);
        }),
        ("the pod template changed", |gang| {
            let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
            let spec = role.template.spec.get_or_insert_default();
            spec.host_network = Some(true);
        }),
        ("Worker 1 failed in attempt 1 already", |gang| {
            gang.world.now += 3_600;
            gang.ends(worker(1), 1);
            gang.pass();
            gang.go();
            gang.pass();
            gang.world.now += 3_600;
        }),
        (
            "2 attempts in a row failed soon after they started",
            |gang| {
                gang.ends(worker(0), 1);
                gang.pass();
                gang.go();
                gang.pass();
            },
        ),
        ("the pod of the leader was lost", |gang| {
            let pod = gang.world.pod(MASTER);
            pod.phase = PodPhase::Failed;
            pod.exit = Some(Exit {
                code: 1,
                out_of_memory: false,
                at: None,
            });
        }),
        ("not all pods have a supervisor: the job is odd", |gang| {
            gang.world.observed.gang = SeenGang::Unable("the job is odd".to_owned());
            let pods = &mut gang.world.observed.pods;
            pods[0].phase = PodPhase::Failed;
        }),
    ];
    for (words, change) in cases {
        let mut gang = Gang::of_three();
        change(&mut gang);
        let attempt = gang.record().attempt;
        if matches!(gang.world.observed.gang, SeenGang::Here(_)) {
            gang.ends(worker(1), 1);
        }
        let decision = gang.pass();
        assert_eq!(gang.record().attempt, attempt + 1, "{words}");
        assert_eq!(gang.record().barrier, None, "{words}");
        let event = &decision.events[0].message;
        assert!(event.contains("with new pods, because"), "{event}");
        assert!(event.contains(words), "{words}: {event}");
        assert_eq!(decision.gang, None, "nothing of the old attempt follows");
    }
}

#[test]
fn log_without_steps_where_nobody_watches() {
    type Change = fn(&mut Gang);
    let cases: [(&str, bool, Change); 9] = [
        ("a template without a command", true, |gang| {
            gang.world.observed.gang = SeenGang::Unable("no `command`".to_owned());
        }),
        ("no supervisors here", true, |_| {}),
        ("not read since", false, |gang| {
            let progress = gang.world.observed.progress.as_mut().unwrap();
            progress.read_at = progress.at;
        }),
        ("a save", false, |gang| {
            gang.world.observed.progress.as_mut().unwrap().saving = true;
        }),
        ("an evaluation", false, |gang| {
            gang.world.observed.progress.as_mut().unwrap().evaluating = true;
        }),
        ("steps of the attempt before", false, |gang| {
            gang.world.observed.progress.as_mut().unwrap().attempt = 0;
        }),
        ("no limit", false, |gang| {
            gang.world.job.settings.hang_after = None;
        }),
        ("only reported", false, |gang| {
            gang.world.job.settings.watch = WatchMode::Report;
        }),
        ("ranks are watched", false, |gang| {
            gang.world.observed.watches_ranks = true;
        }),
    ];
    for (name, restarts, change) in cases {
        let mut gang = Gang::of_three();
        gang.world.observed.gang = SeenGang::Unused;
        gang.world.job.settings.hang_after = Some(Duration::from_mins(5));
        let progress = Progress::new(1, 7, at(gang.world.now));
        gang.world.now += 300;
        gang.world.observed.progress = Some(Progress {
            read_at: at(gang.world.now),
            ..progress
        });
        change(&mut gang);
        gang.world.pass();
        let attempt = if restarts { 2 } else { 1 };
        assert_eq!(gang.record().attempt, attempt, "{name}");
        let last = gang.record().last_failure.clone();
        let label = last
            .and_then(|last| last.verdict)
            .map(|verdict| verdict.label);
        let want = restarts.then(|| "hang_silent_log".to_owned());
        assert_eq!(label, want, "{name}");
    }
}

#[test]
fn hangs_and_nan() {
    let mut gang = Gang::of_three();
    gang.hangs("hang_cpu_side");
    let decision = gang.pass();
    let barrier = gang.record().barrier.clone().unwrap();
    assert_eq!(barrier.how, StopHow::Hang);
    let last = gang.record().last_failure.clone().unwrap();
    assert_eq!(last.cause, Some(Cause::NotTraining));
    let verdict = last.verdict.unwrap();
    assert_eq!(
        (verdict.label.as_str(), verdict.ranks),
        ("hang_cpu_side", vec![2])
    );
    assert_eq!(last.account, verdict.account);
    let event = &decision.events[0].message;
    assert!(event.contains("rank 2 sleeps at train.py:11"), "{event}");
    gang.go();
    gang.pass();
    let spent = gang.record().spent;
    assert_eq!(spent.user + spent.infrastructure, 1, "charged once");

    let mut reports = Gang::of_three();
    reports.world.job.settings.watch = WatchMode::Report;
    reports.hangs("hang_cpu_side");
    reports.pass();
    assert_eq!(reports.record().barrier, None);
    assert_eq!(reports.record().spent, Spent::default());

    for (on_nan, restarts, fails) in [
        (OnNan::Report, false, false),
        (OnNan::Restart, true, false),
        (OnNan::Stop, false, true),
    ] {
        let mut gang = Gang::of_three();
        gang.world.job.settings.on_nan = on_nan;
        gang.hangs("nan_loss");
        gang.pass();
        assert_eq!(gang.record().barrier.is_some(), restarts, "{on_nan:?}");
        assert_eq!(gang.holds(ConditionType::Failed), fails, "{on_nan:?}");
    }
}

#[test]
fn permanent_exit_code_fails_the_job_and_keeps_its_log() {
    let mut gang = Gang::of_three();
    let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
    role.restart_policy = RestartPolicy::ExitCode;
    gang.world.job.run_policy.clean_pod_policy = Some(CleanPodPolicy::Running);
    gang.ends(worker(1), 3);
    gang.pass();
    assert!(gang.holds(ConditionType::Failed));
    assert_eq!(gang.record().barrier, None);
    let left: Vec<Slot> = gang
        .world
        .observed
        .pods
        .iter()
        .map(|pod| pod.slot)
        .collect();
    assert_eq!(left, [worker(1)]);
    gang.pass();
    assert_eq!(gang.world.observed.pods.len(), 1);
}

#[test]
fn supervised_jobs_ask_for_their_identity_before_pods() {
    let mut world = World::new(job(Kind::PyTorch));
    world.observed.gang = SeenGang::Here(Box::new(Supervised {
        coordinator: Coordinator::new("job".to_owned(), Limits::default()),
        leader_connected: false,
        now: Duration::ZERO,
    }));
    let actions = world.pass().actions;
    let place = |meant: fn(&Action) -> bool| actions.iter().position(meant);
    let shared = place(|action| matches!(action, Action::ApplyShared(_)));
    let pod = place(|action| matches!(action, Action::CreatePod { waits: false, .. }));
    assert!(shared.is_some() && shared < pod, "{actions:?}");
    assert_eq!(world.pass().actions, []);
}

#[test]
fn missing_supervisor_is_named_at_the_start() {
    type Change = fn(&mut Job);
    let cases: [(bool, Change); 4] = [
        (true, |_| {}),
        (false, |job| job.settings.supervise = Supervise::Off),
        (false, |job| job.settings.restart_in = RestartIn::Pods),
        (false, |job| *job = elastic(job.clone(), 1, 3)),
    ];
    for (named, change) in cases {
        let mut job = job(Kind::PyTorch);
        change(&mut job);
        let mut world = World::new(job);
        let why = "the template of Worker has no `command` in container `pytorch`";
        world.observed.gang = SeenGang::Unable(why.to_owned());
        let events: Vec<Event> = (0..3).flat_map(|_| world.pass().events).collect();
        let found = events.iter().filter(|event| event.message.contains(why));
        assert_eq!(found.count(), usize::from(named), "{events:?}");
    }
}
