//! The volumes of a pod, as folders, files and memory of this machine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, Pod, Volume as KubeVolume, VolumeProjection,
};

use super::{Facts, Missing, fields};
use crate::{
    objects::{Holder, Objects},
    quantity, store,
    wire::{VolumeFile, VolumeSource},
};

/// Mode of files whose volume states none.
const DEFAULT_MODE: i32 = 0o644;

/// Where volumes that are folders lie.
#[derive(Clone, Debug)]
pub(super) struct Places<'a> {
    /// Persistent ones.
    pub(super) persistent: &'a Path,
    /// Persistent ones of this run alone, by claim.
    pub(super) own: &'a BTreeMap<String, PathBuf>,
    /// Those that end with the pod.
    pub(super) scratch: &'a Path,
}

/// What `volume` becomes here. Folders that must exist are made.
pub(super) fn source(
    pod: &Pod,
    volume: &KubeVolume,
    facts: &Facts<'_>,
    objects: &Objects,
    places: &Places<'_>,
) -> Result<VolumeSource, Missing> {
    if let Some(from) = &volume.config_map {
        let chosen = Chosen {
            holder: Holder::ConfigMap,
            name: &from.name,
            items: from.items.as_deref(),
            mode: from.default_mode.unwrap_or(DEFAULT_MODE),
            optional: from.optional == Some(true),
        };
        return Ok(VolumeSource::Files(chosen.files(objects)?));
    }
    if let Some(from) = &volume.secret {
        let chosen = Chosen {
            holder: Holder::Secret,
            name: from.secret_name.as_deref().unwrap_or_default(),
            items: from.items.as_deref(),
            mode: from.default_mode.unwrap_or(DEFAULT_MODE),
            optional: from.optional == Some(true),
        };
        return Ok(VolumeSource::Files(chosen.files(objects)?));
    }
    if let Some(from) = &volume.downward_api {
        let mode = from.default_mode.unwrap_or(DEFAULT_MODE);
        let items = from.items.as_deref().unwrap_or_default();
        return Ok(VolumeSource::Files(downward(pod, facts, items, mode)?));
    }
    if let Some(from) = &volume.projected {
        let mode = from.default_mode.unwrap_or(DEFAULT_MODE);
        let mut files = Vec::new();
        for part in from.sources.iter().flatten() {
            files.extend(projected(pod, facts, objects, part, mode)?);
        }
        return Ok(VolumeSource::Files(files));
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        let path = match places.own.get(&claim.claim_name) {
            Some(path) => path.clone(),
            None => path_of(places.persistent, &claim.claim_name)?,
        };
        store::check_volume(&path).map_err(|error| Missing::BadValue(error.to_string()))?;
        make(&path)?;
        return Ok(VolumeSource::Path(path));
    }
    if let Some(from) = &volume.empty_dir {
        if from.medium.as_deref() == Some("Memory") {
            let limit = from.size_limit.as_ref().map(|limit| {
                quantity::units(limit).ok_or_else(|| {
                    Missing::BadValue(format!(
                        "`sizeLimit: {}` of volume `{}` is not a quantity",
                        limit.0, volume.name
                    ))
                })
            });
            return Ok(VolumeSource::Memory(limit.transpose()?));
        }
        return folder(places.scratch, &volume.name);
    }
    if volume.ephemeral.is_some() {
        return folder(places.scratch, &volume.name);
    }
    if let Some(from) = &volume.host_path {
        let path = PathBuf::from(&from.path);
        match from.type_.as_deref() {
            Some("DirectoryOrCreate") => make(&path)?,
            Some("FileOrCreate") if !path.exists() => {
                if let Some(parent) = path.parent() {
                    make(parent)?;
                }
                fs::write(&path, "").map_err(|error| Missing::io(&path, &error))?;
            }
            _ if !path.exists() => {
                return Err(Missing::BadValue(format!(
                    "volume `{}` is `hostPath: {}`, which does not exist on this machine",
                    volume.name,
                    path.display()
                )));
            }
            _ => {}
        }
        return Ok(VolumeSource::Path(path));
    }
    Err(Missing::Unsupported(format!(
        "volume `{}` of its kind",
        volume.name
    )))
}

fn folder(parent: &Path, name: &str) -> Result<VolumeSource, Missing> {
    let path = path_of(parent, name)?;
    make(&path)?;
    Ok(VolumeSource::Path(path))
}

fn path_of(parent: &Path, name: &str) -> Result<PathBuf, Missing> {
    // The name becomes a path here, where a cluster only looks it up.
    if name.is_empty() || name.contains('/') || name == ".." || name == "." {
        return Err(Missing::BadValue(format!(
            "`{name}` is not a valid volume name"
        )));
    }
    Ok(parent.join(name))
}

fn make(path: &Path) -> Result<(), Missing> {
    fs::create_dir_all(path).map_err(|error| Missing::io(path, &error))
}

/// Keys of one object as files.
struct Chosen<'a> {
    holder: Holder,
    name: &'a str,
    items: Option<&'a [KeyToPath]>,
    mode: i32,
    optional: bool,
}

impl Chosen<'_> {
    fn files(&self, objects: &Objects) -> Result<Vec<VolumeFile>, Missing> {
        let Some(entries) = objects.entries(self.holder, self.name) else {
            return if self.optional {
                Ok(Vec::new())
            } else {
                Err(Missing::object(self.holder, self.name))
            };
        };
        let Some(items) = self.items else {
            return entries
                .iter()
                .map(|(key, bytes)| file(key, self.mode, bytes.clone()))
                .collect();
        };
        let mut files = Vec::new();
        for item in items {
            match entries.get(&item.key) {
                Some(bytes) => {
                    let mode = item.mode.unwrap_or(self.mode);
                    files.push(file(&item.path, mode, bytes.clone())?);
                }
                None if self.optional => {}
                None => return Err(Missing::key(self.holder, self.name, &item.key)),
            }
        }
        Ok(files)
    }
}

fn file(path: &str, mode: i32, bytes: Vec<u8>) -> Result<VolumeFile, Missing> {
    let inside = !path.is_empty()
        && Path::new(path)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
    if !inside {
        return Err(Missing::BadValue(format!(
            "`{path}` points outside of its volume"
        )));
    }
    Ok(VolumeFile {
        path: path.to_owned(),
        mode: u32::try_from(mode).unwrap_or(0o644) & 0o777,
        bytes,
    })
}

fn downward(
    pod: &Pod,
    facts: &Facts<'_>,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
) -> Result<Vec<VolumeFile>, Missing> {
    let mut files = Vec::new();
    for item in items {
        let value = if let Some(selector) = &item.field_ref {
            fields::field(pod, facts, selector)
        } else if let Some(selector) = &item.resource_field_ref {
            let wanted = selector.container_name.as_deref().unwrap_or_default();
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut named = containers.filter(|container| container.name == wanted);
            let container = named.next().ok_or_else(|| {
                Missing::Unsupported(format!("resources of container `{wanted}`"))
            })?;
            fields::resource(container, facts, selector)
        } else {
            Ok(String::new())
        };
        let value = value?;
        let mode = item.mode.unwrap_or(mode);
        files.push(file(&item.path, mode, value.into_bytes())?);
    }
    Ok(files)
}

fn projected(
    pod: &Pod,
    facts: &Facts<'_>,
    objects: &Objects,
    part: &VolumeProjection,
    mode: i32,
) -> Result<Vec<VolumeFile>, Missing> {
    if let Some(from) = &part.config_map {
        let chosen = Chosen {
            holder: Holder::ConfigMap,
            name: &from.name,
            items: from.items.as_deref(),
            mode,
            optional: from.optional == Some(true),
        };
        return chosen.files(objects);
    }
    if let Some(from) = &part.secret {
        let chosen = Chosen {
            holder: Holder::Secret,
            name: &from.name,
            items: from.items.as_deref(),
            mode,
            optional: from.optional == Some(true),
        };
        return chosen.files(objects);
    }
    if let Some(from) = &part.downward_api {
        return downward(pod, facts, from.items.as_deref().unwrap_or_default(), mode);
    }
    Err(Missing::Unsupported(
        "a projected volume of an identity".to_owned(),
    ))
}
