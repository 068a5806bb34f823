//! `MPIJob` v2beta1: `mpirun` in the launcher starts its ranks by ssh, or by the agent.
//!
//! All pods share one headless Service and the keys; the workers run `sshd` or the agent; the
//! launcher is the one pod of a batch Job.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::{Job as BatchJob, JobSpec},
        core::v1::{
            EnvVar, KeyToPath, Pod, PodSpec, PodTemplateSpec, Secret, SecretVolumeSource, Volume,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    Cluster, LaunchError, LaunchedPod, Object,
    agent::{self, Agent},
    env::{append, variable},
    mpi::{self, CONFIG_PATH, DISCOVER_HOSTS, HOSTFILE, READ, RUN, SSH_VOLUME},
    network_policy, pod,
    shared::Key,
};
use crate::{
    job::SharedInputs,
    spec::{Job, MpiImplementation, MpiV2, RestartScope, Role, Slot, annotation},
};

const PRIVATE_KEY: &str = "ssh-privatekey";
const PUBLIC_KEY: &str = "ssh-publickey";

/// How the ranks of an `MPIJob` v2beta1 find each other.
#[derive(Debug)]
pub(super) struct Wiring<'a> {
    job: &'a Job,
    own: &'a MpiV2,
    cluster: &'a Cluster,
    agent: Option<Agent<'a>>,
}

impl<'a> Wiring<'a> {
    pub(super) fn new(
        job: &'a Job,
        own: &'a MpiV2,
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
        mpi::name_host(spec, self.job);
        if role == Role::Launcher {
            if let Some(container) = spec.containers.first_mut() {
                append(container, self.launcher_variables());
            }
            match self.agent {
                Some(agent) => agent.shape_launcher(spec),
                None => self.mount_keys(spec),
            }
            mpi::mount_config(self.job, spec, &[(HOSTFILE, READ), (DISCOVER_HOSTS, RUN)]);
        } else {
            self.shape_worker(spec);
        }
    }

    /// Turns the pod of a role into the pod of `slot`.
    pub(super) fn finish(&self, slot: Slot, mut pod: Pod) -> LaunchedPod {
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(self.job.pod_name(slot));
        if slot.role == Role::Launcher {
            LaunchedPod::Job(Box::new(self.launcher_job(pod)))
        } else {
            LaunchedPod::Pod(Box::new(pod))
        }
    }

    fn shape_worker(&self, spec: &mut PodSpec) {
        // Hydra's workers call the launcher back by its bare host name.
        mpi::search_job(spec, self.job, self.cluster);
        if let Some(container) = spec.containers.first_mut() {
            append(container, [variable("K_MPI_JOB_ROLE", "worker")]);
        }
        if let Some(agent) = self.agent {
            return agent.shape_worker(spec, 0);
        }
        if let Some(container) = spec.containers.first_mut() {
            let is_empty = |list: &Option<Vec<String>>| list.as_ref().is_none_or(Vec::is_empty);
            if is_empty(&container.command) && is_empty(&container.args) {
                container.command = Some(vec!["/usr/sbin/sshd".to_owned(), "-De".to_owned()]);
            }
        }
        self.mount_keys(spec);
    }

    fn launcher_variables(&self) -> Vec<EnvVar> {
        let slots = self.own.slots_per_worker.to_string();
        let hostfile = format!("{CONFIG_PATH}/{HOSTFILE}");
        let patience = "-o ConnectionAttempts=10";
        let mut variables = vec![variable("K_MPI_JOB_ROLE", "launcher")];
        match self.own.implementation {
            MpiImplementation::OpenMpi => variables.extend([
                variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
                variable("OMPI_MCA_orte_default_hostfile", hostfile),
                variable("OMPI_MCA_plm_rsh_args", patience),
                variable("OMPI_MCA_orte_set_default_slots", slots),
            ]),
            MpiImplementation::Intel => variables.extend([
                variable("I_MPI_HYDRA_HOST_FILE", hostfile),
                variable("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", patience),
                variable("I_MPI_PERHOST", slots),
            ]),
            MpiImplementation::Mpich => variables.extend([
                variable("HYDRA_HOST_FILE", hostfile),
                variable("HYDRA_LAUNCH_EXTRA_ARGS", patience),
            ]),
        }
        if !self.own.run_launcher_as_worker {
            variables.extend(mpi::hide_gpus());
        }
        variables
    }

    /// Mounts the key pair into the first container.
    fn mount_keys(&self, spec: &mut PodSpec) {
        let path = self.own.ssh_auth_mount_path.as_str();
        let items = [
            (PRIVATE_KEY, "id_rsa"),
            (PUBLIC_KEY, "id_rsa.pub"),
            (PUBLIC_KEY, "authorized_keys"),
        ]
        .map(|(key, path)| KeyToPath {
            key: key.to_owned(),
            path: path.to_owned(),
            ..KeyToPath::default()
        });
        spec.volumes.get_or_insert_default().push(Volume {
            name: SSH_VOLUME.to_owned(),
            secret: Some(SecretVolumeSource {
                // Elsewhere than in root's home the files belong to another user, who could not
                // read them with this mode.
                default_mode: (path == "/root/.ssh").then_some(0o600),
                items: Some(items.into()),
                secret_name: Some(secret_name(self.job)),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        });
        if let Some(container) = spec.containers.first_mut() {
            mpi::add_mount(container, mpi::mount(SSH_VOLUME, path));
        }
    }

    /// Wraps the launcher into its batch Job.
    ///
    /// Where one failure restarts the gang, attempts, deadline and cleanup are ours, and the batch
    /// Job runs its pod once.
    fn launcher_job(&self, pod: Pod) -> BatchJob {
        let job = self.job;
        let Pod { metadata, spec, .. } = pod;
        let mut own_metadata = mpi::metadata(job, mpi::launcher(job));
        let attempt = metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get_key_value(annotation::ATTEMPT));
        if let Some((key, value)) = attempt {
            own_metadata
                .labels
                .get_or_insert_default()
                .insert(key.clone(), value.clone());
        }
        let policy = &job.run_policy;
        let limits = match job.restart_scope() {
            RestartScope::Gang => JobSpec {
                backoff_limit: Some(0),
                ..JobSpec::default()
            },
            RestartScope::Pod => JobSpec {
                active_deadline_seconds: policy.active_deadline_seconds.map(saturate),
                backoff_limit: policy.backoff_limit.map(saturate),
                ttl_seconds_after_finished: policy.ttl_seconds_after_finished.map(saturate),
                ..JobSpec::default()
            },
        };
        BatchJob {
            metadata: own_metadata,
            spec: Some(JobSpec {
                pod_replacement_policy: Some("Failed".to_owned()),
                suspend: policy.suspend.then_some(true),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta {
                        labels: metadata.labels,
                        annotations: metadata.annotations,
                        ..ObjectMeta::default()
                    }),
                    spec,
                },
                ..limits
            }),
            status: None,
        }
    }
}

/// The objects that all pods share, in the order of creation.
pub(super) fn shared(
    job: &Job,
    own: &MpiV2,
    inputs: &SharedInputs,
    key: Key<'_>,
    cluster: &Cluster,
) -> Result<Vec<Object>, LaunchError> {
    let by_agent = mpi::agent(job, cluster)?.is_some();
    let hosts = Hosts { job, own, cluster };
    let files = BTreeMap::from([
        (
            HOSTFILE.to_owned(),
            hosts.hostfile(&mpi::workers(job, inputs)),
        ),
        (
            DISCOVER_HOSTS.to_owned(),
            hosts.discover_hosts(&mpi::running_workers(job, inputs)),
        ),
    ]);
    let policy = by_agent.then(|| network_policy::agent_policy(job, cluster));
    let mut objects: Vec<Object> = policy.flatten().into_iter().collect();
    objects.extend([
        Object::Service(Box::new(mpi::job_service(job, by_agent))),
        Object::ConfigMap(Box::new(mpi::config_map(job, files))),
    ]);
    let secret = if by_agent {
        agent::secret(job, key)
    } else {
        secret(job, key)
    };
    objects.extend(secret.map(|secret| Object::Secret(Box::new(secret))));
    Ok(objects)
}

/// The names under which the launcher calls its hosts.
struct Hosts<'a> {
    job: &'a Job,
    own: &'a MpiV2,
    cluster: &'a Cluster,
}

impl Hosts<'_> {
    /// The full names of the launcher, where ranks run in it too, and of `workers`.
    fn names(&self, workers: &[String]) -> Vec<String> {
        let launcher = self
            .own
            .run_launcher_as_worker
            .then(|| mpi::launcher(self.job));
        let domain = pod::service_domain(self.job, self.cluster);
        launcher
            .iter()
            .chain(workers)
            .map(|pod| format!("{pod}.{}{domain}", self.job.name))
            .collect()
    }

    fn hostfile(&self, workers: &[String]) -> String {
        let slots = self.own.slots_per_worker;
        let separator = match self.own.implementation {
            MpiImplementation::OpenMpi => " slots=",
            MpiImplementation::Intel | MpiImplementation::Mpich => ":",
        };
        self.names(workers)
            .iter()
            .map(|host| format!("{host}{separator}{slots}\n"))
            .collect::<Vec<String>>()
            .concat()
    }

    fn discover_hosts(&self, running: &[String]) -> String {
        let mut script = "#!/bin/sh\n".to_owned();
        script.extend(
            self.names(running)
                .iter()
                .map(|host| format!("echo {host}\n")),
        );
        script
    }
}

fn secret(job: &Job, key: Key<'_>) -> Option<Secret> {
    let mut secret = Secret {
        metadata: mpi::metadata(job, secret_name(job)),
        type_: Some("kubernetes.io/ssh-auth".to_owned()),
        ..Secret::default()
    };
    match key {
        Key::Kept | Key::Agent(_) => return None,
        Key::Ssh(key) => {
            let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
            secret.data = Some(BTreeMap::from([
                (PRIVATE_KEY.to_owned(), bytes(&key.private)),
                (PUBLIC_KEY.to_owned(), bytes(&key.public)),
            ]));
        }
        Key::Placeholder => {
            let text = || mpi::PLACEHOLDER.to_owned();
            secret.string_data = Some(BTreeMap::from([
                (PRIVATE_KEY.to_owned(), text()),
                (PUBLIC_KEY.to_owned(), text()),
            ]));
        }
    }
    Some(secret)
}

fn secret_name(job: &Job) -> String {
    format!("{}-ssh", job.name)
}

/// A count in the API's narrower type. A validated job fits; one that does not means "very long".
fn saturate<N: TryInto<T>, T: From<i32>>(count: N) -> T {
    count.try_into().unwrap_or_else(|_| T::from(i32::MAX))
}
