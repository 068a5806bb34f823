//! The operator's image as an archive: an OCI layout, which `docker load` reads as well, from the recipe in `deploy/image`.

use super::{
    Release,
    date::Moment,
    entry::{FILE, Files, PROGRAM, gzip},
    program::Program,
    sha256, tar,
};
use crate::{Failure, cluster::Recipe};

/// The repository that the examples name.
const REPOSITORY: &str = "docker.io/library/trainyard";

/// The file name and the bytes of the archive.
pub(super) fn pack(release: &Release, program: &Program) -> Result<(String, Vec<u8>), Failure> {
    let recipe = Recipe::of_project()?;
    let mut files = Files::default();
    files.add(&recipe.target, PROGRAM, program.bytes.clone());
    let layer = tar::archive(&files, "", release.time).map_err(Failure::Failed)?;
    let architecture = match program.architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let archive = layout(release, architecture, &recipe.settings, &layer);
    let bytes = tar::archive(&archive, "", release.time).map_err(Failure::Failed)?;
    let name = format!("trainyard-{}-linux-{architecture}.oci.tar", release.version);
    Ok((name, bytes))
}

/// The files of a layout with one image of one layer; `settings` is JSON.
fn layout(release: &Release, architecture: &str, settings: &str, layer: &[u8]) -> Files {
    let version = &release.version;
    let created = Moment::of(release.time).text();
    let mut files = Files::default();
    let blob = |files: &mut Files, data: Vec<u8>| -> (String, usize) {
        let (digest, size) = (sha256::hex(&data), data.len());
        files.add(format!("blobs/sha256/{digest}"), FILE, data);
        (digest, size)
    };
    let unpacked = sha256::hex(layer);
    let (layer, layer_size) = blob(&mut files, gzip(layer));
    let labels = format!(
        "\"Labels\":{{\"org.opencontainers.image.licenses\":\"Apache-2.0\",\"org.opencontainers.image.title\":\"trainyard\",\
         \"org.opencontainers.image.version\":\"{version}\"}}"
    );
    // The recipe's settings are an object; the labels become part of it.
    let settings = settings.strip_suffix('}').unwrap_or(settings);
    let config = format!(
        "{{\"created\":\"{created}\",\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{settings},{labels}}},\"rootfs\":\
         {{\"type\":\"layers\",\"diff_ids\":[\"sha256:{unpacked}\"]}},\"history\":[{{\"created\":\"{created}\",\"created_by\":\"cargo xtask dist\"}}]}}"
    );
    let (config, config_size) = blob(&mut files, config.into_bytes());
    let manifest = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":{{\"mediaType\":\
         \"application/vnd.oci.image.config.v1+json\",\"digest\":\"sha256:{config}\",\"size\":{config_size}}},\"layers\":[{{\"mediaType\":\
         \"application/vnd.oci.image.layer.v1.tar+gzip\",\"digest\":\"sha256:{layer}\",\"size\":{layer_size}}}]}}"
    );
    let (manifest, manifest_size) = blob(&mut files, manifest.into_bytes());
    let index = format!(
        "{{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.index.v1+json\",\"manifests\":[{{\"mediaType\":\
         \"application/vnd.oci.image.manifest.v1+json\",\"digest\":\"sha256:{manifest}\",\"size\":{manifest_size},\"platform\":\
         {{\"architecture\":\"{architecture}\",\"os\":\"linux\"}},\"annotations\":{{\"io.containerd.image.name\":\"{REPOSITORY}:{version}\",\
         \"org.opencontainers.image.ref.name\":\"{version}\"}}}}]}}"
    );
    files.add("index.json", FILE, index);
    files.add("oci-layout", FILE, "{\"imageLayoutVersion\":\"1.0.0\"}");
    // What `docker load` of older versions reads.
    let list = format!(
        "[{{\"Config\":\"blobs/sha256/{config}\",\"RepoTags\":[\"trainyard:{version}\"],\"Layers\":[\"blobs/sha256/{layer}\"]}}]"
    );
    files.add("manifest.json", FILE, list);
    files
}
