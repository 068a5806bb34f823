//! `trainyard preflight`: is this machine fit for training, or for a job.

mod cluster;

use std::{collections::BTreeMap, path::Path};

use trainyard_core::{
    probe::{self, Needs, Report, VolumeNeeds},
    spec::{self, Job, Role},
};

use super::jobs_file;
use crate::{
    args::Preflight,
    fabrics::Fabrics,
    failure::{Exit, Failure},
    preflight,
    printer::Printer,
    source,
};

/// What the machine is called where it does not say.
const NAMELESS: &str = "this machine";

/// Looks at this machine and prints its checks.
pub(super) fn run(args: &Preflight, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.place.is_cluster() {
        return cluster::run(args, printer);
    }
    let Some(needs) = needs(args, printer)? else {
        return Ok(Exit::CouldNot);
    };
    if !args.root.is_dir() {
        let message = format!("`{}` is not a folder", args.root.display());
        return Err(
            Failure::new(message).hint("pass a folder that contains `proc`, `sys` and `dev`")
        );
    }
    let reading = trainyard_probe::read(&args.root, &needs);
    let name = reading.hostname.value().filter(|name| !name.is_empty());
    let name = name.map_or(NAMELESS, String::as_str).to_owned();
    let report = Report {
        nodes: probe::compose(&BTreeMap::from([(name, reading)]), &needs, []),
        ..Report::default()
    };
    preflight::print(&report, args.format, printer)
}

/// What the machine is checked against; none if the file has errors, which are printed.
fn needs(args: &Preflight, printer: &mut Printer) -> Result<Option<Needs>, Failure> {
    let mut needs = match &args.job {
        None => Needs::default(),
        Some(_) => match of_job(args, printer)? {
            Some(needs) => needs,
            None => return Ok(None),
        },
    };
    let volumes = args.volume.iter().map(|path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        VolumeNeeds {
            path: Some(path.display().to_string()),
            written: Some(true),
            ..VolumeNeeds::default()
        }
    });
    let volumes: Vec<VolumeNeeds> = volumes
        .chain(needs.volumes.take().into_iter().flatten())
        .collect();
    needs.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    Ok(Some(needs))
}

fn of_job(args: &Preflight, printer: &mut Printer) -> Result<Option<Needs>, Failure> {
    let Some(path) = &args.job else {
        return Ok(None);
    };
    let Some((job, fabrics)) = read_job(path, printer)? else {
        return Ok(None);
    };
    let role = role(args, &job)?;
    let needs = probe::needs(&job, fabrics.of(&job)?, role);
    Ok(Some(needs.on_the_node()))
}

/// The job of a file and the fabrics beside it; none if the file has errors, which are printed.
fn read_job(path: &Path, printer: &mut Printer) -> Result<Option<(Job, Fabrics)>, Failure> {
    let Some((file, fabrics)) = jobs_file(path, printer)? else {
        return Ok(None);
    };
    let jobs = file
        .documents
        .iter()
        .filter_map(|document| spec::check(document).job);
    let mut jobs: Vec<Job> = jobs.collect();
    match (jobs.pop(), jobs.len()) {
        (Some(job), 0) => Ok(Some((job, fabrics))),
        (last, others) => {
            let count = others + usize::from(last.is_some());
            let name = source::name(path);
            let message = format!("`{name}` contains {count} jobs; expected 1");
            Err(Failure::new(message).hint("put the job into a file of its own"))
        }
    }
}

fn role(args: &Preflight, job: &Job) -> Result<Role, Failure> {
    let declared: Vec<Role> = job.roles.keys().copied().collect();
    let Some(wanted) = args.role else {
        let first = declared.first().copied().unwrap_or(Role::Worker);
        return Ok(if declared.contains(&Role::Worker) {
            Role::Worker
        } else {
            first
        });
    };
    if declared.contains(&wanted) {
        return Ok(wanted);
    }
    let names: Vec<String> = declared.iter().map(|role| format!("`{role}`")).collect();
    let message = format!("{} `{}` has no role `{wanted}`", job.kind, job.name);
    Err(Failure::new(message).hint(format!("it has {}", names.join(", "))))
}
