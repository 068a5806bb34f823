//! Restarts in place, with members that report what they are asked for.

mod answers;
mod hold;

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
fn lost_member_is_replaced_and_waits() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.pass();
    let pods = &mut gang.world.observed.pods;
    let lost = pods.iter_mut().find(|pod| pod.slot == worker(0)).unwrap();
    lost.phase = PodPhase::Failed;
    gang.pass();
    assert!(
        gang.record()
            .barrier
            .as_ref()
            .unwrap()
            .lost
            .contains(worker(0))
    );
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    assert_eq!(gang.record().attempt, 2);
    let mut created = Vec::new();
    for _ in 0..3 {
        created.extend(
            gang.pass()
                .actions
                .into_iter()
                .filter_map(|action| match action {
                    Action::CreatePod {
                        slot,
                        attempt,
                        waits,
                        ..
                    } => Some((slot, attempt, waits)),
                    _ => None,
                }),
        );
    }
    assert_eq!(created, [(worker(0), 2, true)]);
    gang.all_run();
    gang.pass();
    gang.report(2, StateName::Ready);
    gang.pass();
    assert_eq!(gang.command(), Some(Command::Go { attempt: 2 }));
    assert_eq!(gang.record().spent.user, 1);
    assert_eq!(
        gang.record().spent.platform,
        0,
        "nothing vanishes in a barrier"
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

/// A pod that replaces a lost one and was created without a seat gets the seat that is given later.
#[test]
fn gated_replacement_gets_its_seat() {
    let mut gang = Gang::of_three();
    gang.ends(worker(1), 1);
    gang.pass();
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    gang.pass();
    let nodes = gang.world.job.slots().map(|slot| (slot, "b".to_owned()));
    gang.world.observed.seating = Seating::Given(nodes.collect());
    let pods = &mut gang.world.observed.pods;
    let new = pods.iter_mut().find(|pod| pod.slot == worker(0)).unwrap();
    (new.uid, new.attempt, new.gated, new.node) = ("new".to_owned(), 2, true, None);
    new.phase = PodPhase::Pending;
    let seated = |actions: &[Action]| {
        let mut actions = actions.iter();
        actions.any(|action| matches!(action, Action::SeatPod { uid, .. } if uid == "new"))
    };
    assert!(seated(&gang.pass().actions) || seated(&gang.pass().actions));
}

/// From a stored barrier to the moment at which the next attempt is stored; then the pod of worker 1 is gone, as its node.
fn stop_and_lose_worker(gang: &mut Gang) {
    gang.pass();
    gang.report(1, StateName::Stopped);
    gang.pass();
    assert_eq!(gang.record().attempt, 2);
    let observed = &mut gang.world.observed;
    observed.pods.retain(|pod| pod.slot != worker(1));
    observed.nodes.clear();
}

#[test]
fn only_lost_pods_are_replaced() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Account, Change); 7] = [
        ("node deleted", Account::Infrastructure, |gang| {
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-1".to_owned(), NodeHealth::Deleted);
        }),
        ("node silent", Account::Infrastructure, |gang| {
            let silent = NodeHealth::SilentSince(at(gang.world.now));
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-1".to_owned(), silent);
            gang.world.now += 3_600;
        }),
        ("peers crash beside a silent node", Account::User, |gang| {
            let silent = NodeHealth::SilentSince(at(gang.world.now));
            let nodes = &mut gang.world.observed.nodes;
            nodes.insert("node-1".to_owned(), silent);
            gang.ends(worker(0), 1);
        }),
        ("evicted", Account::Platform, |gang| {
            let now = at(gang.world.now);
            let pod = gang.world.pod(worker(1));
            (pod.deleted_at, pod.disruption) = (Some(now), Some(Disruption::Evicted));
        }),
        ("deleted", Account::Platform, |gang| {
            let now = at(gang.world.now);
            gang.world.pod(worker(1)).deleted_at = Some(now);
        }),
        ("gone", Account::Platform, |gang| {
            let pods = &mut gang.world.observed.pods;
            pods.retain(|pod| pod.slot != worker(1));
        }),
        ("supervisor killed", Account::User, |gang| {
            let pod = gang.world.pod(worker(1));
            pod.phase = PodPhase::Failed;
            pod.exit = Some(Exit {
                code: 137,
                out_of_memory: false,
                at: None,
            });
        }),
    ];
    for (name, account, change) in cases {
        let mut gang = Gang::of_three();
        let kept = gang.uids()[..2].to_vec();
        change(&mut gang);
        let decision = gang.pass();
        let barrier = gang.record().barrier.clone();
        let barrier = barrier.unwrap_or_else(|| panic!("{name}: {:?}", decision.events));
        assert_eq!(barrier.lost.iter().collect::<Vec<_>>(), [worker(1)]);
        let event = &decision.events[0].message;
        let words = "restarts in place; 1 of 3 pods are replaced.";
        assert!(event.ends_with(words), "{name}: {event}");
        gang.summary.ended.clear();
        stop_and_lose_worker(&mut gang);
        let mut created = Vec::new();
        for _ in 0..3 {
            let actions = gang.pass().actions.into_iter();
            created.extend(actions.filter_map(|action| match action {
                Action::CreatePod { slot, waits, .. } => Some((slot, waits)),
                _ => None,
            }));
            assert_ne!(gang.command(), Some(Command::Go { attempt: 2 }), "{name}");
        }
        assert_eq!(created, [(worker(1), true)], "{name}");
        gang.all_run();
        gang.pass();
        gang.report(2, StateName::Ready);
        let decision = gang.pass();
        assert_eq!(gang.command(), Some(Command::Go { attempt: 2 }), "{name}");
        let event = &decision.events[0].message;
        assert!(event.ends_with("1 pods replaced."), "{name}: {event}");
        assert_eq!(gang.uids()[..2], kept, "{name}: the others are kept");
        let spent = gang.record().spent;
        let all = spent.user + spent.platform + spent.infrastructure + spent.preemption;
        assert_eq!((all, spent.of(account)), (1, 1), "{name}: charged once");
    }
}

#[test]
fn no_spare_node_leads_to_new_pods() {
    let mut gang = Gang::of_three();
    let nodes = &mut gang.world.observed.nodes;
    nodes.insert("node-1".to_owned(), NodeHealth::Deleted);
    gang.pass();
    stop_and_lose_worker(&mut gang);
    let message = "1 pod needs 8 GPUs".to_owned();
    gang.world.observed.seating = Seating::Queued(Some(message.into()));
    for _ in 0..3 {
        gang.pass();
        assert!(gang.record().barrier.is_some());
    }
    gang.clock += Duration::from_mins(1);
    let decision = gang.pass();
    assert_eq!(gang.record().barrier, None);
    assert_eq!(gang.record().attempt, 3);
    let event = &decision.events[0].message;
    assert!(event.contains("no other node has room"), "{event}");
    assert!(event.contains("1 pod needs 8 GPUs"), "{event}");
    assert_eq!(gang.record().spent.infrastructure, 1, "charged once");
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
