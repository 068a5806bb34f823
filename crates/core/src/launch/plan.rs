//! A job ready to be launched: what its pods share is worked out once.
//!
//! Invariant: a plan of n pods costs n times a copy of the template and of the variables; nothing
//! that grows with the number of pods is built again for each of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::{
    Cluster, GangScheduler, Group, LaunchError, LaunchedPod, Object, StartPoint, autoscaler, jax,
    mpi_v1, mpi_v2, paddle, pod, preflight_policy, pytorch, service, shared,
    supervise::Supervision, tensorflow, train, transport, xgboost,
};
use crate::{
    barrier::Begin,
    job::SharedInputs,
    spec::{Framework, Job, MpiTransport, Role, Slot},
};

/// Everything the pods of one job have in common.
#[derive(Debug)]
pub struct Plan<'a> {
    job: &'a Job,
    cluster: &'a Cluster,
    wiring: Wiring<'a>,
    /// What supervisors need, where the pods have some.
    supervision: Option<Supervision<'a>>,
    /// Where the next pods start.
    start: StartPoint,
    /// For each role the pod that its slots are copied from.
    bases: BTreeMap<Role, Pod>,
}

/// How the ranks of one framework find each other.
#[derive(Debug)]
enum Wiring<'a> {
    PyTorch(pytorch::Wiring),
    Tf(tensorflow::Wiring),
    MpiV1(mpi_v1::Wiring<'a>),
    MpiV2(mpi_v2::Wiring<'a>),
    XgBoost(xgboost::Wiring),
    Paddle(paddle::Wiring),
    Jax(jax::Wiring),
    Train(train::Wiring<'a>),
}

impl<'a> Plan<'a> {
    /// Works out what the pods of `job` share.
    pub fn new(job: &'a Job, cluster: &'a Cluster) -> Result<Self, LaunchError> {
        let wiring = match &job.framework {
            Framework::PyTorch(own) => Wiring::PyTorch(pytorch::Wiring::new(job, own, cluster)?),
            Framework::Tf(own) => Wiring::Tf(tensorflow::Wiring::new(job, *own, cluster)),
            Framework::MpiV1(own) => Wiring::MpiV1(mpi_v1::Wiring::new(job, own, cluster)?),
            Framework::MpiV2(own) => Wiring::MpiV2(mpi_v2::Wiring::new(job, own, cluster)?),
            Framework::XgBoost => Wiring::XgBoost(xgboost::Wiring::new(job)?),
            Framework::Paddle(_) => Wiring::Paddle(paddle::Wiring::new(job)),
            Framework::Jax => Wiring::Jax(jax::Wiring::new(job)?),
            Framework::Train(own) => Wiring::Train(train::Wiring::new(job, own)),
        };
        let scheduler = GangScheduler::of(job, cluster);
        let mut bases = BTreeMap::new();
        for (role, spec) in &job.roles {
            let mut base = pod::base(job, *role, spec)?;
            match &wiring {
                Wiring::PyTorch(wiring) => {
                    wiring.shape(*role, base.spec.get_or_insert_default());
                }
                Wiring::MpiV1(wiring) => wiring.shape(*role, &mut base),
                Wiring::MpiV2(wiring) => wiring.shape(*role, &mut base),
                Wiring::Train(wiring) => wiring.shape(*role, &mut base),
                Wiring::Tf(_) | Wiring::XgBoost(_) | Wiring::Paddle(_) | Wiring::Jax(_) => {}
            }
            if let Some(scheduler) = &scheduler {
                scheduler.mark(job, *role, &mut base);
            }
            bases.insert(*role, base);
        }
        Ok(Self {
            job,
            cluster,
            wiring,
            supervision: Supervision::of(job, cluster),
            start: StartPoint::NOTHING_SEEN,
            bases,
        })
    }

    /// From here on, pods are given what is known of the checkpoints that their attempt starts from.
    pub fn start_from(&mut self, start: StartPoint) {
        self.start = start;
    }

    /// The pod of `slot`, as part of `attempt`.
    pub fn pod(&self, slot: Slot, attempt: u32) -> Result<LaunchedPod, LaunchError> {
        let base = self.base(slot)?;
        Ok(self.finish(base, slot, attempt, Begin::Run))
    }

    /// The pod of `slot`, whose program waits for the gang: it replaces one pod of a gang that restarts in place as `attempt`. The same as
    /// [`Plan::pod`] where pods have no supervisor.
    pub fn waiting_pod(&self, slot: Slot, attempt: u32) -> Result<LaunchedPod, LaunchError> {
        let base = self.base(slot)?;
        Ok(self.finish(base, slot, attempt, Begin::Wait))
    }

    fn base(&self, slot: Slot) -> Result<&Pod, LaunchError> {
        self.bases
            .get(&slot.role)
            .ok_or(LaunchError::UndeclaredRole { role: slot.role })
    }

    /// The object that describes the gang to another scheduler, where one starts it.
    pub fn group(&self) -> Option<Group> {
        let scheduler = GangScheduler::of(self.job, self.cluster)?;
        // What it could fail for, making the plan has failed for.
        Group::of(self.job, &scheduler, self).ok()
    }

    /// Whether pods have fields that their type does not know, which [`Plan::written`] adds.
    pub fn has_unknown_fields(&self) -> bool {
        matches!(
            GangScheduler::of(self.job, self.cluster),
            Some(GangScheduler::Native(_))
        )
    }

    /// An object of the job as the API server is sent it.
    pub fn written(&self, object: &Object) -> Value {
        let mut value = object.to_value();
        if let Some(scheduler) = GangScheduler::of(self.job, self.cluster) {
            scheduler.refer(self.job, &mut value);
        }
        value
    }

    /// Every object that the job becomes, in the order of creation, in its first attempt and with
    /// all workers running.
    ///
    /// The keys of an `MPIJob` are made when it is launched; here a marked text stands in
    /// their place. Objects are made as they are asked for, so that a large job need not fit in
    /// memory.
    pub fn objects(&self) -> impl Iterator<Item = Object> + '_ {
        let job = self.job;
        let inputs = SharedInputs {
            replicas: job.replicas(),
            running_workers: (0..job.role_replicas(Role::Worker)).collect(),
        };
        // The launcher comes last: it starts the ranks in the others.
        let (launchers, others): (Vec<_>, Vec<_>) = self
            .bases
            .iter()
            .partition(|(role, _)| **role == Role::Launcher);
        let slots = others
            .into_iter()
            .chain(launchers)
            .flat_map(|(role, base)| {
                (0..job.role_replicas(*role)).map(move |index| (base, Slot::new(*role, index)))
            });
        let pods = slots.flat_map(move |(base, slot)| {
            let service = service(job, slot).map(|service| Object::Service(Box::new(service)));
            service
                .into_iter()
                .chain([self.finish(base, slot, 1, Begin::Run).into()])
        });
        // What it could fail for, making the plan has failed for.
        let shared = shared::with_placeholder_key(job, &inputs, self.cluster).unwrap_or_default();
        preflight_policy(job, self.cluster)
            .into_iter()
            .chain(shared)
            .chain(self.group().map(|group| Object::Group(Box::new(group))))
            .chain(pods)
            .chain(autoscaler(job).map(|autoscaler| Object::Autoscaler(Box::new(autoscaler))))
    }

    /// Turns the pod of a role into the pod of `slot`.
    fn finish(&self, base: &Pod, slot: Slot, attempt: u32, begin: Begin) -> LaunchedPod {
        let mut pod = base.clone();
        pod::finish(self.job, &mut pod, slot, attempt);
        let spec = pod.spec.get_or_insert_default();
        // Supervisors and the agent of an `MPIJob` give programs the attempt themselves.
        let has_attempt = self.supervision.is_some()
            || matches!(
                transport(self.job, self.cluster),
                Ok(Some(MpiTransport::Agent))
            );
        self.start.give(self.job, attempt, has_attempt, spec);
        match &self.wiring {
            Wiring::PyTorch(wiring) => wiring.finish(slot, spec),
            Wiring::Tf(wiring) => wiring.finish(slot, spec),
            Wiring::XgBoost(wiring) => wiring.finish(slot, spec),
            Wiring::Paddle(wiring) => wiring.finish(slot, spec),
            Wiring::Jax(wiring) => wiring.finish(slot, spec),
            Wiring::MpiV1(wiring) => wiring.finish(slot, spec),
            Wiring::MpiV2(wiring) => return wiring.finish(slot, pod),
            Wiring::Train(wiring) => wiring.finish(slot, attempt, &mut pod),
        }
        if let Some(supervision) = &self.supervision {
            supervision.finish(slot, begin, &mut pod);
        }
        LaunchedPod::Pod(Box::new(pod))
    }
}

/// Every object that `job` becomes; see [`Plan::objects`].
pub fn render(job: &Job, cluster: &Cluster) -> Result<Vec<Object>, LaunchError> {
    Ok(Plan::new(job, cluster)?.objects().collect())
}
