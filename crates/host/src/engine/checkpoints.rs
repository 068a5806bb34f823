//! The store of the job's checkpoints, looked at before each attempt, while it runs, and after the end.
//!
//! Owns where the store is on this machine and when it is looked at. What follows from it is [`trainyard_core::job`]'s.
//!
//! Invariants: pods of an attempt start only after a look that began when the attempts before had ended, or after the time limit of a
//! look; a store that hangs delays the run once by that limit, until it responds again.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use nix::sys::eventfd::{EfdFlags, EventFd};
use trainyard_checkpoint_engine::look::{Looked, Moment, Watcher};
use trainyard_core::{job::SeenStore, launch::StartPoint};

use super::Engine;
use crate::wire::{PodSpec, VolumeSource};

/// What is known of the store.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    watch: Option<Watch>,
    seen: SeenStore,
    /// The latest attempt that may start.
    cleared: u32,
    last_look: LastLook,
}

#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    /// Readable when a look has ended.
    bell: Arc<EventFd>,
    /// The attempt whose look is awaited.
    awaited: Option<u32>,
}

/// The look after the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastLook {
    #[default]
    NotAsked,
    /// One that began before may end first.
    Asked,
    Done,
}

impl Checkpoints {
    /// Looks at the store in `folder`; where that is not a folder of this machine, says why.
    pub(super) fn new(folder: Result<PathBuf, String>) -> Self {
        let started = folder.and_then(|folder| Watch::start(folder).map_err(|e| e.to_string()));
        let (watch, seen) = match started {
            Ok(watch) => (Some(watch), SeenStore::Unused),
            Err(why) => (None, SeenStore::Unknown(why)),
        };
        Self {
            watch,
            seen,
            ..Self::default()
        }
    }

    /// What was seen last.
    pub(super) fn seen(&self) -> SeenStore {
        self.seen.clone()
    }

    /// Why the store is not looked at, where it is not.
    pub(super) fn note(&self) -> Option<String> {
        match (&self.watch, &self.seen) {
            (None, SeenStore::Unknown(why)) => Some(format!("checkpoints are not read: {why}")),
            _ => None,
        }
    }

    /// What is watched: readable when a look has ended.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(|watch| watch.bell.as_fd())
    }

    /// Whether the pods of `attempt` must wait for a look, which then begins.
    pub(super) fn holds(&mut self, attempt: u32, now: Instant) -> bool {
        if attempt <= self.cleared {
            return false;
        }
        let Some(watch) = &mut self.watch else {
            self.cleared = attempt;
            return false;
        };
        if watch.awaited != Some(attempt) {
            watch.awaited = Some(attempt);
            watch.watcher.ask(Moment::Start(attempt), now);
        }
        true
    }

    /// When it is time to look, or a look is late.
    pub(super) fn due(&self) -> Option<Instant> {
        self.watch.as_ref()?.watcher.due()
    }

    /// Whether the look after the end was made. It is asked for once.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let Some(watch) = &mut self.watch else {
            return true;
        };
        if self.last_look == LastLook::NotAsked {
            self.last_look = LastLook::Asked;
            watch.watcher.ask(Moment::End, now);
        }
        self.last_look == LastLook::Done
    }

    /// Takes what was seen by `now`; true if there is anything.
    fn take(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some(looked) = self.next(now) {
            any = true;
            match looked.moment {
                Moment::Running => {}
                Moment::Start(attempt) => self.cleared = self.cleared.max(attempt),
                Moment::End => self.last_look = LastLook::Done,
            }
            self.seen = match looked.store {
                Ok(store) => SeenStore::Seen {
                    store: Box::new(store),
                    at: begun_at(looked.age),
                },
                Err(why) => SeenStore::Unknown(why),
            };
        }
        any
    }

    fn next(&mut self, now: Instant) -> Option<Looked> {
        let watch = self.watch.as_mut()?;
        // One that was not rung is not readable, which is no error here.
        watch.bell.read().ok();
        watch.watcher.take(now)
    }
}

/// When a look began, by the clock of people. A look that began before the epoch of that clock was made by a clock that is wrong.
fn begun_at(age: Duration) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(age).unwrap_or(now)
}

impl Watch {
    fn start(folder: PathBuf) -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let bell = Arc::new(EventFd::from_flags(flags)?);
        let ring = Arc::clone(&bell);
        // A counter that is full rings as well.
        let watcher = Watcher::start(folder, move || {
            ring.write(1).ok();
        })?;
        Ok(Self {
            watcher,
            bell,
            awaited: None,
        })
    }
}

impl Engine<'_> {
    /// Takes what was seen in the store, and lets the attempt start that waits for it.
    pub(super) fn look_at_checkpoints(&mut self, now: Instant) {
        if self.checkpoints.take(now) {
            self.report_notice_once_known();
            self.schedule.request();
        }
    }

    /// From here on, pods of `attempt` are given what the status says about their checkpoints.
    pub(super) fn start_from_checkpoint(&mut self, attempt: u32) {
        let record = &self.stored.status.trainyard;
        self.site.start_from(StartPoint::of(record, attempt));
    }
}

/// The folder of this machine that `container` of a pod sees as `path`; `scratch` is that of volumes which end with the pod.
pub(super) fn folder(
    pod: &PodSpec,
    container: &str,
    path: &str,
    scratch: &Path,
) -> Result<PathBuf, String> {
    let mut containers = pod.containers.iter();
    let named = containers.find(|found| found.name == container);
    let Some(container) = named.or_else(|| pod.containers.first()) else {
        return Err("the pod has no container".to_owned());
    };
    let within = container.mounts.iter().filter_map(|mount| {
        let rest = Path::new(path).strip_prefix(&mount.path).ok()?;
        Some((mount, rest))
    });
    let Some((mount, rest)) = within.min_by_key(|(_, rest)| rest.components().count()) else {
        // What no volume covers is the file system of this machine.
        return Ok(PathBuf::from(path));
    };
    let mut volumes = pod.volumes.iter();
    let volume = volumes.find(|volume| volume.name == mount.volume);
    let gone = || {
        let volume = &mount.volume;
        format!("`{path}` is on volume `{volume}`, which ends with its pod")
    };
    match volume.map(|volume| &volume.source) {
        Some(VolumeSource::Path(root)) if !root.starts_with(scratch) => {
            let sub_path = mount.sub_path.as_deref().unwrap_or_default();
            Ok(root.join(sub_path).join(rest))
        }
        _ => Err(gone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Container, Mount, Restart, Volume};

    #[test]
    fn folder_of_a_path_in_a_container() {
        let mount = |volume: &str, path: &str, sub_path: Option<&str>| Mount {
            volume: volume.to_owned(),
            path: path.into(),
            sub_path: sub_path.map(str::to_owned),
            read_only: false,
        };
        let volume = |name: &str, source| Volume {
            name: name.to_owned(),
            source,
        };
        let pod = PodSpec {
            name: "p".to_owned(),
            stage: "/s".into(),
            hosts: "/h".into(),
            working_dir: "/w".into(),
            open_files: 1,
            volumes: vec![
                volume("claim", VolumeSource::Path("/state/volumes/claim".into())),
                volume("empty", VolumeSource::Path("/run/scratch/p/empty".into())),
                volume("memory", VolumeSource::Memory(None)),
            ],
            init_containers: Vec::new(),
            containers: vec![Container {
                name: "pytorch".to_owned(),
                command: vec!["true".to_owned()],
                environment: Vec::new(),
                working_dir: "/w".into(),
                mounts: vec![
                    mount("claim", "/data", None),
                    mount("claim", "/data/sub", Some("part")),
                    mount("empty", "/empty", None),
                    mount("memory", "/memory", None),
                ],
                sidecar: false,
                cgroups: Vec::new(),
            }],
            restart: Restart::Never,
            grace_millis: 0,
        };
        let of = |path| folder(&pod, "pytorch", path, Path::new("/run/scratch"));
        let cases = [
            ("/data/run1", "/state/volumes/claim/run1"),
            ("/data", "/state/volumes/claim"),
            ("/data/sub/run1", "/state/volumes/claim/part/run1"),
            ("/data2/run1", "/data2/run1"),
        ];
        for (path, want) in cases {
            // `join("")` ends a path with `/`, which is the same path.
            assert_eq!(
                of(path).map(|found| found.components().collect()),
                Ok(PathBuf::from(want))
            );
        }
        for (path, volume) in [("/empty/run1", "empty"), ("/memory", "memory")] {
            let want = format!("`{path}` is on volume `{volume}`, which ends with its pod");
            assert_eq!(of(path), Err(want));
        }
    }

    #[test]
    fn without_a_store_nothing_waits() {
        let now = Instant::now();
        let mut none = Checkpoints::default();
        assert!(!none.holds(1, now) && none.is_over(now));
        assert_eq!((none.due(), none.note()), (None, None));
        let mut unknown = Checkpoints::new(Err("it is elsewhere".to_owned()));
        assert!(!unknown.holds(1, now) && unknown.is_over(now));
        assert_eq!(
            unknown.note().as_deref(),
            Some("checkpoints are not read: it is elsewhere")
        );
    }

    #[test]
    fn attempt_waits_for_its_look() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Checkpoints::new(Ok(folder.path().join("none")));
        let now = Instant::now();
        for attempt in [1, 2] {
            assert!(store.holds(attempt, now));
            while !store.take(now) {
                std::thread::yield_now();
            }
            assert!(!store.holds(attempt, now), "attempt {attempt}");
            assert!(matches!(store.seen(), SeenStore::Seen { .. }));
        }
        assert!(!store.is_over(now));
        while !store.take(now) {
            std::thread::yield_now();
        }
        assert!(store.is_over(now));
    }
}
