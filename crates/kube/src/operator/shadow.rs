//! Beside another operator: what would have been made otherwise.
//!
//! # Flow
//! A job is compared until what would be decided for it has not changed for [`SETTLED`]: between two
//! steps of the other operator everything differs. Then its objects in the cluster are compared with
//! those that would have been made, and what is left to do and to write is logged. Each difference is logged
//! once for each generation of the job.
//!
//! # Guarantees
//! Nothing is written: no object, no status, no event, no lease. The fence of an operator in shadow
//! never opens.

mod compare;
mod quantity;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tracing::{debug, info};
use trainyard_core::{
    job::{
        Action, Autoscaler, Condition, Decision, IndexSet, Observed, PodPhase, PodUid, SharedInputs,
    },
    launch::{self, Existing, Object, Plan},
    spec::{Job, Kind, Role, Slot},
};

use self::compare::Difference;
use crate::{
    api::CallError,
    key::JobKey,
    operator::Operator,
    path::{object_path, resource},
    view::JobView,
};

/// What would be decided must stay the same for this long.
const SETTLED: Duration = Duration::from_secs(10);
/// Objects of one job that are read at once.
const AT_ONCE: usize = 8;
/// Lines logged of one generation of a job.
const MOST_LINES: usize = 1_000;

/// What an operator in shadow remembers.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    seen: Mutex<BTreeMap<JobKey, Seen>>,
}

/// What was seen of one job.
#[derive(Debug)]
struct Seen {
    uid: String,
    generation: i64,
    /// What would be done, and since when that is so.
    would: Would,
    since: Instant,
    /// Objects that were compared, each as one incarnation: another pod of the same name is another
    /// object.
    compared: BTreeSet<String>,
    /// Lines that were logged.
    logged: BTreeSet<Line>,
}

/// What would be done for a job.
#[derive(Clone, Debug, PartialEq)]
struct Would {
    actions: Vec<Action>,
    conditions: Vec<Condition>,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    kind: String,
    difference: Difference,
}

impl Shadow {
    fn seen(&self) -> MutexGuard<'_, BTreeMap<JobKey, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn forget(&self, key: &JobKey) {
        self.seen().remove(key);
    }

    /// Notes what would be done; returns when it will have settled, unless it has.
    fn settles(&self, key: &JobKey, view: &JobView, would: Would, now: Instant) -> Option<Instant> {
        let mut all = self.seen();
        let (uid, generation) = (&view.metadata.uid, view.metadata.generation);
        match all.get_mut(key) {
            Some(seen) if seen.uid == *uid && seen.generation == generation => {
                if seen.would != would {
                    seen.would = would;
                    seen.since = now;
                }
                Some(seen.since + SETTLED).filter(|at| *at > now)
            }
            _ => {
                let seen = Seen {
                    uid: uid.clone(),
                    generation,
                    would,
                    since: now,
                    compared: BTreeSet::new(),
                    logged: BTreeSet::new(),
                };
                all.insert(key.clone(), seen);
                Some(now + SETTLED)
            }
        }
    }

    /// Whether an object is to be compared now.
    fn is_new(&self, key: &JobKey, object: &str) -> bool {
        let all = self.seen();
        all.get(key)
            .is_some_and(|seen| !seen.compared.contains(object))
    }

    /// Notes that all `objects` of the job were compared, now or before; others are gone.
    fn note_compared(&self, key: &JobKey, objects: BTreeSet<String>) {
        if let Some(seen) = self.seen().get_mut(key) {
            seen.compared = objects;
        }
    }

    /// Whether a line was not logged before.
    fn is_news(&self, key: &JobKey, line: &Line) -> bool {
        let mut all = self.seen();
        all.get_mut(key)
            .is_some_and(|seen| seen.logged.len() < MOST_LINES && seen.logged.insert(line.clone()))
    }
}

impl Operator {
    /// Compares a job of another operator; returns when to compare again.
    pub(crate) async fn compare_in_shadow(
        &self,
        shadow: &Shadow,
        key: &JobKey,
        view: &JobView,
        job: &Job,
        observed: &Observed,
        decision: &Decision,
    ) -> Result<Option<tokio::time::Instant>, CallError> {
        let would = Would {
            actions: decision.actions.clone(),
            conditions: untimed(&decision.status.conditions),
        };
        if let Some(at) = shadow.settles(key, view, would, Instant::now()) {
            return Ok(Some(at.into()));
        }
        let (objects, mut lines) = self.compare(shadow, key, job, observed).await?;
        debug!(job = %key, objects = objects.len(), "Compared");
        shadow.note_compared(key, objects);
        for action in &decision.actions {
            if let Some((line, name)) = left_to_do(job, action) {
                lines.entry(line).or_insert((name, 0)).1 += 1;
            }
        }
        let written = compare::conditions(&decision.status.conditions, &observed.status.conditions);
        for difference in written {
            let kind = key.kind.name().to_owned();
            lines.insert(Line { kind, difference }, (key.name.to_string(), 1));
        }
        for (line, (name, objects)) in lines {
            self.log_difference(shadow, key, &line, &name, objects);
        }
        Ok(None)
    }

    /// A job that this operator would refuse, and the other has taken.
    pub(crate) fn log_refusal_in_shadow(
        &self,
        shadow: &Shadow,
        key: &JobKey,
        view: &JobView,
        sentence: &str,
    ) {
        let nothing = Would {
            actions: Vec::new(),
            conditions: Vec::new(),
        };
        shadow.settles(key, view, nothing, Instant::now());
        let refused = format!("refused: {sentence}");
        let line = whole(key.kind.name(), (&refused, "taken"));
        self.log_difference(shadow, key, &line, &key.name, 1);
    }

    /// Logs one line, unless it was logged.
    fn log_difference(
        &self,
        shadow: &Shadow,
        key: &JobKey,
        line: &Line,
        name: &str,
        objects: usize,
    ) {
        if !shadow.is_news(key, line) {
            return;
        }
        let Line { kind, difference } = line;
        info!(
            job = %key,
            object = kind,
            name,
            objects,
            path = difference.path,
            ours = difference.ours,
            theirs = difference.theirs,
            "Differs"
        );
        self.caller.metrics.differs(key, kind);
    }

    /// Compares what is there of the job and was not compared before. Lines that several objects share
    /// are logged once, with the name of the first and their number.
    async fn compare(
        &self,
        shadow: &Shadow,
        key: &JobKey,
        job: &Job,
        observed: &Observed,
    ) -> Result<(BTreeSet<String>, BTreeMap<Line, (String, usize)>), CallError> {
        let mut lines: BTreeMap<Line, (String, usize)> = BTreeMap::new();
        let mut all = BTreeSet::new();
        let mut wanted = Vec::new();
        for (object, incarnation) in self.wanted(job, observed) {
            let identity = identity(&object, incarnation.as_ref());
            if shadow.is_new(key, &identity) {
                wanted.push(object);
            }
            all.insert(identity);
        }
        let calls = wanted.iter().map(|object| self.theirs(key, object));
        let mut found = stream::iter(calls.collect::<Vec<_>>()).buffered(AT_ONCE);
        for object in &wanted {
            let Some(theirs) = found.next().await else {
                break;
            };
            let ours = object.to_value();
            let kind = ours.get("kind").and_then(Value::as_str).unwrap_or_default();
            let differences = match theirs? {
                Theirs::There(theirs) if compares(object) => compare::objects(&ours, &theirs),
                Theirs::There(_) | Theirs::Hidden => Vec::new(),
                Theirs::Missing => vec![whole(kind, MADE).difference],
            };
            for difference in differences {
                let kind = kind.to_owned();
                let (_, objects) = lines
                    .entry(Line { kind, difference })
                    .or_insert_with(|| (object.name().to_owned(), 0));
                *objects += 1;
            }
        }
        drop(found);
        Ok((all, lines))
    }

    /// The objects of the job that are there, as they would have been made, and those that all share;
    /// pods with their incarnation.
    fn wanted(&self, job: &Job, observed: &Observed) -> Vec<(Object, Option<PodUid>)> {
        let mut objects = Vec::new();
        // A job that has no pods is suspended or over, and so may be what they share.
        if !observed.pods.is_empty() {
            let inputs = SharedInputs {
                replicas: job.replicas(),
                running_workers: running_workers(observed),
            };
            let shared = launch::shared(job, &inputs, None, &self.cluster);
            let shared = shared.unwrap_or_default().into_iter();
            objects.extend(shared.map(|object| (object, None)));
        }
        if let Ok(plan) = Plan::new(job, &self.cluster) {
            for pod in observed.pods.iter().filter(|pod| pod.deleted_at.is_none()) {
                let made = plan.pod(pod.slot, pod.attempt);
                let made = made.ok().map(Object::from);
                objects.extend(made.map(|made| (made, Some(pod.uid.clone()))));
            }
        }
        for (role, indices) in &observed.services {
            let slots = indices.iter().map(|index| Slot::new(*role, index));
            let services = slots.filter_map(|slot| launch::service(job, slot));
            objects.extend(services.map(|service| (Object::Service(Box::new(service)), None)));
        }
        if observed.autoscaler != Autoscaler::Missing {
            let made = launch::autoscaler(job);
            objects.extend(made.map(|made| (Object::Autoscaler(Box::new(made)), None)));
        }
        objects
    }

    /// The object of the cluster that has the name of `object`.
    async fn theirs(&self, key: &JobKey, object: &Object) -> Result<Theirs, CallError> {
        let path = object_path(&key.namespace, resource(object));
        match self.caller.get::<Value>(&path, object.name()).await {
            Ok(theirs) => Ok(Theirs::There(theirs)),
            Err(error) if error.is_not_found() => Ok(Theirs::Missing),
            Err(error) if error.is_refusal() => {
                debug!(job = %key, name = object.name(), %error, "Cannot read the object");
                Ok(Theirs::Hidden)
            }
            Err(error) => Err(error),
        }
    }
}

/// What is in the cluster.
enum Theirs {
    There(Value),
    Missing,
    /// It may not be read.
    Hidden,
}

fn running_workers(observed: &Observed) -> IndexSet {
    let running = observed
        .pods
        .iter()
        .filter(|pod| pod.slot.role == Role::Worker && pod.phase == PodPhase::Running);
    running.map(|pod| pod.slot.index).collect()
}

/// Whether more counts than that an object is there: what is kept when it is there already is not
/// changed either, except that another attempt is another pod.
fn compares(object: &Object) -> bool {
    object.existing() == Existing::Update || matches!(object, Object::Pod(_) | Object::Job(_))
}

/// A name for an object among all objects that its job has had.
fn identity(object: &Object, incarnation: Option<&PodUid>) -> String {
    let incarnation = incarnation.map_or("", PodUid::as_str);
    format!("{}/{}/{incarnation}", resource(object), object.name())
}

fn untimed(conditions: &[Condition]) -> Vec<Condition> {
    let untimed = |condition: &Condition| Condition {
        last_update_time: jiff::Timestamp::UNIX_EPOCH,
        last_transition_time: jiff::Timestamp::UNIX_EPOCH,
        ..condition.clone()
    };
    conditions.iter().map(untimed).collect()
}

/// What would still be done to which object, and the other operator has not done.
fn left_to_do(job: &Job, action: &Action) -> Option<(Line, String)> {
    let is_batch = |slot: &Slot| job.kind == Kind::MpiV2 && slot.role == Role::Launcher;
    let pod = |slot: &Slot| if is_batch(slot) { "Job" } else { "Pod" };
    let own = || job.name.as_str().to_owned();
    let (kind, name, line) = match action {
        Action::CreatePod { slot, .. } => (pod(slot), job.pod_name(*slot), MADE),
        Action::DeletePod { slot, .. } => (pod(slot), job.pod_name(*slot), REMOVED),
        Action::CreateService(slot) => ("Service", job.pod_name(*slot), MADE),
        Action::DeleteService(slot) => ("Service", job.pod_name(*slot), REMOVED),
        Action::ApplyAutoscaler => ("HorizontalPodAutoscaler", own(), MADE),
        Action::DeleteAutoscaler => ("HorizontalPodAutoscaler", own(), REMOVED),
        Action::DeleteJob => (job.kind.name(), own(), REMOVED),
        // What pods share is compared object by object; no gang waits for nodes in shadow, and no other
        // scheduler gets gangs. No other operator restarts in place.
        Action::ApplyShared(_)
        | Action::RelabelPod { .. }
        | Action::ApplyGroup
        | Action::DeleteGroup
        | Action::SeatPod { .. }
        | Action::AskSeats
        | Action::ReleaseSeats { .. }
        | Action::StartPreflight { .. }
        | Action::EndPreflight { .. } => return None,
    };
    Some((whole(kind, line), name))
}

/// What is said of an object as a whole: ours, theirs.
const MADE: (&str, &str) = ("made", "not there");
const REMOVED: (&str, &str) = ("removed", "there");

fn whole(kind: &str, (ours, theirs): (&str, &str)) -> Line {
    Line {
        kind: kind.to_owned(),
        difference: Difference {
            path: String::new(),
            ours: ours.to_owned(),
            theirs: theirs.to_owned(),
        },
    }
}
