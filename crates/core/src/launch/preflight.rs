//! The pods of a preflight: one on each node, with what the job's own pods have there.
//!
//! Owns what such a pod is and its variables. When the pods are created, which one is the leader and what
//! happens with their result is an adapter's; what they measure is `trainyard preflight --serve`.
//!
//! Invariant: a pod has the annotations, devices, volumes, tolerations and rights of the container that will train, and
//! nothing else of it: no command, no sidecar, no label by which a Service or a controller would take it for a rank, no
//! token of the API server. Its deadline is [`DEADLINE`].

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{
        Capabilities, Container, EmptyDirVolumeSource, EnvVar, Pod, PodSecurityContext, PodSpec,
        ResourceRequirements, SeccompProfile, SecurityContext, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};

use super::{
    Cluster, LaunchError,
    agent::{FOLDER, PROGRAM, PROGRAM_VOLUME, installer},
    env::variable,
    mpi,
    pod::owners,
    seat::tie,
};
use crate::{
    fabric::Fabric,
    probe::{self, Needs},
    spec::{Job, Kind, Role, Slot},
};

/// The label of every pod of a preflight; its value is the round.
pub const ROUND: &str = "trainyard.dev/preflight";
/// The label of the preflight's owner: the identity of the job, or a name of its own.
pub const OF: &str = "trainyard.dev/preflight-of";
/// The container that measures.
pub const CONTAINER: &str = "preflight";
/// The port that the leader listens on.
pub const PORT: u16 = 29_400;
/// What stands before the report in the log of the leader.
pub const MARKER: &str = "trainyard-preflight-report: ";
/// A pod ends after this, even if no adapter deletes it.
pub const DEADLINE: Duration = Duration::from_mins(5);
/// Measuring ends after this.
pub const MEASURES: Duration = Duration::from_mins(2);

/// The variables of a pod.
///
/// Every pod has all of them, empty where they do not apply: else the image of a job could set them.
pub mod variable_name {
    /// What a machine must have, as JSON.
    pub const NEEDS: &str = "TRAINYARD_PREFLIGHT_NEEDS";
    /// The node.
    pub const NODE: &str = "TRAINYARD_PREFLIGHT_NODE";
    /// The secret that all pods of one preflight share.
    pub const TOKEN: &str = "TRAINYARD_PREFLIGHT_TOKEN";
    /// How many pods there are in all.
    pub const GANG: &str = "TRAINYARD_PREFLIGHT_GANG";
    /// The nodes of all, for the leader.
    pub const NODES: &str = "TRAINYARD_PREFLIGHT_NODES";
    /// The domains of each node as JSON, for the leader.
    pub const TOPOLOGY: &str = "TRAINYARD_PREFLIGHT_TOPOLOGY";
    /// The address of the leader, for all others.
    pub const LEAD: &str = "TRAINYARD_PREFLIGHT_LEAD";
    /// Seconds in which measuring ends.
    pub const TIMEOUT: &str = "TRAINYARD_PREFLIGHT_TIMEOUT";
    /// Milliseconds in which one direction of a pair is measured.
    pub const MEASURE: &str = "TRAINYARD_PREFLIGHT_MEASURE";
    /// The port that the leader listens on.
    pub const PORT: &str = "TRAINYARD_PREFLIGHT_PORT";
    /// The folder that stands for `/`.
    pub const ROOT: &str = "TRAINYARD_PREFLIGHT_ROOT";
    /// Bytes that the report of the leader may have.
    pub const REPORT_BYTES: &str = "TRAINYARD_PREFLIGHT_REPORT_BYTES";

    /// All that the program reads.
    pub const ALL: [&str; 12] = [
        NEEDS,
        NODE,
        TOKEN,
        GANG,
        NODES,
        TOPOLOGY,
        LEAD,
        TIMEOUT,
        MEASURE,
        PORT,
        ROOT,
        REPORT_BYTES,
    ];
}

/// One pod of a preflight, before the leader is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct PreflightPod {
    /// The node that it measures.
    pub node: String,
    /// The domains that the node is in, from wide to narrow; empty where they are not known.
    pub domains: Vec<String>,
    /// The pod.
    pub pod: Pod,
}

/// What all pods of one preflight have in common.
#[derive(Clone, Copy, Debug)]
pub struct Flight<'a> {
    /// Whose it is: the value of [`OF`].
    pub of: &'a str,
    /// Its number.
    pub round: u32,
    /// The secret that all its pods share.
    pub token: &'a str,
    /// Bytes that the report may have.
    pub report_bytes: usize,
}

/// The image of the program that measures.
pub fn image(cluster: &Cluster) -> Result<&str, LaunchError> {
    cluster.agent_image().ok_or(LaunchError::NoPreflightImage)
}

/// The key of what `job` needs; jobs that need the same have the same key.
pub fn covers(job: &Job, fabric: Option<&Fabric>) -> String {
    let asked: Vec<_> = job
        .roles
        .iter()
        .filter(|(role, _)| **role != Role::Launcher && !role.is_initializer())
        .map(|(role, spec)| {
            let needs = Needs {
                asked_by: None,
                ..probe::needs(job, fabric, *role)
            };
            let template = &spec.template;
            let annotations = template.metadata.as_ref().map(|meta| &meta.annotations);
            let volumes = template.spec.as_ref().map(|spec| &spec.volumes);
            (needs, annotations, volumes)
        })
        .collect();
    probe::fingerprint(&asked)
}

/// The pods that look at `seats`, the slot on each node, for `job` as it is launched on `fabric`.
pub fn of_job(
    job: &Job,
    fabric: Option<&Fabric>,
    cluster: &Cluster,
    flight: Flight<'_>,
    seats: &BTreeMap<String, Slot>,
) -> Result<Vec<PreflightPod>, LaunchError> {
    let image = image(cluster)?;
    let pods = seats.iter().enumerate().map(|(index, (node, slot))| {
        let role = slot.role;
        let undeclared = LaunchError::UndeclaredRole { role };
        let template = &job.roles.get(&role).ok_or(undeclared)?.template;
        let mut spec = template.spec.clone().unwrap_or_default();
        let trainer = job.training_container(role);
        let trainer = trainer.and_then(|at| spec.containers.get(at).cloned());
        let trainer = trainer.ok_or(LaunchError::NoContainer { role })?;
        let needs = probe::needs(job, fabric, role);
        let variables = variables(flight, node, &needs, seats.len());
        spec.init_containers = Some(vec![installer(image, Some(&trainer))]);
        spec.containers = vec![measuring_container(trainer, variables)];
        let metadata = template.metadata.as_ref();
        let metadata = ObjectMeta {
            name: Some(format!("{}-preflight-{}-{index}", job.name, flight.round)),
            namespace: Some(job.namespace.as_str().to_owned()),
            labels: Some(labels(flight)),
            annotations: metadata.and_then(|meta| meta.annotations.clone()),
            owner_references: owners(job),
            ..ObjectMeta::default()
        };
        keep_mounted(&mut spec);
        Ok(finish(node, metadata, spec))
    });
    pods.collect()
}

/// The pods that look at `nodes` for no job, each with the devices that are free there. What is wrong with those
/// devices is a warning, or in a `trial` a failure.
pub fn of_nodes(
    namespace: &str,
    image: &str,
    flight: Flight<'_>,
    nodes: &BTreeMap<String, BTreeMap<String, Quantity>>,
    trial: bool,
) -> Vec<PreflightPod> {
    let count = nodes.len();
    let pods = nodes.iter().enumerate().map(|(index, (node, devices))| {
        let mut limits = small();
        limits.extend(devices.clone());
        // One is enough to hold them all to what a job needs. How many the pod gets does not depend on the node: GPUs may
        // be shared.
        let needs = Needs {
            gpus: (trial && devices.contains_key(probe::GPU)).then_some(1),
            ..Needs::default()
        };
        let container = Container {
            name: CONTAINER.to_owned(),
            image: Some(image.to_owned()),
            command: Some([PROGRAM, "preflight", "--serve"].map(str::to_owned).into()),
            env: Some(variables(flight, node, &needs, count)),
            resources: Some(ResourceRequirements {
                limits: Some(limits.clone()),
                requests: Some(limits),
                ..ResourceRequirements::default()
            }),
            security_context: Some(restricted()),
            ..Container::default()
        };
        let spec = PodSpec {
            containers: vec![container],
            // Nodes on probation are measured, too.
            tolerations: Some(vec![Toleration {
                operator: Some("Exists".to_owned()),
                ..Toleration::default()
            }]),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NOBODY),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    localhost_profile: None,
                }),
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(format!("preflight-{}-{}-{index}", flight.of, flight.round)),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels(flight)),
            ..ObjectMeta::default()
        };
        finish(node, metadata, spec)
    });
    pods.collect()
}

/// Bytes of the largest variable that a kernel passes on are 128 KiB. A leader without domains still finds
/// slow nodes and pairs, only no uplinks.
const LARGEST_VARIABLE: usize = 96 << 10;

/// Makes a pod the leader of a preflight of `pods`.
pub fn make_leader(pod: &mut Pod, pods: &[PreflightPod]) {
    let nodes: Vec<&str> = pods.iter().map(|one| one.node.as_str()).collect();
    set_variable(pod, variable_name::NODES, &nodes.join(","));
    let known = pods.iter().filter(|one| !one.domains.is_empty());
    let domains: BTreeMap<&str, &[String]> = known
        .map(|one| (one.node.as_str(), &one.domains[..]))
        .collect();
    let text = serde_json::to_string(&domains).unwrap_or_default();
    if !domains.is_empty() && text.len() <= LARGEST_VARIABLE {
        set_variable(pod, variable_name::TOPOLOGY, &text);
    }
}

/// Makes a pod join the leader at `address`.
pub fn join(pod: &mut Pod, address: &str) {
    let address = if address.contains(':') {
        format!("[{address}]:{PORT}")
    } else {
        format!("{address}:{PORT}")
    };
    set_variable(pod, variable_name::LEAD, &address);
}

/// The user that nothing belongs to.
const NOBODY: i64 = 65_532;

fn set_variable(pod: &mut Pod, name: &str, value: &str) {
    let containers = pod.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    for container in containers {
        let env = container.env.get_or_insert_default();
        env.retain(|known| known.name != name);
        env.push(variable(name, value));
    }
}

/// The part of a pod's metadata that identifies its preflight.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The value of [`OF`].
    pub of: &'a str,
    /// The value of [`ROUND`].
    pub round: &'a str,
    /// The controller that owns it.
    pub owner: Option<&'a OwnerReference>,
    /// Whether it has ended.
    pub ended: bool,
}

/// Whether a pod with the labels of a preflight is one: any user can write labels.
///
/// A job's is owned by the job and named after it. One without a job has the name that its labels say, and no owner;
/// where that is not in `own`, the namespace of the operator, a user may have created it, and it is deleted only once it
/// has ended.
pub fn is_left_over(pod: Labelled<'_>, own: &str) -> bool {
    if let Some(owner) = pod.owner {
        let is_job = Kind::READ
            .iter()
            .any(|kind| kind.name() == owner.kind && kind.api_version() == owner.api_version);
        let named = format!("{}-preflight-{}-", owner.name, pod.round);
        return is_job && pod.name.starts_with(&named);
    }
    let without_job = format!("preflight-{}-{}-", pod.of, pod.round);
    let of_file = format!("-preflight-{}-", pod.round);
    let is_named = pod.name.starts_with(&without_job) || pod.name.contains(&of_file);
    is_named && (pod.namespace == own || pod.ended)
}

fn labels(flight: Flight<'_>) -> BTreeMap<String, String> {
    [
        (ROUND.to_owned(), flight.round.to_string()),
        (OF.to_owned(), flight.of.to_owned()),
    ]
    .into()
}

fn variables(flight: Flight<'_>, node: &str, needs: &Needs, count: usize) -> Vec<EnvVar> {
    let needs = serde_json::to_string(needs).unwrap_or_default();
    let said = |name: &str| match name {
        variable_name::NEEDS => needs.clone(),
        variable_name::NODE => node.to_owned(),
        variable_name::TOKEN => flight.token.to_owned(),
        variable_name::GANG => count.to_string(),
        variable_name::TIMEOUT => MEASURES.as_secs().to_string(),
        variable_name::REPORT_BYTES => flight.report_bytes.to_string(),
        _ => String::new(),
    };
    let all = variable_name::ALL.into_iter();
    all.map(|name| variable(name, said(name))).collect()
}

/// The container that trains, with the program that measures in place of its own.
fn measuring_container(trainer: Container, ours: Vec<EnvVar>) -> Container {
    // With these the container runtime chooses which parts of the driver the container sees.
    let seen = |var: &EnvVar| var.name.starts_with("NVIDIA_") && var.value.is_some();
    let theirs = trainer.env.into_iter().flatten().filter(seen);
    let mut mounts = trainer.volume_mounts.unwrap_or_default();
    mounts.push(VolumeMount {
        read_only: Some(true),
        ..mpi::mount(PROGRAM_VOLUME, FOLDER)
    });
    let words = [format!("{FOLDER}/{PROGRAM}"), "preflight".to_owned()];
    Container {
        name: CONTAINER.to_owned(),
        image: trainer.image,
        image_pull_policy: trainer.image_pull_policy,
        command: Some(words.into_iter().chain(["--serve".to_owned()]).collect()),
        env: Some(theirs.chain(ours).collect()),
        resources: trainer.resources,
        security_context: trainer.security_context,
        volume_devices: trainer.volume_devices,
        volume_mounts: Some(mounts),
        ..Container::default()
    }
}

/// Keeps the volumes that the container has, and adds that of the program.
fn keep_mounted(spec: &mut PodSpec) {
    let container = spec.containers.first();
    let mounts = container.and_then(|container| container.volume_mounts.as_ref());
    let devices = container.and_then(|container| container.volume_devices.as_ref());
    let used = |volume: &Volume| {
        let mut mounts = mounts.into_iter().flatten();
        let mut devices = devices.into_iter().flatten();
        mounts.any(|mount| mount.name == volume.name)
            || devices.any(|device| device.name == volume.name)
    };
    let mut volumes = spec.volumes.take().unwrap_or_default();
    volumes.retain(|volume| volume.name != PROGRAM_VOLUME && used(volume));
    volumes.push(Volume {
        name: PROGRAM_VOLUME.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    spec.volumes = Some(volumes);
}

fn finish(node: &str, metadata: ObjectMeta, mut spec: PodSpec) -> PreflightPod {
    tie(&mut spec, node);
    spec.restart_policy = Some("Never".to_owned());
    spec.active_deadline_seconds = i64::try_from(DEADLINE.as_secs()).ok();
    spec.automount_service_account_token = Some(false);
    spec.enable_service_links = Some(false);
    spec.termination_grace_period_seconds = Some(1);
    // Names and gates are for ranks only.
    spec.hostname = None;
    spec.subdomain = None;
    spec.scheduling_gates = None;
    // The node is chosen, and affinity between ranks does not concern these pods.
    spec.topology_spread_constraints = None;
    if let Some(affinity) = &mut spec.affinity {
        affinity.pod_affinity = None;
        affinity.pod_anti_affinity = None;
    }
    PreflightPod {
        node: node.to_owned(),
        domains: Vec::new(),
        pod: Pod {
            metadata,
            spec: Some(spec),
            status: None,
        },
    }
}

/// Far below what any training pod requests.
fn small() -> BTreeMap<String, Quantity> {
    [("cpu", "500m"), ("memory", "128Mi")]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
        .into()
}

/// What the restricted pod standard asks for.
fn restricted() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}
