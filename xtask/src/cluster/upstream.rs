//! What upstream's own tests and examples need: the SDK, the tests, the examples and the Go operator beside a cluster,
//! and an image on its real nodes.
//!
//! The tests are read from the Go module that `tools/cluster/peer` pins and the SDK comes from the Python package index; nothing of either
//! is kept in this checkout. The image holds this machine's Python and, under the paths that upstream's commands name,
//! programs that stand in for the training.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{Cluster, binaries, image, namespace, nodes, others, state::State};
use crate::{Failure, cache::cannot, frameworks, step};

/// The image that every container of the tests runs.
const IMAGE: &str = "trainyard.test/upstream:test";
/// An image without a command trains.
const SETTINGS: &str = r#"{"Entrypoint":["python3","-u","/opt/train.py"],"Env":["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin","PYTHONPATH=/opt/packages"]}"#;
/// Where the stand-in for a training program lies, besides its own place, under the names that upstream's commands have.
const TRAINING: &[&str] = &[
    "opt/train.py",
    "horovod/examples/pytorch/pytorch_mnist.py",
    "var/tf_mnist/mnist_with_summaries.py",
    "opt/packages/paddle/distributed/launch.py",
];
/// Lists the interpreter and its standard library, without what no training program uses.
const LIST_PYTHON: &str = r#"
import os, sys, sysconfig
print(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
skipped = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tkinter", "turtledemo"}
for folder in sorted({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}):
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in skipped and not name.startswith("config-")]
        for name in files:
            print(os.path.join(place, name))
"#;

/// Gives a cluster the SDK and the tests, and its real nodes the image.
pub(super) fn provide(cluster: &Cluster) -> Result<(), Failure> {
    let state = &cluster.state;
    let folder = state.file("upstream");
    fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
    let module = others::upstream()?;
    link(&frameworks::sdk()?, &folder.join("sdk"))?;
    // Beside nothing else of the module, so that the SDK is the one from PyPI.
    link(&module.join("sdk/python/test"), &folder.join("test"))?;
    link(&module.join("examples"), &folder.join("examples"))?;
    binaries::provide(binaries::PEER, &folder)?;
    nodes::import(cluster, &training_image(state)?)
}

/// Whether nothing has to be fetched for it.
pub(super) fn is_there() -> Result<bool, Failure> {
    Ok(frameworks::has_sdk()? && others::upstream_is_there())
}

/// Fetches the SDK and the module with the tests.
pub(super) fn fetch() -> Result<(), Failure> {
    others::upstream()?;
    frameworks::sdk().map(|_| ())
}

fn link(target: &Path, link: &Path) -> Result<(), Failure> {
    drop(fs::remove_file(link));
    std::os::unix::fs::symlink(target, link).map_err(cannot("make", link))
}

fn training_image(state: &State) -> Result<PathBuf, Failure> {
    let mut listing = namespace::helper(state, "python3");
    let listing = step::capture(listing.args(["-c", LIST_PYTHON]))?;
    let mut files: BTreeSet<PathBuf> = listing.lines().map(PathBuf::from).collect();
    let python = listing.lines().next().unwrap_or_default().to_owned();
    // What the SDK's own commands call.
    files.insert(PathBuf::from("/usr/bin/mktemp"));
    let is_linked = |file: &&PathBuf| {
        let so = file.extension().is_some_and(|end| end == "so");
        so || file.starts_with("/usr/bin") || **file == Path::new(&python)
    };
    let linked: Vec<PathBuf> = files.iter().filter(is_linked).cloned().collect();
    files.extend(image::libraries(state, linked.iter())?);
    let interpreter = image::in_place(state, "python", &files)?;

    let starter = state.file("images/python3");
    let text = format!("#!/bin/sh\nexec {python} \"$@\"\n");
    fs::write(&starter, text).map_err(cannot("write", &starter))?;
    fs::set_permissions(&starter, fs::Permissions::from_mode(0o755))
        .map_err(cannot("change", &starter))?;
    let empty = state.file("images/empty.py");
    fs::write(&empty, "").map_err(cannot("write", &empty))?;
    let own = step::root().join("tools/upstream/programs");
    let (train, torchrun) = (own.join("train.py"), own.join("torchrun"));
    let mut programs: Vec<(&Path, &str)> = vec![
        (&starter, "usr/local/bin/python3"),
        (&starter, "usr/local/bin/python"),
        (&torchrun, "usr/local/bin/torchrun"),
        (&empty, "opt/packages/paddle/__init__.py"),
        (&empty, "opt/packages/paddle/distributed/__init__.py"),
    ];
    programs.extend(TRAINING.iter().map(|name| (train.as_path(), *name)));
    let programs = image::packed(state, "upstream-programs", &programs)?;
    let layers = [
        image::layer(state, "tools"),
        image::layer(state, "root"),
        interpreter,
        programs,
    ];
    image::image(state, "upstream", &[IMAGE], &layers, SETTINGS)
}
