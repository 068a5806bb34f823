//! Facts for a colleague: this machine, and the variables of pods.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use trainyard_host::store::StoredPod;

use super::redact::Redactor;

/// Most bytes of a file of facts.
const MOST_FACT: u64 = 16 << 10;
/// Most bytes of an environment.
const MOST_ENVIRONMENT: u64 = 1 << 20;
/// Most GPUs that are listed.
const MOST_GPUS: usize = 64;

/// A file, up to `most` bytes.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The rest of the first line of a file that begins with `start`.
fn fact(path: &str, start: &str) -> Option<String> {
    let bytes = read(Path::new(path), MOST_FACT).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().find_map(|line| line.strip_prefix(start))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// What this machine is.
pub(super) fn machine() -> String {
    let unknown = || "unknown".to_owned();
    let mut text = String::new();
    let mut line = |name: &str, value: Option<String>| {
        let value = value.unwrap_or_else(unknown);
        writeln!(text, "{name}: {value}").expect("a string takes whatever is written");
    };
    line("trainyard", Some(env!("CARGO_PKG_VERSION").to_owned()));
    line("kernel", fact("/proc/version", ""));
    line("system", fact("/etc/os-release", "PRETTY_NAME="));
    line("architecture", Some(std::env::consts::ARCH.to_owned()));
    let cpus = std::thread::available_parallelism().ok();
    line("CPUs", cpus.map(|cpus| cpus.to_string()));
    line("memory", fact("/proc/meminfo", "MemTotal:"));
    line(
        "Yama ptrace_scope",
        fact("/proc/sys/kernel/yama/ptrace_scope", ""),
    );
    let driver = fact("/proc/driver/nvidia/version", "NVRM version:");
    line("NVIDIA driver", driver.or_else(|| Some("none".to_owned())));
    let gpus = gpus(Path::new("/proc/driver/nvidia/gpus"));
    line("GPUs", Some(gpus.len().to_string()));
    for gpu in gpus {
        writeln!(text, "  {gpu}").expect("a string takes whatever is written");
    }
    text
}

/// Bus address and model of each GPU that the driver lists.
fn gpus(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut gpus: Vec<String> = entries
        .take(MOST_GPUS)
        .map(|entry| {
            let bus = entry.file_name().to_string_lossy().into_owned();
            let information = read(&entry.path().join("information"), MOST_FACT);
            let information = information.unwrap_or_default();
            let text = String::from_utf8_lossy(&information);
            let model = text.lines().find_map(|line| line.strip_prefix("Model:"));
            format!("{bus} {}", model.unwrap_or("unknown model").trim())
        })
        .collect();
    gpus.sort_unstable();
    gpus
}

/// The variables of the containers of one pod that runs: the first process of each.
pub(super) fn variables(pod: &StoredPod) -> Vec<(u32, io::Result<BTreeMap<String, String>>)> {
    let processes = pod.processes().into_iter();
    processes.map(|pid| (pid, variables_of(pid))).collect()
}

fn variables_of(pid: u32) -> io::Result<BTreeMap<String, String>> {
    let path = format!("/proc/{pid}/environ");
    Ok(parse(&read(Path::new(&path), MOST_ENVIRONMENT)?))
}

fn parse(environment: &[u8]) -> BTreeMap<String, String> {
    let variables = environment.split(|byte| *byte == 0);
    let variables = variables.filter_map(|variable| {
        let text = String::from_utf8_lossy(variable).into_owned();
        let (name, value) = text.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    variables.collect()
}

/// Names of variables, with the values that may be shown.
pub(super) fn listed<'a>(
    variables: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    redactor: &mut Redactor,
) -> String {
    let mut text = String::new();
    for (name, value) in variables {
        let shown = value.and_then(|value| redactor.value(name, value));
        match shown {
            Some(value) => writeln!(text, "  {name}={}", value.escape_debug()),
            None => writeln!(text, "  {}", name.escape_debug()),
        }
        .expect("a string takes whatever is written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_of_harmless_names_only() {
        let environment = parse(b"NCCL_DEBUG=INFO\0HOME=/home/ada\0HF_TOKEN=hunter2\0odd\0A=b=c\0");
        let pairs = environment
            .iter()
            .map(|(name, value)| (name.as_str(), Some(value.as_str())));
        let text = listed(pairs, &mut Redactor::new());
        assert_eq!(text, "  A\n  HF_TOKEN\n  HOME\n  NCCL_DEBUG=INFO\n");
    }

    #[test]
    fn gpus_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(gpus(folder.path()), [""; 0]);
        for (bus, text) in [
            ("0000:43:00.0", "Model: \t NVIDIA H200\nIRQ: 1\n"),
            ("0000:07:00.0", ""),
        ] {
            fs::create_dir(folder.path().join(bus)).unwrap();
            fs::write(folder.path().join(bus).join("information"), text).unwrap();
        }
        assert_eq!(
            gpus(folder.path()),
            ["0000:07:00.0 unknown model", "0000:43:00.0 NVIDIA H200"]
        );
        assert!(machine().starts_with("trainyard: "));
    }
}
