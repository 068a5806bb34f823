//! `cargo xtask dist --test`: each artifact as a user has it, on a root file system that holds nothing else, without a network.
//!
//! Owns how each is installed and what shows that it works. The program, the wheel and the package run the smoke job of four ranks, the image one
//! of its ranks.

mod python;
mod root;

use std::{
    fs,
    io::Read as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use flate2::read::GzDecoder;

use self::root::Root;
use super::{Artifact, Made, Scratch, chart, manifest, options::Options, sha256};
use crate::{Failure, cache::cannot, cluster, report, static_program::Profile, step};

/// The time from `pip install` to the first step of a job stays below this.
const FIRST_RESULT: Duration = Duration::from_secs(15);

/// The oldest Kubernetes that the chart admits.
const OLDEST_KUBERNETES: &str = "1.31.0";

/// How one artifact is tried: the folder for its root, what was made, and its file; what it showed, in a few words.
type Trial = fn(&Path, &Made, &Path) -> Result<String, Failure>;

const TRIALS: &[(Artifact, &str, Trial)] = &[
    (Artifact::Program, "unpacked, trains", program),
    (Artifact::Wheel, "pip install, trains", wheel),
    (Artifact::Deb, "dpkg --install, trains, dpkg --purge", deb),
    (
        Artifact::Image,
        "layer unpacked, a rank of the smoke job as its user",
        image,
    ),
    (
        Artifact::Chart,
        "the files of the chart, helm template",
        helm_chart,
    ),
    (Artifact::Sbom, "read as JSON", parts),
    (
        Artifact::CheckpointWheel,
        "pip install, saves and restores",
        checkpoint_wheel,
    ),
];

/// Tries what was made.
pub(super) fn run(made: &Made) -> Result<(), Failure> {
    root::possible()?;
    let scratch = Scratch::new("trial")?;
    let mut rows = vec![
        ["artifact", "tried", "outcome", "time", "what was found"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut open = 0;
    let mut record = |name: &str, what: &str, began: Instant, outcome: Result<String, Failure>| {
        let (word, detail) = match outcome {
            Ok(detail) => ("passed", detail),
            Err(failure) => {
                open += 1;
                let (word, message) = match failure {
                    Failure::Failed(message) => ("FAILED", message),
                    Failure::CouldNotRun(message) => ("COULD NOT RUN", message),
                    Failure::Reported => ("FAILED", String::new()),
                };
                report::error(&message);
                (word, message.lines().next().unwrap_or_default().to_owned())
            }
        };
        let time = report::seconds(began.elapsed());
        rows.push(vec![
            name.to_owned(),
            what.to_owned(),
            word.to_owned(),
            time,
            detail,
        ]);
    };
    for (artifact, what, trial) in TRIALS {
        let Some(file) = made.path(*artifact) else {
            continue;
        };
        report::progress(&format!("trying {}", artifact.name()));
        let began = Instant::now();
        let folder = scratch.0.join(artifact.name());
        let outcome = trial(&folder, made, &file);
        record(artifact.name(), what, began, outcome);
    }
    report::progress("packing everything again");
    let began = Instant::now();
    record(
        "all",
        "checksums, packed again",
        began,
        again(&scratch.0.join("again"), made),
    );
    println!("{}", report::table(&rows));
    if open > 0 {
        return Err(Failure::Failed(format!(
            "{open} of {} trials did not pass",
            rows.len() - 1
        )));
    }
    Ok(())
}

/// Writes and runs the smoke job; the time from `began` to its first step.
fn trains(root: &Root, program: &str, began: Instant) -> Result<Duration, Failure> {
    root.run(&[program, "new", "--template", "quickstart", "-o", "job.yaml"])?;
    let before = began.elapsed();
    let first = trained(&root.watch(&[program, "run", "job.yaml"], STEP)?)?;
    Ok(before + first)
}

/// What a line of the smoke trainer about a step has.
const STEP: &str = "step 25/";

/// The time to the first step of the smoke trainer, which must have trained to its end.
fn trained(ran: &root::Ran) -> Result<Duration, Failure> {
    let is_last = |line: &str| line.contains("done: test accuracy");
    match ran.first {
        Some(first) if ran.stdout.lines().any(is_last) => Ok(first),
        _ => Err(Failure::Failed(format!(
            "the smoke job did not train to its end:\n{}",
            ran.stdout
        ))),
    }
}

fn first_step(time: Duration) -> String {
    format!("first step after {}", report::seconds(time))
}

fn program(folder: &Path, made: &Made, file: &Path) -> Result<String, Failure> {
    let root = Root::new(folder)?;
    let began = Instant::now();
    unpack(file, folder)?;
    let stem = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .replace(".tar.gz", "");
    let program = format!("/{stem}/bin/trainyard");
    let version = root.run(&[&program, "--version"])?;
    if version.trim() != format!("trainyard {}", made.release.version) {
        return Err(Failure::Failed(format!(
            "`trainyard --version` printed `{}`",
            version.trim()
        )));
    }
    let first = trains(&root, &program, began)?;
    let script = folder.join(&stem).join("completions/trainyard.bash");
    let complete = r#". "$1" && complete -p trainyard"#;
    step::capture(
        Command::new("bash")
            .args(["-c", complete, "bash"])
            .arg(script),
    )?;
    Ok(format!("{}; bash takes the completions", first_step(first)))
}

fn wheel(folder: &Path, _: &Made, file: &Path) -> Result<String, Failure> {
    let root = python::root(folder)?;
    let name = copied(file, &root)?;
    let program = |name: &str| format!("{}/bin/{name}", python::ENVIRONMENT);
    let began = Instant::now();
    root.run(&[
        &program("pip"),
        "install",
        "--quiet",
        "--no-index",
        "--disable-pip-version-check",
        &name,
    ])?;
    let installed = began.elapsed();
    let first = trains(&root, &program("trainyard"), began)?;
    root.run(&[&program("pip"), "check", "--disable-pip-version-check"])?;
    root.run(&[
        &program("pip"),
        "uninstall",
        "--quiet",
        "--yes",
        super::wheel::DISTRIBUTION,
    ])?;
    if root
        .folder
        .join(program("trainyard").trim_start_matches('/'))
        .exists()
    {
        return Err(Failure::Failed(
            "`pip uninstall` left the program behind".to_owned(),
        ));
    }
    let found = format!(
        "installed in {}, {}",
        report::seconds(installed),
        first_step(first)
    );
    if first > FIRST_RESULT {
        return Err(Failure::Failed(format!(
            "{found}; the limit is {}",
            report::seconds(FIRST_RESULT)
        )));
    }
    Ok(found)
}

fn deb(folder: &Path, _: &Made, file: &Path) -> Result<String, Failure> {
    let root = Root::new(folder)?;
    let state = folder.join("var/lib/dpkg");
    for name in ["info", "updates"] {
        let path = state.join(name);
        fs::create_dir_all(&path).map_err(cannot("make", &path))?;
    }
    let status = state.join("status");
    fs::write(&status, "").map_err(cannot("write", &status))?;
    let dpkg = |action: &str, what: &std::ffi::OsStr| {
        let mut command = Command::new("dpkg");
        command
            .arg(format!("--root={}", folder.display()))
            .arg("--log=/dev/null");
        // dpkg looks for `ldconfig` and others there.
        let path = crate::cache::variable("PATH").unwrap_or_default();
        let path = format!("{}:/usr/sbin:/sbin", path.to_string_lossy());
        command
            .args([action])
            .arg(what)
            .env("PATH", path)
            .stdout(Stdio::null());
        step::run(&mut command)
    };
    let began = Instant::now();
    dpkg("--install", file.as_os_str())?;
    let first = trains(&root, "trainyard", began)?;
    dpkg("--verify", "trainyard".as_ref())?;
    dpkg("--purge", "trainyard".as_ref())?;
    if folder.join("usr").exists() {
        return Err(Failure::Failed(
            "`dpkg --purge` left files in `/usr`".to_owned(),
        ));
    }
    Ok(first_step(first))
}

fn image(folder: &Path, _: &Made, file: &Path) -> Result<String, Failure> {
    let layout = folder.with_extension("layout");
    fs::create_dir_all(&layout).map_err(cannot("make", &layout))?;
    step::run(
        Command::new("tar")
            .args(["--extract", "--file"])
            .arg(file)
            .arg("--directory")
            .arg(&layout),
    )?;
    // Each document names the next one by its digest.
    let document = |path: &Path| fs::read_to_string(path).map_err(cannot("read", path));
    let blob = |digest: &str| -> Result<Vec<u8>, Failure> {
        let path = layout.join("blobs/sha256").join(digest);
        let bytes = fs::read(&path).map_err(cannot("read", &path))?;
        if sha256::hex(&bytes) == digest {
            Ok(bytes)
        } else {
            Err(Failure::Failed(format!(
                "the blob {digest} has another digest"
            )))
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let index = document(&layout.join("index.json"))?;
    let manifest = text(blob(first(&digests(&index), "the index")?)?);
    let named = digests(&manifest);
    let config = text(blob(first(&named, "the manifest")?)?);
    let layer = blob(first(
        named.get(1..).unwrap_or_default(),
        "the manifest, after the configuration,",
    )?)?;
    let mut unpacked = Vec::new();
    GzDecoder::new(layer.as_slice())
        .read_to_end(&mut unpacked)
        .map_err(|error| Failure::Failed(format!("the layer is not gzip: {error}")))?;
    if digests(&config) != [sha256::hex(&unpacked)] {
        return Err(Failure::Failed(
            "the configuration names another layer".to_owned(),
        ));
    }
    let archive = layout.join("layer.tar");
    fs::write(&archive, unpacked).map_err(cannot("write", &archive))?;
    let mut root = Root::new(folder)?;
    unpack(&archive, folder)?;
    for wanted in [
        r#""Entrypoint":["trainyard"]"#,
        r#""User":"65532:65532""#,
        r#""PATH=/usr/local/bin""#,
    ] {
        if !config.contains(wanted) {
            return Err(Failure::Failed(format!(
                "the configuration lacks {wanted}: {config}"
            )));
        }
    }
    root.user = 65532;
    root.path = "/usr/local/bin";
    // As its pods run it: in a container, that user may make no namespaces, so it cannot run a whole job there.
    let words = [
        "trainyard",
        "smoke-trainer",
        "--checkpoint-dir=/work/checkpoints",
    ];
    trained(&root.watch(&words, STEP)?).map(first_step)
}

/// The digests in a document, in order.
fn digests(text: &str) -> Vec<String> {
    text.split("sha256:")
        .skip(1)
        .map(|rest| rest.chars().take(64).collect())
        .collect()
}

fn first<'a>(digests: &'a [String], who: &str) -> Result<&'a str, Failure> {
    let found = digests.first().map(String::as_str);
    found.ok_or_else(|| Failure::Failed(format!("{who} names no digest")))
}

fn helm_chart(folder: &Path, _: &Made, file: &Path) -> Result<String, Failure> {
    fs::create_dir_all(folder).map_err(cannot("make", folder))?;
    unpack(file, folder)?;
    let mut count = 0;
    for (name, entry) in chart::files()?.iter() {
        let path = folder.join("trainyard").join(name);
        if fs::read(&path).map_err(cannot("read", &path))? != entry.data {
            return Err(Failure::Failed(format!(
                "`{name}` of the archive is not that of `{}`",
                chart::FOLDER
            )));
        }
        count += 1;
    }
    let helm = cluster::helm()?.ok_or_else(|| {
        Failure::CouldNotRun(
            "Helm is not built: the chart has all files, and no program has read it\n\nhint: `cargo xtask prepare` builds it".to_owned(),
        )
    })?;
    let text = step::capture(
        Command::new(helm)
            .args(["template", "--kube-version", OLDEST_KUBERNETES, "trainyard"])
            .arg(file),
    )?;
    let objects = text
        .lines()
        .filter(|line| line.starts_with("kind: "))
        .count();
    if !text.contains("kind: Deployment\n") {
        return Err(Failure::Failed(
            "`helm template` prints no Deployment".to_owned(),
        ));
    }
    Ok(format!(
        "{count} files, {objects} objects; the suite `cluster` installs the same files"
    ))
}

fn parts(_: &Path, _: &Made, file: &Path) -> Result<String, Failure> {
    let count = "import json, sys; print(len(json.load(open(sys.argv[1]))['components']))";
    let text = step::capture(Command::new("python3").args(["-c", count]).arg(file))?;
    Ok(format!("{} parts", text.trim()))
}

/// Saves and restores values without any framework.
const SAVES: &str = "from trainyard_checkpoint import Checkpointer
with Checkpointer('/work/checkpoints') as ck:
    assert ck.save(7, wait=True, epoch=3).committed()
with Checkpointer('/work/checkpoints') as ck:
    assert ck.restore(epoch=0) == 7 and ck.values['epoch'] == 3
print('restored')";

fn checkpoint_wheel(folder: &Path, _: &Made, file: &Path) -> Result<String, Failure> {
    let root = python::root(folder)?;
    let name = copied(file, &root)?;
    let program = |name: &str| format!("{}/bin/{name}", python::ENVIRONMENT);
    root.run(&[
        &program("pip"),
        "install",
        "--quiet",
        "--no-index",
        "--disable-pip-version-check",
        &name,
    ])?;
    let text = root.run(&[&program("python"), "-c", SAVES])?;
    Ok(text.trim().to_owned())
}

/// Copies `file` to where the root is worked in; its path there.
fn copied(file: &Path, root: &Root) -> Result<String, Failure> {
    let name = file.file_name().unwrap_or_default();
    let to = root.folder.join("work").join(name);
    fs::copy(file, &to).map_err(cannot("copy", file))?;
    Ok(format!("/work/{}", name.to_string_lossy()))
}

fn unpack(archive: &Path, folder: &Path) -> Result<(), Failure> {
    step::run(
        Command::new("tar")
            .args(["--extract", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(folder),
    )
}

/// Whether the checksums hold, and the same program is packed into the same bytes.
fn again(folder: &Path, made: &Made) -> Result<String, Failure> {
    let sums = Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", manifest::SUMS])
        .current_dir(&made.folder)
        .status();
    if !sums.is_ok_and(|status| status.success()) {
        return Err(Failure::Failed(format!(
            "`sha256sum --check {}` failed",
            manifest::SUMS
        )));
    }
    let options = Options {
        test: false,
        only: made.files.iter().map(|(artifact, _)| *artifact).collect(),
        folder: folder.to_owned(),
        binary: Some(made.program.clone()),
        profile: made.profile,
    };
    super::make(&options)?;
    let read = |folder: &Path, name: &str| {
        let path = folder.join(name);
        fs::read(&path).map_err(cannot("read", &path))
    };
    for (_, name) in &made.files {
        if read(&made.folder, name)? != read(folder, name)? {
            return Err(Failure::Failed(format!(
                "`{name}` has other bytes when it is packed again"
            )));
        }
    }
    let built = if made.profile == Profile::Dev {
        ", built for tests"
    } else {
        ""
    };
    Ok(format!(
        "{} files with the same bytes{built}",
        made.files.len()
    ))
}
