//! `trainyard preflight --cluster`: are these nodes fit, for a job or for any.
//!
//! Owns which nodes are checked and the texts; the pods are `core::launch::preflight`'s and are run by
//! `trainyard_kube::look`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_core::{
    fabric::{self, Fabric},
    gang::{Gang, Snapshot, place},
    launch::{
        self,
        preflight::{self, Flight, PreflightPod},
    },
    probe::{Report, pod_not_placed},
    spec::{Job, Namespace, Role, Slot},
};
use trainyard_kube::look::{
    PREFLIGHT_REPORT_BYTES, PreflightFound, PreflightStopped, preflight_token,
};

use crate::{
    args::Preflight,
    cluster::{self, Site},
    failure::{Exit, Failure},
    preflight as words,
    printer::Printer,
};

/// Letters of the name of one run.
const NAME: usize = 8;

/// Looks at nodes of a cluster and prints their checks.
pub(super) fn run(args: &Preflight, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = cluster::connect(&args.place)?;
    let job = match &args.job {
        None => None,
        Some(path) => match job(path, args, &site, printer)? {
            Some(found) => Some(found),
            None => return Ok(Exit::CouldNot),
        },
    };
    let snapshot = site.look.snapshot().map_err(cluster::refused)?;
    let token = preflight_token().map_err(cluster::refused)?;
    let of: String = token.chars().take(NAME).collect();
    // The name of a pod must not reveal the token of its preflight.
    let secret: String = token.chars().skip(NAME).collect();
    let flight = Flight {
        of: &of,
        round: 1,
        token: &secret,
        report_bytes: PREFLIGHT_REPORT_BYTES,
    };
    let (namespace, mut pods) = match &job {
        Some((job, fabric)) => of_job(args, job, fabric.as_ref(), &snapshot, flight)?,
        None => of_nodes(args, &site, &snapshot, flight, printer)?,
    };
    for one in &mut pods {
        one.domains = snapshot.domains(&one.node);
    }
    printer.note(&format!("{} pods in namespace `{namespace}`", pods.len()));
    let progress = Mutex::new(&mut *printer);
    let say = |line: String| {
        let mut printer = progress.lock().unwrap_or_else(PoisonError::into_inner);
        printer.summary(&line);
    };
    let found = site.look.preflight(&namespace, &of, pods, &say);
    match found {
        Ok(found) => words::print(&with_unseen_nodes(found), args.format, printer),
        Err(PreflightStopped::Interrupted) => Err(Failure::new(
            "the preflight was interrupted; its pods are deleted",
        )),
        Err(PreflightStopped::NoResult(why)) => Err(Failure::new(format!(
            "preflight produced no result: {why}"
        ))
        .hint("name other nodes with `--nodes`, or the image of this program with `--image`")),
    }
}

/// The report, with the nodes that no pod got to.
fn with_unseen_nodes(found: PreflightFound) -> Report {
    let mut report = found.report;
    for (node, why) in found.unseen {
        let found = report.nodes.entry(node).or_default();
        found.checks.insert(0, pod_not_placed(&why));
    }
    report
}

/// The job that the argument means: a file, or one of the cluster.
fn job(
    path: &std::path::Path,
    args: &Preflight,
    site: &Site<'_>,
    printer: &mut Printer,
) -> Result<Option<(Job, Option<Fabric>)>, Failure> {
    let is_file = path.as_os_str() == "-" || path.exists();
    let (mut job, beside) = if is_file {
        let Some((job, fabrics)) = super::read_job(path, printer)? else {
            return Ok(None);
        };
        let beside = fabrics.of(&job).ok().flatten().cloned();
        (job, beside)
    } else {
        let name = path.to_string_lossy();
        let found = site.find(&name)?;
        let job = found.job.ok_or_else(|| {
            Failure::new(format!("job `{name}` has an invalid spec"))
                .hint(format!("`trainyard explain {name} --cluster` shows why"))
        })?;
        (job, None)
    };
    if let Some(namespace) = &args.place.namespace {
        job.namespace = Namespace::parse(namespace).context("cannot use the namespace")?;
    }
    let fabric = match (&job.settings.fabric, beside) {
        (None, _) => None,
        (Some(_), Some(fabric)) => Some(fabric),
        (Some(name), None) => {
            let spec = site.look.fabric(name).map_err(|error| {
                cluster::refused(error)
                    .hint("put it into the file of the job, as a document of its own")
            })?;
            Some(Fabric {
                name: name.clone(),
                spec,
            })
        }
    };
    let fitted = fabric.as_ref().map(|fabric| fabric::fit(&job, fabric).job);
    Ok(Some((fitted.unwrap_or(job), fabric)))
}

fn of_job(
    args: &Preflight,
    job: &Job,
    fabric: Option<&Fabric>,
    snapshot: &Snapshot,
    flight: Flight<'_>,
) -> Result<(String, Vec<PreflightPod>), Failure> {
    let image = launch::Cluster {
        agent_image: Some(args.image.clone()),
        ..launch::Cluster::default()
    };
    let seats = match named(args, snapshot)? {
        Some(nodes) => on_nodes(job, nodes),
        None => seats(job, snapshot)?,
    };
    let pods = preflight::of_job(job, fabric, &image, flight, &seats)
        .with_context(|| format!("cannot build the pods of {} `{}`", job.kind, job.name))?;
    Ok((job.namespace.as_str().to_owned(), pods))
}

/// The slots of `job` on these nodes, one on each.
fn on_nodes(job: &Job, nodes: BTreeSet<String>) -> BTreeMap<String, Slot> {
    let slots: Vec<Slot> = job
        .slots()
        .filter(|slot| slot.role != Role::Launcher && !slot.role.is_initializer())
        .collect();
    let last = slots.last().copied();
    let slots = slots.into_iter().chain(last.into_iter().cycle());
    nodes.into_iter().zip(slots).collect()
}

/// Where the gang of `job` would go now.
fn seats(job: &Job, snapshot: &Snapshot) -> Result<BTreeMap<String, Slot>, Failure> {
    let now = Timestamp::now();
    let gang = Gang::of(job, &launch::Cluster::default(), now)
        .with_context(|| format!("cannot plan {} `{}`", job.kind, job.name))?;
    let key = gang.key.clone();
    let placement = place(snapshot, &[gang], now);
    if let Some(refusal) = placement.refused.get(&key) {
        return Err(Failure::new(format!(
            "the job gets no nodes to check: {}",
            refusal.message
        ))
        .hint("name the nodes with `--nodes`"));
    }
    let given = placement.seated.get(&key);
    let given: BTreeMap<&str, &str> = given
        .into_iter()
        .flat_map(|seating| &seating.seats)
        .map(|seat| (seat.pod.as_str(), seat.node.as_str()))
        .collect();
    let mut seats = BTreeMap::new();
    let trains = |slot: &Slot| slot.role != Role::Launcher && !slot.role.is_initializer();
    for slot in job.slots().filter(trains) {
        if let Some(node) = given.get(job.pod_name(slot).as_str()) {
            seats.entry((*node).to_owned()).or_insert(slot);
        }
    }
    Ok(seats)
}

fn of_nodes(
    args: &Preflight,
    site: &Site<'_>,
    snapshot: &Snapshot,
    flight: Flight<'_>,
    printer: &mut Printer,
) -> Result<(String, Vec<PreflightPod>), Failure> {
    let nodes = named(args, snapshot)?.unwrap_or_else(|| usable(snapshot));
    if nodes.is_empty() {
        return Err(Failure::new("no node of the cluster is ready")
            .hint("`trainyard nodes` shows their state"));
    }
    let mut devices = BTreeMap::new();
    for node in nodes {
        let free = snapshot.free_accelerators(&node);
        let all = snapshot.nodes.get(&node);
        let all = all.map_or(0, |node| node.allocatable.accelerators());
        let left: i64 = free
            .values()
            .filter_map(|amount| amount.0.parse::<i64>().ok())
            .sum();
        if left < all {
            printer.summary(&format!(
                "node `{node}`: {left} of {all} GPUs are free; the others are not checked"
            ));
        }
        devices.insert(node, free);
    }
    let namespace = site.namespace.clone();
    let pods = preflight::of_nodes(&namespace, &args.image, flight, &devices, false);
    Ok((namespace, pods))
}

/// The nodes that the arguments name; each must be there.
fn named(args: &Preflight, snapshot: &Snapshot) -> Result<Option<BTreeSet<String>>, Failure> {
    if args.nodes.is_empty() {
        return Ok(None);
    }
    for name in &args.nodes {
        if !snapshot.nodes.contains_key(name) {
            return Err(Failure::new(format!("the cluster has no node `{name}`"))
                .hint("`trainyard nodes` lists them"));
        }
    }
    Ok(Some(args.nodes.iter().cloned().collect()))
}

/// The nodes that training would use: those with accelerators, or all where there are none.
fn usable(snapshot: &Snapshot) -> BTreeSet<String> {
    let ready = snapshot
        .nodes
        .iter()
        .filter(|(_, node)| node.ready && !node.unschedulable);
    let (with, without): (Vec<_>, Vec<_>) =
        ready.partition(|(_, node)| node.allocatable.accelerators() > 0);
    let nodes = if with.is_empty() { without } else { with };
    nodes.into_iter().map(|(name, _)| name.clone()).collect()
}
