//! One pod of a preflight: how far it is, in whose words.

use std::collections::BTreeMap;

use serde::Deserialize;
use trainyard_core::{explain, probe::clean};

use crate::{
    feed::News,
    view::{ConditionView, ContainerView, Meta, View},
};

/// Words of others that are passed on.
const WORDS: usize = 300;

/// A pod of a preflight.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    pub(super) metadata: Meta,
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
pub(super) enum Stage {
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
    pub(super) fn stage(&self) -> Stage {
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
            let words = refused.map_or("the scheduler has not processed it", |refused| {
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
            None => Stage::SetsUp("the kubelet of its node has not started it".to_owned()),
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

pub(super) fn short(words: &str) -> String {
    clean(words, WORDS)
}

/// The pods of the preflight as they are, by their identity: another pod of the same name is another.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) listed: bool,
    pub(super) members: BTreeMap<String, Member>,
}

impl Seen {
    /// Applies a watch event of pods with the labels of the preflight, if `is_ours` accepts them.
    pub(super) fn update(&mut self, news: News<Member>, is_ours: impl Fn(&Meta) -> bool) {
        match news {
            News::All(members, _) => {
                self.listed = true;
                let ours = members.into_iter().filter(|one| is_ours(&one.metadata));
                self.members = ours.map(|one| (one.metadata.uid.clone(), one)).collect();
            }
            News::Is(one) if is_ours(&one.metadata) => {
                self.members.insert(one.metadata.uid.clone(), one);
            }
            News::Gone(one) => {
                self.members.remove(&one.metadata.uid);
            }
            News::Is(_) | News::Version(_) => {}
        }
    }

    /// How far the pod with this identity is.
    pub(super) fn stage(&self, uid: &str) -> Option<Stage> {
        self.members.get(uid).map(Member::stage)
    }
}
