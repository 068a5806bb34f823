//! How an `MPIJob` starts its ranks by the agent: a program of ours in every pod of the job.
//!
//! An init container copies it to a volume, so that images stay as they are. In a worker it
//! serves commands; in the launcher, and in workers that pass a command on, it is called as ssh would
//! be. Both sides show the certificate of the job and check that the other has it, too; a worker
//! refuses pods of another attempt.
//!
//! Owns the names that the program and the pods agree on. The program itself is `trainyard-agent`.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{
    ByteString,
    api::core::v1::{
        Capabilities, Container, EmptyDirVolumeSource, EnvVar, EnvVarSource, ObjectFieldSelector,
        PodSpec, ResourceRequirements, Secret, SecretVolumeSource, SecurityContext, Volume,
        VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    env::{append, variable},
    mpi,
    shared::Key,
};
use crate::spec::{Job, annotation};

/// Where the program lies in every pod of the job.
pub const FOLDER: &str = "/opt/trainyard";
/// The program as it is called in place of ssh and rsh, in [`FOLDER`].
pub const REMOTE_SHELLS: [&str; 2] = ["rsh", "ssh"];
/// The program itself, in [`FOLDER`].
pub const PROGRAM: &str = "trainyard";
/// The port that workers listen on: below those that nodes give out, and in no list of well-known
/// ones.
pub const PORT: u16 = 28_022;
/// The name in every certificate of a job. Hosts are many and unknown when it is made; that the
/// other side belongs to the job is what counts.
pub const SERVER_NAME: &str = "agent.trainyard.dev";

/// The files of an identity.
pub mod file {
    /// The certificate of the job's own authority.
    pub const AUTHORITY: &str = "ca.crt";
    /// The certificate that both sides show.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its key.
    pub const KEY: &str = "tls.key";
}

/// The variables that identify the pod to the program.
pub mod variable_name {
    /// The attempt that the pod is part of.
    pub const ATTEMPT: &str = "TRAINYARD_ATTEMPT";
    /// The folder of the identity.
    pub const IDENTITY: &str = "TRAINYARD_AGENT_IDENTITY";
    /// What follows a bare host name, with the leading dot.
    pub const DOMAIN: &str = "TRAINYARD_AGENT_DOMAIN";
    /// The address and port to listen on, in place of every address and the usual port.
    pub const LISTEN: &str = "TRAINYARD_AGENT_LISTEN";
    /// How long the remote shell waits for a worker, in seconds.
    pub const WAIT: &str = "TRAINYARD_AGENT_WAIT";
}

pub(super) const PROGRAM_VOLUME: &str = "trainyard-agent";
pub(super) const IDENTITY_VOLUME: &str = "trainyard-agent-identity";
pub(super) const IDENTITY_PATH: &str = "/etc/trainyard/agent";
const INSTALLER: &str = "trainyard-agent";

/// What the pods of a job show each other: all PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentIdentity {
    /// The certificate of the job's own authority, whose key is discarded.
    pub authority: String,
    /// A certificate of that authority for [`SERVER_NAME`], of a server and of a client.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for AgentIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentIdentity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// The agent in the pods of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agent<'a> {
    pub(super) job: &'a Job,
    pub(super) image: &'a str,
}

impl Agent<'_> {
    /// Gives the launcher the remote shell; `container` is where `mpirun` runs.
    pub(super) fn shape_launcher(self, spec: &mut PodSpec) {
        self.bring(spec, 0);
        let Some(container) = spec.containers.first_mut() else {
            return;
        };
        let shell = remote_shell();
        append(
            container,
            ["OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"]
                .map(|name| variable(name, shell.as_str())),
        );
        for (name, value) in [
            ("HYDRA_LAUNCHER", "rsh"),
            ("HYDRA_LAUNCHER_EXEC", shell.as_str()),
            ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC", shell.as_str()),
        ] {
            let is_set = container.env.iter().flatten().any(|var| var.name == name);
            if !is_set {
                append(container, [variable(name, value)]);
            }
        }
    }

    /// Lets container `at` of a worker serve commands.
    ///
    /// A command that is only `sshd` is removed, and its probes with it: nothing listens on their
    /// port. Any other runs beside the agent, and the pod lives as long as it does.
    pub(super) fn shape_worker(self, spec: &mut PodSpec, at: usize) {
        self.bring(spec, at);
        let Some(container) = spec.containers.get_mut(at) else {
            return;
        };
        let own: Vec<String> = [container.command.take(), container.args.take()]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        let serves_ssh = is_sshd(&own);
        if own.is_empty() || serves_ssh {
            container.readiness_probe = None;
            container.liveness_probe = None;
            container.startup_probe = None;
        } else {
            container.args = Some(["--".to_owned()].into_iter().chain(own).collect());
        }
        let words = [
            format!("{FOLDER}/{PROGRAM}"),
            "agent".to_owned(),
            "serve".to_owned(),
        ];
        container.command = Some(words.into());
    }

    /// Brings program, identity and address to container `at`.
    fn bring(self, spec: &mut PodSpec, at: usize) {
        self.bring_program(spec, at);
        let Some(container) = spec.containers.get_mut(at) else {
            return;
        };
        let Job {
            name, namespace, ..
        } = self.job;
        append(
            container,
            [
                from_label(variable_name::ATTEMPT, annotation::ATTEMPT),
                variable(variable_name::IDENTITY, IDENTITY_PATH),
                variable(variable_name::DOMAIN, format!(".{name}.{namespace}.svc")),
            ],
        );
    }

    /// Brings program and identity to container `at`.
    pub(super) fn bring_program(self, spec: &mut PodSpec, at: usize) {
        let installer = installer(self.image, spec.containers.get(at));
        spec.init_containers.get_or_insert_default().push(installer);
        spec.volumes.get_or_insert_default().extend([
            Volume {
                name: PROGRAM_VOLUME.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            },
            Volume {
                name: IDENTITY_VOLUME.to_owned(),
                secret: Some(SecretVolumeSource {
                    // The user of the container must read it, and no other user is in there.
                    default_mode: Some(0o444),
                    secret_name: Some(secret_name(self.job)),
                    ..SecretVolumeSource::default()
                }),
                ..Volume::default()
            },
        ]);
        let Some(container) = spec.containers.get_mut(at) else {
            return;
        };
        for (volume, path) in [(PROGRAM_VOLUME, FOLDER), (IDENTITY_VOLUME, IDENTITY_PATH)] {
            let mount = VolumeMount {
                read_only: Some(true),
                ..mpi::mount(volume, path)
            };
            mpi::add_mount(container, mount);
        }
    }
}

/// The init container that copies the program, as the user whom `beside` runs as.
pub(super) fn installer(image: &str, beside: Option<&Container>) -> Container {
    // Requests equal to limits keep the pod's class of service, and are far below what the pod
    // asks for anyway, so they cost nothing.
    let resources: BTreeMap<String, Quantity> = [("cpu", "100m"), ("memory", "64Mi")]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .into();
    let theirs = beside.and_then(|container| container.security_context.as_ref());
    let theirs = theirs.cloned().unwrap_or_default();
    Container {
        name: INSTALLER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(
            [PROGRAM, "agent", "install", FOLDER]
                .map(str::to_owned)
                .into(),
        ),
        resources: Some(ResourceRequirements {
            limits: Some(resources.clone()),
            requests: Some(resources),
            ..ResourceRequirements::default()
        }),
        // What the restricted pod standard asks for.
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                add: None,
                drop: Some(vec!["ALL".to_owned()]),
            }),
            read_only_root_filesystem: Some(true),
            run_as_group: theirs.run_as_group,
            run_as_non_root: theirs.run_as_non_root,
            run_as_user: theirs.run_as_user,
            seccomp_profile: theirs.seccomp_profile,
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![mpi::mount(PROGRAM_VOLUME, FOLDER)]),
        ..Container::default()
    }
}

/// Whether `words` start `sshd` itself.
pub(super) fn is_sshd(words: &[String]) -> bool {
    let program = words.first().and_then(|word| word.rsplit('/').next());
    program == Some("sshd")
}

/// What `mpirun` calls in place of ssh.
pub(super) fn remote_shell() -> String {
    let [rsh, _] = REMOTE_SHELLS;
    format!("{FOLDER}/{rsh}")
}

/// The Secret with the identity of `job`.
pub(super) fn secret(job: &Job, key: Key<'_>) -> Option<Secret> {
    let names = [file::AUTHORITY, file::CERTIFICATE, file::KEY];
    let mut secret = Secret {
        metadata: mpi::metadata(job, secret_name(job)),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    };
    match key {
        Key::Agent(identity) => {
            let texts = [&identity.authority, &identity.certificate, &identity.key];
            let bytes = texts.map(|text| ByteString(text.as_bytes().to_vec()));
            secret.data = Some(names.map(str::to_owned).into_iter().zip(bytes).collect());
        }
        Key::Placeholder => {
            let text = |name: &str| (name.to_owned(), mpi::PLACEHOLDER.to_owned());
            secret.string_data = Some(names.map(text).into());
        }
        Key::Ssh(_) | Key::Kept => return None,
    }
    Some(secret)
}

/// Its name ends in a part of the job's identity: a job of the same name that was deleted a moment
/// ago may still have its own, which the garbage collector is about to delete.
fn secret_name(job: &Job) -> String {
    let uid = job.uid.as_deref().and_then(|uid| uid.split('-').next());
    match uid {
        Some(part) => format!("{}-agent-{part}", job.name),
        None => format!("{}-agent", job.name),
    }
}

/// A variable with the value of a label of the pod.
pub(super) fn from_label(name: &str, label: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{label}']"),
            }),
            ..EnvVarSource::default()
        }),
    }
}
