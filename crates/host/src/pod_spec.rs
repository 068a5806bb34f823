//! From the pod that a cluster would run to the one that runs here.
//!
//! Owns what the kubelet does before it starts a container: environment, commands, volumes. The
//! only things it touches are the folders of volumes, which it makes.

mod environment;
mod expand;
mod fields;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container as KubeContainer, Pod, PodSpec as KubePodSpec};
use trainyard_core::launch::evidence;
use trainyard_probe::evidence::RAS_ADDRESS;

use crate::{
    HostError,
    kineto::{self, Folders},
    objects::{Holder, Objects},
    wire::{Container, Mount, PodSpec, Restart, Volume},
};
use expand::expand;

/// Seconds that a pod which states no grace period may take to end.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The variable that names the file for heartbeats.
const BEAT: &str = "TRAINYARD_BEAT";

/// The variable that names the file of the notice that the attempt is to end.
const NOTICE: &str = "TRAINYARD_NOTICE";

/// What is true of one pod on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) uid: &'a str,
    pub(crate) node: &'a str,
    pub(crate) address: Ipv4Addr,
    pub(crate) cpus: u64,
    pub(crate) memory_bytes: u64,
}

/// What is true of every pod of a run.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The environment beneath the containers' own.
    pub(crate) environment: BTreeMap<String, String>,
    /// Images that stand for a virtual environment.
    pub(crate) image_env: Vec<(String, PathBuf)>,
    pub(crate) working_dir: PathBuf,
    /// Folder of persistent volumes.
    pub(crate) volumes: PathBuf,
    /// Persistent volumes that are the run's own, by claim.
    pub(crate) own_volumes: BTreeMap<String, PathBuf>,
    pub(crate) hosts: PathBuf,
    pub(crate) stage: PathBuf,
    /// The folder of heartbeats, where they are read.
    pub(crate) beats: Option<PathBuf>,
    /// The file of the notice that an attempt is to end, once there is one.
    pub(crate) notice: PathBuf,
    /// The folder of dumps and pipes of Flight Recorders, where the run is watched.
    pub(crate) flight: Option<PathBuf>,
    /// Where NCCL's monitor listens: an address of the run's own, so that no other job answers.
    pub(crate) ras: Option<String>,
    /// Where programs and the engine speak about traces, where they do.
    pub(crate) kineto: Option<Folders>,
    /// How many files programs may have open, as this user set it.
    pub(crate) open_files: u64,
}

impl Surroundings {
    /// How the paths of the files of Flight Recorders of the pod with that uid begin.
    pub(crate) fn flight_prefix(&self, uid: &str) -> Option<String> {
        let folder = self.flight.as_ref()?;
        Some(folder.join(format!("{uid}.")).display().to_string())
    }
}

/// What a pod refers to and this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Object(String),
    Unsupported(String),
    BadValue(String),
}

impl Missing {
    fn object(holder: Holder, name: &str) -> Self {
        Self::Object(format!("{} `{name}`", holder.name()))
    }

    fn key(holder: Holder, name: &str, key: &str) -> Self {
        Self::Object(format!("key `{key}` of {} `{name}`", holder.name()))
    }

    fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::BadValue(format!("cannot create `{}`: {error}", path.display()))
    }

    fn of(self, pod: &str) -> HostError {
        let pod = pod.to_owned();
        match self {
            Self::Object(what) => HostError::MissingObject { pod, what },
            Self::Unsupported(what) => HostError::Unsupported { pod, what },
            Self::BadValue(message) => HostError::BadValue { pod, message },
        }
    }
}

/// Seconds that `pod` may take to end after it was asked to.
pub(crate) fn grace_seconds(pod: &Pod) -> u32 {
    let stated = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    u32::try_from(stated.unwrap_or(DEFAULT_GRACE_SECONDS)).unwrap_or(0)
}

/// The pod as pod init starts it. `scratch` is the folder for volumes that end with the pod.
pub(crate) fn translate(
    pod: &Pod,
    facts: &Facts<'_>,
    objects: &Objects,
    surroundings: &Surroundings,
    scratch: &Path,
) -> Result<PodSpec, HostError> {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let empty = KubePodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let translator = Translator {
        pod,
        name: &name,
        facts,
        objects,
        surroundings,
    };
    let init_containers = spec.init_containers.iter().flatten();
    let init_containers: Vec<Container> = init_containers
        .map(|container| translator.container(container))
        .collect::<Result<_, _>>()?;
    let containers: Vec<Container> = spec
        .containers
        .iter()
        .map(|container| translator.container(container))
        .collect::<Result<_, _>>()?;
    let used: BTreeSet<&str> = init_containers
        .iter()
        .chain(&containers)
        .flat_map(|container| &container.mounts)
        .map(|mount| mount.volume.as_str())
        .collect();
    let places = volumes::Places {
        persistent: &surroundings.volumes,
        own: &surroundings.own_volumes,
        scratch,
    };
    let declared = spec.volumes.iter().flatten();
    let volumes = declared
        .filter(|volume| used.contains(volume.name.as_str()))
        .map(|volume| {
            Ok(Volume {
                name: volume.name.clone(),
                source: volumes::source(pod, volume, facts, objects, &places)
                    .map_err(|missing| missing.of(&name))?,
            })
        })
        .collect::<Result<Vec<_>, HostError>>()?;
    let undeclared = used
        .into_iter()
        .find(|used| !volumes.iter().any(|volume| volume.name == *used));
    if let Some(used) = undeclared {
        let message = format!("volume `{used}` is mounted but not declared");
        return Err(Missing::BadValue(message).of(&name));
    }
    Ok(PodSpec {
        stage: surroundings.stage.clone(),
        hosts: surroundings.hosts.clone(),
        working_dir: surroundings.working_dir.clone(),
        open_files: surroundings.open_files,
        volumes,
        init_containers,
        containers,
        restart: match spec.restart_policy.as_deref() {
            Some("Never") => Restart::Never,
            Some("OnFailure") => Restart::OnFailure,
            _ => Restart::Always,
        },
        grace_millis: u64::from(grace_seconds(pod)) * 1000,
        name,
    })
}

/// The files of `volume` of a pod that runs, from objects that changed since.
pub(crate) fn volume_files(
    pod: &Pod,
    volume: &str,
    facts: &Facts<'_>,
    objects: &Objects,
) -> Option<Vec<crate::wire::VolumeFile>> {
    let nowhere = Path::new("/");
    let places = volumes::Places {
        persistent: nowhere,
        own: &BTreeMap::new(),
        scratch: nowhere,
    };
    let mut declared = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    let found = declared.find(|found| found.name == volume && found.config_map.is_some())?;
    match volumes::source(pod, found, facts, objects, &places) {
        Ok(crate::wire::VolumeSource::Files(files)) => Some(files),
        _ => None,
    }
}

struct Translator<'a> {
    pod: &'a Pod,
    name: &'a str,
    facts: &'a Facts<'a>,
    objects: &'a Objects,
    surroundings: &'a Surroundings,
}

impl Translator<'_> {
    fn container(&self, container: &KubeContainer) -> Result<Container, HostError> {
        let own = environment::own(self.pod, container, self.facts, self.objects)
            .map_err(|missing| missing.of(self.name))?;
        let known = |name: &str| own.get(name).map(String::as_str);
        let stated = container.command.iter().flatten();
        let mut command: Vec<String> = stated.map(|word| expand(word, known)).collect();
        if command.is_empty() {
            return Err(HostError::NoCommand {
                pod: self.name.to_owned(),
                container: container.name.clone(),
            });
        }
        let arguments = container.args.iter().flatten();
        command.extend(arguments.map(|word| expand(word, known)));
        let mounts = container
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| {
                let expression = mount.sub_path_expr.as_ref();
                let sub_path = expression
                    .map(|text| expand(text, known))
                    .or_else(|| mount.sub_path.clone())
                    .filter(|path| !path.is_empty());
                self.mount(mount, sub_path)
            })
            .collect::<Result<_, _>>()?;
        let base = &self.surroundings.working_dir;
        let working_dir = container
            .working_dir
            .as_ref()
            .filter(|folder| !folder.is_empty())
            .map_or_else(|| base.clone(), |folder| base.join(folder));
        Ok(Container {
            name: container.name.clone(),
            command,
            environment: self.environment(container, own),
            working_dir,
            mounts,
            sidecar: container.restart_policy.as_deref() == Some("Always"),
            cgroups: Vec::new(),
        })
    }

    fn mount(
        &self,
        mount: &k8s_openapi::api::core::v1::VolumeMount,
        sub_path: Option<String>,
    ) -> Result<Mount, HostError> {
        let path = PathBuf::from(&mount.mount_path);
        let leaves = sub_path.iter().any(|sub_path| {
            let mut parts = Path::new(sub_path).components();
            !parts.all(|part| matches!(part, std::path::Component::Normal(_)))
        });
        if !path.is_absolute() || leaves {
            let message = format!(
                "the mount of volume `{}` at `{}` points outside of its folder",
                mount.name, mount.mount_path
            );
            return Err(Missing::BadValue(message).of(self.name));
        }
        Ok(Mount {
            volume: mount.name.clone(),
            path,
            sub_path,
            read_only: mount.read_only == Some(true),
        })
    }

    /// The whole environment: the user's here, then the container's own, then what the virtual
    /// environment that stands for its image needs.
    fn environment(
        &self,
        container: &KubeContainer,
        own: BTreeMap<String, String>,
    ) -> Vec<(String, String)> {
        let mut all = self.surroundings.environment.clone();
        // One that is inherited names a file of another run.
        all.remove(BEAT);
        kineto::forget_inherited(&mut all);
        if let Some(folder) = &self.surroundings.beats {
            let file = folder.join(self.facts.uid);
            all.insert(BEAT.to_owned(), file.display().to_string());
        }
        all.insert(
            NOTICE.to_owned(),
            self.surroundings.notice.display().to_string(),
        );
        all.extend(own);
        if let Some(address) = &self.surroundings.ras {
            let name = RAS_ADDRESS.to_owned();
            all.entry(name).or_insert_with(|| address.clone());
        }
        if let Some(prefix) = self.surroundings.flight_prefix(self.facts.uid) {
            for (name, value) in evidence::variables(&prefix, |name| all.contains_key(name)) {
                all.insert(name.to_owned(), value);
            }
        }
        // Shells and tools trust it over the host name.
        all.insert("HOSTNAME".to_owned(), self.name.to_owned());
        let image = container.image.as_deref().unwrap_or_default();
        if let Some(folder) = virtual_environment(image, &self.surroundings.image_env) {
            let folder = folder.display();
            let path = all.get("PATH").map_or("/usr/bin:/bin", String::as_str);
            let path = format!("{folder}/bin:{path}");
            all.insert("PATH".to_owned(), path);
            all.insert("VIRTUAL_ENV".to_owned(), folder.to_string());
        }
        // A volume over `/tmp` hides the sockets from the program.
        let is_hidden = |folders: &&Folders| {
            let mut mounts = container.volume_mounts.iter().flatten();
            mounts.any(|mount| {
                folders.sockets.starts_with(&mount.mount_path)
                    || folders.traces.starts_with(&mount.mount_path)
            })
        };
        let folders = self.surroundings.kineto.as_ref();
        if let Some(folders) = folders.filter(|folders| !is_hidden(folders)) {
            for (name, value) in kineto::variables(folders, &all, container_command(container)) {
                all.insert(name.to_owned(), value);
            }
        }
        all.into_iter().collect()
    }
}

/// The command as the job states it; that of an image is not known here.
fn container_command(container: &KubeContainer) -> &[String] {
    let command = container.command.as_deref().unwrap_or_default();
    match command {
        [] => container.args.as_deref().unwrap_or_default(),
        command => command,
    }
}

/// The virtual environment that stands for `image`. An entry without tag or digest stands for every
/// version of its image.
pub(crate) fn virtual_environment<'a>(
    image: &str,
    image_env: &'a [(String, PathBuf)],
) -> Option<&'a Path> {
    let bare = image.split_once('@').map_or(image, |(bare, _)| bare);
    let after_host = bare.rfind('/').map_or(0, |slash| slash + 1);
    let untagged = match bare.rfind(':') {
        Some(colon) if colon > after_host => bare.split_at(colon).0,
        _ => bare,
    };
    image_env
        .iter()
        .find(|(known, _)| [image, bare, untagged].contains(&known.as_str()))
        .map(|(_, folder)| folder.as_path())
}

#[cfg(test)]
mod tests;
