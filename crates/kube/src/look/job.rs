//! A job as it was found.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use trainyard_core::{
    finding::{Finding, Severity},
    job::{self, Account, ConditionStatus, ConditionType, JobStatus, Unreadable},
    spec::{self, Job, Kind, RuntimeName, annotation},
};

use crate::{JobKey, convert, crd, key::KUEUE_QUEUE, view::JobView};

/// A job as it was found.
#[derive(Clone, Debug)]
pub struct JobSeen {
    /// Its name.
    pub key: JobKey,
    /// Its identity.
    pub uid: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When its deletion was asked for.
    pub deleted_at: Option<Timestamp>,
    /// Who must agree before it goes.
    pub finalizers: Vec<String>,
    /// The job, where its spec is valid.
    pub job: Option<Job>,
    /// Why its spec is not.
    pub errors: Vec<Finding>,
    /// Its status; the default where nobody has written one, and only its conditions where it cannot be read.
    pub status: JobStatus,
    /// Why its status cannot be read.
    pub unreadable: Option<Unreadable>,
    /// `spec.runPolicy.suspend`, whatever else the spec holds.
    pub suspend: bool,
    /// The queue of Kueue that it belongs to.
    pub queue: Option<String>,
    /// The restart that it is asked for.
    pub restart: Option<String>,
    /// `apiVersion` in which it was read.
    pub api_version: String,
}

/// What of the metadata only people look at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Extra {
    finalizers: Vec<String>,
    annotations: BTreeMap<String, String>,
}

impl JobSeen {
    /// The job of a view; nothing where it is of no kind that is known.
    pub(super) fn new(view: &JobView) -> Option<Self> {
        Self::with_runtime(view, None)
    }

    /// The same; a `TrainJob` with its runtime, where that is known.
    pub(super) fn with_runtime(view: &JobView, runtime: Option<&Value>) -> Option<Self> {
        let kind = view.kind?;
        let object: Value = serde_json::from_str(&view.text).ok()?;
        let extra = object.get("metadata").cloned().unwrap_or_default();
        let extra = Extra::deserialize(extra).unwrap_or_default();
        let text = |key: &str| {
            let value = object.get(key).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let api_version = text("apiVersion");
        let is_true = |pointer| object.pointer(pointer) == Some(&Value::Bool(true));
        let suspend = match kind {
            Kind::Train => is_true("/spec/suspend"),
            _ => is_true("/spec/runPolicy/suspend"),
        };
        let created = if kind.is_mpi() {
            convert::as_created(&object).unwrap_or(object)
        } else {
            object
        };
        let checked = spec::train_job_from_value(&created, runtime);
        let mut errors = checked.findings;
        errors.retain(|finding| finding.severity == Severity::Error);
        // Without its runtime nothing is known to be wrong with it.
        let named = RuntimeName::of(&created).filter(|_| kind == Kind::Train && runtime.is_none());
        if named.is_some_and(|named| named.built_in().is_none()) {
            errors.clear();
        }
        let (status, unreadable) = match view.read_status() {
            Ok(status) => (status, None),
            Err(why) => (JobStatus::clone(&why.shown), Some(why)),
        };
        Some(Self {
            key: JobKey {
                kind,
                namespace: view.metadata.namespace.as_str().into(),
                name: view.metadata.name.as_str().into(),
            },
            uid: view.metadata.uid.clone(),
            created_at: view.metadata.creation_timestamp,
            deleted_at: view.metadata.deletion_timestamp,
            finalizers: extra.finalizers,
            job: checked.job,
            errors,
            status,
            unreadable,
            suspend,
            queue: view.metadata.label(KUEUE_QUEUE).map(str::to_owned),
            restart: extra.annotations.get(annotation::RESTART).cloned(),
            api_version,
        })
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.key.kind
    }

    /// Its resource and name, as `kubectl` takes them.
    pub fn resource(&self) -> String {
        format!("{}/{}", crd::singular(self.key.kind), self.key.name)
    }

    /// How many pods it wants.
    pub fn pods(&self) -> u32 {
        self.job.as_ref().map_or(0, Job::total_replicas)
    }

    /// The controller that owns it, where that is another one.
    pub fn manager(&self) -> Option<&str> {
        let job = self.job.as_ref()?;
        let manager = job.run_policy.managed_by.as_deref()?;
        (manager != job.kind.own_manager()).then_some(manager)
    }

    /// How many failures each account bears; one that is not listed bears any number.
    pub fn limits(&self) -> BTreeMap<Account, u32> {
        let Some(job) = &self.job else {
            return BTreeMap::new();
        };
        let limits = Account::ALL.into_iter();
        limits
            .filter_map(|account| Some((account, job::budget_limit(job, account)?)))
            .collect()
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.holds(ConditionType::Succeeded) || self.holds(ConditionType::Failed)
    }

    fn holds(&self, kind: ConditionType) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions
            .any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
    }

    /// One word for where it is.
    pub fn state(&self) -> &'static str {
        if self.deleted_at.is_some() {
            return "Deleting";
        }
        if self.unreadable.is_some() && !self.has_ended() {
            return "Unreadable";
        }
        if !self.errors.is_empty() && !self.has_ended() {
            return "Invalid";
        }
        let mut conditions = self.status.conditions.iter().rev();
        let last = conditions.find(|condition| condition.status == ConditionStatus::True);
        last.map_or("New", |condition| condition.kind.name())
    }
}
