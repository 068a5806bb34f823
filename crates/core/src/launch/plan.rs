//! A job ready to be launched: what its pods share is worked out once.
//!
//! Invariant: a plan of n pods costs n times a copy of the template and of the variables; nothing
//! that grows with the number of pods is built again for each of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use super::{
    Cluster, LaunchError, LaunchedPod, Object, autoscaler, jax, mpi_v1, mpi_v2, paddle, pod,
    pytorch, service, shared, tensorflow, xgboost,
};
use crate::{
    job::SharedInputs,
    spec::{Framework, Job, Role, Slot},
};

/// Everything the pods of one job have in common.
#[derive(Debug)]
pub struct Plan<'a> {
    job: &'a Job,
    wiring: Wiring<'a>,
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
}

impl<'a> Plan<'a> {
    /// Works out what the pods of `job` share.
    pub fn new(job: &'a Job, cluster: &'a Cluster) -> Result<Self, LaunchError> {
        let wiring = match &job.framework {
            Framework::PyTorch(own) => Wiring::PyTorch(pytorch::Wiring::new(job, own, cluster)?),
            Framework::Tf(own) => Wiring::Tf(tensorflow::Wiring::new(job, *own, cluster)),
            Framework::MpiV1(_) => Wiring::MpiV1(mpi_v1::Wiring::new(job, cluster)),
            Framework::MpiV2(own) => Wiring::MpiV2(mpi_v2::Wiring::new(job, own, cluster)),
            Framework::XgBoost => Wiring::XgBoost(xgboost::Wiring::new(job)?),
            Framework::Paddle(_) => Wiring::Paddle(paddle::Wiring::new(job)),
            Framework::Jax => Wiring::Jax(jax::Wiring::new(job)?),
        };
        let mut bases = BTreeMap::new();
        for (role, spec) in &job.roles {
            let mut base = pod::base(job, *role, spec)?;
            match &wiring {
                Wiring::PyTorch(wiring) => {
                    wiring.shape(*role, base.spec.get_or_insert_default());
                }
                Wiring::MpiV1(wiring) => wiring.shape(*role, &mut base),
                Wiring::MpiV2(wiring) => wiring.shape(*role, &mut base),
                Wiring::Tf(_) | Wiring::XgBoost(_) | Wiring::Paddle(_) | Wiring::Jax(_) => {}
            }
            bases.insert(*role, base);
        }
        Ok(Self { job, wiring, bases })
    }

    /// The pod of `slot`, as part of `attempt`.
    pub fn pod(&self, slot: Slot, attempt: u32) -> Result<LaunchedPod, LaunchError> {
        let base = self
            .bases
            .get(&slot.role)
            .ok_or(LaunchError::UndeclaredRole { role: slot.role })?;
        let mut pod = base.clone();
        pod::seat(self.job, &mut pod, slot, attempt);
        let spec = pod.spec.get_or_insert_default();
        match &self.wiring {
            Wiring::PyTorch(wiring) => wiring.seat(slot, spec),
            Wiring::Tf(wiring) => wiring.seat(slot, spec),
            Wiring::XgBoost(wiring) => wiring.seat(slot, spec),
            Wiring::Paddle(wiring) => wiring.seat(slot, spec),
            Wiring::Jax(wiring) => wiring.seat(slot, spec),
            Wiring::MpiV1(_) => {}
            Wiring::MpiV2(wiring) => return Ok(wiring.seat(slot, pod)),
        }
        Ok(LaunchedPod::Pod(Box::new(pod)))
    }
}

/// Every object that `job` becomes, in the order of creation, in its first attempt and with all
/// workers running.
///
/// The keys of an `MPIJob` v2beta1 are made when it is launched; here a marked text stands in
/// their place.
pub fn render(job: &Job, cluster: &Cluster) -> Result<Vec<Object>, LaunchError> {
    let plan = Plan::new(job, cluster)?;
    let inputs = SharedInputs {
        replicas: job.replicas(),
        running_workers: (0..job.role_replicas(Role::Worker)).collect(),
    };
    let mut objects = shared::with_placeholder_key(job, &inputs, cluster);
    let (launchers, others): (Vec<Slot>, Vec<Slot>) =
        job.slots().partition(|slot| slot.role == Role::Launcher);
    for slot in others.into_iter().chain(launchers) {
        if let Some(service) = service(job, slot) {
            objects.push(Object::Service(Box::new(service)));
        }
        objects.push(plan.pod(slot, 1)?.into());
    }
    if let Some(autoscaler) = autoscaler(job) {
        objects.push(Object::Autoscaler(Box::new(autoscaler)));
    }
    Ok(objects)
}
