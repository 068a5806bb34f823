//! Whole lives of jobs, in a world where everything works at once. What the simulation breaks,
//! these leave whole: they read as the contract does.

mod alone;
mod asked;
mod checkpoints;
mod fabrics;
mod groups;
mod hunted;
mod in_place;
mod initializers;
mod no_progress;
mod preflights;
mod reports;
mod seats;
mod sizes;
mod timed;
mod transports;
mod verdicts;

use std::time::Duration;

use super::{testing::*, *};
use crate::{
    ledger::Phase,
    progress::Figure,
    reason::Code,
    spec::{CleanPodPolicy, Compat, Framework, Job, Kind, RestartPolicy, RestartScope, Role, Slot},
};

const MASTER: Slot = Slot {
    role: Role::Master,
    index: 0,
};
const CHIEF: Slot = Slot {
    role: Role::Chief,
    index: 0,
};
const LAUNCHER: Slot = Slot {
    role: Role::Launcher,
    index: 0,
};

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

/// A world that carries out every action in the moment it is decided.
#[derive(Clone)]
struct World {
    job: Job,
    observed: Observed,
    now: i64,
    deleted: bool,
    events: Vec<String>,
    incarnations: u32,
}

impl World {
    fn new(job: Job) -> Self {
        Self {
            job,
            observed: Observed::default(),
            now: 0,
            deleted: false,
            events: Vec::new(),
            incarnations: 0,
        }
    }

    fn pass(&mut self) -> Decision {
        self.observed.version += 1;
        let decision = decide(&self.job, &self.observed, at(self.now));
        assert!(!decision.reasons.is_empty(), "a pass without a reason");
        assert!(
            decision.wake_at.is_none_or(|wake| wake > at(self.now)),
            "a wake-up in the past"
        );
        self.observed.status = decision.status.clone();
        self.events
            .extend(decision.events.iter().map(|event| event.reason.clone()));
        for action in &decision.actions {
            self.apply(action);
        }
        decision
    }

    fn apply(&mut self, action: &Action) {
        match action {
            Action::CreatePod {
                slot,
                attempt,
                seat,
                ..
            } => {
                if self.observed.pods.iter().all(|pod| pod.slot != *slot) {
                    self.incarnations += 1;
                    let uid = format!("uid-{}", self.incarnations);
                    let pod = ObservedPod::at(*slot, *attempt, PodPhase::Pending);
                    let gated = *seat == Seat::Gated;
                    self.observed.pods.push(ObservedPod { uid, gated, ..pod });
                }
            }
            Action::DeletePod { uid, .. } => self.observed.pods.retain(|pod| pod.uid != *uid),
            Action::CreateService(slot) => {
                self.observed
                    .services
                    .entry(slot.role)
                    .or_default()
                    .insert(slot.index);
            }
            Action::DeleteService(slot) => {
                let left: IndexSet = self.observed.services[&slot.role]
                    .iter()
                    .filter(|index| *index != slot.index)
                    .collect();
                self.observed.services.insert(slot.role, left);
            }
            Action::ApplyShared(inputs) => self.observed.shared = Some(inputs.clone()),
            Action::ApplyGroup => {
                self.observed.grouping = Grouping::There {
                    current: true,
                    wait: None,
                };
            }
            Action::DeleteGroup => self.observed.grouping = Grouping::Missing,
            Action::ApplyAutoscaler => self.observed.autoscaler = Autoscaler::Current,
            Action::DeleteAutoscaler => self.observed.autoscaler = Autoscaler::Missing,
            Action::DeleteJob => self.deleted = true,
            Action::RelabelPod {
                uid, from, attempt, ..
            } => {
                let mut pods = self.observed.pods.iter_mut();
                let pod = pods.find(|pod| pod.uid == *uid && pod.attempt == *from);
                if let Some(pod) = pod {
                    pod.attempt = *attempt;
                }
            }
            Action::SeatPod { uid, .. } => {
                let mut pods = self.observed.pods.iter_mut();
                if let Some(pod) = pods.find(|pod| pod.uid == *uid) {
                    pod.gated = false;
                }
            }
            Action::AskSeats => {
                if self.observed.seating == Seating::Unasked {
                    self.observed.seating = Seating::Queued(None);
                }
            }
            Action::ReleaseSeats { .. } => self.observed.seating = Seating::Unasked,
            // Preflights are run by hand.
            Action::StartPreflight { .. } | Action::EndPreflight { .. } => {}
        }
    }

    /// Passes until nothing more is done.
    fn settle(&mut self) -> Decision {
        for _ in 0..20 {
            let decision = self.pass();
            if decision.actions.is_empty() {
                return decision;
            }
        }
        panic!("the job does not settle: {:?}", self.pass());
    }

    /// Lets every pending pod run.
    fn run_all(&mut self) -> Decision {
        self.settle();
        for _ in 0..3 {
            for pod in &mut self.observed.pods {
                if pod.phase == PodPhase::Pending {
                    (pod.phase, pod.ready) = (PodPhase::Running, true);
                }
            }
            self.settle();
        }
        self.settle()
    }

    fn pod(&mut self, slot: Slot) -> &mut ObservedPod {
        self.observed
            .pods
            .iter_mut()
            .find(|pod| pod.slot == slot)
            .expect("the pod is there")
    }

    fn exit(&mut self, slot: Slot, code: i32) {
        let phase = if code == 0 {
            PodPhase::Succeeded
        } else {
            PodPhase::Failed
        };
        let pod = self.pod(slot);
        (pod.phase, pod.ready) = (phase, false);
        pod.exit = Some(Exit {
            code,
            out_of_memory: false,
            at: None,
        });
    }

    fn state(&self) -> &'static str {
        self.observed
            .status
            .conditions
            .last()
            .expect("a condition")
            .kind
            .name()
    }

    fn conditions(&self) -> String {
        let words = self.observed.status.conditions.iter().map(|condition| {
            let off = if condition.status == ConditionStatus::False {
                "(False)"
            } else {
                ""
            };
            format!("{}{off}", condition.kind.name())
        });
        words.collect::<Vec<_>>().join(",")
    }

    fn pods(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .observed
            .pods
            .iter()
            .map(|pod| format!("{}#{}", self.job.pod_name(pod.slot), pod.attempt))
            .collect();
        names.sort();
        names
    }

    fn message(&self) -> &str {
        &self
            .observed
            .status
            .conditions
            .last()
            .expect("a condition")
            .message
    }
}

fn policy(mut job: Job, policy: RestartPolicy) -> Job {
    for spec in job.roles.values_mut() {
        spec.restart_policy = policy;
    }
    job
}

fn limit(mut job: Job, backoff_limit: u32) -> Job {
    job.run_policy.backoff_limit = Some(backoff_limit);
    job
}

#[test]
fn a_job_runs_and_succeeds() {
    let mut world = World::new(job(Kind::PyTorch));
    world.settle();
    assert_eq!(
        world.pods(),
        ["j-master-0#1", "j-worker-0#1", "j-worker-1#1"]
    );
    assert_eq!(world.conditions(), "Created");
    world.run_all();
    assert_eq!(world.conditions(), "Created,Running");
    assert_eq!(world.message(), "PyTorchJob j is running.");
    assert_eq!(
        world.observed.status.replica_statuses[&Role::Worker].active,
        2
    );
    world.now = 60;
    world.exit(MASTER, 0);
    world.settle();
    assert_eq!(world.conditions(), "Created,Running(False),Succeeded");
    assert_eq!(world.message(), "PyTorchJob j is successfully completed.");
    assert_eq!(world.observed.status.completion_time, Some(at(60)));
    assert_eq!(
        world.observed.status.replica_statuses[&Role::Worker].succeeded,
        2
    );
    assert_eq!(world.pods().len(), 3, "no policy, no pod deleted");
}

#[test]
fn one_failed_rank_restarts_the_gang() {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
    world.run_all();
    world.exit(worker(1), 1);
    world.pass();
    assert_eq!(world.conditions(), "Created,Restarting");
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    world.settle();
    assert_eq!(
        world.pods(),
        ["j-master-0#2", "j-worker-0#2", "j-worker-1#2"]
    );
    world.run_all();
    assert_eq!(world.conditions(), "Created,Running");
    assert_eq!(world.observed.status.trainyard.spent.user, 1);
}

#[test]
fn a_limit_of_three_is_three_attempts() {
    let mut world = World::new(limit(
        policy(job(Kind::PyTorch), RestartPolicy::OnFailure),
        3,
    ));
    let mut attempts = 0;
    while world.state_or_none() != Some("Failed") {
        world.now += 1000;
        world.run_all();
        world.exit(worker(0), 1);
        attempts += 1;
        world.settle();
        assert!(attempts < 10);
    }
    assert_eq!(attempts, 3);
    assert_eq!(
        world.message(),
        "Job j has failed because it has reached the specified backoff limit"
    );
    assert!(world.observed.status.completion_time.is_some());
}

impl World {
    fn state_or_none(&self) -> Option<&'static str> {
        self.observed
            .status
            .conditions
            .last()
            .map(|condition| condition.kind.name())
    }
}

#[test]
fn exit_codes_decide_under_exit_code() {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::ExitCode));
    world.run_all();
    world.exit(worker(0), 130);
    world.run_all();
    assert_eq!(
        (world.state(), world.observed.status.trainyard.attempt),
        ("Running", 2)
    );
    world.exit(worker(0), 1);
    world.settle();
    assert_eq!(world.state(), "Failed");
    assert_eq!(
        world.message(),
        "job \"j\" is failing because \"Worker\" replica(s) failed."
    );
    assert!(
        world.observed.status.completion_time.is_some(),
        "the end always has a time"
    );
}

#[test]
fn evicted_pod_restarts_under_exit_code() {
    let mut world = World::new(policy(job(Kind::Tf), RestartPolicy::ExitCode));
    world.run_all();
    world.pod(worker(0)).phase = PodPhase::Failed;
    world.run_all();
    assert_eq!(world.state(), "Running");
    assert_eq!(world.observed.status.trainyard.spent.infrastructure, 1);
}

#[test]
fn never_means_that_a_crash_ends_the_job() {
    let mut world = World::new(job(Kind::Tf));
    world.run_all();
    world.exit(worker(1), 1);
    world.settle();
    assert_eq!(world.state(), "Failed");
    assert_eq!(
        world.message(),
        "TFJob n/j has failed because 1 Worker replica(s) failed."
    );
    assert_eq!(
        world.pods(),
        ["j-worker-1#1"],
        "no peer holds its GPU after the failure"
    );
}

#[test]
fn an_explicit_none_keeps_every_pod() {
    let mut job = job(Kind::Tf);
    job.run_policy.clean_pod_policy = Some(CleanPodPolicy::None);
    let mut world = World::new(job);
    world.run_all();
    world.exit(worker(1), 1);
    world.settle();
    assert_eq!(world.pods().len(), 3);
}

#[test]
fn a_drained_pod_is_replaced_even_under_never() {
    let mut world = World::new(job(Kind::Tf));
    world.run_all();
    let pod = world.pod(worker(1));
    pod.deleted_at = Some(at(0));
    pod.disruption = Some(Disruption::Evicted);
    world.pass();
    assert_eq!(world.observed.status.trainyard.spent.platform, 1);
    world.pass();
    assert_eq!(
        world.observed.status.trainyard.spent.platform, 1,
        "paid once"
    );
    world.observed.pods.retain(|pod| pod.slot != worker(1));
    world.run_all();
    assert_eq!((world.state(), world.pods().len()), ("Running", 3));
}

#[test]
fn compat_lets_a_drained_pod_fail_the_job() {
    let mut job = job(Kind::Tf);
    job.settings.compat.insert(Compat::DisruptionsFail);
    let mut world = World::new(job);
    world.run_all();
    world.pod(worker(1)).deleted_at = Some(at(0));
    world.settle();
    assert_eq!(world.state(), "Failed");
}

#[test]
fn pods_of_a_dead_node_are_given_up_in_time() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    world
        .observed
        .nodes
        .insert("node-1".into(), NodeHealth::SilentSince(at(100)));
    world.now = 100;
    let decision = world.pass();
    assert_eq!(decision.wake_at, Some(at(160)));
    assert_eq!(decision.reasons[0].code(), Code::NodeSilent);
    assert_eq!(world.observed.status.trainyard.attempt, 1);
    world.now = 160;
    let decision = world.pass();
    let forced: Vec<_> = decision
        .actions
        .iter()
        .filter(|action| {
            matches!(
                action,
                Action::DeletePod {
                    removal: Removal::Forced,
                    ..
                }
            )
        })
        .collect();
    assert_eq!(forced.len(), 1);
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert_eq!(world.observed.status.trainyard.spent.infrastructure, 1);
    world.observed.nodes.clear();
    world.run_all();
    assert_eq!(world.state(), "Running");
}

#[test]
fn a_pod_of_an_older_attempt_is_never_counted() {
    let mut world = World::new(policy(job(Kind::PyTorch), RestartPolicy::OnFailure));
    world.run_all();
    world.exit(worker(0), 1);
    world.pass();
    // A zombie of attempt 1 succeeds after attempt 2 has begun.
    world.observed.pods = vec![ObservedPod::at(MASTER, 1, PodPhase::Succeeded)];
    let decision = world.pass();
    assert_eq!(world.state(), "Restarting");
    assert_eq!(decision.reasons[0].code(), Code::WaitingForOldPods);
    assert!(
        !decision
            .actions
            .iter()
            .any(|action| matches!(action, Action::CreatePod { .. }))
    );
}

#[test]
fn an_old_view_is_not_acted_upon() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    let newest = world.observed.clone();
    world.observed.pods.clear();
    world.observed.version = 0;
    let decision = decide(&world.job, &world.observed, at(1));
    assert_eq!(
        (decision.reasons[0].code(), decision.actions.len()),
        (Code::StaleView, 0)
    );
    assert_eq!(decision.status, newest.status);
    // A status older than the pods is not acted upon either.
    let mut observed = newest;
    observed.status = JobStatus::default();
    let decision = decide(&world.job, &observed, at(1));
    assert_eq!(
        (decision.reasons[0].code(), decision.actions.len()),
        (Code::StaleView, 0)
    );
}

#[test]
fn vanished_rank_restarts_gang() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    world.exit(worker(0), 0);
    world.pass();
    world.observed.pods.retain(|pod| pod.slot != worker(0));
    world.settle();
    assert_eq!(
        world.pods(),
        ["j-worker-1#1"],
        "it succeeded and is not run again"
    );
    world.observed.pods.clear();
    world.settle();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    assert_eq!(world.observed.status.trainyard.spent.platform, 1);
    assert_eq!(world.pods(), ["j-worker-0#2", "j-worker-1#2"]);
}

#[test]
fn terminal_means_terminal() {
    let mut world = World::new(job(Kind::Jax));
    world.run_all();
    world.exit(worker(0), 1);
    world.settle();
    let ended = world.observed.status.clone();
    world.observed.pods.clear();
    world.now = 1000;
    let decision = world.settle();
    assert_eq!(decision.status, ended);
    assert_eq!(world.pods().len(), 0);
    assert_eq!(decision.reasons[0].code(), Code::Ended);
    assert_eq!(
        decision.wake_at, None,
        "a resync of ended jobs costs nothing"
    );
}
