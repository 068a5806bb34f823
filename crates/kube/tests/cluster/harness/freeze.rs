//! Programs of the cluster that stand still for a while.

use std::process::Command;

/// A program of the cluster that is frozen while this value lives.
pub(crate) struct Frozen(String);

impl Frozen {
    pub(crate) fn new(piece: &str) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "where the cluster keeps its state"
        )]
        let state = std::env::var("TRAINYARD_CLUSTER").unwrap();
        let pid = std::fs::read_to_string(format!("{state}/pids/{piece}")).unwrap();
        let pid = pid.split_whitespace().next().unwrap().to_owned();
        signal("STOP", &pid);
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

fn signal(name: &str, pid: &str) {
    let status = Command::new("kill")
        .args(["-s", name, pid])
        .status()
        .unwrap();
    assert!(status.success(), "kill -s {name} {pid}: {status}");
}
