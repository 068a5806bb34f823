//! The operator under a limit on its memory.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The operator, started; it ends with this value.
pub(crate) struct Confined {
    child: Child,
    group: Option<PathBuf>,
    peak: u64,
}

impl Confined {
    /// Starts `words` with at most `bytes` of memory: by a control group where one can be made, else by a limit on the data of
    /// the process. A limit on addresses would end a Go program that reserves many and uses few.
    pub(crate) fn start(words: &[String], bytes: u64) -> Self {
        let group = group(bytes);
        let mut command = Command::new("sh");
        if let Some(group) = &group {
            let enter = r#"echo $$ > "$1"/cgroup.procs && shift && exec "$@""#;
            command.args(["-c", enter, "sh"]).arg(group);
        } else {
            let limit = format!(r#"ulimit -d {} && exec "$@""#, bytes >> 10);
            command.args(["-c", &limit, "sh"]);
        }
        let log = fs::File::create(std::env::temp_dir().join("attack-operator.log")).unwrap();
        let child = command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            child,
            group,
            peak: 0,
        }
    }

    /// By what its memory is limited.
    pub(crate) fn limit(&self) -> &'static str {
        match self.group {
            Some(_) => "control group",
            None => "ulimit -d",
        }
    }

    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The most memory it has had, as far as was seen.
    pub(crate) fn peak(&mut self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let kilobytes = status.ok().and_then(|status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        });
        self.peak = self.peak.max(kilobytes.unwrap_or(0) << 10);
        self.peak
    }

    /// Looks at its memory until `end`, or until it is gone.
    pub(crate) async fn watch(&mut self, end: Instant) {
        while Instant::now() < end && self.lives() {
            self.peak();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if let Some(group) = &self.group {
            drop(fs::remove_dir(group));
        }
    }
}

/// A control group with the limit, in either form of them.
fn group(bytes: u64) -> Option<PathBuf> {
    let name = format!("trainyard-attack-{}", std::process::id());
    let root = PathBuf::from("/sys/fs/cgroup");
    let (above, files) = if root.join("cgroup.controllers").exists() {
        drop(fs::write(root.join("cgroup.subtree_control"), "+memory"));
        (root, ["memory.max", "memory.swap.max"])
    } else {
        let files = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
        (root.join("memory"), files)
    };
    let group = above.join(name);
    fs::create_dir(&group).ok()?;
    let [memory, swap] = files;
    let set = fs::write(group.join(memory), bytes.to_string());
    // Not every kernel counts swap.
    let most = if swap == "memory.swap.max" { 0 } else { bytes };
    drop(fs::write(group.join(swap), most.to_string()));
    if set.is_err() {
        drop(fs::remove_dir(&group));
        return None;
    }
    Some(group)
}
