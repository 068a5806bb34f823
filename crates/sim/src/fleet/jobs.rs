//! Jobs as the API stores them, and what users do with them.

use std::{collections::BTreeMap, rc::Rc};

use jiff::Timestamp;
use trainyard_core::{
    gang::{Gang, GangKey, PodKey, Resources},
    job::{IndexSet, JobStatus, Removal},
    launch::Cluster,
    spec::{Job, Role},
};

use super::{World, coverage::Mark, draw::GPU, watch::News, world::HIGH_VALUE};

/// One job, in truth or as an operator sees it.
#[derive(Clone, Debug)]
pub(super) struct StoredJob {
    pub(super) job: Rc<Job>,
    /// The gang of this version of the job, as the wait queue makes it.
    gang: Option<Rc<Gang>>,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) created: Timestamp,
    pub(super) being_deleted: bool,
    pub(super) status: Rc<JobStatus>,
    pub(super) version: u64,
    pub(super) services: BTreeMap<Role, IndexSet>,
    pub(super) work: i64,
}

impl StoredJob {
    /// What a pod of `role` asks for.
    pub(super) fn requests(&self, role: Role) -> Resources {
        let gang = self.gang.as_deref();
        let mut members = gang.into_iter().flat_map(|gang| &gang.pods);
        let member = members.find(|member| member.role == role);
        let shape = gang.zip(member);
        shape.map_or_else(Resources::default, |(gang, member)| {
            gang.shapes[member.shape].requests.clone()
        })
    }

    /// How many of its pods are enough to start.
    pub(super) fn minimum(&self) -> usize {
        self.gang.as_ref().map_or(0, |gang| gang.minimum)
    }

    fn set_gang(&mut self) {
        let gang = Gang::of(&self.job, &Cluster::default(), self.created);
        self.gang = gang.ok().map(Rc::new);
    }

    /// The priority that admission gives its pods.
    pub(super) fn priority(&self) -> i32 {
        let mut specs = self.job.roles.values().map(|role| &role.template.spec);
        let named = specs.any(|spec| {
            let class = spec
                .as_ref()
                .and_then(|spec| spec.priority_class_name.as_ref());
            class.is_some()
        });
        if named { HIGH_VALUE } else { 0 }
    }
}

impl World {
    pub(super) fn create_job(&mut self, plan: usize) {
        let key = GangKey::of(&self.plans[plan].job);
        if self.jobs.contains_key(&key) {
            return;
        }
        self.births += 1;
        let mut job = self.plans[plan].job.clone();
        let uid = format!("{}.{}", key.name, self.births);
        job.uid = Some(uid.clone());
        let mut stored = StoredJob {
            job: Rc::new(job),
            gang: None,
            uid,
            generation: 1,
            created: self.timestamp(),
            being_deleted: false,
            status: Rc::new(JobStatus::default()),
            version: 0,
            services: BTreeMap::new(),
            work: self.plans[plan].work,
        };
        stored.set_gang();
        if !self.facts.names.insert(key.clone()) {
            self.coverage.mark(Mark::JobRecreated);
        }
        self.note(format_args!("user    creates {key}"));
        self.jobs.insert(key.clone(), stored);
        self.job_changed(&key);
    }

    /// Sends the job as it is now to every operator.
    pub(super) fn job_changed(&mut self, key: &GangKey) {
        let version = self.next_version();
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        job.version = version;
        let news = News::Job(key.clone(), Box::new(job.clone()));
        self.publish(&news);
    }

    /// Edits the spec of the job of a plan; `edit` says whether it changed anything.
    pub(super) fn edit_job(&mut self, plan: usize, edit: impl FnOnce(&mut Job) -> bool) -> bool {
        let key = GangKey::of(&self.plans[plan].job);
        let Some(stored) = self.jobs.get_mut(&key) else {
            return false;
        };
        if !edit(Rc::make_mut(&mut stored.job)) {
            return false;
        }
        stored.generation += 1;
        stored.set_gang();
        self.note(format_args!("user    edits {key}"));
        self.job_changed(&key);
        true
    }

    /// A user deletes the job of a plan: its pods first, or the object first.
    pub(super) fn delete_job(&mut self, plan: usize) {
        let key = GangKey::of(&self.plans[plan].job);
        let foreground = self.dice.chance(50);
        let Some(job) = self.jobs.get_mut(&key) else {
            return;
        };
        let uid = job.uid.clone();
        self.coverage.mark(Mark::JobDeleted);
        self.note(format_args!("user    deletes {key}"));
        if foreground {
            if let Some(job) = self.jobs.get_mut(&key) {
                job.being_deleted = true;
            }
            self.job_changed(&key);
        } else {
            self.forget_job(&key);
        }
        let owned: Vec<(PodKey, String)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.owner == uid)
            .map(|(name, pod)| (name.clone(), pod.shown.uid.clone()))
            .collect();
        for (name, uid) in owned {
            self.delete_pod(&name, &uid, Removal::Graceful);
        }
        self.collect_job(&key);
    }

    fn forget_job(&mut self, key: &GangKey) {
        let version = self.next_version();
        if self.jobs.remove(key).is_some() {
            self.publish(&News::JobGone(key.clone(), version));
        }
    }

    /// A job that is being deleted is gone once its pods are.
    pub(super) fn collect_job(&mut self, key: &GangKey) {
        let Some(job) = self.jobs.get(key).filter(|job| job.being_deleted) else {
            return;
        };
        if !self.pods.values().any(|pod| pod.owner == job.uid) {
            self.forget_job(key);
        }
    }

    /// Whether the cluster, empty and whole, has room for the smallest size of a job.
    pub(super) fn fits(&self, job: &StoredJob) -> bool {
        let Some(gang) = &job.gang else {
            return false;
        };
        let gpus = gang.shapes.iter().map(|shape| shape.requests.get(GPU));
        let gpus = gpus.max().unwrap_or(0).max(1);
        let room: i64 = self.nodes.values().map(|node| node.gpus() / gpus).sum();
        usize::try_from(room).is_ok_and(|room| room >= gang.minimum)
    }
}
