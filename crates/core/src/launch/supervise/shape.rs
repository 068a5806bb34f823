//! How a pod gets its supervisor.
//!
//! The same init container, program volume and identity as for the agent of an `MPIJob`. The words of the training container move behind
//! `trainyard supervise --`; probes, hooks and everything else stay.

use k8s_openapi::{
    api::core::v1::{
        Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec,
        Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    BEAT, FILES_FOLDER, FILES_VOLUME, GangServer, OperatorAddress, PORT, RUN_BYTES, RUN_FOLDER,
    RUN_VOLUME, SuperviseSettings, SupervisedRanks, SupervisedWatch, WORDS, audience, leading_slot,
    obstacle, variable_name,
};
use crate::{
    barrier::Begin,
    launch::{
        Cluster,
        agent::{self, Agent, IDENTITY_PATH, from_label},
        env::{append, variable},
        mpi::mount,
        operator_files::{AUTHORITY_FILE, TOKEN_FILE, operator_files},
    },
    spec::{Framework, Job, JobSettings, Slot, WatchMode, annotation},
};

/// What the supervisors of one job need.
#[derive(Debug)]
pub(in crate::launch) struct Supervision<'a> {
    job: &'a Job,
    agent: Agent<'a>,
    server: &'a GangServer,
    authority: &'a str,
    leader: Slot,
}

impl<'a> Supervision<'a> {
    /// The supervision of `job`, where its pods get supervisors.
    pub(in crate::launch) fn of(job: &'a Job, cluster: &'a Cluster) -> Option<Self> {
        if obstacle(job, cluster).is_some() {
            return None;
        }
        let server = cluster.gang.as_ref()?;
        Some(Self {
            job,
            agent: Agent {
                job,
                image: cluster.agent_image()?,
            },
            server,
            authority: server.authority.as_deref()?,
            leader: leading_slot(job)?,
        })
    }

    /// Gives the pod of `slot` its supervisor.
    pub(in crate::launch) fn finish(&self, slot: Slot, begin: Begin, pod: &mut Pod) {
        let Some(at) = self.job.training_container(slot.role) else {
            return;
        };
        let leads = slot == self.leader;
        let spec = pod.spec.get_or_insert_default();
        self.agent.bring_program(spec, at);
        let volumes = spec.volumes.get_or_insert_default();
        volumes.push(run_volume());
        if leads {
            volumes.push(self.files());
        }
        let own_network = has_own_network(spec);
        let Some(container) = spec.containers.get_mut(at) else {
            return;
        };
        let last_words = last_words(container);
        supervise(container);
        let mounts = container.volume_mounts.get_or_insert_default();
        mounts.push(mount(RUN_VOLUME, RUN_FOLDER));
        if leads {
            mounts.push(VolumeMount {
                name: FILES_VOLUME.to_owned(),
                mount_path: FILES_FOLDER.to_owned(),
                read_only: Some(true),
                ..VolumeMount::default()
            });
        }
        // Settings are made of text and numbers.
        let settings = SuperviseSettings {
            last_words,
            network: !leads && own_network,
            ..self.settings(slot, begin)
        };
        let settings = serde_json::to_string(&settings).unwrap_or_default();
        let beats = self.job.settings.watch != WatchMode::Off;
        let has = |name: &str| container.env.iter().flatten().any(|it| it.name == name);
        if beats && !has(variable_name::BEAT) {
            let file = format!("{RUN_FOLDER}/{BEAT}");
            append(container, [variable(variable_name::BEAT, file)]);
        }
        append(
            container,
            [
                variable(variable_name::SETTINGS, settings),
                from_field(variable_name::POD_UID, "metadata.uid"),
                from_label(variable_name::ATTEMPT, annotation::ATTEMPT),
            ],
        );
        if leads {
            let annotations = pod.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::GANG_CA.to_owned(), self.authority.to_owned());
        }
    }

    fn settings(&self, slot: Slot, begin: Begin) -> SuperviseSettings {
        let (job, server) = (self.job, self.server);
        let settings = &job.settings;
        let file = |name: &str| format!("{FILES_FOLDER}/{name}");
        let operator = (slot == self.leader).then(|| OperatorAddress {
            address: server.address.clone(),
            server_name: server.server_name.clone(),
            authority: file(AUTHORITY_FILE),
            token: file(TOKEN_FILE),
        });
        let leader = job.pod_name(self.leader);
        let milliseconds =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        SuperviseSettings {
            job: job.uid.clone().unwrap_or_default(),
            slot,
            waits: begin == Begin::Wait,
            // The success rules read pods, and so does whoever looks for finished ones: none is kept running after its program.
            exits_on_success: true,
            identity: IDENTITY_PATH.to_owned(),
            leader: format!("{leader}.{}.svc:{PORT}", job.namespace),
            operator,
            start_within_ms: milliseconds(settings.start_within),
            stop_grace_ms: milliseconds(settings.stop_grace),
            ranks: ranks(job, slot),
            network: false,
            evidence: (settings.watch != WatchMode::Off).then(|| RUN_FOLDER.to_owned()),
            watch: SupervisedWatch {
                mode: settings.watch,
                hang_after_ms: milliseconds(settings.hang_after.unwrap_or(JobSettings::HANG_AFTER)),
                hang_floor_ms: milliseconds(settings.hang_floor),
                first_step_within_ms: milliseconds(settings.first_step_within),
                on_nan: settings.on_nan,
            },
            run: Some(RUN_FOLDER.to_owned()),
            last_words: None,
        }
    }

    /// The leader's token and the authority of the operator.
    fn files(&self) -> Volume {
        let Job {
            namespace, name, ..
        } = self.job;
        let audience = audience(namespace.as_str(), self.job.kind.name(), name.as_str());
        operator_files(FILES_VOLUME, audience, annotation::GANG_CA)
    }
}

/// The volume for what supervisor and program exchange.
fn run_volume() -> Volume {
    Volume {
        name: RUN_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(RUN_BYTES.to_owned())),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// Where the supervisor writes how the program ended. Who asked the kubelet for the end of the log gets that.
fn last_words(container: &Container) -> Option<String> {
    let policy = container.termination_message_policy.as_deref();
    let path = container.termination_message_path.as_deref();
    (policy != Some("FallbackToLogsOnError"))
        .then(|| path.unwrap_or("/dev/termination-log").to_owned())
}

/// Moves the words of `container` behind the supervisor's. Kubernetes expands `$(NAME)` in arguments as in a command.
fn supervise(container: &mut Container) {
    let own = [container.command.take(), container.args.take()];
    let own = own.into_iter().flatten().flatten();
    container.command = Some(WORDS.map(str::to_owned).to_vec());
    container.args = Some(["--".to_owned()].into_iter().chain(own).collect());
}

/// Whether only one program uses the network interfaces of a pod.
fn has_own_network(spec: &PodSpec) -> bool {
    let sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let mut before = spec.init_containers.iter().flatten();
    spec.host_network != Some(true) && spec.containers.len() == 1 && !before.any(sidecar)
}

/// The ranks of the pod in `slot`. Ranks are counted as `WORLD_SIZE` counts them: where the framework itself finds out how many
/// processes a pod has, a pod counts as one.
fn ranks(job: &Job, slot: Slot) -> SupervisedRanks {
    let count = match &job.framework {
        Framework::PyTorch(own) => own.nproc_per_node.as_deref(),
        _ => None,
    };
    let count: u32 = count.and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = count.max(1);
    let roles = job.roles.iter();
    let before: u32 = roles
        .take_while(|(role, _)| **role < slot.role)
        .map(|(_, spec)| spec.replicas)
        .sum();
    SupervisedRanks {
        first: before.saturating_add(slot.index).saturating_mul(count),
        count,
        all: job.total_replicas().saturating_mul(count),
    }
}

/// A variable with the value of a field of the pod.
fn from_field(name: &str, path: &str) -> EnvVar {
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

/// The Secret and the policy that the pods of a supervised job need.
pub(in crate::launch) fn shared(
    job: &Job,
    key: crate::launch::shared::Key<'_>,
    cluster: &Cluster,
) -> Vec<crate::launch::Object> {
    if obstacle(job, cluster).is_some() {
        return Vec::new();
    }
    let secret = agent::secret(job, key);
    let secret = secret.map(|secret| crate::launch::Object::Secret(Box::new(secret)));
    let policy = crate::launch::network_policy::leader_policy(job, cluster);
    secret.into_iter().chain(policy).collect()
}
