//! A stored status, read field by field.
//!
//! Three kinds of content are distinguished:
//! - what this version understands becomes a field of [`JobStatus`];
//! - what it does not know (fields, conditions of others, variants of enumerations that only inform)
//!   stays in [`super::Kept`] and is written back;
//! - what a decision depends on and has no meaning (an attempt that is not a number) makes the status
//!   [`Unreadable`]: nothing may be decided, and nothing may be written over it.
//!
//! Invariants: reading and writing without a decision between them changes nothing. A condition Succeeded or
//! Failed that holds is found whatever else the status holds.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{
    Deserialize,
    de::{
        DeserializeOwned, IntoDeserializer as _,
        value::{Error as NoVariant, StrDeserializer},
    },
};
use serde_json::{Map, Value};

use super::{
    CheckpointRecord, Condition, ConditionStatus, ConditionType, FailedBy, Hold, JobRecord,
    JobStatus, Kept, LastEnd, LastFailure, LastRestart, ProgressRecord, RoleStatus,
    WithoutProgress,
};
use crate::{job::conditions, reason::StoredReason, spec::Role};

/// Counters above this are invalid: additions must not overflow, whatever was stored.
const COUNT_MAX: u32 = 1_000_000_000;
/// Longest description of a value that cannot be read, in characters.
const PROBLEM_CHARS: usize = 240;

/// Why a status cannot be read. Nothing is decided on it, and nothing is written over it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// The first field without a meaning, such as `status.trainyard.attempt`.
    pub field: String,
    /// What was found and what was needed.
    pub problem: String,
    /// The status for those who only show it: the conditions that could be read, and all else as it is stored.
    pub shown: Box<JobStatus>,
}

impl Unreadable {
    fn new(field: impl Into<String>, problem: impl fmt::Display) -> Self {
        let problem = problem.to_string().chars().take(PROBLEM_CHARS).collect();
        Self {
            field: field.into(),
            problem,
            shown: Box::default(),
        }
    }

    /// Whether a condition says that the job has ended.
    pub fn has_ended(&self) -> bool {
        conditions::ended(&self.shown.conditions)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` cannot be read ({}); the status is left as it is and nothing is done for the job",
            self.field, self.problem
        )
    }
}

impl std::error::Error for Unreadable {}

/// Reads a stored status.
pub fn read(stored: &Value) -> Result<JobStatus, Unreadable> {
    let fields = match stored {
        Value::Null => return Ok(JobStatus::default()),
        Value::Object(fields) => fields,
        other => {
            let mut why = Unreadable::new("status", wrong(other, "an object"));
            why.shown = Box::new(with_kept(JobStatus::default(), stored));
            return Err(why);
        }
    };
    let (conditions, fault) = read_conditions(fields.get("conditions"));
    let rest = match fault {
        None => read_rest(fields),
        Some(fault) => Err(fault),
    };
    match rest {
        Ok(rest) => Ok(with_kept(JobStatus { conditions, ..rest }, stored)),
        Err(mut why) => {
            let shown = JobStatus {
                conditions,
                ..JobStatus::default()
            };
            why.shown = Box::new(with_kept(shown, stored));
            Err(why)
        }
    }
}

fn with_kept(status: JobStatus, stored: &Value) -> JobStatus {
    let kept = Kept::of(stored, status.understood());
    JobStatus { kept, ..status }
}

/// All but the conditions.
fn read_rest(fields: &Map<String, Value>) -> Result<JobStatus, Unreadable> {
    let trainyard = match present(fields, "trainyard") {
        None => JobRecord::default(),
        Some(Value::Object(record)) => read_record(record)?,
        Some(other) => {
            let problem = wrong(other, "an object");
            return Err(Unreadable::new("status.trainyard", problem));
        }
    };
    // Counted again in every pass, so a count that cannot be read is none.
    let counts = present(fields, "replicaStatuses").and_then(Value::as_object);
    let replica_statuses = counts
        .into_iter()
        .flatten()
        .filter_map(|(role, counts)| {
            let role = variant::<Role>(role)?;
            Some((role, RoleStatus::deserialize(counts).unwrap_or_default()))
        })
        .collect();
    Ok(JobStatus {
        conditions: Vec::new(),
        replica_statuses,
        start_time: time(fields, "startTime")?,
        completion_time: time(fields, "completionTime")?,
        trainyard,
        kept: Kept::default(),
    })
}

/// The conditions of ours, and what is wrong with the list where a decision depends on it.
fn read_conditions(list: Option<&Value>) -> (Vec<Condition>, Option<Unreadable>) {
    let list = match list {
        None | Some(Value::Null) => return (Vec::new(), None),
        Some(Value::Array(list)) => list,
        Some(other) => {
            let fault = Unreadable::new("status.conditions", wrong(other, "a list"));
            return (Vec::new(), Some(fault));
        }
    };
    let mut conditions = Vec::new();
    let mut fault = None;
    for condition in list {
        let Some(kind) = own_type(condition) else {
            continue;
        };
        let word = condition.get("status");
        let status = word.and_then(Value::as_str).and_then(variant);
        let decides = matches!(kind, ConditionType::Succeeded | ConditionType::Failed);
        if decides && status.is_none() && fault.is_none() {
            let field = format!("status.conditions[type={}].status", kind.name());
            let found = wrong(word.unwrap_or(&Value::Null), "`True`, `False` or `Unknown`");
            fault = Some(Unreadable::new(field, found));
        }
        let text = |key: &str| {
            let text = condition.get(key).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let at = |key: &str| text(key).parse::<Timestamp>().ok();
        let (updated, turned) = (at("lastUpdateTime"), at("lastTransitionTime"));
        conditions.push(Condition {
            kind,
            status: status.unwrap_or(ConditionStatus::Unknown),
            reason: text("reason"),
            message: text("message"),
            last_update_time: updated.or(turned).unwrap_or(Timestamp::UNIX_EPOCH),
            last_transition_time: turned.or(updated).unwrap_or(Timestamp::UNIX_EPOCH),
        });
    }
    (conditions, fault)
}

/// The type of a condition of ours; nothing for one of another controller.
pub(super) fn own_type(condition: &Value) -> Option<ConditionType> {
    variant(condition.get("type")?.as_str()?)
}

fn read_record(stored: &Map<String, Value>) -> Result<JobRecord, Unreadable> {
    let mut fields = stored.clone();
    fields.retain(|_, value| !value.is_null());
    for key in ["replicas", "succeeded"] {
        if let Some(Value::Object(roles)) = fields.get_mut(key) {
            roles.retain(|role, _| variant::<Role>(role).is_some());
        }
    }
    // These only inform: what cannot be read of them is kept, and not known.
    let progress = fields.get("progress");
    if progress.is_some_and(|it| !reads::<ProgressRecord>(it)) {
        fields.remove("progress");
    }
    let checkpoint = fields.get("checkpoint");
    if checkpoint.is_some_and(|it| !reads::<CheckpointRecord>(it)) {
        fields.remove("checkpoint");
    }
    let stuck = fields.get("withoutProgress");
    if stuck.is_some_and(|it| !reads::<WithoutProgress>(it)) {
        fields.remove("withoutProgress");
    }
    let ends = fields.get("lastEnds");
    if ends.is_some_and(|it| !reads::<BTreeMap<String, LastEnd>>(it)) {
        fields.remove("lastEnds");
    }
    let last_restart = fields.get("lastRestart");
    if last_restart.is_some_and(|it| !reads::<LastRestart>(it)) {
        fields.remove("lastRestart");
    }
    if let Some(hold) = fields.get_mut("hold")
        && !reads::<Hold>(hold)
    {
        if let Some(hold) = hold.as_object_mut() {
            hold.remove("failure");
        }
        if !reads::<Hold>(hold) {
            fields.remove("hold");
        }
    }
    let failed_by = fields.get("failedBy");
    if failed_by.is_some_and(|it| !reads::<FailedBy>(it)) {
        fields.remove("failedBy");
    }
    if fields
        .get("waiting")
        .is_some_and(|it| !reads::<StoredReason>(it))
    {
        fields.remove("waiting");
    }
    if let Some(failure) = fields.get_mut("lastFailure")
        && !reads::<LastFailure>(failure)
    {
        if let Some(failure) = failure.as_object_mut() {
            failure.remove("verdict");
        }
        if !reads::<LastFailure>(failure) {
            fields.remove("lastFailure");
        }
    }
    let read = JobRecord::deserialize(&Value::Object(fields.clone()));
    let record = read.map_err(|error| {
        let wrong = fields.into_iter().find_map(|(key, value)| {
            let one = Value::Object(Map::from_iter([(key.clone(), value)]));
            let error = JobRecord::deserialize(&one).err()?;
            Some(Unreadable::new(format!("status.trainyard.{key}"), error))
        });
        wrong.unwrap_or_else(|| Unreadable::new("status.trainyard", error))
    })?;
    match out_of_range(&record) {
        None => Ok(record),
        Some((field, problem)) => {
            let field = format!("status.trainyard.{field}");
            Err(Unreadable::new(field, problem))
        }
    }
}

/// The first number that no operator can have counted to.
fn out_of_range(record: &JobRecord) -> Option<(&'static str, String)> {
    let spent = record.spent;
    let counts = [
        ("attempt", record.attempt),
        ("spent.user", spent.user),
        ("spent.platform", spent.platform),
        ("spent.infrastructure", spent.infrastructure),
        ("spent.preemption", spent.preemption),
        ("quickFailures", record.quick_failures),
        ("released", record.released),
        ("givenBack", record.gang.failed_starts().times),
    ];
    let preflight = record.preflight.as_ref().map(|preflight| {
        [
            ("preflight.round", preflight.round),
            ("preflight.inVain", preflight.in_vain),
        ]
    });
    let mut all = counts.into_iter().chain(preflight.into_iter().flatten());
    if let Some((field, count)) = all.find(|(_, count)| *count > COUNT_MAX) {
        let problem = format!("found {count}, needed at most {COUNT_MAX}");
        return Some((field, problem));
    }
    let spent = record.barrier.as_ref().map(|barrier| barrier.spent);
    if let Some(spent) = spent.filter(|spent| spent.as_secs() > u64::from(COUNT_MAX)) {
        let problem = format!("found {} s, needed at most {COUNT_MAX} s", spent.as_secs());
        return Some(("barrier.spent", problem));
    }
    let sound = record.ledger.is_sound();
    (!sound).then(|| ("ledger", "its times do not add up".to_owned()))
}

/// A field that is there and not `null`.
fn present<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn time(fields: &Map<String, Value>, key: &str) -> Result<Option<Timestamp>, Unreadable> {
    present(fields, key)
        .map(Timestamp::deserialize)
        .transpose()
        .map_err(|error| Unreadable::new(format!("status.{key}"), error))
}

fn reads<T: DeserializeOwned>(value: &Value) -> bool {
    T::deserialize(value).is_ok()
}

/// The variant of that name, where this version knows it.
fn variant<'a, T: Deserialize<'a>>(name: &'a str) -> Option<T> {
    let name: StrDeserializer<'a, NoVariant> = name.into_deserializer();
    T::deserialize(name).ok()
}

fn wrong(found: &Value, needed: &str) -> String {
    let found: String = found.to_string().chars().take(PROBLEM_CHARS / 2).collect();
    format!("found {found}, needed {needed}")
}
