//! The stacks of a job of a cluster: every supervisor reads its own ranks.
//!
//! What a pod answers is that of the user's own containers: it is bounded, and believed about the ranks of that pod alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use trainyard_core::launch::supervise::{WORDS, job_obstacle};
use trainyard_host::stacks::{MissingRank, RankStacks, RunStacks};
use trainyard_kube::look::PodSeen;

use super::print;
use crate::{
    args::Stacks,
    cluster::{RankPods, Site, connect},
    failure::{Exit, Failure},
    printer::Printer,
    words,
};

/// Pods that are asked at once.
const AT_ONCE: usize = 16;
/// How long a pod may take to answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MOST_BYTES: u64 = 64 << 20;

/// Prints the stacks.
pub(super) fn run(args: &Stacks, printer: &mut Printer) -> Result<Exit, Failure> {
    let site = connect(&args.place)?;
    let job = site.find(&args.job)?;
    let pods = RankPods::find(&site, &job)?;
    let stacks = read(&site, &pods, &args.rank, args.native)?;
    print(args, &job.key.name, None, &stacks, printer)
}

/// Asks the supervisors of `only` these ranks, or of all.
pub(in crate::command) fn read(
    site: &Site<'_>,
    pods: &RankPods,
    only: &[u32],
    native: bool,
) -> Result<RunStacks, Failure> {
    let count = pods.count();
    let wanted: BTreeSet<u32> = match only {
        [] => (0..count).collect(),
        only => only.iter().copied().collect(),
    };
    if let Some(unknown) = wanted.iter().find(|rank| **rank >= count) {
        let count = words::counted(count.into(), "rank");
        return Err(
            Failure::new(format!("job `{}` has no rank {unknown}", pods.job.name))
                .hint(format!("it has {count}, counted from 0")),
        );
    }
    let mut missing = Vec::new();
    let mut asked: BTreeMap<&str, (&PodSeen, Vec<u32>)> = BTreeMap::new();
    for rank in wanted {
        match pods.running(rank) {
            Ok(pod) if pod.supervised => {
                let known = asked.entry(&pod.facts.name);
                known.or_insert((pod, Vec::new())).1.push(rank);
            }
            Ok(pod) => missing.push(MissingRank {
                rank,
                reason: format!("pod `{}` has no supervisor", pod.facts.name),
            }),
            Err(failure) => missing.push(MissingRank {
                rank,
                reason: failure.line(),
            }),
        }
    }
    if asked.is_empty() && pods.pods.iter().all(|pod| !pod.supervised) {
        return Err(unsupervised(pods));
    }
    let seen: Vec<&PodSeen> = asked.values().map(|(pod, _)| *pod).collect();
    let command = |pod: &PodSeen| {
        let name = pod.facts.name.as_str();
        // A supervisor reads no more than was asked for.
        let of_pod = asked.get(name).filter(|_| !only.is_empty());
        words_for(name, of_pod.map_or(&[], |(_, ranks)| ranks), native)
    };
    let answers = site.ask(&seen, command, (AT_ONCE, WITHIN, MOST_BYTES))?;
    let mut merged = RunStacks {
        // As the operator labelled the pods: what they answer is said of their ranks alone.
        attempt: pods.attempt(),
        rank_count: count,
        missing,
        ..RunStacks::default()
    };
    for ((pod, ranks), answer) in asked.into_values().zip(answers) {
        merge(&mut merged, &pod.facts.name, &ranks, answer);
    }
    merged.ranks.sort_by_key(|seen| seen.rank);
    merged.missing.sort_by_key(|missing| missing.rank);
    Ok(merged)
}

/// The command that asks the supervisor in pod `name` for `ranks`, or for all of its ranks where there are none.
fn words_for(name: &str, ranks: &[u32], native: bool) -> Vec<String> {
    let mut words: Vec<String> = WORDS.map(str::to_owned).to_vec();
    words.extend(["--stacks".to_owned(), name.to_owned()]);
    words.extend(native.then(|| "--native".to_owned()));
    for rank in ranks {
        words.extend(["--rank".to_owned(), rank.to_string()]);
    }
    words
}

/// Adds what a pod answered about its own ranks.
fn merge(merged: &mut RunStacks, pod: &str, ranks: &[u32], answer: Result<Vec<u8>, String>) {
    let answer = answer.and_then(|bytes| {
        serde_json::from_slice::<RunStacks>(&bytes)
            .map_err(|error| format!("its answer cannot be read: {error}"))
    });
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(why) => {
            let reason = format!("pod `{pod}`: {why}");
            let all = ranks.iter().map(|rank| MissingRank {
                rank: *rank,
                reason: reason.clone(),
            });
            return merged.missing.extend(all);
        }
    };
    for rank in ranks {
        let own = |seen: &RankStacks| seen.rank == *rank;
        if let Some(at) = answer.ranks.iter().position(own) {
            let mut seen = answer.ranks.swap_remove(at);
            pod.clone_into(&mut seen.pod);
            merged.ranks.push(seen);
        } else {
            let said = answer.missing.iter().find(|missing| missing.rank == *rank);
            let reason = said.map_or_else(
                || format!("pod `{pod}` said nothing about it"),
                |missing| missing.reason.clone(),
            );
            merged.missing.push(MissingRank {
                rank: *rank,
                reason,
            });
        }
    }
}

/// Why no pod of the job can be asked, and what to set.
fn unsupervised(pods: &RankPods) -> Failure {
    let name = &pods.job.name;
    let why = job_obstacle(&pods.job).unwrap_or_else(|| {
        "the operator ran without `--gang-bind` and `--agent-image` (chart: `gangs.enabled`) when they were created".to_owned()
    });
    Failure::new(format!(
        "the pods of job `{name}` have no supervisor, which reads stacks: {why}"
    ))
    .hint("change that, then `trainyard restart` gives the job new pods; see docs/guides/restart-in-place.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ranks: &[u32], missing: &[u32]) -> Vec<u8> {
        let stacks = RunStacks {
            attempt: 2,
            rank_count: 99,
            ranks: ranks
                .iter()
                .map(|rank| RankStacks {
                    rank: *rank,
                    pod: "forged".to_owned(),
                    ..RankStacks::default()
                })
                .collect(),
            missing: missing
                .iter()
                .map(|rank| MissingRank {
                    rank: *rank,
                    reason: "gone".to_owned(),
                })
                .collect(),
        };
        serde_json::to_vec(&stacks).unwrap()
    }

    #[test]
    fn supervisors_are_asked_for_some_ranks() {
        let cases: [(&[u32], bool, &str); 3] = [
            (&[], false, "--stacks p"),
            (&[], true, "--stacks p --native"),
            (&[2, 3], false, "--stacks p --rank 2 --rank 3"),
        ];
        for (ranks, native, want) in cases {
            let words = words_for("p", ranks, native);
            assert_eq!(words[WORDS.len()..].join(" "), want);
        }
    }

    /// Rank and pod of what was read, rank and reason of what is missing.
    type Merged = (Vec<(u32, String)>, Vec<(u32, String)>);
    /// Its name, what a pod answers, the ranks that are read then, and those that are missing with the reason.
    type Case = (
        &'static str,
        Result<Vec<u8>, String>,
        &'static [u32],
        &'static [(u32, &'static str)],
    );

    #[test]
    fn pods_are_believed_about_their_own_ranks() {
        let cases: [Case; 6] = [
            ("own ranks", Ok(answer(&[2, 3], &[])), &[2, 3], &[]),
            (
                "another one's",
                Ok(answer(&[0, 2], &[])),
                &[2],
                &[(3, "pod `p` said nothing about it")],
            ),
            (
                "one is missing",
                Ok(answer(&[3, 3], &[2, 7])),
                &[3],
                &[(2, "gone")],
            ),
            (
                "refused",
                Err("no such pod".to_owned()),
                &[],
                &[(2, "pod `p`: no such pod"), (3, "pod `p`: no such pod")],
            ),
            (
                "nothing",
                Ok(answer(&[], &[])),
                &[],
                &[
                    (2, "pod `p` said nothing about it"),
                    (3, "pod `p` said nothing about it"),
                ],
            ),
            (
                "no JSON",
                Ok(b"?".to_vec()),
                &[],
                &[
                    (
                        2,
                        "pod `p`: its answer cannot be read: expected value at line 1 column 1",
                    ),
                    (
                        3,
                        "pod `p`: its answer cannot be read: expected value at line 1 column 1",
                    ),
                ],
            ),
        ];
        for (name, answer, read, missing) in cases {
            let mut merged = RunStacks {
                attempt: 7,
                ..RunStacks::default()
            };
            merge(&mut merged, "p", &[2, 3], answer);
            let attempt = merged.attempt;
            let found: Merged = (
                merged
                    .ranks
                    .into_iter()
                    .map(|it| (it.rank, it.pod))
                    .collect(),
                merged
                    .missing
                    .into_iter()
                    .map(|it| (it.rank, it.reason))
                    .collect(),
            );
            assert_eq!(attempt, 7, "{name}: pods do not say which attempt runs");
            let want: Merged = (
                read.iter().map(|rank| (*rank, "p".to_owned())).collect(),
                missing
                    .iter()
                    .map(|(rank, why)| (*rank, (*why).to_owned()))
                    .collect(),
            );
            assert_eq!(found, want, "{name}");
        }
    }
}
