//! The processes of a live run, with their PIDs on this machine.

use serde::Serialize;

use crate::{run::names, stored::Stored, words};

/// Pods whose processes are listed for people.
const LISTED: usize = 16;

/// The processes of one pod. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Processes {
    pod: String,
    /// Its first rank, where it holds any.
    rank: Option<u32>,
    attempt: u32,
    /// The processes of its containers.
    pids: Vec<u32>,
    /// The process above them.
    init_pid: u32,
    #[serde(skip)]
    name: String,
}

/// The processes of every pod; none of a run that is over.
pub(crate) fn of(run: &Stored) -> Vec<Processes> {
    if !run.live {
        return Vec::new();
    }
    // A run of an older version has no such file.
    let pods = run.folder.pods().unwrap_or_default();
    let pods = pods.into_iter().map(|pod| Processes {
        rank: run
            .record
            .ranks
            .of_pod(&run.record.replicas, pod.slot)
            .map(|held| *held.start()),
        attempt: pod.attempt,
        pids: pod.processes(),
        init_pid: pod.pid,
        name: names::short(pod.slot),
        pod: pod.pod,
    });
    pods.collect()
}

/// The same for people, one line for each pod.
pub(crate) fn lines(run: &Stored) -> Vec<String> {
    let pods = of(run);
    let mut lines: Vec<String> = pods
        .iter()
        .take(LISTED)
        .map(|pod| {
            let numbers: Vec<String> = pod.pids.iter().map(u32::to_string).collect();
            let rank = pod.rank.map(|rank| format!(" (rank {rank})"));
            format!(
                "{}{}  {}",
                pod.name,
                rank.unwrap_or_default(),
                numbers.join(", ")
            )
        })
        .collect();
    if let Some(more) = pods.len().checked_sub(LISTED).filter(|more| *more > 0) {
        let more = words::counted(more as u64, "more pod");
        lines.push(format!("and {more}; `--format json` lists them all"));
    }
    lines
}
