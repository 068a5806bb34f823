//! What `cargo xtask prepare` builds for clusters: the programs of the suite, and those of the benches.

use std::time::Duration;

use super::{binaries, binaries::Program, need_machine, others, ssh_server, upstream};
use crate::{
    Failure,
    cache::{self, Part, cannot},
    frameworks,
};

/// Everything that the suites `cluster` and `hosts` need.
pub(crate) fn suite_caches() -> Vec<Part> {
    let suite = "cluster";
    let mut parts = vec![
        Part {
            name: "system: Open MPI".to_owned(),
            used_by: "unit, frameworks, cluster",
            took: Duration::from_mins(1),
            is_there: Box::new(|| Ok(frameworks::has_open_mpi())),
            make: Box::new(frameworks::open_mpi),
        },
        programs("control plane", suite, 710, binaries::CONTROL_PLANE),
        programs("real nodes", suite, 220, binaries::REAL),
        programs("kwok", suite, 140, binaries::SIMULATED),
        programs("Helm", suite, 205, binaries::HELM),
        programs("Multus", suite, 120, binaries::FABRIC),
    ];
    let kueue = programs(
        "Kueue and the kinds of other schedulers",
        suite,
        360,
        binaries::KUEUE,
    );
    parts.push(Part {
        make: Box::new(move || {
            others::fetch()?;
            (kueue.make)()
        }),
        ..kueue
    });
    parts.push(Part {
        name: "cluster: an ssh server for the image of tools".to_owned(),
        used_by: suite,
        took: Duration::from_secs(5),
        is_there: Box::new(ssh_server::is_there),
        make: Box::new(fetch_ssh_server),
    });
    parts.push(Part {
        name: "cluster: SDK and end-to-end tests of the Training Operator".to_owned(),
        used_by: suite,
        took: Duration::from_secs(30),
        is_there: Box::new(upstream::is_there),
        make: Box::new(upstream::fetch),
    });
    parts
}

/// What benches run beside ours.
pub(crate) fn peer_caches() -> Vec<Part> {
    let operator = programs(
        "training-operator",
        "cluster, bench operator",
        255,
        binaries::PEER,
    );
    let linters = programs("linters", "bench lint", 180, binaries::LINTERS);
    [operator, linters]
        .into_iter()
        .map(|part| Part {
            name: part.name.replacen("cluster", "peer", 1),
            ..part
        })
        .collect()
}

fn programs(name: &str, used_by: &'static str, seconds: u64, programs: &'static [Program]) -> Part {
    Part {
        name: format!("cluster: {name}"),
        used_by,
        took: Duration::from_secs(seconds),
        is_there: Box::new(|| binaries::are_there(programs)),
        make: Box::new(|| {
            need_machine()?;
            binaries::build_missing(programs)
        }),
    }
}

fn fetch_ssh_server() -> Result<(), Failure> {
    let work = cache::folder()?.join(format!("cluster/ssh-server.{}", std::process::id()));
    let fetched = ssh_server::root(&work, |program| std::process::Command::new(program));
    if work.exists() {
        std::fs::remove_dir_all(&work).map_err(cannot("remove", &work))?;
    }
    fetched.map(|_| ())
}
