//! The pods of one preflight, from the first that is made to the last that is gone.
//!
//! # Flow
//! What is left of earlier ones goes. The lead is made; once it runs, the others, which are told where it is. When the lead
//! has ended, its log holds the report. Then all pods go.
//!
//! # Guarantees
//! - It ends within [`LIMIT`], and whatever it says is a sentence.
//! - A node whose pod does not start is a failed check of that node; a pod that no node is given tells nothing of any.
//! - Of a lead that does not start, or that nobody reaches although others run, another takes the place, once.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, stream};
use kube::core::{params::DeleteParams, subresource::LogParams};
use serde::Deserialize;
use tokio::sync::watch;
use trainyard_core::{
    explain,
    launch::preflight::{self, CONTAINER, MARKER, PreflightPod},
    probe::{Check, Layer, Outcome, Owner, Report},
};

use crate::{
    act::object_path,
    api::{CallError, Caller},
    feed::{self, News, Source},
    view::{Bare, ConditionView, ContainerView, Meta, View},
};

/// All of it takes at most this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(280);
/// A pod that has its node and no network or volume after this long will not get them.
pub(crate) const SETS_UP: Duration = Duration::from_mins(1);
/// Pods that are being deleted are waited for this long; they are told to end at once.
const LEAVES: Duration = Duration::from_secs(30);
/// Calls under way at once.
const AT_ONCE: usize = 16;
/// Bytes of the lead's log that are read: the checks of a thousand nodes.
const BYTES: usize = 16 << 20;
/// Words of others that are passed on.
const WORDS: usize = 300;
/// The check of a node that its pod does.
const STARTED: &str = "pod-starts";
/// The check that a pod came to the lead.
const JOINED: &str = "joined";

/// Runs the pods of one preflight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) namespace: &'a str,
    /// Whose preflight it is.
    pub(crate) of: &'a str,
    /// How long pods may take until they have what they need of their node.
    pub(crate) sets_up_within: Duration,
}

/// What came of one.
#[derive(Clone, Debug, Default)]
pub struct PreflightFound {
    /// What was found.
    pub report: Report,
    /// The nodes that were not looked at because no pod got there, and why.
    pub unseen: BTreeMap<String, String>,
}

impl PreflightFound {
    /// The report, where it tells of every node.
    pub(crate) fn measured(self) -> Result<Report, String> {
        match self.unseen.into_iter().next() {
            Some((node, why)) => Err(format!("no pod got to node `{node}`: {why}")),
            None => Ok(self.report),
        }
    }
}

/// A pod of a preflight.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    metadata: Meta,
    spec: MemberSpec,
    status: MemberStatus,
}

impl View for Member {
    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberSpec {
    node_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MemberStatus {
    phase: String,
    reason: String,
    message: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    conditions: Vec<ConditionView>,
    init_container_statuses: Vec<ContainerView>,
    container_statuses: Vec<ContainerView>,
}

/// How far a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// It has no node; the scheduler's words.
    Unplaced(String),
    /// It has a node and waits for volumes, network or our image; in whose words.
    SetsUp(String),
    /// It waits for the image of the job.
    Pulls,
    /// It runs, at this address.
    Runs(String),
    /// It has ended well.
    Done,
    /// It has ended badly.
    Failed(String),
}

impl Member {
    fn stage(&self) -> Stage {
        let status = &self.status;
        match status.phase.as_str() {
            "Succeeded" => return Stage::Done,
            "Failed" => return Stage::Failed(self.why_failed()),
            "Running" if !status.pod_ip.is_empty() => return Stage::Runs(status.pod_ip.clone()),
            _ => {}
        }
        if self.spec.node_name.is_empty() {
            let mut conditions = status.conditions.iter();
            let refused = conditions.find(|condition| condition.kind == "PodScheduled");
            let words = refused.map_or("the scheduler has not looked at it", |refused| {
                &refused.message
            });
            return Stage::Unplaced(short(words));
        }
        let mut before = status.init_container_statuses.iter();
        let laid_down = before.all(|container| container.state.terminated.is_some())
            && !status.init_container_statuses.is_empty();
        let mut all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let waits = all.find_map(|container| container.state.waiting.as_ref());
        match waits {
            Some(waiting) if laid_down && !explain::will_not_start(&waiting.reason) => Stage::Pulls,
            Some(waiting) => {
                let words = format!("{} {}", waiting.reason, waiting.message);
                Stage::SetsUp(short(words.trim()))
            }
            None => Stage::SetsUp("its node has not begun".to_owned()),
        }
    }

    fn why_failed(&self) -> String {
        let status = &self.status;
        let mut all = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let ended = all.find_map(|container| {
            let ended = container.state.terminated.as_ref()?;
            (ended.exit_code != 0).then(|| {
                format!(
                    "`{}` ended with exit code {}",
                    container.name, ended.exit_code
                )
            })
        });
        let words = format!("{} {}", status.reason, status.message);
        match (ended, words.trim()) {
            (Some(ended), "") => ended,
            (Some(ended), words) => short(&format!("{ended}: {words}")),
            (None, "") => "it failed".to_owned(),
            (None, words) => short(words),
        }
    }
}

fn short(words: &str) -> String {
    words.chars().take(WORDS).collect()
}

/// The pods of the preflight as they are.
#[derive(Debug, Default)]
struct Seen {
    listed: bool,
    members: BTreeMap<String, Member>,
}

impl Seen {
    fn hear(&mut self, news: News<Member>) {
        match news {
            News::All(members, _) => {
                self.listed = true;
                let members = members.into_iter();
                self.members = members
                    .map(|one| (one.metadata.name.clone(), one))
                    .collect();
            }
            News::Is(one) => {
                self.members.insert(one.metadata.name.clone(), one);
            }
            News::Gone(one) => {
                self.members.remove(&one.metadata.name);
            }
            News::Version(_) => {}
        }
    }

    fn stage(&self, name: &str) -> Option<Stage> {
        self.members.get(name).map(Member::stage)
    }
}

type Watched = watch::Receiver<Seen>;

impl Runner<'_> {
    /// Runs a preflight of `pods`; `say` is told how far it is. The error is why it tells nothing.
    pub(crate) async fn run(
        &self,
        pods: Vec<PreflightPod>,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, String> {
        let (told, seen) = watch::channel(Seen::default());
        let source = Source {
            path: object_path(self.namespace, "pods"),
            labels: Some(self.selector()),
            fields: None,
        };
        let follow = feed::follow(self.caller.client.clone(), source, move |news| {
            told.send_modify(|seen| seen.hear(news));
        });
        let found = tokio::time::timeout(LIMIT, self.conduct(pods, seen, say));
        tokio::select! {
            // It follows for ever.
            () = follow => Err("its pods are followed no longer".to_owned()),
            found = found => found.unwrap_or_else(|_| {
                Err(format!("it did not end within {} s", LIMIT.as_secs()))
            }),
        }
    }

    /// Removes every pod of it.
    pub(crate) async fn remove(&self) -> Result<(), String> {
        let source = Source {
            path: object_path(self.namespace, "pods"),
            labels: Some(self.selector()),
            fields: None,
        };
        let (pods, _) = feed::list::<Bare>(&self.caller.client, &source)
            .await
            .map_err(|error| error.to_string())?;
        let names = pods.iter().map(|pod| pod.metadata.name.as_str());
        self.delete(names).await
    }

    fn selector(&self) -> String {
        format!("{}={}", preflight::OF, self.of)
    }

    async fn conduct(
        &self,
        mut pods: Vec<PreflightPod>,
        mut seen: Watched,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, String> {
        until(&mut seen, LEAVES, |seen| seen.listed).await;
        let mut last = Err("there are no nodes to look at".to_owned());
        for again in [true, false] {
            self.clear(&mut seen).await?;
            let found = self.attempt(&pods, &mut seen, say).await;
            let other = again && pods.len() > 1;
            match &found {
                Ok(found) if other && nobody_joined(&found.report, &pods) => {
                    say("nobody reached the lead; another one leads".to_owned());
                }
                Err(NoReport::Lead(why)) if other => say(format!("{why}; another one leads")),
                _ => return self.land(found, &mut seen).await,
            }
            last = self.land(found, &mut seen).await;
            pods.rotate_left(1);
        }
        last
    }

    /// Clears everything away; what was found is told only then, for the seats are free from then on.
    async fn land(
        &self,
        found: Result<PreflightFound, NoReport>,
        seen: &mut Watched,
    ) -> Result<PreflightFound, String> {
        self.clear(seen).await?;
        found.map_err(|(NoReport::Lead(why) | NoReport::All(why))| why)
    }

    async fn clear(&self, seen: &mut Watched) -> Result<(), String> {
        let names: Vec<String> = seen.borrow().members.keys().cloned().collect();
        self.delete(names.iter().map(String::as_str)).await?;
        if until(seen, LEAVES, |seen| seen.members.is_empty()).await {
            return Ok(());
        }
        let left = seen
            .borrow()
            .members
            .keys()
            .next()
            .cloned()
            .unwrap_or_default();
        Err(format!("its pod `{left}` does not go"))
    }

    async fn delete<'b>(&self, names: impl Iterator<Item = &'b str>) -> Result<(), String> {
        let path = object_path(self.namespace, "pods");
        let params = DeleteParams {
            grace_period_seconds: Some(1),
            ..DeleteParams::default()
        };
        let calls: Vec<_> = names
            .map(|name| self.caller.delete(&path, name, &params))
            .collect();
        let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
        while let Some(done) = calls.next().await {
            done.map_err(|error| format!("its pods cannot be deleted: {error}"))?;
        }
        Ok(())
    }

    /// One try with the first of `pods` as the lead.
    async fn attempt(
        &self,
        pods: &[PreflightPod],
        seen: &mut Watched,
        say: &(dyn Fn(String) + Send + Sync),
    ) -> Result<PreflightFound, NoReport> {
        let Some((first, others)) = pods.split_first() else {
            return Err(NoReport::All("there are no nodes to look at".to_owned()));
        };
        let mut lead = first.pod.clone();
        preflight::lead(&mut lead, pods);
        let name = name_of(first);
        say(format!(
            "`{name}` starts on node `{}`, to lead {} pods",
            first.node,
            pods.len()
        ));
        self.create(&lead).await?;
        let set_up = |seen: &Seen| {
            let stage = seen.stage(name);
            !matches!(stage, None | Some(Stage::Unplaced(_) | Stage::SetsUp(_)))
        };
        until(seen, self.sets_up_within, set_up).await;
        let starts = |seen: &Seen| !matches!(seen.stage(name), Some(Stage::Pulls));
        until(seen, LIMIT, starts).await;
        let stage = seen.borrow().stage(name);
        let address = match stage {
            Some(Stage::Runs(address)) => address,
            Some(Stage::Done) => String::new(),
            stage if others.is_empty() => return alone(&first.node, stage),
            stage => {
                let words = words_of(stage);
                let node = &first.node;
                return Err(NoReport::Lead(format!(
                    "the lead on node `{node}` does not start: {words}"
                )));
            }
        };
        say(format!("{} pods join `{name}`", others.len()));
        let joined = others.iter().map(|one| {
            let mut pod = one.pod.clone();
            preflight::join(&mut pod, &address);
            pod
        });
        let joined: Vec<_> = joined.collect();
        let calls: Vec<_> = joined.iter().map(|pod| self.create(pod)).collect();
        let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
        while let Some(made) = calls.next().await {
            made?;
        }
        drop(calls);
        let ended = |seen: &Seen| {
            let stage = seen.stage(name);
            matches!(stage, None | Some(Stage::Done | Stage::Failed(_)))
        };
        until(seen, LIMIT, ended).await;
        let stage = seen.borrow().stage(name);
        if stage != Some(Stage::Done) {
            let words = words_of(stage);
            return Err(NoReport::Lead(format!(
                "the lead on node `{}` ended: {words}",
                first.node
            )));
        }
        let report = self.report(name).await.map_err(NoReport::All)?;
        Ok(complete(report, others, &seen.borrow()))
    }

    async fn create(&self, pod: &k8s_openapi::api::core::v1::Pod) -> Result<(), NoReport> {
        let path = object_path(self.namespace, "pods");
        match self
            .caller
            .create::<serde::de::IgnoredAny>(&path, pod)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                Err(NoReport::All(format!(
                    "cannot create pod `{name}`: {error}"
                )))
            }
        }
    }

    /// The report in the log of the lead.
    async fn report(&self, lead: &str) -> Result<Report, String> {
        let path = object_path(self.namespace, "pods");
        let params = LogParams {
            container: Some(CONTAINER.to_owned()),
            limit_bytes: i64::try_from(BYTES).ok(),
            ..LogParams::default()
        };
        let mut read = self.caller.log(&path, lead, &params, BYTES).await;
        if matches!(&read, Err(CallError::Late | CallError::Kube(_))) {
            read = self.caller.log(&path, lead, &params, BYTES).await;
        }
        let log = read.map_err(|error| format!("the log of the lead cannot be read: {error}"))?;
        find_report(&log)
    }
}

/// Why a preflight came to nothing.
#[derive(Debug)]
enum NoReport {
    /// The lead is at fault; another one may do.
    Lead(String),
    /// Another lead would not help.
    All(String),
}

/// The report in a log.
fn find_report(log: &[u8]) -> Result<Report, String> {
    let text = String::from_utf8_lossy(log);
    let line = text.lines().rev().find_map(|line| line.split_once(MARKER));
    let Some((_, report)) = line else {
        let last = text.lines().last().unwrap_or("nothing");
        return Err(format!(
            "the lead wrote no report; its last line is: {}",
            short(last)
        ));
    };
    serde_json::from_str(report)
        .map_err(|error| format!("the lead's report cannot be read: {error}"))
}

/// What is known of the only node of a preflight, whose pod does not start.
fn alone(node: &str, stage: Option<Stage>) -> Result<PreflightFound, NoReport> {
    let mut found = PreflightFound::default();
    match stage {
        Some(Stage::Unplaced(words)) => {
            found.unseen.insert(node.to_owned(), words);
        }
        Some(Stage::SetsUp(words) | Stage::Failed(words)) => {
            let report = found.report.nodes.entry(node.to_owned()).or_default();
            report.checks.push(did_not_start(&words));
        }
        stage => return Err(NoReport::All(words_of(stage))),
    }
    Ok(found)
}

/// The report, with what is known of pods that never came to the lead.
fn complete(mut report: Report, others: &[PreflightPod], seen: &Seen) -> PreflightFound {
    let mut unseen = BTreeMap::new();
    for one in others {
        let node = &one.node;
        match seen.stage(name_of(one)) {
            Some(Stage::Unplaced(words)) => {
                unseen.insert(node.clone(), words);
            }
            Some(Stage::Pulls) => {
                unseen.insert(
                    node.clone(),
                    "it still waits for the image of the job".to_owned(),
                );
            }
            Some(Stage::SetsUp(words)) => {
                let found = report.nodes.entry(node.clone()).or_default();
                found.checks.retain(|check| check.name != JOINED);
                found.checks.insert(0, did_not_start(&words));
            }
            _ => {}
        }
    }
    PreflightFound { report, unseen }
}

fn did_not_start(words: &str) -> Check {
    Check {
        name: STARTED.to_owned(),
        layer: Layer::Host,
        subject: String::new(),
        outcome: Outcome::Fail,
        found: format!("a pod that does not start: {words}"),
        needed: "every pod of the gang starts".to_owned(),
        cause: "a volume that cannot be mounted, a network that cannot be attached, or an image that cannot be pulled"
            .to_owned(),
        next: "look at the volumes and annotations of the template, and at what this node has of them".to_owned(),
        owner: Owner::MlTeam,
    }
}

/// Whether others ran, and none of them came to the lead.
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
        Some(Stage::Pulls) => "it still waits for the image of the job".to_owned(),
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
