//! Injected faults, when they are due.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use trainyard_core::{
    job::NodeHealth,
    spec::{Job, Slot},
};

use super::{Engine, steps::Steps, table::Key};
use crate::{
    HostError, Ranks,
    inject::{At, Fault, Injection, Targets},
    request::RunEvent,
    store::{InjectionResult, Outcome},
    wire::Order,
};

/// The injected faults of a run, as they were asked for.
#[derive(Debug, Default)]
pub(super) struct Faults {
    planned: Vec<Planned>,
    /// When the first pod was started.
    first_pod: Option<Instant>,
}

/// One fault, with the pods it affects.
#[derive(Debug)]
struct Planned {
    injection: Injection,
    slots: Vec<Slot>,
    /// What it came to, once it took place.
    fired: Option<InjectionResult>,
}

impl Faults {
    /// Refuses a fault that names a rank or pod that the job lacks.
    pub(super) fn new(job: &Job, injections: &[Injection]) -> Result<Self, HostError> {
        let (ranks, replicas) = (Ranks::of(job), job.replicas());
        let mut planned = Vec::new();
        for injection in injections {
            let refused = |named: String| {
                move |count| HostError::NoSuchRank {
                    injection: injection.to_string(),
                    named,
                    count,
                }
            };
            let slots = match &injection.targets {
                Targets::Rank(rank) => {
                    let found = ranks.pod_of(&replicas, *rank);
                    let found = found.ok_or_else(|| ranks.count(&replicas));
                    vec![found.map_err(refused(format!("rank {rank}")))?]
                }
                Targets::Pods(pods) => pods
                    .iter()
                    .map(|pod| {
                        let found = ranks.pod_at(&replicas, *pod);
                        found.map_err(refused(format!("pod {pod}")))
                    })
                    .collect::<Result<_, _>>()?,
            };
            planned.push(Planned {
                injection: injection.clone(),
                slots,
                fired: None,
            });
        }
        Ok(Self {
            planned,
            first_pod: None,
        })
    }

    /// The first pod is started: times count from then.
    pub(super) fn begin(&mut self, now: Instant) {
        self.first_pod.get_or_insert(now);
    }

    /// When the clock next calls for one that is not overdue.
    pub(super) fn due(&self) -> Option<Instant> {
        let first_pod = self.first_pod?;
        let now = Instant::now();
        let pending = self.planned.iter().filter(|one| one.fired.is_none());
        let times = pending.filter_map(|planned| match planned.injection.at {
            At::Elapsed(elapsed) => Some(first_pod + elapsed),
            At::Step(_) => None,
        });
        // An overdue one waits for its pod, whose start is an event of its own.
        times.filter(|at| *at > now).min()
    }

    /// What became of every fault in a run that ended with `outcome`.
    pub(super) fn results(
        &self,
        outcome: Outcome,
        steps: &Steps,
        already_succeeded: Option<&str>,
    ) -> Vec<InjectionResult> {
        let end = End {
            outcome,
            ran: self.first_pod.map(|first| first.elapsed()),
            first_step: steps.first,
            last_step: steps.last,
            already_succeeded,
        };
        let faults = self.planned.iter();
        faults
            .map(|planned| match &planned.fired {
                Some(fired) => fired.clone(),
                None => InjectionResult {
                    fault: planned.injection.to_string(),
                    reason: Some(end.reason_not_injected(&planned.injection)),
                    ..InjectionResult::default()
                },
            })
            .collect()
    }
}

impl Engine<'_> {
    /// Lets every fault that is due, and whose pods run, take place.
    pub(super) fn inject(&mut self, now: Instant) {
        let Some(first_pod) = self.faults.first_pod else {
            return;
        };
        let step = self.steps.last;
        let mut faults = std::mem::take(&mut self.faults.planned);
        for planned in faults.iter_mut().filter(|planned| planned.fired.is_none()) {
            let due = match planned.injection.at {
                At::Elapsed(elapsed) => first_pod + elapsed <= now,
                At::Step(wanted) => step.is_some_and(|step| step >= wanted),
            };
            let slots = planned.slots.iter();
            let keys: Option<Vec<Key>> = slots.map(|slot| self.pods.running(*slot)).collect();
            if let Some(keys) = keys.filter(|_| due) {
                let mut fired = self.inject_one(&planned.injection, &keys);
                fired.after_millis = u64::try_from((now - first_pod).as_millis()).ok();
                planned.fired = Some(fired);
            }
        }
        self.faults.planned = faults;
    }

    fn inject_one(&mut self, injection: &Injection, keys: &[Key]) -> InjectionResult {
        let words = injection.to_string();
        let lost_node = format!("{}-lost-{}", self.site.node, self.stored.nodes.len() + 1);
        let mut names = Vec::new();
        let mut attempt = None;
        for key in keys {
            let order = match injection.fault {
                Fault::Kill => Order::Kill {
                    container: self.pods.training_container(*key, self.job.kind),
                    code: None,
                },
                Fault::Exit { code } => Order::Kill {
                    container: self.pods.training_container(*key, self.job.kind),
                    code: Some(code),
                },
                Fault::Hang | Fault::NodeLoss => Order::Freeze,
                Fault::Slow { factor } => Order::Slow { factor },
            };
            self.pods.order(*key, &order, &[]);
            if let Some(entry) = self.pods.get_mut(*key) {
                entry.injected = Some(words.clone());
                names.push(entry.name.clone());
                attempt = Some(entry.attempt);
                if injection.fault == Fault::NodeLoss {
                    entry.node.clone_from(&lost_node);
                }
            }
        }
        if injection.fault == Fault::NodeLoss {
            self.stored.nodes.insert(lost_node, NodeHealth::Deleted);
            self.schedule.request();
        }
        let mut sentence = format!("injecting fault `{words}` into `{}`", names.join("`, `"));
        if let (Targets::Rank(_), [key]) = (&injection.targets, keys)
            && let Some(others) = self.beside(*key)
        {
            sentence.push_str(&others);
        }
        self.outlet.emit(RunEvent::Injected(sentence));
        InjectionResult {
            fault: words,
            fired: true,
            at: Some(Timestamp::now()),
            attempt,
            step: self.steps.last,
            pods: names,
            ..InjectionResult::default()
        }
    }

    /// The words for a rank that shares its pod, to which a fault happens as a whole.
    fn beside(&self, key: Key) -> Option<String> {
        let slot = self.pods.get(key)?.slot;
        let held = Ranks::of(self.job).of_pod(&self.job.replicas(), slot)?;
        let (first, last) = (held.start(), held.end());
        (first < last)
            .then(|| format!(", which has ranks {first} to {last}; all of them are affected"))
    }
}

/// How a run ended, as far as it says why a fault did not take place.
#[derive(Debug)]
struct End<'a> {
    outcome: Outcome,
    /// Since the first pod was started.
    ran: Option<Duration>,
    first_step: Option<u64>,
    last_step: Option<u64>,
    already_succeeded: Option<&'a str>,
}

impl End<'_> {
    fn reason_not_injected(&self, injection: &Injection) -> String {
        let ended = match self.outcome {
            Outcome::Stopped => "was stopped",
            Outcome::Failed => "failed",
            Outcome::Succeeded => "ended",
        };
        let who = match &injection.targets {
            Targets::Rank(rank) => format!("rank {rank} was"),
            Targets::Pods(pods) => {
                let pods: Vec<String> = pods.iter().map(u32::to_string).collect();
                format!("pods {} were", pods.join(", "))
            }
        };
        let Some(ran) = self.ran else {
            return format!("the job {ended} before a pod was started");
        };
        let reason = match (injection.at, self.first_step, self.last_step) {
            (At::Elapsed(at), ..) if ran < at => {
                let (ran, at) = (ran.as_secs_f64(), at.as_secs_f64());
                format!("the job {ended} after {ran:.1}s, before {at}s")
            }
            (At::Elapsed(at), ..) => {
                format!("{who} not running at {}s or later", at.as_secs_f64())
            }
            (At::Step(_), _, None) => "no step was found in the output".to_owned(),
            (At::Step(wanted), _, Some(last)) if last < wanted => {
                format!("the job {ended} at step {last}, before step {wanted}")
            }
            (At::Step(wanted), Some(first), _) if first > wanted => format!(
                "the program resumed at step {first}, past step {wanted}, and {who} not running any more"
            ),
            (At::Step(wanted), ..) => {
                format!("{who} not running when step {wanted} was reported, or later")
            }
        };
        match self.already_succeeded {
            Some(run) => format!("{reason}; run `{run}` had already succeeded"),
            None => reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_fault_did_not_take_place() {
        let none = End {
            outcome: Outcome::Succeeded,
            ran: Some(Duration::from_millis(1_250)),
            first_step: None,
            last_step: None,
            already_succeeded: None,
        };
        let steps = |first, last| End {
            first_step: Some(first),
            last_step: Some(last),
            ..none
        };
        let cases = [
            (
                End {
                    ran: None,
                    outcome: Outcome::Stopped,
                    ..none
                },
                "kill rank=0 at=1s",
                "the job was stopped before a pod was started",
            ),
            (
                End { ..none },
                "kill rank=0 at=3s",
                "the job ended after 1.2s, before 3s",
            ),
            (
                End { ..none },
                "node-loss pods=1,2 at=1s",
                "pods 1, 2 were not running at 1s or later",
            ),
            (
                End {
                    already_succeeded: Some("a"),
                    ..none
                },
                "kill rank=0 at=3s",
                "the job ended after 1.2s, before 3s; run `a` had already succeeded",
            ),
            (
                End { ..none },
                "hang rank=1 at=step:20",
                "no step was found in the output",
            ),
            (
                End {
                    outcome: Outcome::Failed,
                    ..steps(1, 12)
                },
                "hang rank=1 at=step:20",
                "the job failed at step 12, before step 20",
            ),
            (
                steps(784, 784),
                "hang rank=1 at=step:20",
                "the program resumed at step 784, past step 20, and rank 1 was not running any more",
            ),
            (
                steps(1, 20),
                "hang rank=1 at=step:20",
                "rank 1 was not running when step 20 was reported, or later",
            ),
        ];
        for (end, fault, want) in cases {
            let injection = fault.parse().expect("the fault can be read");
            assert_eq!(end.reason_not_injected(&injection), want, "{fault}");
        }
    }
}
