//! `TrainJob`: names, labels and variables of its pods as Kubeflow Trainer and `JobSet` give them, and the objects that
//! the pods share.
//!
//! Here is no `JobSet` and no batch Job: what others read of them is on the pods.

mod digest;
mod shared;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, Container, EnvVar, EnvVarSource, KeyToPath, ObjectFieldSelector, Pod,
    PodSpec, SecretVolumeSource, Volume, VolumeMount,
};

use super::{
    env::variable,
    pod::label::{JOB_NAME, OPERATOR_NAME},
};
use crate::spec::{Job, Policy, Role, Slot, Train};

pub(super) use shared::shared;

const PREFIX: &str = "jobset.sigs.k8s.io/";
/// The job that a pod belongs to.
pub(super) const JOB: &str = "jobset.sigs.k8s.io/jobset-name";
/// The replicated job that a pod belongs to.
pub(super) const ROLE: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// The index of a pod in it, as a label and as an annotation.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const KEYS_VOLUME: &str = "mpi-ssh-auth";
const HOSTS_VOLUME: &str = "mpi-hostfile";
const HOSTS_PATH: &str = "/etc/mpi";
const HOSTS_FILE: &str = "hostfile";

/// How the nodes of a `TrainJob` find each other.
#[derive(Debug)]
pub(super) struct Wiring<'a> {
    job: &'a Job,
    own: &'a Train,
}

impl<'a> Wiring<'a> {
    pub(super) fn new(job: &'a Job, own: &'a Train) -> Self {
        Self { job, own }
    }

    /// What all pods of `role` have.
    pub(super) fn shape(&self, role: Role, pod: &mut Pod) {
        let marks = self.marks(role);
        for own in [&mut pod.metadata.labels, &mut pod.metadata.annotations] {
            own.get_or_insert_default().extend(marks.clone());
        }
        let labels = pod.metadata.labels.get_or_insert_default();
        // By these the operator watches its pods, whatever their kind.
        labels.insert(
            OPERATOR_NAME.to_owned(),
            self.job.kind.controller().to_owned(),
        );
        labels.insert(JOB_NAME.to_owned(), self.job.name.to_string());
        let batch = format!("{}-{}-0", self.job.name, role.lower());
        for key in ["batch.kubernetes.io/job-name", "job-name"] {
            labels.insert(key.to_owned(), batch.clone());
        }
        if let Some(uid) = &self.job.uid {
            for key in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
                labels.insert(key.to_owned(), uid.clone());
            }
        }
        let spec = pod.spec.get_or_insert_default();
        if self.own.wired {
            self.give_variables(role, spec);
        }
        self.mount(role, spec);
        let inits = spec.init_containers.iter_mut().flatten();
        for container in spec.containers.iter_mut().chain(inits) {
            let index = field(
                "JOB_COMPLETION_INDEX",
                &format!("metadata.labels['{INDEX}']"),
            );
            upsert(container, index);
        }
    }

    /// Turns the pod of a role into the pod of `slot`.
    pub(super) fn finish(&self, slot: Slot, attempt: u32, pod: &mut Pod) {
        let restarts = attempt.saturating_sub(1).to_string();
        for own in [&mut pod.metadata.labels, &mut pod.metadata.annotations] {
            let own = own.get_or_insert_default();
            own.insert(INDEX.to_owned(), slot.index.to_string());
            own.insert(format!("{PREFIX}restart-attempt"), restarts.clone());
        }
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(self.job.pod_name(slot));
        if self.own.has_service {
            spec.subdomain = Some(self.own.subdomain.clone());
        }
    }

    /// What a `JobSet` would write on the pods of `role`, both as labels and as annotations.
    fn marks(&self, role: Role) -> BTreeMap<String, String> {
        let Job {
            name, namespace, ..
        } = self.job;
        let place = self
            .own
            .order
            .iter()
            .position(|known| *known == role)
            .unwrap_or(0);
        let count = self.own.order.len().to_string();
        let group_of = |role: Role| self.own.groups.get(&role).map_or("default", String::as_str);
        let group = group_of(role);
        let members = self
            .own
            .order
            .iter()
            .filter(|other| group_of(**other) == group);
        let in_group = members.clone().count().to_string();
        let place_in_group = members.take_while(|other| **other != role).count();
        let key = digest::sha1(format!("{namespace}/{name}-{}-0", role.lower()).as_bytes());
        let mut marks = BTreeMap::from([
            (JOB.to_owned(), name.to_string()),
            (ROLE.to_owned(), role.lower().to_owned()),
        ]);
        for (mark, value) in [
            ("replicatedjob-replicas", "1"),
            ("global-replicas", count.as_str()),
            ("job-index", "0"),
            ("job-global-index", place.to_string().as_str()),
            ("job-key", key.as_str()),
            ("group-name", group),
            ("group-replicas", in_group.as_str()),
            ("job-group-index", place_in_group.to_string().as_str()),
        ] {
            marks.insert(format!("{PREFIX}{mark}"), value.to_owned());
        }
        if let Some(uid) = &self.job.uid {
            marks.insert(format!("{PREFIX}jobset-uid"), uid.clone());
        }
        if let Some(host) = &self.own.coordinator {
            marks.insert(format!("{PREFIX}coordinator"), host.clone());
        }
        marks
    }

    /// The first node under the name by which the others know it.
    fn address(&self) -> String {
        let first = self.job.pod_name(Slot::new(Role::Node, 0));
        format!("{first}.{}", self.own.subdomain)
    }

    fn give_variables(&self, role: Role, spec: &mut PodSpec) {
        let own = self.own;
        let nodes = self.job.role_replicas(Role::Node);
        let port = own.port.to_string();
        let trains = match own.policy {
            Policy::Mpi { .. } => Role::Launcher,
            _ => Role::Node,
        };
        let rank = |name: &str| field(name, &format!("metadata.annotations['{INDEX}']"));
        let (variables, first) = match &own.policy {
            Policy::Plain => return,
            Policy::Torch { tune, .. } => {
                let mut variables = vec![
                    variable("PET_NNODES", nodes.to_string()),
                    variable("PET_NPROC_PER_NODE", own.processes.clone()),
                    rank("PET_NODE_RANK"),
                ];
                if tune.is_none() {
                    variables.extend([
                        variable("PET_MASTER_ADDR", self.address()),
                        variable("PET_MASTER_PORT", port),
                    ]);
                }
                (variables, false)
            }
            Policy::Jax => (
                vec![
                    variable("JAX_NUM_PROCESSES", nodes.to_string()),
                    rank("JAX_PROCESS_ID"),
                    variable(
                        "JAX_COORDINATOR_ADDRESS",
                        format!("{}:{port}", self.address()),
                    ),
                ],
                true,
            ),
            Policy::XgBoost => {
                let workers = u64::from(nodes).saturating_mul(own.gpus.max(1));
                let variables = vec![
                    variable("DMLC_TRACKER_URI", self.address()),
                    variable("DMLC_TRACKER_PORT", port),
                    rank("DMLC_TASK_ID"),
                    variable("DMLC_NUM_WORKER", workers.to_string()),
                ];
                (variables, true)
            }
            Policy::Mpi { slots, .. } => {
                let variables = vec![
                    variable(
                        "OMPI_MCA_orte_default_hostfile",
                        format!("{HOSTS_PATH}/{HOSTS_FILE}"),
                    ),
                    variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
                    variable("OMPI_MCA_orte_set_default_slots", slots.to_string()),
                    variable("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
                ];
                (variables, false)
            }
        };
        let also: &[(Role, Vec<String>)] = match &own.policy {
            Policy::Torch { also, .. } => also,
            _ => &[],
        };
        let tune = match &own.policy {
            Policy::Torch { tune, .. } => tune.as_deref(),
            _ => None,
        };
        for container in &mut spec.containers {
            if role == trains && container.name == "node" {
                if let Some(tune) = tune {
                    // Only here are the port and the number of nodes those of this run.
                    let address = format!("{}:{}", self.address(), own.port);
                    let rest = tune.rest(&address, nodes);
                    container.command.get_or_insert_default().extend(rest);
                }
                if first {
                    insert(container, own.variables_at, &variables);
                } else {
                    for variable in &variables {
                        upsert(container, variable.clone());
                    }
                }
            } else if also
                .iter()
                .any(|(at, names)| *at == role && names.contains(&container.name))
            {
                for variable in &variables {
                    upsert(container, variable.clone());
                }
            }
        }
    }

    /// Keys and the list of hosts of MPI.
    fn mount(&self, role: Role, spec: &mut PodSpec) {
        let Policy::Mpi { ssh_path, .. } = &self.own.policy else {
            return;
        };
        if !matches!(role, Role::Node | Role::Launcher) {
            return;
        }
        let item = |key: &str, path: &str, mode: i32| KeyToPath {
            key: key.to_owned(),
            path: path.to_owned(),
            mode: Some(mode),
            ..KeyToPath::default()
        };
        let keys = Volume {
            name: KEYS_VOLUME.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(shared::keys_name(self.job)),
                default_mode: Some(0o400),
                items: Some(vec![
                    item(shared::PRIVATE, "id_rsa", 0o640),
                    item(shared::PUBLIC, "id_rsa.pub", 0o644),
                    item(shared::PUBLIC, "authorized_keys", 0o644),
                ]),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        };
        let hosts = Volume {
            name: HOSTS_VOLUME.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: shared::hosts_name(self.job),
                items: Some(vec![item(HOSTS_FILE, HOSTS_FILE, 0o444)]),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        };
        let mount = |name: &str, path: &str| VolumeMount {
            name: name.to_owned(),
            mount_path: path.to_owned(),
            ..VolumeMount::default()
        };
        let mut given = vec![(keys, mount(KEYS_VOLUME, ssh_path))];
        if role == Role::Launcher {
            given.push((hosts, mount(HOSTS_VOLUME, HOSTS_PATH)));
        }
        for (volume, mount) in given {
            spec.volumes.get_or_insert_default().push(volume);
            if let Some(container) = spec.containers.iter_mut().find(|it| it.name == "node") {
                container.volume_mounts.get_or_insert_default().push(mount);
            }
        }
    }
}

/// A variable that is a field of the pod.
fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// Puts `variable` in the place of the one with its name, or at the end.
fn upsert(container: &mut Container, variable: EnvVar) {
    let env = container.env.get_or_insert_default();
    match env.iter_mut().find(|known| known.name == variable.name) {
        Some(known) => *known = variable,
        None => env.push(variable),
    }
}

/// Puts `variables` behind those of the runtime and in front of those of the job, which win.
fn insert(container: &mut Container, at: usize, variables: &[EnvVar]) {
    let env = container.env.get_or_insert_default();
    let mut at = at.min(env.len());
    for variable in variables {
        match env.iter().position(|known| known.name == variable.name) {
            Some(known) if known < at => {
                if let Some(place) = env.get_mut(known) {
                    *place = variable.clone();
                }
            }
            Some(_) => {}
            None => {
                env.insert(at, variable.clone());
                at += 1;
            }
        }
    }
}
