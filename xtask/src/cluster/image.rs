//! Images for the real nodes, packed from files of this machine: no registry is needed.
//!
//! An image is an archive as `docker save` writes it: layers, a configuration that names their
//! hashes, and a list. Its tag is not `latest`, so a pod uses what is there and does not look for
//! a newer one.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Cluster, namespace, nodes, recipe::Recipe, ssh_server, state::State};
use crate::{
    Failure,
    cache::cannot,
    frameworks, report,
    static_program::{self, Profile},
    step,
};

/// What holds a pod's namespaces.
pub(super) const PAUSE: &str = "trainyard.test/pause:test";
/// A shell, the usual small programs, and Open MPI.
const TOOLS: &str = "trainyard.test/tools:test";
/// The same, with the binary of this project.
const JOB: &str = "trainyard.test/job:test";
/// The binary and nothing else, as the recipe in `deploy/image` makes it.
const TRAINYARD: &[&str] = &[
    "trainyard.test/trainyard:test",
    // The name that the examples give it.
    concat!("docker.io/library/trainyard:", env!("CARGO_PKG_VERSION")),
];

/// How programs are found in the images of tools.
const SETTINGS: &str = r#"{"Env":["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin"]}"#;

/// Programs that jobs of tests call; one that the machine lacks is left out.
const PROGRAMS: &[&str] = &[
    "sh",
    "bash",
    "cat",
    "chmod",
    "cp",
    "date",
    "echo",
    "env",
    "false",
    "find",
    "getent",
    "grep",
    "head",
    "hostname",
    "id",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "printenv",
    "ps",
    "rm",
    "sed",
    "seq",
    "sleep",
    "sort",
    "stat",
    "tail",
    "test",
    "timeout",
    "touch",
    "tr",
    "true",
    "uname",
    "wc",
    "mpirun",
    "mpiexec",
    "orted",
    "orterun",
    "ompi_info",
    "ssh",
    "ssh-keygen",
    "sshd",
];
/// Where Open MPI looks for its parts, which it loads while it runs.
const OPEN_MPI: &[&str] = &[
    "/usr/lib/*/openmpi/lib/openmpi3/*.so",
    "/usr/lib/*/pmix2/lib/pmix/*.so",
    "/usr/share/openmpi/*",
    "/usr/lib/*/pmix2/share/pmix/*",
    "/etc/openmpi/*",
];

/// Packs and imports the images that need no build of the project, unless they are there.
pub(super) fn base(cluster: &Cluster) -> Result<(), Failure> {
    let folder = cluster.state.file("images");
    let done = folder.join("imported");
    if done.exists() {
        return Ok(());
    }
    fs::create_dir_all(&folder).map_err(cannot("make", &folder))?;
    let pause = fs::canonicalize(cluster.state.program("pause"))
        .map_err(cannot("find", &cluster.state.program("pause")))?;
    let state = &cluster.state;
    let layer = packed(state, "pause", &[(&pause, "pause")])?;
    let archive = image(
        state,
        "pause",
        &[PAUSE],
        &[layer],
        r#"{"Entrypoint":["/pause"]}"#,
    )?;
    nodes::import(cluster, &archive)?;
    let layers = tools(state)?;
    let archive = image(state, "tools", &[TOOLS], &layers, SETTINGS)?;
    nodes::import(cluster, &archive)?;
    fs::write(&done, "").map_err(cannot("write", &done))
}

/// Builds the project's binary and imports images with it.
pub(super) fn project(cluster: &Cluster) -> Result<(), Failure> {
    base(cluster)?;
    let state = &cluster.state;
    let recipe = Recipe::of_project()?;
    let binary = static_binary()?;
    static_program::must_be_static(&binary)?;
    let binary = packed(state, "binary", &[(&binary, &recipe.target)])?;
    let alone = [binary.clone()];
    let archive = image(state, "trainyard", TRAINYARD, &alone, &recipe.settings)?;
    nodes::import(cluster, &archive)?;
    let layers = [layer(state, "tools"), layer(state, "root"), binary];
    let archive = image(state, "job", &[JOB], &layers, SETTINGS)?;
    nodes::import(cluster, &archive)?;
    for tag in [TOOLS, JOB].iter().chain(TRAINYARD) {
        println!("{tag}");
    }
    Ok(())
}

/// Builds the binary for tests so that it needs no library, and says where it is.
pub(super) fn static_binary() -> Result<PathBuf, Failure> {
    static_program::build(&static_program::own_target()?, Profile::Dev)
}

/// The layers of the image of tools: files of this machine, and a few of a system.
fn tools(state: &State) -> Result<Vec<PathBuf>, Failure> {
    if let Err(Failure::CouldNotRun(message) | Failure::Failed(message)) = frameworks::open_mpi() {
        report::error(&format!("the image of tools has no `mpirun`: {message}"));
    }
    let mut files: BTreeSet<PathBuf> = PROGRAMS
        .iter()
        .flat_map(|name| ["/usr/bin", "/bin", "/usr/sbin"].map(|at| Path::new(at).join(name)))
        .filter(|path| path.is_file())
        .collect();
    files.extend(expanded(state, OPEN_MPI)?);
    let ssh_server = ssh_server(state)?;
    files.extend(libraries(state, files.iter().chain(&ssh_server.files))?);
    let layer = in_place(state, "tools", &files)?;
    let mut layers = vec![layer, root_layer(state)?];
    layers.extend(ssh_server.layer);
    Ok(layers)
}

/// An ssh server that does not come from the machine.
#[derive(Debug, Default)]
struct SshServer {
    layer: Option<PathBuf>,
    /// Its files where they lie here, which need libraries of the machine.
    files: Vec<PathBuf>,
}

fn ssh_server(state: &State) -> Result<SshServer, Failure> {
    let helper = |program: &str| namespace::helper(state, program);
    let root = match ssh_server::root(&state.file("images"), helper) {
        Ok(None) => return Ok(SshServer::default()),
        Ok(Some(root)) => root,
        Err(Failure::CouldNotRun(message) | Failure::Failed(message)) => {
            report::error(&format!("the image of tools has no `sshd`: {message}"));
            return Ok(SshServer::default());
        }
        Err(reported) => return Err(reported),
    };
    let names = ssh_server::files(&root)?;
    let files: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    let names = names.iter().map(|name| name.to_str().unwrap_or_default());
    let pairs: Vec<(&Path, &str)> = files.iter().map(PathBuf::as_path).zip(names).collect();
    let layer = packed(state, "ssh", &pairs)?;
    Ok(SshServer {
        layer: Some(layer),
        files,
    })
}

/// A layer that holds `files` of this machine where they lie here.
pub(super) fn in_place(
    state: &State,
    name: &str,
    files: &BTreeSet<PathBuf>,
) -> Result<PathBuf, Failure> {
    let list = state.file(&format!("images/{name}.list"));
    let mut text = String::new();
    for file in files {
        let relative = file.strip_prefix("/").unwrap_or(file);
        text.push_str(&relative.display().to_string());
        text.push('\n');
    }
    fs::write(&list, text).map_err(cannot("write", &list))?;
    let layer = layer(state, name);
    // Links are followed, so that their targets exist under both names.
    let mut command = archiver(state, &layer);
    command
        .args(["--dereference", "--directory=/", "--files-from"])
        .arg(&list);
    step::run(&mut command)?;
    Ok(layer)
}

/// The files of a system that programs expect.
fn root_layer(state: &State) -> Result<PathBuf, Failure> {
    let root = state.file("images/root");
    for (name, text) in [
        (
            "etc/passwd",
            // The last is whom an ssh server becomes before it knows who is there.
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n\
             sshd:x:100:65534::/run/sshd:/bin/false\n",
        ),
        ("etc/group", "root:x:0:\nnobody:x:65534:\n"),
        (
            "etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\n",
        ),
    ] {
        let path = root.join(name);
        let parent = path.parent().expect("a file lies in a folder");
        fs::create_dir_all(parent).map_err(cannot("make", parent))?;
        fs::write(&path, text).map_err(cannot("write", &path))?;
    }
    for (name, mode) in [
        ("tmp", 0o1777),
        ("root", 0o700),
        ("run", 0o755),
        ("run/sshd", 0o755),
        ("etc/ssh", 0o755),
    ] {
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(cannot("make", &path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            .map_err(cannot("change", &path))?;
    }
    let layer = layer(state, "root");
    let mut command = archiver(state, &layer);
    command.arg("--directory").arg(&root).arg(".");
    step::run(&mut command)?;
    Ok(layer)
}

/// A layer that holds `files` under the names they are given.
pub(super) fn packed(
    state: &State,
    name: &str,
    files: &[(&Path, &str)],
) -> Result<PathBuf, Failure> {
    let root = state.file(&format!("images/{name}-files"));
    for (from, to) in files {
        let to = root.join(to);
        let parent = to.parent().expect("a file lies in a folder");
        fs::create_dir_all(parent).map_err(cannot("make", parent))?;
        fs::copy(from, &to).map_err(cannot("copy", from))?;
    }
    let layer = layer(state, name);
    let mut command = archiver(state, &layer);
    command.arg("--directory").arg(&root).arg(".");
    step::run(&mut command)?;
    Ok(layer)
}

/// The file of a layer.
pub(super) fn layer(state: &State, name: &str) -> PathBuf {
    state.file(&format!("images/{name}-layer.tar"))
}

/// `tar` that writes the same bytes for the same files.
pub(super) fn archiver(state: &State, target: &Path) -> Command {
    let mut command = namespace::helper(state, "tar");
    command
        .args(["--create", "--sort=name", "--mtime=@0", "--numeric-owner"])
        // Whatever the caller's mask is: jobs may run as any user.
        .args(["--owner=0", "--group=0", "--mode=a+rX", "--file"])
        .arg(target);
    command
}

/// An archive of one image; `settings` is JSON.
pub(super) fn image(
    state: &State,
    name: &str,
    tags: &[&str],
    layers: &[PathBuf],
    settings: &str,
) -> Result<PathBuf, Failure> {
    let folder = state.file("images");
    let mut hashes = Vec::new();
    let mut names = Vec::new();
    for layer in layers {
        let line = step::capture(namespace::helper(state, "sha256sum").arg(layer))?;
        let hash = line.split_whitespace().next().unwrap_or_default();
        hashes.push(format!("\"sha256:{hash}\""));
        let file = layer.file_name().expect("a layer is a file");
        names.push(file.to_string_lossy().into_owned());
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = format!(
        "{{\"architecture\":\"{architecture}\",\"os\":\"linux\",\"config\":{settings},\"rootfs\":\
         {{\"type\":\"layers\",\"diff_ids\":[{}]}}}}",
        hashes.join(",")
    );
    let quoted = |words: &[&str]| -> String {
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        quoted.join(",")
    };
    let layer_names: Vec<&str> = names.iter().map(String::as_str).collect();
    let list = format!(
        "[{{\"Config\":\"{name}.json\",\"RepoTags\":[{}],\"Layers\":[{}]}}]",
        quoted(tags),
        quoted(&layer_names)
    );
    for (file, text) in [
        (format!("{name}.json"), config),
        ("manifest.json".to_owned(), list),
    ] {
        let path = folder.join(file);
        fs::write(&path, text).map_err(cannot("write", &path))?;
    }
    let archive = folder.join(format!("{name}.tar"));
    let unfinished = folder.join(format!("{name}.tar.unfinished"));
    let mut command = archiver(state, &unfinished);
    command
        .arg("--directory")
        .arg(&folder)
        .arg("manifest.json")
        .arg(format!("{name}.json"))
        .args(&names);
    step::run(&mut command)?;
    fs::rename(&unfinished, &archive).map_err(cannot("make", &archive))?;
    Ok(archive)
}

/// The files that patterns of the shell stand for.
fn expanded(state: &State, patterns: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let script = format!(
        "for file in {}; do [ ! -f \"$file\" ] || echo \"$file\"; done",
        patterns.join(" ")
    );
    let text = step::capture(namespace::helper(state, "sh").args(["-c", &script]))?;
    Ok(text.lines().map(PathBuf::from).collect())
}

/// Every library that `files` are linked with, those of libraries too.
pub(super) fn libraries<'a>(
    state: &State,
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<PathBuf>, Failure> {
    let output = namespace::helper(state, "ldd")
        .args(files)
        .output()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `ldd`: {error}")))?;
    // It fails for files that are not programs, but still prints the others.
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(library).collect())
}

/// The path in a line of `ldd`.
pub(crate) fn library(line: &str) -> Option<PathBuf> {
    let line = line.strip_prefix('\t')?;
    let path = line.split_once(" => ").map_or(line, |(_, path)| path);
    let path = path.split_once(" (")?.0;
    path.starts_with('/').then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_program_are_read() {
        for (line, want) in [
            (
                "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)",
                Some("/lib/x86_64-linux-gnu/libc.so.6"),
            ),
            (
                "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)",
                Some("/lib64/ld-linux-x86-64.so.2"),
            ),
            ("\tlinux-vdso.so.1 (0x00007f)", None),
            ("\tlibgone.so => not found", None),
            ("/usr/bin/mpirun:", None),
            ("\tnot a dynamic executable", None),
        ] {
            assert_eq!(library(line), want.map(PathBuf::from), "{line}");
        }
    }
}
