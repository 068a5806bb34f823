//! `MPIJob` v1: `mpirun` in the launcher starts its ranks by `kubectl exec`, or by the agent.
//!
//! With `kubectl` the launcher gets it from an init container, and the right to exec into its own
//! workers; the workers only sleep, and there are no Services: pod names are the host names. With the
//! agent they stay the host names, a headless Service resolves them, and no pod has any rights.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::{
            Container, EmptyDirVolumeSource, EnvVar, Pod, PodSpec, ResourceRequirements,
            ServiceAccount, Volume,
        },
        rbac::v1::{PolicyRule, Role as RbacRole, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Cluster, LaunchError, Object,
    agent::{self, Agent},
    env::{append, variable},
    mpi::{self, CONFIG_PATH, DISCOVER_HOSTS, HOSTFILE, KUBECTL_VOLUME, READ, RUN},
    network_policy,
    shared::Key,
};
use crate::{
    job::SharedInputs,
    spec::{Job, MpiV1, Role, Slot, is_gpu_launcher},
};

/// The remote shell of `mpirun`: enters the pod named by the first argument.
const KUBEXEC: &str = "kubexec.sh";
const KUBECTL_PATH: &str = "/opt/kube";

/// How the ranks of an `MPIJob` v1 find each other.
#[derive(Debug)]
pub(super) struct Wiring<'a> {
    job: &'a Job,
    own: &'a MpiV1,
    cluster: &'a Cluster,
    agent: Option<Agent<'a>>,
}

impl<'a> Wiring<'a> {
    pub(super) fn new(
        job: &'a Job,
        own: &'a MpiV1,
        cluster: &'a Cluster,
    ) -> Result<Self, LaunchError> {
        Ok(Self {
            job,
            own,
            cluster,
            agent: mpi::agent(job, cluster)?,
        })
    }

    /// Adds what all pods of `role` share.
    pub(super) fn shape(&self, role: Role, pod: &mut Pod) {
        // A finalizer in the template was never carried over, so no controller would remove it.
        pod.metadata.finalizers = None;
        let spec = pod.spec.get_or_insert_default();
        if self.agent.is_some() {
            mpi::name_host(spec, self.job);
            mpi::search_job(spec, self.job, self.cluster);
        }
        if role == Role::Launcher {
            self.shape_launcher(spec);
        } else {
            self.shape_worker(spec);
        }
    }

    /// Turns the pod of a role into the pod of `slot`.
    pub(super) fn finish(&self, slot: Slot, spec: &mut PodSpec) {
        if self.agent.is_some() {
            spec.hostname = Some(self.job.pod_name(slot));
        }
    }

    fn shape_worker(&self, spec: &mut PodSpec) {
        let at = self.main_container(spec);
        if let Some(agent) = self.agent {
            if let Some(container) = spec.containers.get_mut(at)
                && container.command.as_ref().is_none_or(Vec::is_empty)
            {
                // As with `sleep`, arguments without a command have never been used.
                container.args = None;
            }
            agent.shape_worker(spec, at);
        }
        if let Some(container) = spec.containers.first_mut()
            && container.command.as_ref().is_none_or(Vec::is_empty)
        {
            container.command = Some(vec!["sleep".to_owned()]);
            container.args = Some(vec!["365d".to_owned()]);
        }
        // Open MPI checks in every rank that its remote shell is there.
        mpi::mount_config(self.job, spec, &[(KUBEXEC, RUN)]);
    }

    /// The container of a worker that ranks run in.
    fn main_container(&self, spec: &PodSpec) -> usize {
        let name = self.own.main_container.as_deref();
        let mut containers = spec.containers.iter();
        let at = containers.position(|container| Some(container.name.as_str()) == name);
        at.unwrap_or(0)
    }

    fn enter_by_kubectl(&self, spec: &mut PodSpec) {
        if spec
            .service_account_name
            .as_ref()
            .is_none_or(String::is_empty)
        {
            spec.service_account_name = Some(mpi::launcher(self.job));
        }
        spec.init_containers
            .get_or_insert_default()
            .push(self.kubectl_delivery());
        spec.volumes.get_or_insert_default().push(Volume {
            name: KUBECTL_VOLUME.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        });
        let shell = format!("{CONFIG_PATH}/{KUBEXEC}");
        if let Some(container) = spec.containers.first_mut() {
            let is_set = |name: &str| container.env.iter().flatten().any(|var| var.name == name);
            let own_bootstrap = [
                ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
                ("I_MPI_HYDRA_BOOTSTRAP_EXEC", shell.as_str()),
            ]
            .into_iter()
            .filter(|(name, _)| !is_set(name))
            .map(|(name, value)| variable(name, value))
            .collect::<Vec<_>>();
            append(
                container,
                [variable("OMPI_MCA_plm_rsh_agent", shell.as_str())],
            );
            append(container, hosts_and_gpus(self.job));
            append(container, own_bootstrap);
            mpi::add_mount(container, mpi::mount(KUBECTL_VOLUME, KUBECTL_PATH));
        }
    }

    fn shape_launcher(&self, spec: &mut PodSpec) {
        match self.agent {
            Some(agent) => {
                if let Some(container) = spec.containers.first_mut() {
                    append(container, hosts_and_gpus(self.job));
                }
                agent.shape_launcher(spec);
            }
            None => self.enter_by_kubectl(spec),
        }
        let files = [(KUBEXEC, RUN), (HOSTFILE, READ), (DISCOVER_HOSTS, RUN)];
        mpi::mount_config(self.job, spec, &files);
    }

    /// The container that copies `kubectl` into the launcher.
    fn kubectl_delivery(&self) -> Container {
        let resources: BTreeMap<String, Quantity> = [
            ("cpu", "100m"),
            ("memory", "512Mi"),
            ("ephemeral-storage", "5Gi"),
        ]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .into();
        Container {
            name: "kubectl-delivery".to_owned(),
            image: Some(self.cluster.kubectl_delivery_image.clone()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            env: Some(vec![
                variable("TARGET_DIR", KUBECTL_PATH),
                variable("NAMESPACE", self.job.namespace.as_str()),
            ]),
            resources: Some(ResourceRequirements {
                limits: Some(resources.clone()),
                requests: Some(resources),
                ..ResourceRequirements::default()
            }),
            volume_mounts: Some(vec![
                mpi::mount(KUBECTL_VOLUME, KUBECTL_PATH),
                mpi::config_mount(),
            ]),
            ..Container::default()
        }
    }
}

/// The objects that all pods share, in the order of creation.
pub(super) fn shared(
    job: &Job,
    own: &MpiV1,
    inputs: &SharedInputs,
    key: Key<'_>,
    cluster: &Cluster,
) -> Result<Vec<Object>, LaunchError> {
    let by_agent = mpi::agent(job, cluster)?.is_some();
    let workers = mpi::workers(job, inputs);
    let running = mpi::running_workers(job, inputs);
    let files = BTreeMap::from([
        (KUBEXEC.to_owned(), kubexec(own, by_agent)),
        (HOSTFILE.to_owned(), hostfile(job, own, &workers)),
        (
            DISCOVER_HOSTS.to_owned(),
            discover_hosts(job, own, &running),
        ),
    ]);
    let account = Object::ServiceAccount(Box::new(ServiceAccount {
        metadata: mpi::metadata(job, service_account(job)),
        ..ServiceAccount::default()
    }));
    let config = Object::ConfigMap(Box::new(mpi::config_map(job, files)));
    if !by_agent {
        return Ok(vec![
            account,
            config,
            Object::Role(Box::new(launcher_role(job, workers))),
            Object::RoleBinding(Box::new(launcher_binding(job))),
        ]);
    }
    // An account that the user names is created where it is missing, where accounts may be created; it gets no
    // rights.
    let named = named_account(job).filter(|_| cluster.launcher_rights);
    let mut objects: Vec<Object> = named.map(|_| account).into_iter().collect();
    objects.extend(network_policy::agent_policy(job, cluster));
    objects.extend([
        Object::Service(Box::new(mpi::job_service(job, by_agent))),
        config,
    ]);
    objects.extend(agent::secret(job, key).map(|secret| Object::Secret(Box::new(secret))));
    Ok(objects)
}

/// Where `mpirun` looks for its hosts; no GPUs for a launcher that asked for none.
fn hosts_and_gpus(job: &Job) -> Vec<EnvVar> {
    let hostfile = format!("{CONFIG_PATH}/{HOSTFILE}");
    let mut variables = vec![variable("OMPI_MCA_orte_default_hostfile", hostfile)];
    if !is_gpu_launcher(job) {
        variables.extend(mpi::hide_gpus());
    }
    variables
}

fn kubexec(own: &MpiV1, by_agent: bool) -> String {
    if by_agent {
        // Scripts of users name this file.
        return format!("#!/bin/sh\nexec {} \"$@\"\n", agent::remote_shell());
    }
    let container = own
        .main_container
        .as_deref()
        .filter(|name| !name.is_empty())
        .map(|name| format!(" --container {name}"))
        .unwrap_or_default();
    format!(
        "#!/bin/sh\nset -x\npod=$1\nshift\n\
         {KUBECTL_PATH}/kubectl exec \"$pod\"{container} -- /bin/sh -c \"$*\"\n"
    )
}

fn hostfile(job: &Job, own: &MpiV1, workers: &[String]) -> String {
    let slots = own.slots_per_worker;
    let launcher = is_gpu_launcher(job).then(|| mpi::launcher(job));
    launcher
        .iter()
        .chain(workers)
        .map(|host| format!("{host} slots={slots}\n"))
        .collect::<Vec<String>>()
        .concat()
}

/// The contract's bytes: no newline at the end, and an empty line after the launcher where it is
/// listed. Other bytes would rewrite the `ConfigMap` of every running job that is taken over.
fn discover_hosts(job: &Job, own: &MpiV1, running: &[String]) -> String {
    let slots = own.slots_per_worker;
    let launcher = is_gpu_launcher(job).then(|| mpi::launcher(job));
    let mut script = "#!/bin/sh".to_owned();
    script.extend(launcher.map(|host| format!("\necho {host}:{slots}\n")));
    script.extend(running.iter().map(|host| format!("\necho {host}:{slots}")));
    script
}

/// The account that the launcher runs as.
fn service_account(job: &Job) -> String {
    named_account(job).unwrap_or_else(|| mpi::launcher(job))
}

/// Whether the user named the account `name` for the launcher of `job`, so that it may be there already.
pub fn names_account(job: &Job, name: &str) -> bool {
    named_account(job).is_some_and(|named| named == name)
}

/// The account that the user named for it.
fn named_account(job: &Job) -> Option<String> {
    let launcher = job.roles.get(&Role::Launcher)?;
    let name = launcher
        .template
        .spec
        .as_ref()?
        .service_account_name
        .clone();
    name.filter(|name| !name.is_empty())
}

fn launcher_role(job: &Job, workers: Vec<String>) -> RbacRole {
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let mut rules = vec![rule("pods", &["get", "list", "watch"])];
    // A rule that names no pods would open every pod of the namespace.
    if !workers.is_empty() {
        rules.push(PolicyRule {
            resource_names: Some(workers),
            ..rule("pods/exec", &["create"])
        });
    }
    RbacRole {
        metadata: mpi::metadata(job, mpi::launcher(job)),
        rules: Some(rules),
    }
}

fn launcher_binding(job: &Job) -> RoleBinding {
    RoleBinding {
        metadata: mpi::metadata(job, mpi::launcher(job)),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: mpi::launcher(job),
        },
        subjects: Some(vec![Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: service_account(job),
            namespace: Some(job.namespace.as_str().to_owned()),
        }]),
    }
}
