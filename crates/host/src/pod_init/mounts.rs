//! What a pod and each of its containers see of the file system.
//!
//! Everything of the machine stays visible. The pod's volumes appear at their mount paths, in
//! mount namespaces that end with the pod, so nothing of the machine is touched.
//!
//! A mount path that does not exist needs a place to be made. Inside a volume, or in the user's own
//! folder, it is made there, as the kubelet does. Elsewhere the nearest folder that exists is
//! covered by a copy in memory that holds a mount of each of its entries, and the path is made in
//! the copy.

use std::{
    fmt, fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::statvfs::{FsFlags, statvfs},
    unistd::{chdir, pivot_root, sethostname},
};

use crate::wire::{Container, Mount, PodSpec, VolumeFile, VolumeSource};

/// A step that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: String,
    pub(super) source: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.source)
    }
}

fn failing<E: Into<io::Error>>(step: String) -> impl FnOnce(E) -> Failure {
    move |error| Failure {
        step,
        source: error.into(),
    }
}

/// Whether mounts can be made at all.
pub(super) fn probe() -> Result<(), Failure> {
    detach_mounts()?;
    mount_memory(Path::new("/dev/shm"), "mode=1777")
}

/// What all containers of the pod share.
pub(super) fn set_up_pod(spec: &PodSpec) -> Result<(), Failure> {
    detach_mounts()?;
    sethostname(&spec.name).map_err(failing(format!("set the host name `{}`", spec.name)))?;
    // Where the machine hides parts of /proc the kernel refuses a full one; the old one serves.
    mount(
        Some("proc"),
        "/proc",
        Some("proc"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        None::<&str>,
    )
    .ok();
    // Programs name shared memory after their process number, which repeats from pod to pod.
    if Path::new("/dev/shm").is_dir() {
        mount_memory(Path::new("/dev/shm"), "mode=1777")?;
    }
    mount_memory(&spec.stage, "mode=0755")?;
    for volume in &spec.volumes {
        let folder = volume_folder(spec, &volume.name);
        match &volume.source {
            VolumeSource::Path(_) => continue,
            VolumeSource::Files(_) | VolumeSource::Memory(_) => {}
        }
        make_folder(&folder)?;
        match &volume.source {
            VolumeSource::Files(files) => write_files(&folder, files)?,
            VolumeSource::Memory(size) => {
                let limit = size.map_or(String::new(), |size| format!(",size={size}"));
                mount_memory(&folder, &format!("mode=1777{limit}"))?;
            }
            VolumeSource::Path(_) => {}
        }
    }
    let mut view = View::new(spec);
    view.place(&spec.hosts, Path::new("/etc/hosts"), false)
}

/// What only `container` sees. Runs in the container's own mount namespace.
pub(super) fn set_up_container(spec: &PodSpec, container: &Container) -> Result<(), Failure> {
    let mut mounts: Vec<&Mount> = container.mounts.iter().collect();
    mounts.sort_by_key(|mount| mount.path.components().count());
    let mut view = View::new(spec);
    for mount in mounts {
        let source = source(spec, mount)?;
        view.place(&source, &mount.path, mount.read_only)?;
    }
    Ok(())
}

/// Enters the container's working folder.
pub(super) fn enter(container: &Container) -> Result<(), Failure> {
    let folder = &container.working_dir;
    chdir(folder).map_err(failing(format!(
        "enter the working folder `{}` of container `{}`",
        folder.display(),
        container.name
    )))
}

/// Puts `files` into a volume in place of those of the same names. Each is replaced as a whole.
pub(super) fn update_volume(
    spec: &PodSpec,
    volume: &str,
    files: &[VolumeFile],
) -> Result<(), Failure> {
    write_files(&volume_folder(spec, volume), files)
}

fn volume_folder(spec: &PodSpec, volume: &str) -> PathBuf {
    spec.stage.join(volume)
}

fn write_files(folder: &Path, files: &[VolumeFile]) -> Result<(), Failure> {
    for file in files {
        let path = folder.join(&file.path);
        let next = folder.join(".next");
        let written = (|| {
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(&next, &file.bytes)?;
            fs::set_permissions(&next, fs::Permissions::from_mode(file.mode))?;
            fs::rename(&next, &path)
        })();
        written.map_err(failing(format!("write `{}`", path.display())))?;
    }
    Ok(())
}

/// Where a mount's content lies.
fn source(spec: &PodSpec, mount: &Mount) -> Result<PathBuf, Failure> {
    let volume = spec
        .volumes
        .iter()
        .find(|volume| volume.name == mount.volume);
    let base = match volume.map(|volume| &volume.source) {
        Some(VolumeSource::Path(path)) => path.clone(),
        _ => volume_folder(spec, &mount.volume),
    };
    let Some(sub_path) = &mount.sub_path else {
        return Ok(base);
    };
    let path = base.join(sub_path);
    if !path.exists() {
        make_folder(&path)?;
    }
    Ok(path)
}

/// Mounts made from here on are seen by this pod only.
fn detach_mounts() -> Result<(), Failure> {
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .map_err(failing("detach the mounts".to_owned()))
}

fn mount_memory(target: &Path, options: &str) -> Result<(), Failure> {
    mount(
        Some("tmpfs"),
        target,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some(options),
    )
    .map_err(failing(format!("mount memory at `{}`", target.display())))
}

/// Mounts `source` at `target`, with all that is mounted below it.
fn bind(source: &Path, target: &Path) -> nix::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(source), target, None::<&str>, flags, None::<&str>)
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(failing(format!("make `{}`", path.display())))
}

/// The file system as one container will see it.
struct View<'a> {
    spec: &'a PodSpec,
    /// Where something of ours is: new paths below may be made there.
    ours: Vec<PathBuf>,
    /// Folders that are covered: new entries may be made in them, but not below the old ones.
    covered: Vec<PathBuf>,
    copies: u32,
}

impl<'a> View<'a> {
    fn new(spec: &'a PodSpec) -> Self {
        Self {
            spec,
            ours: vec![PathBuf::from("/dev/shm")],
            covered: Vec::new(),
            copies: 0,
        }
    }

    /// Makes `source` appear at `target`.
    fn place(&mut self, source: &Path, target: &Path, read_only: bool) -> Result<(), Failure> {
        let step = || format!("mount `{}` at `{}`", source.display(), target.display());
        let is_folder = fs::metadata(source).map_err(failing(step()))?.is_dir();
        if !target.exists() {
            self.make_room(target, is_folder)?;
        }
        bind(source, target).map_err(failing(step()))?;
        if read_only {
            make_read_only(target).map_err(failing(step()))?;
        }
        self.ours.push(target.to_owned());
        Ok(())
    }

    /// Makes a path to mount on.
    fn make_room(&mut self, target: &Path, is_folder: bool) -> Result<(), Failure> {
        let (mut nearest, mut first_new) = (target, target);
        while !nearest.exists() {
            first_new = nearest;
            nearest = nearest.parent().unwrap_or(Path::new("/"));
        }
        let in_ours = self.ours.iter().any(|ours| nearest.starts_with(ours))
            || self.covered.iter().any(|covered| nearest == covered);
        if !in_ours && !nearest.starts_with(&self.spec.working_dir) {
            self.cover(nearest)?;
        }
        self.ours.push(first_new.to_owned());
        let folder = if is_folder {
            Some(target)
        } else {
            target.parent()
        };
        if let Some(folder) = folder {
            make_folder(folder)?;
        }
        if !is_folder {
            fs::File::create(target).map_err(failing(format!("make `{}`", target.display())))?;
        }
        Ok(())
    }

    /// Covers `folder` by a copy in memory whose entries are mounts of the real ones.
    fn cover(&mut self, folder: &Path) -> Result<(), Failure> {
        self.copies += 1;
        let copy = self.spec.stage.join(format!(".copy-{}", self.copies));
        make_folder(&copy)?;
        let step = || format!("create a mount point in `{}`", folder.display());
        let mode = fs::metadata(folder).map_err(failing(step()))?.mode() & 0o7777;
        mount_memory(&copy, &format!("mode={mode:o}"))?;
        for entry in fs::read_dir(folder).map_err(failing(step()))? {
            let entry = entry.map_err(failing(step()))?;
            copy_entry(&entry, &copy.join(entry.file_name())).map_err(failing(step()))?;
        }
        if folder == Path::new("/") {
            replace_root(&copy).map_err(failing(step()))?;
        } else {
            mount(
                Some(&copy),
                folder,
                None::<&str>,
                MsFlags::MS_MOVE,
                None::<&str>,
            )
            .map_err(failing(step()))?;
        }
        self.covered.push(folder.to_owned());
        Ok(())
    }
}

/// Puts a mount of `entry`, or the same link, at `target`. What may not be mounted is left out:
/// this user could not have read it either.
fn copy_entry(entry: &fs::DirEntry, target: &Path) -> io::Result<()> {
    let kind = entry.file_type()?;
    if kind.is_symlink() {
        return symlink(fs::read_link(entry.path())?, target);
    }
    if kind.is_dir() {
        fs::create_dir(target)?;
    } else {
        fs::File::create(target)?;
    }
    bind(&entry.path(), target).ok();
    Ok(())
}

/// Makes `copy` the root folder.
fn replace_root(copy: &Path) -> nix::Result<()> {
    chdir(copy)?;
    // The old root is stacked on the new one for a moment and then unmounted.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")
}

/// `ST_RELATIME` of the kernel, which the library names for glibc only.
const RELATIME: FsFlags = FsFlags::from_bits_retain(4096);

/// Flags that the machine set on a mount may not be dropped by an ordinary user.
fn make_read_only(target: &Path) -> nix::Result<()> {
    let kept = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (RELATIME, MsFlags::MS_RELATIME),
    ];
    let found = statvfs(target)?.flags();
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    for (has, flag) in kept {
        if found.contains(has) {
            flags |= flag;
        }
    }
    mount(None::<&str>, target, None::<&str>, flags, None::<&str>)
}
