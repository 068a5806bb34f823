//! Everything that is read of one machine.
//!
//! Each group of probes has a thread of its own, so that one that hangs costs nothing but its own
//! answer. All of them begin at once.

mod addresses;
mod gpus;
mod group;
mod host;
mod kernel_log;
mod library;
mod network;
mod pci;
mod rdma;
mod smi;
mod space;
#[cfg(test)]
pub(crate) mod tests;
mod volume;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::Duration,
};

use trainyard_core::probe::{Needs, Probed, Reading, VolumeTrial};

use crate::{
    deadline::{Pending, begin},
    files::Root,
};

/// How long probes that only look may take.
pub const PASSIVE_LIMIT: Duration = Duration::from_secs(3);
/// How long trying one volume may take.
pub const ACTIVE_LIMIT: Duration = Duration::from_secs(10);
/// How long counters of errors are watched.
const WATCHED: Duration = Duration::from_secs(1);

/// Reads this machine: `/proc`, `/sys` and `/dev` below `root`, and what is not a file where `root` is
/// `/`. Probes that only look end within [`PASSIVE_LIMIT`]; each volume that is needed is tried within
/// [`ACTIVE_LIMIT`], at the same time as the others.
pub fn read(root: &Path, needs: &Needs) -> Reading {
    let pace = Pace {
        passive: PASSIVE_LIMIT,
        active: ACTIVE_LIMIT,
        // Nothing can be awaited: that a counter stands still shows only after a while.
        pause: || thread::sleep(WATCHED),
    };
    read_at(root, needs, &pace)
}

/// How long probes may take, and what runs while counters are watched.
struct Pace<P> {
    passive: Duration,
    active: Duration,
    pause: P,
}

fn read_at<P>(root: &Path, needs: &Needs, pace: &Pace<P>) -> Reading
where
    P: FnOnce() + Clone + Send + 'static,
{
    let root = Root::new(root);
    let passive = Passive {
        root: &root,
        within: pace.passive,
    };
    let processors = passive.begin(host::processors);
    let memory = passive.begin(host::memory);
    let limits = passive.begin(host::limits);
    let modules = passive.begin(host::modules);
    let shm = passive.begin(space::shm);
    let disk = passive.begin(space::disk);
    let listening = passive.begin(host::listening);
    let library = passive.begin(library::ask);
    let nvidia = passive.begin(gpus::from_files);
    let files_versions = passive.begin(host::versions);
    let gpus_on_bus = passive.begin(gpus::on_bus);
    let xids = passive.begin(kernel_log::xids);
    let (pause, pause_too) = (pace.pause.clone(), pace.pause.clone());
    let interfaces = passive.begin(move |root| network::interfaces(root, pause));
    let rdma = passive.begin(move |root| rdma::ports(root, pause_too));
    let names = names(&root, needs, pace.passive);
    let volumes = volumes(&root, needs, pace.active);

    let (gpus, versions) =
        library::join(library.finish(), nvidia.finish(), files_versions.finish());
    Reading {
        processors: processors.finish(),
        memory: memory.finish(),
        limits: limits.finish(),
        modules: modules.finish(),
        versions,
        shm: shm.finish(),
        disk: disk.finish(),
        hostname: host::hostname(&root),
        listening: listening.finish(),
        clock_ahead_micros: None,
        gpus,
        gpus_on_bus: gpus_on_bus.finish(),
        xids: xids.finish(),
        interfaces: interfaces.finish(),
        rdma: rdma.finish(),
        names: finished(names),
        volumes: finished(volumes),
    }
}

/// Begins probes that only look.
struct Passive<'a> {
    root: &'a Root,
    within: Duration,
}

impl Passive<'_> {
    fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> Probed<T> + Send + 'static,
    ) -> Pending<T> {
        let root = self.root.clone();
        begin(self.within, move || work(&root))
    }
}

fn finished<T>(pending: BTreeMap<String, Pending<T>>) -> BTreeMap<String, Probed<T>> {
    let finished = pending.into_iter().map(|(name, one)| (name, one.finish()));
    finished.collect()
}

/// The names that a job needs, and that of the machine.
fn names(
    root: &Root,
    needs: &Needs,
    within: Duration,
) -> BTreeMap<String, Pending<BTreeSet<String>>> {
    if !root.is_machine() {
        return BTreeMap::new();
    }
    let own = host::hostname(root).value().cloned();
    let names = needs.names.iter().flatten().cloned().chain(own);
    names
        .map(|name| {
            let asked = name.clone();
            (name, begin(within, move || addresses::resolve(&asked)))
        })
        .collect()
}

fn volumes(root: &Root, needs: &Needs, within: Duration) -> BTreeMap<String, Pending<VolumeTrial>> {
    let paths = needs.volumes.iter().flatten();
    let paths = paths.filter_map(|volume| volume.path.clone());
    paths
        .map(|path| {
            let root = root.clone();
            let tried = path.clone();
            (path, begin(within, move || volume::try_out(&root, &tried)))
        })
        .collect()
}
