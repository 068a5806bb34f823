//! Runs the pods of one preflight, from the first one created to the last one deleted.
//!
//! # Flow
//! The runner deletes leftovers of earlier ones. It creates the leader; once that runs, the others, with its address. When the leader
//! has ended, its log holds the report. Then the runner deletes all pods.
//!
//! # Guarantees
//! - It ends within [`LIMIT`], and whatever it says is a sentence.
//! - It believes, follows and deletes only pods that it created, or that are owned and named as those: by their identity,
//!   never by name or label alone. A report speaks about the nodes of its pods and is bounded in size.
//! - A node whose pod does not start is a failed check of that node; a pod that gets no node says nothing about any.
//! - A leader that does not start, or that no other pod reaches although others run, is replaced once.

mod error;
mod member;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use kube::core::{
    params::{DeleteParams, Preconditions},
    subresource::LogParams,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::watch;
use trainyard_core::{
    fleet::{self, LeaderEnd},
    launch::preflight::{self, CONTAINER, Labelled, MARKER, PreflightPod},
    probe::{self, Outcome, Rejected, Report},
};

pub(crate) use self::error::PreflightError;
use self::member::{Seen, Stage, short};
use crate::{
    api::{Answer, CallError, Caller},
    feed::{self, Source},
    path::object_path,
    view::{Bare, Meta},
};

/// All of it takes at most this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(280);
/// A pod that has its node and no network or volume after this long will not get them.
pub(crate) const SETS_UP: Duration = Duration::from_mins(1);
/// Pods that are being deleted are waited for this long; their grace period is 1 s.
const LEAVES: Duration = Duration::from_secs(30);
/// Calls under way at once.
const AT_ONCE: usize = 16;
/// Bytes of the leader's log beside the report: errors are logged there.
const BESIDE_REPORT: usize = 16 << 10;
/// The check that a pod connected to the leader.
const JOINED: &str = "joined";

/// Runs the pods of one preflight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) namespace: &'a str,
    /// Whose preflight it is.
    pub(crate) of: &'a str,
    /// The identity of the job that owns its pods; empty where none does.
    pub(crate) owner: &'a str,
    /// Bytes that the report may have.
    pub(crate) report_bytes: usize,
    /// How long pods may take until they have what they need of their node.
    pub(crate) sets_up_within: Duration,
}

/// The result of one preflight.
#[derive(Clone, Debug, Default)]
pub struct PreflightFound {
    /// What was found.
    pub report: Report,
    /// The nodes that were not checked because no pod was started there, and why.
    pub unseen: BTreeMap<String, String>,
}

impl PreflightFound {
    /// The report, if it covers every node.
    pub(crate) fn measured(self) -> Result<Report, PreflightError> {
        match self.unseen.into_iter().next() {
            Some((node, why)) => Err(PreflightError::NotStarted { node, why }),
            None => Ok(self.report),
        }
    }
}

/// The secret that the pods of one preflight share.
pub(crate) fn token() -> Result<String, PreflightError> {
    let mut bytes = [0_u8; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| PreflightError::NoRandomNumbers)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

type Watched = watch::Receiver<Seen>;

impl Runner<'_> {
    /// Runs a preflight of `pods`; `say` gets its progress. The error is why there is no result.
    pub(crate) async fn run(
        &self,
        pods: Vec<PreflightPod>,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, PreflightError> {
        let (sender, seen) = watch::channel(Seen::default());
        let source = Source {
            path: object_path(self.namespace, "pods"),
            labels: Some(self.selector()),
            fields: None,
        };
        let (namespace, owner) = (self.namespace.to_owned(), self.owner.to_owned());
        let watching = feed::list_and_watch(self.caller.client.clone(), source, move |news| {
            sender.send_modify(|seen| seen.update(news, |meta| is_ours(meta, &namespace, &owner)));
        });
        let found = tokio::time::timeout(LIMIT, self.conduct(pods, seen, say));
        tokio::select! {
            // It watches until it is dropped.
            () = watching => Err(PreflightError::WatchEnded),
            found = found => found.unwrap_or(Err(PreflightError::Late)),
        }
    }

    /// Removes every pod of it.
    pub(crate) async fn remove(&self) -> Result<(), PreflightError> {
        let source = Source {
            path: object_path(self.namespace, "pods"),
            labels: Some(self.selector()),
            fields: None,
        };
        let (pods, _) = feed::list::<Bare>(&self.caller.client, &source)
            .await
            .map_err(|error| PreflightError::List(Answer(error)))?;
        let ours = pods.iter().map(|pod| &pod.metadata);
        let ours = ours.filter(|meta| is_ours(meta, self.namespace, self.owner));
        self.delete(ours).await
    }

    fn selector(&self) -> String {
        format!("{}={}", preflight::OF, self.of)
    }

    async fn conduct(
        &self,
        mut pods: Vec<PreflightPod>,
        mut seen: Watched,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, PreflightError> {
        until(&mut seen, LEAVES, |seen| seen.listed).await;
        let nodes: Vec<String> = pods.iter().map(|one| one.node.clone()).collect();
        let mut led = Vec::new();
        let mut found = Err(PreflightError::NoNodes);
        while let Some(leader) = fleet::next_leader(&nodes, &led) {
            match &found {
                _ if led.is_empty() => {}
                Ok(_) => say("no pod reached the leader; retrying with another leader".to_owned()),
                Err(error) => say(format!("{error}; retrying with another leader")),
            }
            let first = pods.iter().position(|one| one.node == leader);
            pods.rotate_left(first.unwrap_or_default());
            self.clear(&mut seen).await?;
            found = self.attempt(&pods, &mut seen, say).await;
            led.push((leader.to_owned(), leader_end(&found, &pods)));
        }
        // With the result the nodes are free.
        self.clear(&mut seen).await?;
        found
    }

    /// Deletes every pod of it that is seen, also one that comes meanwhile, and waits until none is left.
    async fn clear(&self, seen: &mut Watched) -> Result<(), PreflightError> {
        let mut deleted = BTreeSet::new();
        let all = async {
            loop {
                let is_new = |seen: &Seen, deleted: &BTreeSet<String>| {
                    let mut known = seen.members.keys();
                    known.any(|uid| !deleted.contains(uid))
                };
                let members = seen.borrow_and_update().members.clone();
                let fresh = members.iter().filter(|(uid, _)| !deleted.contains(*uid));
                self.delete(fresh.map(|(_, one)| &one.metadata)).await?;
                deleted.extend(members.into_keys());
                let met = |seen: &Seen| seen.members.is_empty() || is_new(seen, &deleted);
                match seen.wait_for(|seen| met(seen)).await {
                    Ok(seen) if seen.members.is_empty() => return Ok(()),
                    Ok(_) => {}
                    Err(_) => return Err(PreflightError::WatchEnded),
                }
            }
        };
        if let Ok(done) = tokio::time::timeout(LEAVES, all).await {
            return done;
        }
        let seen = seen.borrow();
        let left = seen.members.values().next();
        let left = left.map_or("", |one| &one.metadata.name);
        Err(PreflightError::Terminating(left.to_owned()))
    }

    /// Deletes these pods and no others of their names.
    async fn delete<'b>(&self, pods: impl Iterator<Item = &'b Meta>) -> Result<(), PreflightError> {
        let path = object_path(self.namespace, "pods");
        let pods = pods.map(|meta| {
            let params = DeleteParams {
                grace_period_seconds: Some(1),
                preconditions: Some(Preconditions {
                    uid: Some(meta.uid.clone()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            (meta.name.as_str(), params)
        });
        let pods: Vec<_> = pods.collect();
        let calls: Vec<_> = pods
            .iter()
            .map(|(name, params)| self.caller.delete(&path, name, params))
            .collect();
        let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
        while let Some(done) = calls.next().await {
            done.map_err(PreflightError::Delete)?;
        }
        Ok(())
    }

    /// One try with the first of `pods` as the leader.
    async fn attempt(
        &self,
        pods: &[PreflightPod],
        seen: &mut Watched,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, PreflightError> {
        let Some((first, others)) = pods.split_first() else {
            return Err(PreflightError::NoNodes);
        };
        let mut leader = first.pod.clone();
        preflight::make_leader(&mut leader, pods);
        let name = name_of(first);
        say(format!(
            "`{name}` starts on node `{}`, to lead {} pods",
            first.node,
            pods.len()
        ));
        let uid = &self.create(&leader).await?;
        let set_up = |seen: &Seen| {
            let stage = seen.stage(uid);
            !matches!(stage, None | Some(Stage::Unplaced(_) | Stage::SetsUp(_)))
        };
        until(seen, self.sets_up_within, set_up).await;
        let starts = |seen: &Seen| !matches!(seen.stage(uid), Some(Stage::Pulls));
        until(seen, LIMIT, starts).await;
        let stage = seen.borrow().stage(uid);
        let address = match stage {
            Some(Stage::Runs(address)) => address,
            Some(Stage::Done) => String::new(),
            stage if others.is_empty() => return alone(&first.node, stage),
            stage => {
                return Err(PreflightError::LeaderNotStarted {
                    node: first.node.clone(),
                    state: words_of(stage),
                });
            }
        };
        say(format!("{} pods join `{name}`", others.len()));
        let joined = others.iter().map(|one| {
            let mut pod = one.pod.clone();
            preflight::join(&mut pod, &address);
            (one.node.clone(), pod)
        });
        let joined: Vec<_> = joined.collect();
        let calls: Vec<_> = joined
            .iter()
            .map(|(node, pod)| async move { Ok((node.clone(), self.create(pod).await?)) })
            .collect();
        let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
        let mut made = BTreeMap::new();
        while let Some(one) = calls.next().await {
            let (node, uid) = one?;
            made.insert(node, uid);
        }
        drop(calls);
        let ended = |seen: &Seen| {
            let stage = seen.stage(uid);
            matches!(stage, None | Some(Stage::Done | Stage::Failed(_)))
        };
        until(seen, LIMIT, ended).await;
        let stage = seen.borrow().stage(uid);
        if stage != Some(Stage::Done) {
            return Err(PreflightError::LeaderEnded {
                node: first.node.clone(),
                state: words_of(stage),
            });
        }
        let nodes = pods.iter().map(|one| one.node.clone()).collect();
        let report = self.report(name, uid, &nodes).await?;
        Ok(complete(report, &made, &seen.borrow()))
    }

    /// Creates a pod; its identity.
    async fn create(
        &self,
        pod: &k8s_openapi::api::core::v1::Pod,
    ) -> Result<String, PreflightError> {
        let path = object_path(self.namespace, "pods");
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match self.caller.create::<Bare>(&path, pod).await {
            Ok(made) => Ok(made.metadata.uid),
            // Ours were deleted before this began.
            Err(error) if error.is_taken() => Err(self.reject(Rejected::WrongPod {
                pod: name.to_owned(),
            })),
            Err(source) => Err(PreflightError::Create {
                pod: name.to_owned(),
                source,
            }),
        }
    }

    /// The report in the log of the leader, which is the pod with the identity `uid`, about `nodes`.
    async fn report(
        &self,
        leader: &str,
        uid: &str,
        nodes: &BTreeSet<String>,
    ) -> Result<Report, PreflightError> {
        let path = object_path(self.namespace, "pods");
        let most = self.report_bytes.saturating_add(BESIDE_REPORT);
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            limit_bytes: i64::try_from(most + 1).ok(),
            ..LogParams::default()
        };
        let turn = self.caller.report_turns.next(self.namespace).await;
        let mut read = self.caller.log(&path, leader, &params, most + 1).await;
        if matches!(&read, Err(CallError::Late | CallError::Kube(_))) {
            read = self.caller.log(&path, leader, &params, most + 1).await;
        }
        drop(turn);
        let log = read.map_err(PreflightError::Log)?;
        if log.len() > most {
            let most = self.report_bytes;
            return Err(self.reject(Rejected::TooLarge { most }));
        }
        // Logs are read by name. A name has one pod at a time, so it was this one if it still is.
        if self.holder(leader).await?.as_deref() != Some(uid) {
            let pod = leader.to_owned();
            return Err(self.reject(Rejected::WrongPod { pod }));
        }
        let report = find_report(&log)?.map_err(|rejected| self.reject(rejected))?;
        probe::accept(report, nodes).map_err(|rejected| self.reject(rejected))
    }

    /// The identity of the pod that has this name now.
    async fn holder(&self, name: &str) -> Result<Option<String>, PreflightError> {
        let source = Source {
            path: object_path(self.namespace, "pods"),
            labels: None,
            fields: Some(format!("metadata.name={name}")),
        };
        let listed = feed::list::<Bare>(&self.caller.client, &source).await;
        let (pods, _) = listed.map_err(|error| PreflightError::ListLeader {
            pod: name.to_owned(),
            answer: Answer(error),
        })?;
        Ok(pods.into_iter().next().map(|pod| pod.metadata.uid))
    }

    fn reject(&self, rejected: Rejected) -> PreflightError {
        self.caller.metrics.trust.report_rejected(rejected.label());
        PreflightError::Rejected(rejected)
    }
}

/// Whether a pod with the labels of a preflight is one of those that `owner` has in `namespace`.
fn is_ours(meta: &Meta, namespace: &str, owner: &str) -> bool {
    let label = |key: &str| meta.label(key).unwrap_or_default();
    let labelled = Labelled {
        namespace,
        name: &meta.name,
        of: label(preflight::OF),
        round: label(preflight::ROUND),
        owner: meta.controller(),
        ended: false,
    };
    meta.owner() == owner && preflight::is_left_over(labelled, namespace)
}

/// The report in a log.
fn find_report(log: &[u8]) -> Result<Result<Report, Rejected>, PreflightError> {
    let text = String::from_utf8_lossy(log);
    let line = text.lines().rev().find_map(|line| line.split_once(MARKER));
    let Some((_, report)) = line else {
        let last = text.lines().last().unwrap_or("nothing");
        return Err(PreflightError::NoReport(short(last)));
    };
    let read = serde_json::from_str(report);
    Ok(read.map_err(|error| Rejected::Unreadable(short(&error.to_string()))))
}

/// What is known of the only node of a preflight, whose pod does not start.
fn alone(node: &str, stage: Option<Stage>) -> Result<PreflightFound, PreflightError> {
    let mut found = PreflightFound::default();
    match stage {
        Some(Stage::Unplaced(words)) => {
            found.unseen.insert(node.to_owned(), words);
        }
        Some(Stage::SetsUp(words) | Stage::Failed(words)) => {
            let report = found.report.nodes.entry(node.to_owned()).or_default();
            report.checks.push(probe::pod_not_started(&words));
        }
        stage => return Err(PreflightError::OnlyPod(words_of(stage))),
    }
    Ok(found)
}

/// The report, with what is known of pods that never connected to the leader: of each node, the identity of the pod `made` there.
fn complete(mut report: Report, made: &BTreeMap<String, String>, seen: &Seen) -> PreflightFound {
    let mut unseen = BTreeMap::new();
    for (node, uid) in made {
        match seen.stage(uid) {
            Some(Stage::Unplaced(words)) => {
                unseen.insert(node.clone(), words);
            }
            Some(Stage::Pulls) => {
                unseen.insert(
                    node.clone(),
                    "it is still pulling the image of the job".to_owned(),
                );
            }
            Some(Stage::SetsUp(words)) => {
                let found = report.nodes.entry(node.clone()).or_default();
                found.checks.retain(|check| check.name != JOINED);
                found.checks.insert(0, probe::pod_not_started(&words));
            }
            _ => {}
        }
    }
    PreflightFound { report, unseen }
}

/// How the turn of the first of `pods` as the leader ended.
fn leader_end(found: &Result<PreflightFound, PreflightError>, pods: &[PreflightPod]) -> LeaderEnd {
    match found {
        Ok(found) if nobody_joined(&found.report, pods) => LeaderEnd::NotReached,
        Err(error) if error.is_of_leader() => LeaderEnd::Failed,
        _ => LeaderEnd::Final,
    }
}

/// Whether others ran, and none of them connected to the leader.
fn nobody_joined(report: &Report, pods: &[PreflightPod]) -> bool {
    let others = pods.iter().skip(1);
    let mut others = others.map(|one| report.nodes.get(&one.node));
    others.all(|found| {
        found.is_some_and(|found| {
            let mut checks = found.checks.iter();
            checks.any(|check| check.name == JOINED && check.outcome == Outcome::Fail)
        })
    })
}

fn words_of(stage: Option<Stage>) -> String {
    match stage {
        None => "it was deleted".to_owned(),
        Some(Stage::Unplaced(words) | Stage::SetsUp(words) | Stage::Failed(words)) => words,
        Some(Stage::Pulls) => "it is still pulling the image of the job".to_owned(),
        Some(Stage::Runs(_)) => "it still runs".to_owned(),
        Some(Stage::Done) => "it has ended".to_owned(),
    }
}

fn name_of(one: &PreflightPod) -> &str {
    one.pod.metadata.name.as_deref().unwrap_or_default()
}

/// Waits until `holds`, for at most `limit`; whether it does.
async fn until(seen: &mut Watched, limit: Duration, holds: impl Fn(&Seen) -> bool) -> bool {
    let met = tokio::time::timeout(limit, seen.wait_for(|seen| holds(seen))).await;
    matches!(met, Ok(Ok(_)))
}

#[cfg(test)]
mod tests;
