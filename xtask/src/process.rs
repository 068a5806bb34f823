//! Processes of this machine, as `/proc` shows them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

/// The kernel counts starts in hundredths of a second on every platform that we build for.
const TICKS: u64 = 100;

/// A process, with what was read of it at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) arguments: Vec<String>,
}

impl Process {
    /// Every process that is not dead already.
    pub(crate) fn all() -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(Self::read)
            .collect()
    }

    /// This process.
    pub(crate) fn own() -> Option<Self> {
        Self::read(std::process::id())
    }

    /// Whether it acts with the rights of root.
    pub(crate) fn is_root(&self) -> bool {
        self.field("Uid:")
            .is_some_and(|text| text.split_whitespace().nth(1) == Some("0"))
    }

    /// One whose memory is gone has no arguments: it is dead, or a thread of the kernel.
    fn read(pid: u32) -> Option<Self> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        if line.is_empty() {
            return None;
        }
        let arguments = line
            .split(|byte| *byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        Some(Self { pid, arguments })
    }

    /// The file name of its program.
    pub(crate) fn program_name(&self) -> &str {
        let program = self.arguments.first().map_or("", String::as_str);
        Path::new(program)
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or(program)
    }

    /// Whether `variable`, a name and a value, was in its environment when its program began.
    pub(crate) fn has_variable(&self, variable: &str) -> bool {
        fs::read(format!("/proc/{}/environ", self.pid)).is_ok_and(|environment| {
            environment
                .split(|byte| *byte == 0)
                .any(|one| one == variable.as_bytes())
        })
    }

    /// Its identifiers, from the caller's namespace to its own.
    fn identifiers(&self) -> Vec<u32> {
        self.field("NSpid:")
            .map(|text| {
                text.split_whitespace()
                    .filter_map(|word| word.parse().ok())
                    .collect()
            })
            .unwrap_or_default()
    }

    /// Its identifier in its own namespace.
    pub(crate) fn inner_pid(&self) -> Option<u32> {
        self.identifiers().last().copied()
    }

    /// Whether it is process 1 of a namespace that is not the caller's.
    pub(crate) fn is_first_of_namespace(&self) -> bool {
        let identifiers = self.identifiers();
        identifiers.len() > 1 && identifiers.last() == Some(&1)
    }

    /// What names its namespace of processes.
    pub(crate) fn namespace(&self) -> Option<PathBuf> {
        self.namespace_of("pid")
    }

    /// What names its namespace of `kind`, such as `net`.
    pub(crate) fn namespace_of(&self, kind: &str) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).ok()
    }

    /// The process that started it, or that it was left to.
    pub(crate) fn parent(&self) -> Option<u32> {
        self.field("PPid:")?.parse().ok()
    }

    /// The memory that it holds.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.field("VmRSS:")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .map_or(0, |kibibytes| kibibytes * 1024)
    }

    /// When it started, in ticks since the machine did: together with its pid, this identifies it.
    pub(crate) fn started(&self) -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        // The name in parentheses may hold anything; the start is the 20th field after it.
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .parse()
            .ok()
    }

    /// How long it has run.
    pub(crate) fn age(&self) -> Option<Duration> {
        let uptime = fs::read_to_string("/proc/uptime").ok()?;
        let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
        let started = Duration::from_millis(self.started()? * 1000 / TICKS);
        Some(Duration::from_secs_f64(uptime).saturating_sub(started))
    }

    /// Sends a signal; a process that is gone already needs none.
    pub(crate) fn kill(&self, signal: &str) {
        drop(
            // Every shell has it; the program of that name is missing on small systems.
            Command::new("sh")
                .args(["-c", &format!("kill -s {signal} {}", self.pid)])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status(),
        );
    }

    fn field(&self, name: &str) -> Option<String> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(|rest| rest.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_and_described() {
        let own = std::process::id();
        let found = Process::all().into_iter().find(|one| one.pid == own);
        let found = found.expect("the test runs");
        assert_eq!(found.inner_pid(), Some(own));
        assert_eq!(found.parent(), Some(std::os::unix::process::parent_id()));
        assert!(!found.is_first_of_namespace());
        assert!(found.resident_bytes() > 0);
        assert!(found.age().is_some_and(|age| age < Duration::from_hours(1)));
        assert!(found.program_name().starts_with("xtask"));
    }
}
