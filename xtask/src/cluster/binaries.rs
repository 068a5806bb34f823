//! The programs of the cluster: found, or built once from pinned sources.
//!
//! Each lies in the cache under a hash of everything it is built from, and comes there by a rename,
//! so a build that was cut short is never taken for a program. Go keeps what it has compiled, so
//! the next try continues from there. The lock, which the kernel releases with the process, keeps two
//! builders apart: one build fills a small machine.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    Failure,
    cache::{self, cannot, fnv},
    frameworks, report, step,
};

/// The version of Kubernetes that `tools/cluster/kubernetes/go.mod` pins.
pub(super) const KUBERNETES: &str = "v1.35.8";
/// Changed when programs are built in another way from the same sources.
const RECIPE: &str = "1";
/// The slowest build took six minutes on two cores; a machine that needs this long is stuck.
const BUILD_LIMIT: Duration = Duration::from_mins(45);
/// How often a running build logs that it still runs.
const BUILD_NEWS: Duration = Duration::from_secs(30);

/// One program and where its source is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// The folder of its module in `tools/cluster`.
    module: &'static str,
    /// The package, as the module names it.
    package: &'static str,
    /// Whether it holds C: its first steps must run before the Go runtime starts threads.
    c: bool,
}

const fn pure(name: &'static str, module: &'static str, package: &'static str) -> Program {
    Program {
        name,
        module,
        package,
        c: false,
    }
}

/// Process 1 of the cluster and of every pod.
pub(super) const PAUSE: Program = pure("pause", "pause", ".");

/// What every cluster has.
pub(super) const CONTROL_PLANE: &[Program] = &[
    PAUSE,
    pure("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    pure(
        "kube-apiserver",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-apiserver",
    ),
    pure(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    pure(
        "kube-scheduler",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-scheduler",
    ),
    pure("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
];

/// What tests of `deploy/` need besides.
pub(super) const HELM: &[Program] = &[pure("helm", "helm", "helm.sh/helm/v3/cmd/helm")];

/// What tests of queues need besides.
pub(super) const KUEUE: &[Program] = &[pure("kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue")];

/// What simulated nodes need besides.
pub(super) const SIMULATED: &[Program] = &[pure("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok")];

/// What benches run beside ours.
pub(super) const PEER: &[Program] = &[pure(
    "training-operator",
    "peer",
    "github.com/kubeflow/training-operator/cmd/training-operator.v1",
)];

/// What the linter is measured beside.
pub(super) const LINTERS: &[Program] = &[
    pure(
        "kubeconform",
        "kubeconform",
        "github.com/yannh/kubeconform/cmd/kubeconform",
    ),
    pure(
        "kube-linter",
        "kube-linter",
        "golang.stackrox.io/kube-linter/cmd/kube-linter",
    ),
];

/// What real nodes need besides.
pub(super) const REAL: &[Program] = &[
    pure("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    pure(
        "containerd",
        "containerd",
        "github.com/containerd/containerd/v2/cmd/containerd",
    ),
    pure(
        "containerd-shim-runc-v2",
        "containerd",
        "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
    ),
    pure(
        "ctr",
        "containerd",
        "github.com/containerd/containerd/v2/cmd/ctr",
    ),
    Program {
        name: "runc",
        module: "runc",
        package: "github.com/opencontainers/runc",
        c: true,
    },
    pure(
        "bridge",
        "cni",
        "github.com/containernetworking/plugins/plugins/main/bridge",
    ),
    pure(
        "host-local",
        "cni",
        "github.com/containernetworking/plugins/plugins/ipam/host-local",
    ),
    pure("coredns", "coredns", "."),
];

/// What a second network of real nodes needs besides.
pub(super) const FABRIC: &[Program] = &[
    pure(
        "multus",
        "multus",
        "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",
    ),
    pure(
        "macvlan",
        "cni",
        "github.com/containernetworking/plugins/plugins/main/macvlan",
    ),
];

/// Finds or builds `programs` and makes `folder` hold a link to each.
pub(super) fn provide(programs: &[Program], folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(cannot("make", folder))?;
    for program in programs {
        let path = match provided_by_caller(program.name) {
            Some(path) => path,
            None => built(*program)?,
        };
        let link = folder.join(program.name);
        if fs::read_link(&link).is_ok_and(|target| target == path) {
            continue;
        }
        // Two calls may meet here; what counts is that the link is there and right.
        drop(fs::remove_file(&link));
        std::os::unix::fs::symlink(&path, &link).map_err(cannot("make", &link))?;
    }
    Ok(())
}

/// Whether nothing of `programs` has to be built.
pub(super) fn are_there(programs: &[Program]) -> Result<bool, Failure> {
    for program in programs {
        if provided_by_caller(program.name).is_none() && !place(*program)?.exists() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The first of `programs`; nothing where it would have to be built.
pub(super) fn found(programs: &[Program]) -> Result<Option<PathBuf>, Failure> {
    let Some(program) = programs.first() else {
        return Ok(None);
    };
    if let Some(path) = provided_by_caller(program.name) {
        return Ok(Some(path));
    }
    let path = place(*program)?;
    Ok(path.exists().then_some(path))
}

/// Builds what is not there of `programs`.
pub(super) fn build_missing(programs: &[Program]) -> Result<(), Failure> {
    for program in programs {
        if provided_by_caller(program.name).is_none() {
            built(*program)?;
        }
    }
    Ok(())
}

/// Where the cache keeps the program, built or not.
fn place(program: Program) -> Result<PathBuf, Failure> {
    let source = step::root().join("tools/cluster").join(program.module);
    let hash = fnv(fingerprint(program, &source)?.as_bytes());
    let folder = cache::folder()?.join(format!("cluster/bin/{}-{hash:016x}", program.module));
    Ok(folder.join(program.name))
}

/// A program that the caller has: in a folder that a variable names.
fn provided_by_caller(name: &str) -> Option<PathBuf> {
    ["TRAINYARD_K8S_BIN", "KUBEBUILDER_ASSETS"]
        .into_iter()
        .filter_map(cache::variable)
        .map(|folder| Path::new(&folder).join(name))
        .find(|path| path.is_file())
        .and_then(|path| fs::canonicalize(path).ok())
}

/// The program from the cache, built if it is not there.
fn built(program: Program) -> Result<PathBuf, Failure> {
    let path = place(program)?;
    if path.exists() {
        return Ok(path);
    }
    let source = step::root().join("tools/cluster").join(program.module);
    let parent = cache::folder()?.join("cluster");
    let folder = path.parent().expect("a program lies in a folder");
    fs::create_dir_all(folder).map_err(cannot("make", folder))?;
    let lock_path = parent.join("build.lock");
    let lock = File::create(&lock_path).map_err(cannot("make", &lock_path))?;
    if lock.try_lock().is_err() {
        report::progress("another build of the cluster's programs is running: waiting for it");
        lock.lock().map_err(cannot("lock", &lock_path))?;
    }
    if !path.exists() {
        let unfinished = folder.join(format!("{}.unfinished", program.name));
        build(program, &source, &unfinished)?;
        fs::rename(&unfinished, &path).map_err(cannot("make", &path))?;
    }
    Ok(path)
}

/// Everything that decides what the program becomes.
fn fingerprint(program: Program, source: &Path) -> Result<String, Failure> {
    let mut files: Vec<PathBuf> = fs::read_dir(source)
        .map_err(cannot("list", source))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| ["go", "mod", "sum"].iter().any(|one| extension == *one))
        })
        .collect();
    files.sort();
    let mut text = vec![
        RECIPE.to_owned(),
        program.module.to_owned(),
        linker_flags(program),
        go_version()?,
    ];
    text.extend(tags(program).map(str::to_owned));
    for file in files {
        text.push(fs::read_to_string(&file).map_err(cannot("read", &file))?);
    }
    Ok(text.join("\n"))
}

fn linker_flags(program: Program) -> String {
    let mut flags = "-s -w".to_owned();
    if program.module == "kubernetes" {
        flags.push_str(" -X k8s.io/component-base/version.gitVersion=");
        flags.push_str(KUBERNETES);
    }
    if program.c {
        flags.push_str(" -extldflags -static");
    }
    flags
}

/// With C: no code that looks for libraries when it runs, and the filter of system calls.
fn tags(program: Program) -> Option<&'static str> {
    program.c.then_some("-tags=netgo,osusergo,seccomp")
}

fn go_version() -> Result<String, Failure> {
    let output = Command::new("go")
        .arg("version")
        .output()
        .map_err(|error| {
            Failure::CouldNotRun(format!(
                "cannot start `go`: {error}\n\nhint: install Go 1.26 or later, or set \
             `TRAINYARD_K8S_BIN` to a folder with the programs of Kubernetes"
            ))
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The kubelet asks for a filter of system calls for every pod, so the runtime must know them.
fn need_seccomp() -> Result<(), Failure> {
    let found = Command::new("pkg-config")
        .args(["--exists", "libseccomp"])
        .status()
        .is_ok_and(|status| status.success());
    if found {
        return Ok(());
    }
    frameworks::debian("libseccomp", &["libseccomp-dev", "pkgconf"])
}

fn build(program: Program, source: &Path, target: &Path) -> Result<(), Failure> {
    if program.c {
        need_seccomp()?;
    }
    let began = Instant::now();
    report::progress(&format!("building `{}`, once", program.name));
    let mut child = Command::new("go")
        .args(["build", "-mod=readonly", "-buildvcs=false", "-trimpath"])
        .args(tags(program))
        .args(["-ldflags", &linker_flags(program), "-o"])
        .arg(target)
        .arg(program.package)
        .current_dir(source)
        .env("CGO_ENABLED", if program.c { "1" } else { "0" })
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| Failure::CouldNotRun(format!("cannot start `go`: {error}")))?;
    let mut news = BUILD_NEWS;
    let status = loop {
        let waited = began.elapsed();
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if waited < BUILD_LIMIT => thread::sleep(Duration::from_millis(100)),
            Ok(None) => {
                drop(child.kill());
                drop(child.wait());
                return Err(Failure::CouldNotRun(format!(
                    "`{}` was not built in {}",
                    program.name,
                    report::seconds(BUILD_LIMIT)
                )));
            }
            Err(error) => {
                return Err(Failure::CouldNotRun(format!("lost `go build`: {error}")));
            }
        }
        if waited > news {
            news += BUILD_NEWS;
            report::progress(&format!(
                "building `{}`: {} so far",
                program.name,
                report::seconds(waited)
            ));
        }
    };
    if !status.success() {
        return Err(Failure::CouldNotRun(format!(
            "cannot build `{}`: `go build` ended with {status}",
            program.name
        )));
    }
    report::progress(&format!(
        "built `{}` in {}",
        program.name,
        report::seconds(began.elapsed())
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_version_is_the_pinned_one() {
        let path = step::root().join("tools/cluster/kubernetes/go.mod");
        let text = fs::read_to_string(&path).expect("the module is there");
        let pin = format!("\tk8s.io/kubernetes {KUBERNETES}");
        let is_pinned = |line: &str| line == pin || line.starts_with(&format!("{pin} "));
        assert!(text.lines().any(is_pinned), "{}", path.display());
        let published = KUBERNETES.replace("v1.", "v0.");
        for line in text.lines().filter(|line| line.contains(" => ")) {
            assert!(line.ends_with(&published), "{line}");
        }
    }

    #[test]
    fn every_program_has_a_module() {
        for program in [
            CONTROL_PLANE,
            HELM,
            KUEUE,
            SIMULATED,
            REAL,
            FABRIC,
            PEER,
            LINTERS,
        ]
        .concat()
        {
            let module = step::root().join("tools/cluster").join(program.module);
            assert!(module.join("go.mod").is_file(), "{}", program.name);
        }
    }
}
