//! Which pods of a job hold ranks, how many pods are enough to train, and which one leads.

use std::collections::BTreeMap;

use super::{Framework, Job, Role, Slot};

/// The roles in the order in which they lead: the pod that is most likely to stay comes first.
const LEADING: [Role; 9] = [
    Role::Master,
    Role::Chief,
    Role::Launcher,
    Role::Worker,
    Role::Node,
    Role::Ps,
    Role::Evaluator,
    Role::DatasetInitializer,
    Role::ModelInitializer,
];

/// Whether pods of `role` hold ranks. Initializers run before those that do, and a launcher may only start them.
pub fn holds_ranks(job: &Job, role: Role) -> bool {
    match role {
        Role::Launcher => launcher_holds_ranks(job),
        role => !role.is_initializer(),
    }
}

/// Whether the launcher of an `MPIJob` holds ranks like its workers.
pub fn launcher_holds_ranks(job: &Job) -> bool {
    match &job.framework {
        Framework::MpiV1(_) => is_gpu_launcher(job),
        Framework::MpiV2(own) => own.run_launcher_as_worker,
        Framework::Train(own) => own.launcher_is_node,
        _ => false,
    }
}

/// Whether ranks run in the launcher, too: it asks for a GPU.
pub(crate) fn is_gpu_launcher(job: &Job) -> bool {
    job.roles
        .get(&Role::Launcher)
        .and_then(|spec| spec.template.spec.as_ref())
        .into_iter()
        .flat_map(|spec| &spec.containers)
        .filter_map(|container| container.resources.as_ref()?.limits.as_ref())
        .flat_map(BTreeMap::keys)
        .any(|resource| resource.contains("gpu"))
}

/// How many pods are enough to start: the elastic minimum, or what the scheduling policy says.
pub(crate) fn gang_minimum(job: &Job, total: usize) -> usize {
    let policy = job.run_policy.scheduling.as_ref();
    let stated = policy.and_then(|policy| policy.min_available);
    let elastic = job.elastic().map(|elastic| {
        let workers = job.role_replicas(Role::Worker);
        let spare = workers.saturating_sub(elastic.min_replicas.max(1));
        total.saturating_sub(spare as usize)
    });
    let stated = stated.map(|count| count as usize);
    stated.or(elastic).unwrap_or(total).clamp(1, total.max(1))
}

/// The slot whose supervisor leads the gang; none where the job has no pods.
pub fn leading_slot(job: &Job) -> Option<Slot> {
    let role = LEADING
        .into_iter()
        .find(|role| job.role_replicas(*role) > 0)?;
    Some(Slot::new(role, 0))
}
