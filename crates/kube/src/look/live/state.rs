//! What is kept of the objects that are watched.
//!
//! Pure but for the time of day, which a caller gives. Invariants: at most [`JOBS_MAX`] jobs of at most [`BYTES_MAX`] bytes and [`PODS_MAX`] pods; of jobs, the
//! oldest have no room.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use trainyard_core::spec::{Kind, annotation};

use super::LiveJob;
use crate::{
    crd,
    feed::News,
    key::JOB_LABEL,
    look::{LookError, RESOURCES},
    pod::PodEntry,
    view::{ConditionView, JobView, PodView},
};

/// Jobs that are kept.
pub(super) const JOBS_MAX: usize = 50_000;
/// Bytes of jobs that are kept: their text as the API server writes it, without what nobody reads.
const BYTES_MAX: usize = 256 << 20;
/// Pods that are kept. One takes about a kilobyte.
const PODS_MAX: usize = 100_000;
/// Containers of a pod that are kept.
const CONTAINERS_MAX: usize = 32;
/// Longest words about a trouble, in characters.
const WORDS_CHARS: usize = 600;

/// What is watched beside the jobs.
pub(super) const PODS: usize = RESOURCES.len();

/// Everything that is known.
#[derive(Debug)]
pub(super) struct State {
    jobs: BTreeMap<String, HeldJob>,
    bytes: usize,
    /// Pods by namespace and name of their job, and by their own identity.
    pods: BTreeMap<JobName, BTreeMap<Box<str>, Arc<HeldPod>>>,
    pods_kept: usize,
    sources: Vec<Source>,
    changed: Changed,
    changed_names: BTreeSet<JobName>,
    answered_at: Option<Timestamp>,
    unreachable: Option<Trouble>,
}

type JobName = (Box<str>, Box<str>);

#[derive(Debug)]
struct HeldJob {
    source: usize,
    bytes: usize,
    job: LiveJob,
}

/// A pod in brief.
#[derive(Debug)]
pub(super) struct HeldPod {
    pub(super) name: Box<str>,
    pub(super) owner: Box<str>,
    /// Whether a batch Job, the launcher of an MPI job, owns it.
    pub(super) launched: bool,
    pub(super) labels: Vec<(&'static str, Box<str>)>,
    pub(super) attempt: u32,
    pub(super) containers: Vec<Box<str>>,
    first_container: Box<str>,
    pub(super) created_at: Option<Timestamp>,
    pub(super) scheduled_at: Option<Timestamp>,
    pub(super) ready_at: Option<Timestamp>,
    pub(super) entry: PodEntry,
}

/// The labels of a slot.
const SLOT_LABELS: [&str; 3] = [
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
    "training.kubeflow.org/job-role",
];

#[derive(Debug, Default)]
struct Source {
    listed: bool,
    heard_at: Option<Timestamp>,
    trouble: Option<Trouble>,
    left_out: usize,
}

/// What has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Jobs that are new or different, or whose pods are.
    pub jobs: BTreeSet<String>,
    /// Jobs that are gone.
    pub gone: BTreeSet<String>,
    /// Whether what can be read has changed.
    pub health: bool,
}

/// Why something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried and what was found.
    pub words: String,
    /// The HTTP status of the API server, where it answered.
    pub code: Option<u16>,
    /// Since when.
    pub since: Timestamp,
}

/// How it is about one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceHealth {
    /// Its name, such as `pytorchjobs`.
    pub name: String,
    /// Whether it was listed.
    pub listed: bool,
    /// Why it cannot be read. A kind that the cluster does not serve has a trouble with code 404.
    pub trouble: Option<Trouble>,
    /// Objects for which there was no room.
    pub left_out: usize,
}

/// How old what is known is, and what is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Every resource that is watched.
    pub sources: Vec<SourceHealth>,
    /// When the API server answered last.
    pub answered_at: Option<Timestamp>,
    /// Why it does not answer now.
    pub unreachable: Option<Trouble>,
}

impl Health {
    /// Whether every kind of job that can be listed was.
    pub fn is_complete(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.all(|it| it.listed || it.trouble.is_some())
    }

    /// What is known of the resource of pods.
    pub fn pods(&self) -> Option<&SourceHealth> {
        self.sources.get(PODS)
    }

    /// Whether the cluster serves no kind of job at all.
    pub fn serves_nothing(&self) -> bool {
        let jobs = self.sources.get(..PODS).unwrap_or_default();
        let absent = |it: &SourceHealth| it.trouble.as_ref().is_some_and(|it| it.code == Some(404));
        !jobs.is_empty() && jobs.iter().all(absent)
    }
}

/// The name of a resource that is watched.
pub(super) fn source_name(index: usize) -> String {
    let kinds = RESOURCES.get(index).copied().unwrap_or_default();
    let kind = kinds.first().copied();
    kind.map_or_else(|| "pods".to_owned(), crd::plural)
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            jobs: BTreeMap::new(),
            bytes: 0,
            pods: BTreeMap::new(),
            pods_kept: 0,
            sources: (0..=PODS).map(|_| Source::default()).collect(),
            changed: Changed::default(),
            changed_names: BTreeSet::new(),
            answered_at: None,
            unreachable: None,
        }
    }

    pub(super) fn jobs(&self) -> Vec<LiveJob> {
        self.jobs.values().map(|held| held.job.clone()).collect()
    }

    pub(super) fn job(&self, uid: &str) -> Option<LiveJob> {
        self.jobs.get(uid).map(|held| held.job.clone())
    }

    pub(super) fn pods_called(&self, namespace: &str, name: &str) -> Vec<Arc<HeldPod>> {
        let pods = self.pods.get(&(namespace.into(), name.into()));
        pods.into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }

    pub(super) fn nodes(&self) -> BTreeSet<String> {
        let pods = self.pods.values().flat_map(BTreeMap::values);
        let nodes = pods.filter_map(|pod| pod.entry.node.as_deref());
        nodes
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    pub(super) fn take_changed(&mut self) -> Changed {
        let mut changed = std::mem::take(&mut self.changed);
        let names = std::mem::take(&mut self.changed_names);
        if !names.is_empty() {
            let jobs = self.jobs.iter().filter(|(_, held)| {
                let name = (held.job.namespace().into(), held.job.name().into());
                names.contains(&name)
            });
            changed.jobs.extend(jobs.map(|(uid, _)| uid.clone()));
        }
        changed
    }

    pub(super) fn health(&self) -> Health {
        let sources = self.sources.iter().enumerate();
        let sources = sources.map(|(index, source)| SourceHealth {
            name: source_name(index),
            listed: source.listed,
            trouble: source.trouble.clone(),
            left_out: source.left_out,
        });
        Health {
            sources: sources.collect(),
            answered_at: self.answered_at,
            unreachable: self.unreachable.clone(),
        }
    }

    /// When anything of this resource came last, or of any where none is named.
    pub(super) fn heard_at(&self, source: Option<usize>) -> Option<Timestamp> {
        match source {
            Some(index) => self.sources.get(index)?.heard_at,
            None => self.answered_at,
        }
    }

    /// The API server has answered.
    pub(super) fn answered(&mut self, now: Timestamp) {
        self.answered_at = self.answered_at.max(Some(now));
        self.changed.health |= self.unreachable.take().is_some();
    }

    /// It has not, or says no; `source` is what was asked for.
    pub(super) fn failed(&mut self, source: Option<usize>, error: &LookError, now: Timestamp) {
        let words: String = error.to_string().chars().take(WORDS_CHARS).collect();
        let code = error.code();
        if code.is_some() {
            self.answered(now);
        } else {
            let since = self.unreachable.as_ref().map_or(now, |it| it.since);
            self.changed.health |= self.unreachable.is_none();
            let words = words.clone();
            self.unreachable = Some(Trouble { words, code, since });
        }
        let Some(index) = source else { return };
        if matches!(code, Some(401 | 403 | 404)) {
            self.forget(index);
        }
        if let Some(source) = self.sources.get_mut(index) {
            let since = source.trouble.as_ref().map_or(now, |it| it.since);
            self.changed.health |= source.trouble.is_none();
            source.trouble = Some(Trouble { words, code, since });
        }
    }

    /// Something of this resource came.
    fn heard(&mut self, index: usize, now: Timestamp) {
        self.answered(now);
        if let Some(source) = self.sources.get_mut(index) {
            source.heard_at = Some(now);
            self.changed.health |= source.trouble.take().is_some();
        }
    }

    /// A list of this resource is complete.
    fn listed(&mut self, index: usize, left_out: usize) {
        if let Some(source) = self.sources.get_mut(index) {
            self.changed.health |= !source.listed;
            source.listed = true;
            source.left_out = left_out;
        }
    }

    /// Drops what is known of a resource.
    fn forget(&mut self, index: usize) {
        if index == PODS {
            self.changed_names.extend(self.pods.keys().cloned());
            self.pods.clear();
            self.pods_kept = 0;
        } else {
            self.keep_jobs(index, &BTreeSet::new());
        }
        if let Some(source) = self.sources.get_mut(index) {
            source.listed = false;
        }
    }

    pub(super) fn job_news(&mut self, index: usize, news: News<JobView>, now: Timestamp) {
        self.heard(index, now);
        match news {
            News::All(mut views, _) => {
                let uids = views.iter().map(|view| view.metadata.uid.clone());
                self.keep_jobs(index, &uids.collect());
                // The newest first: where there is no room for all, the oldest are left out.
                views.sort_by_key(|view| std::cmp::Reverse(view.metadata.creation_timestamp));
                let mut left_out = 0;
                for view in views {
                    left_out += usize::from(!self.put_job(index, view, false));
                }
                self.listed(index, left_out);
            }
            News::Is(view) => {
                if !self.put_job(index, view, true)
                    && let Some(source) = self.sources.get_mut(index)
                {
                    source.left_out += 1;
                }
            }
            News::Gone(view) => self.remove_job(&view.metadata.uid),
            News::Version(_) => {}
        }
    }

    /// Keeps a job; says whether there was room. `evicts` makes room by dropping the oldest one.
    fn put_job(&mut self, source: usize, view: JobView, evicts: bool) -> bool {
        let Some(kind) = view.kind else { return true };
        let uid = view.metadata.uid.clone();
        let bytes = view.text.len() + view.status.len();
        let before = self.jobs.get(&uid);
        // The views that a list brings after a gap are mostly those that are known.
        if before.is_some_and(|held| held.job.version() == view.metadata.resource_version) {
            return true;
        }
        let is_new = before.is_none();
        let after = self
            .bytes
            .saturating_sub(before.map_or(0, |held| held.bytes));
        let full = |jobs: usize, kept: usize| {
            jobs + usize::from(is_new) > JOBS_MAX || kept.saturating_add(bytes) > BYTES_MAX
        };
        if full(self.jobs.len(), after) {
            let oldest = evicts.then(|| self.oldest(&uid)).flatten();
            let Some(oldest) = oldest else { return false };
            self.remove_job(&oldest);
            if let Some(source) = self.sources.get_mut(source) {
                source.left_out += 1;
            }
            if bytes > BYTES_MAX {
                return false;
            }
        }
        let view = Arc::new(view);
        let job = LiveJob { view, kind };
        let held = HeldJob { source, bytes, job };
        let old = self.jobs.insert(uid.clone(), held);
        self.bytes = (self.bytes + bytes).saturating_sub(old.map_or(0, |held| held.bytes));
        self.changed.gone.remove(&uid);
        self.changed.jobs.insert(uid);
        true
    }

    /// The job that was created before all others, but for `new`.
    fn oldest(&self, new: &str) -> Option<String> {
        let others = self.jobs.iter().filter(|(uid, _)| *uid != new);
        let oldest = others.min_by_key(|(_, held)| held.job.created_at());
        oldest.map(|(uid, _)| uid.clone())
    }

    fn remove_job(&mut self, uid: &str) {
        if let Some(held) = self.jobs.remove(uid) {
            self.bytes = self.bytes.saturating_sub(held.bytes);
            self.changed.jobs.remove(uid);
            self.changed.gone.insert(uid.to_owned());
        }
    }

    /// Drops the jobs of a resource that are not among `uids`.
    fn keep_jobs(&mut self, index: usize, uids: &BTreeSet<String>) {
        let gone: Vec<String> = self
            .jobs
            .iter()
            .filter(|(uid, held)| held.source == index && !uids.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in gone {
            self.remove_job(&uid);
        }
    }

    pub(super) fn pod_news(&mut self, news: News<PodView>, now: Timestamp) {
        self.heard(PODS, now);
        match news {
            News::All(views, _) => {
                self.changed_names.extend(self.pods.keys().cloned());
                self.pods.clear();
                self.pods_kept = 0;
                let mut left_out = 0;
                for view in &views {
                    left_out += usize::from(!self.put_pod(view));
                }
                self.listed(PODS, left_out);
            }
            News::Is(view) => {
                if !self.put_pod(&view)
                    && let Some(source) = self.sources.get_mut(PODS)
                {
                    source.left_out += 1;
                }
            }
            News::Gone(view) => {
                let Some(name) = job_of(&view) else { return };
                let uid = view.metadata.uid.as_str();
                if let Some(pods) = self.pods.get_mut(&name) {
                    let gone = pods.remove(uid);
                    self.pods_kept -= usize::from(gone.is_some());
                    if pods.is_empty() {
                        self.pods.remove(&name);
                    }
                }
                self.changed_names.insert(name);
            }
            News::Version(_) => {}
        }
    }

    /// Keeps a pod; says whether there was room.
    fn put_pod(&mut self, view: &PodView) -> bool {
        let Some(name) = job_of(view) else {
            return true;
        };
        let uid: Box<str> = view.metadata.uid.as_str().into();
        let known = self.pods.get(&name).and_then(|pods| pods.get(&uid));
        if known.is_some_and(|known| known.entry.version == view.metadata.resource_version) {
            return true;
        }
        if known.is_none() && self.pods_kept >= PODS_MAX {
            return false;
        }
        let pods = self.pods.entry(name.clone()).or_default();
        let old = pods.insert(uid, Arc::new(HeldPod::new(view)));
        self.pods_kept += usize::from(old.is_none());
        self.changed_names.insert(name);
        true
    }
}

/// The namespace and the name of the job of a pod.
fn job_of(view: &PodView) -> Option<JobName> {
    let meta = &view.metadata;
    Some((
        meta.namespace.as_str().into(),
        meta.label(JOB_LABEL)?.into(),
    ))
}

impl HeldPod {
    fn new(view: &PodView) -> Self {
        let meta = &view.metadata;
        let node = view.spec.node_name.as_str();
        let node = (!node.is_empty()).then(|| node.into());
        let containers = view.spec.init_containers.iter();
        let containers = containers.chain(&view.spec.containers);
        let since = |kind: &str| {
            let mut conditions = view.status.conditions.iter();
            let is = |it: &&ConditionView| it.kind == kind && it.status == "True";
            conditions.find(is)?.last_transition_time
        };
        let first = view.spec.containers.first();
        Self {
            name: meta.name.as_str().into(),
            owner: meta.owner().into(),
            launched: meta.owner_references.iter().any(|it| it.kind == "Job"),
            labels: SLOT_LABELS
                .into_iter()
                .filter_map(|key| Some((key, meta.label(key)?.into())))
                .collect(),
            attempt: meta
                .label(annotation::ATTEMPT)
                .and_then(|attempt| attempt.parse().ok())
                .unwrap_or(1),
            containers: containers
                .take(CONTAINERS_MAX)
                .map(|container| container.name.as_str().into())
                .collect(),
            first_container: first.map_or("", |it| it.name.as_str()).into(),
            created_at: meta.creation_timestamp,
            scheduled_at: since("PodScheduled"),
            ready_at: since("ContainersReady"),
            entry: PodEntry::new(view, node),
        }
    }

    /// The container that trains: the one of the kind's name, else the first.
    pub(super) fn trains(&self, kind: Kind) -> String {
        let named = kind.container();
        let has_name = self.containers.iter().any(|name| **name == *named);
        let name = if has_name {
            named
        } else {
            &self.first_container
        };
        name.to_owned()
    }
}
