//! A job made ready for one machine: role sizes, ports, addresses, devices.
//!
//! Everything that can be refused is refused here, before a process is started.

pub(crate) mod addresses;
mod devices;
pub(crate) mod gpus;
mod ignored;
mod ports;

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::net::UnixListener,
};

use trainyard_core::{
    launch::Cluster,
    spec::{Framework, Job, Kind, Role, Slot},
};

use crate::{HostError, objects::Objects, pod_spec::virtual_environment, request::RunRequest};
use addresses::Addresses;
use gpus::Gpus;
use ports::Ports;

/// The image of a job that was made from a command: there is none, and nothing to say about it.
pub const NO_IMAGE: &str = "none";

/// How many GPUs this machine has that a user whose `CUDA_VISIBLE_DEVICES` is `visible` may use.
pub fn gpu_count(visible: Option<&str>) -> usize {
    devices::Devices::detect().restricted_to(visible).len()
}

/// A job that can run here.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) job: Job,
    pub(crate) cluster: Cluster,
    pub(crate) objects: Objects,
    pub(crate) addresses: Addresses,
    pub(crate) gpus: Gpus,
    /// What differs from a cluster, one sentence each.
    pub(crate) notes: Vec<String>,
    /// Keep the ports until the run is over.
    pub(crate) _ports: Vec<UnixListener>,
}

/// Makes the job of `request` ready.
pub(crate) fn prepare(request: &RunRequest) -> Result<Prepared, HostError> {
    let mut job = request.job.clone();
    // The engine enters pods by itself, whatever a cluster would use.
    job.settings.mpi_transport = None;
    resize(&mut job, &request.options.replicas)?;
    let objects = Objects::read(&request.companions)?;
    let mut variables = request.options.environment.iter();
    let visible = variables.find(|(name, _)| name == "CUDA_VISIBLE_DEVICES");
    let visible = visible.map(|(_, value)| value.as_str());
    let gpus = Gpus::assign(&job, &request.options.accelerators, visible)?;
    let mut notes = image_notes(&job, &request.options.image_env);
    notes.extend(ignored::note(&job));
    if request.options.accelerators == crate::Accelerators::Ignore {
        notes.push("GPUs are not used: limits on `nvidia.com/gpu` are ignored".to_owned());
    }
    let mut cluster = Cluster::default();
    let held = assign_ports(&mut job, &mut cluster, &mut notes)?;
    let addresses = Addresses::claim()
        .map_err(HostError::system("hold a block of loopback addresses"))?
        .ok_or(HostError::NoneFree {
            what: "block of loopback addresses",
        })?;
    Ok(Prepared {
        job,
        cluster,
        objects,
        addresses,
        gpus,
        notes,
        _ports: held,
    })
}

fn resize(job: &mut Job, replicas: &BTreeMap<Role, u32>) -> Result<(), HostError> {
    for (role, count) in replicas {
        let has = || {
            let names: Vec<&str> = job.roles.keys().map(|role| role.name()).collect();
            names.join(", ")
        };
        let has = has();
        match job.roles.get_mut(role) {
            Some(spec) => spec.replicas = *count,
            None => {
                return Err(HostError::NoSuchRole {
                    job: job.name.clone(),
                    role: *role,
                    has,
                });
            }
        }
    }
    // Fewer workers than an elastic job's minimum would wait forever.
    if let Framework::PyTorch(pytorch) = &mut job.framework
        && let Some(elastic) = &mut pytorch.elastic
        && let Some(count) = replicas.get(&Role::Worker)
    {
        elastic.min_replicas = elastic.min_replicas.min(*count);
        elastic.max_replicas = elastic.max_replicas.max(*count);
    }
    Ok(())
}

/// Every image that nothing stands for, in one sentence.
fn image_notes(job: &Job, image_env: &[(String, std::path::PathBuf)]) -> Vec<String> {
    let mut images = BTreeSet::new();
    for role in job.roles.values() {
        let spec = role.template.spec.as_ref();
        for container in spec.iter().flat_map(|spec| &spec.containers) {
            if let Some(image) = container.image.as_deref()
                && image != NO_IMAGE
                && virtual_environment(image, image_env).is_none()
            {
                images.insert(format!("`{image}`"));
            }
        }
    }
    if images.is_empty() {
        return Vec::new();
    }
    let images: Vec<String> = images.into_iter().collect();
    vec![format!(
        "images are not used; containers run this machine's programs: {}",
        images.join(", ")
    )]
}

/// Reserves every rendezvous port for this run.
fn assign_ports(
    job: &mut Job,
    cluster: &mut Cluster,
    notes: &mut Vec<String>,
) -> Result<Vec<UnixListener>, HostError> {
    if let Framework::Train(own) = &mut job.framework {
        let mut ports = Ports::default();
        let wanted = i32::from(own.port);
        let given = claim(&mut ports, wanted)?;
        if given != wanted {
            notes.push(format!(
                "port {wanted} is in use; the nodes meet at {given} in this run"
            ));
        }
        own.port = u16::try_from(given).unwrap_or(own.port);
        return Ok(ports.into_held());
    }
    let Some((port_name, fallback)) = job.kind.port() else {
        return Ok(Vec::new());
    };
    let mut ports = Ports::default();
    let mut own = BTreeSet::new();
    let mut note = |wanted: i32, given: i32, whose: &str| {
        // Where two roles want the same port only the second gets another, which needs no note.
        if given != wanted && !own.contains(&wanted) {
            notes.push(format!(
                "port {wanted} is in use; {whose} is {given} in this run"
            ));
        }
        own.insert(given);
    };
    for role in roles_with_used_port(job) {
        let wanted = named_port(job, role).copied();
        if job.kind == Kind::Tf {
            // Every rank listens, at every address, so each needs a port of its own.
            for index in 0..job.role_replicas(role) {
                let given = claim(&mut ports, wanted.unwrap_or(fallback))?;
                cluster.ports.insert(Slot::new(role, index), given);
            }
        } else if let Some(wanted) = wanted {
            let given = claim(&mut ports, wanted)?;
            note(wanted, given, &format!("`{port_name}` of role `{role}`"));
            if let Some(port) = named_port(job, role) {
                *port = given;
            }
        }
    }
    if let Framework::PyTorch(pytorch) = &mut job.framework
        && let Some(elastic) = &mut pytorch.elastic
        && elastic.rdzv_host.is_none()
        && let Some(port) = &mut elastic.rdzv_port
    {
        let given = claim(&mut ports, *port)?;
        note(*port, given, "`rdzvPort`");
        *port = given;
    }
    let workers = job.role_replicas(Role::Worker);
    if job.kind == Kind::XgBoost
        && workers > 1
        && let Some(port) = named_port(job, Role::Worker)
    {
        notes.push(format!(
            "the {workers} workers get the same port (`WORKER_PORT` is {port}); a program that listens \
             there at every address, as LightGBM does, can run in only one of them"
        ));
    }
    Ok(ports.into_held())
}

/// The roles whose port is passed to ranks; the ports of other roles are not used.
fn roles_with_used_port(job: &Job) -> Vec<Role> {
    let has_master = job.roles.contains_key(&Role::Master);
    let meets = |role: &Role| match (job.kind, role) {
        (Kind::PyTorch, Role::Worker) => !has_master || job.elastic().is_some(),
        (Kind::Paddle, Role::Worker) => !has_master,
        _ => true,
    };
    job.roles.keys().copied().filter(meets).collect()
}

fn claim(ports: &mut Ports, wanted: i32) -> Result<i32, HostError> {
    ports
        .claim(wanted)
        .map_err(HostError::system("hold a port"))?
        .ok_or(HostError::NoneFree { what: "port" })
}

/// The number of the kind's port in the training container of `role`.
fn named_port(job: &mut Job, role: Role) -> Option<&mut i32> {
    let (name, _) = job.kind.port()?;
    let training = job.kind.container();
    let spec = job.roles.get_mut(&role)?.template.spec.as_mut()?;
    let at = spec
        .containers
        .iter()
        .position(|container| container.name == training)
        .unwrap_or(0);
    let ports = spec.containers.get_mut(at)?.ports.as_mut()?;
    ports
        .iter_mut()
        .find(|port| port.name.as_deref() == Some(name))
        .map(|port| &mut port.container_port)
}
