//! Memory of the leader of a gang of nine, over the loopback device.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{super::release, Figure, MEGABYTES};
use crate::{Failure, report};

/// Peers beside the leader.
const PEERS: usize = 8;
/// A port that nothing else of ours uses.
const PORT: &str = "29477";
/// Twice the limit that the members are given.
const LIMIT: Duration = Duration::from_mins(4);

/// Members of a preflight, ended with whoever started them.
struct Members(Vec<Child>);

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that has ended already is what is wanted.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

pub(super) fn figure() -> Result<Figure, Failure> {
    let binary = release()?;
    report::progress("a preflight of nine members");
    let member = |number: usize| {
        let mut command = Command::new(&binary);
        command
            .args(["preflight", "--serve"])
            .env("TRAINYARD_PREFLIGHT_NODE", format!("node-{number}"))
            .env("TRAINYARD_PREFLIGHT_TOKEN", "of-the-bench")
            .env("TRAINYARD_PREFLIGHT_GANG", (PEERS + 1).to_string())
            .env("TRAINYARD_PREFLIGHT_PORT", PORT)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if number > 0 {
            command.env("TRAINYARD_PREFLIGHT_LEAD", format!("127.0.0.1:{PORT}"));
        }
        command.spawn().map_err(|error| {
            Failure::CouldNotRun(format!("cannot start `{}`: {error}", binary.display()))
        })
    };
    let mut members = Members(Vec::new());
    for number in 0..=PEERS {
        members.0.push(member(number)?);
    }
    let mut highest = 0.0_f64;
    let end = Instant::now() + LIMIT;
    let status = loop {
        let leader = &mut members.0[0];
        highest = highest.max(megabytes(leader.id()).unwrap_or(0.0));
        let ended = leader.try_wait().map_err(|error| {
            Failure::CouldNotRun(format!("lost the leader while it ran: {error}"))
        })?;
        match ended {
            Some(status) => break status,
            None if Instant::now() > end => {
                return Err(Failure::Failed("the leader did not end".to_owned()));
            }
            // The kernel keeps the highest value itself.
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    if !status.success() {
        return Err(Failure::Failed(format!("the leader ended with {status}")));
    }
    Ok(Figure {
        name: format!("memory of a leader with {PEERS} peers, at its highest"),
        measured: format!("{highest:.1} MB"),
        bound: format!("under {MEGABYTES:.0} MB"),
        met: highest > 0.0 && highest < MEGABYTES,
    })
}

fn megabytes(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}
