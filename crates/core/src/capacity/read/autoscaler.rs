//! The status of the Cluster Autoscaler, in both of its forms: YAML since 1.30, lines of text before. It names groups and their
//! sizes; labels, taints and resources of a group are not in it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::seen::Seen;
use crate::{
    capacity::{Bound, Halt, Offer, Pool, Source, offer::NODES},
    spec,
};

/// The usual name of its `ConfigMap`.
const NAME: &str = "cluster-autoscaler-status";
/// An autoscaler that runs writes its status every 10 s; by its own rule it is dead after 3 min.
const FRESH_SECONDS: i64 = 180;
/// Labels by which providers name the group of a node.
pub(super) const GROUP_LABELS: [&str; 8] = [
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "node.cluster.x-k8s.io/machine-deployment",
    "kwok-nodegroup",
    "cluster-autoscaler.kubernetes.io/node-group",
];

/// Characters of a message that are repeated.
const SHOWN: usize = 200;

/// One group of nodes.
#[derive(Default)]
pub(super) struct Group {
    name: String,
    size: i64,
    /// How many of them are ready, where the status says so.
    ready: Option<i64>,
    /// The most nodes, where the status has it.
    most: Option<i64>,
    halt: Option<Halt>,
}

/// What a status says.
#[derive(Default)]
pub(super) struct Status {
    pub(super) groups: Vec<Group>,
    pub(super) notes: Vec<String>,
    /// Why there may be groups that it does not name.
    pub(super) missing: Vec<String>,
}

/// What is read in either form.
#[derive(Default)]
struct Form {
    written: Option<Timestamp>,
    groups: Vec<Group>,
    /// What the autoscaler says of itself, where that is not `Running`.
    state: Option<String>,
    is_unhealthy: bool,
    /// Whether groups are listed, even if there is none.
    has_groups: bool,
}

pub(super) fn is_status(value: &Value) -> bool {
    value.pointer("/metadata/name").and_then(Value::as_str) == Some(NAME)
}

/// The groups, and what else the status says. What it leaves open is missing, and never an error: other objects may be enough.
pub(super) fn read(value: &Value, now: Timestamp) -> Status {
    let missing = |why: &str| Status {
        missing: vec![format!("the status of the Cluster Autoscaler {why}")],
        ..Status::default()
    };
    let text = value.pointer("/data/status").and_then(Value::as_str);
    let text = text.unwrap_or_default();
    if text.trim().is_empty() {
        return missing("is empty");
    }
    let is_text = text
        .trim_start()
        .starts_with("Cluster-autoscaler status at");
    let form = if is_text {
        of_text(text)
    } else {
        match of_yaml(text) {
            Ok(form) => form,
            Err(why) => return missing(&why),
        }
    };
    let mut status = Status {
        groups: form.groups,
        ..Status::default()
    };
    if let Some(state) = form.state {
        let state: String = state.chars().take(SHOWN).collect();
        status.missing.push(format!(
            "the Cluster Autoscaler reports that it is `{state}`, not `Running`"
        ));
    }
    if !form.has_groups {
        let why = "the status of the Cluster Autoscaler lists no groups of nodes";
        status.missing.push(why.to_owned());
    }
    let unread = status.groups.iter().find(|group| group.most.is_none());
    if let Some(group) = unread {
        status.missing.push(format!(
            "the status of the Cluster Autoscaler has no maximum of the group `{}`",
            group.name
        ));
    }
    let age = form
        .written
        .map(|written| now.duration_since(written).as_secs());
    if let Some(age) = age.filter(|age| *age > FRESH_SECONDS) {
        let why = format!(
            "the status of the Cluster Autoscaler is {} min old: it may not be running",
            age / 60
        );
        status.halt(&why);
        status.missing.push(why.clone());
        status.notes.push(why);
    }
    if form.is_unhealthy {
        let why = "the Cluster Autoscaler reports that the cluster is unhealthy, and adds no nodes";
        status.halt(why);
        status.notes.push(why.to_owned());
    }
    status
}

impl Status {
    /// Marks all groups as adding nothing at present.
    fn halt(&mut self, why: &str) {
        for group in &mut self.groups {
            group.halt.get_or_insert_with(|| halt(why));
        }
    }
}

fn halt(why: &str) -> Halt {
    Halt {
        why: why.chars().take(2 * SHOWN).collect(),
        until: None,
    }
}

fn of_yaml(text: &str) -> Result<Form, String> {
    let file = spec::read(text.as_bytes())
        .map_err(|finding| format!("is not valid YAML: {}", finding.message))?;
    let tree = file.documents.first().map(|own| own.tree.to_json());
    let tree = tree.unwrap_or_default();
    let text = |key: &str| tree.pointer(key).and_then(Value::as_str);
    let listed = tree.get("nodeGroups").and_then(Value::as_array);
    let groups = listed.into_iter().flatten().map(|group| {
        let number = |key: &str| group.pointer(key).and_then(Value::as_i64);
        let text = |key: &str| group.pointer(key).and_then(Value::as_str);
        let backoff = |key: &str| text(&format!("/scaleUp/backoffInfo/{key}")).unwrap_or_default();
        let backs_off = (text("/scaleUp/status") == Some("Backoff")).then(|| {
            let parts = [backoff("errorCode"), backoff("errorMessage")];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            match parts.as_slice() {
                [] => halt("the last scale-up failed"),
                parts => halt(&format!("the last scale-up failed: {}", parts.join(": "))),
            }
        });
        let is_unhealthy = text("/health/status") == Some("Unhealthy");
        let unhealthy = || halt("the Cluster Autoscaler reports that the group is unhealthy");
        Group {
            name: text("/name").unwrap_or_default().to_owned(),
            size: number("/health/cloudProviderTarget").unwrap_or(0).max(0),
            ready: number("/health/nodeCounts/registered/ready"),
            // A group without a name cannot be distinguished from others.
            most: text("/name")
                .and(number("/health/maxSize"))
                .map(|most| most.max(0)),
            halt: backs_off.or_else(|| is_unhealthy.then(unhealthy)),
        }
    });
    let state = text("/autoscalerStatus").filter(|state| *state != "Running");
    Ok(Form {
        written: text("/time").and_then(time),
        groups: groups.collect(),
        state: state.map(str::to_owned),
        is_unhealthy: text("/clusterWide/health/status") == Some("Unhealthy"),
        has_groups: listed.is_some(),
    })
}

/// The form before 1.30: a heading, and for each group its name and lines of numbers.
fn of_text(text: &str) -> Form {
    let mut form = Form {
        written: time_of_text(text),
        ..Form::default()
    };
    for line in text.lines() {
        let Some((key, rest)) = line.trim().split_once(':') else {
            continue;
        };
        let rest = rest.trim();
        form.has_groups |= key == "NodeGroups";
        match (key, form.groups.last_mut()) {
            ("Name", _) => form.groups.push(Group {
                name: rest.to_owned(),
                ..Group::default()
            }),
            ("Health", None) => form.is_unhealthy = rest.starts_with("Unhealthy"),
            ("Health", Some(group)) => {
                group.size = number(rest, "cloudProviderTarget=").unwrap_or(0);
                group.ready = number(rest, "(ready=");
                group.most = number(rest, "maxSize=").filter(|_| !group.name.is_empty());
                if rest.starts_with("Unhealthy") {
                    group.halt = Some(halt(
                        "the Cluster Autoscaler reports that the group is unhealthy",
                    ));
                }
            }
            ("ScaleUp", Some(group)) if rest.starts_with("Backoff") => {
                group.halt = Some(halt("the last scale-up failed"));
            }
            _ => {}
        }
    }
    form
}

/// The whole number behind `name`.
fn number(line: &str, name: &str) -> Option<i64> {
    let (_, rest) = line.split_once(name)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest.split_at(end.unwrap_or(rest.len())).0.parse().ok()
}

fn time_of_text(text: &str) -> Option<Timestamp> {
    let first = text.trim_start().lines().next()?;
    time(first.split_once(" at ")?.1.trim_end_matches(':'))
}

/// A time as Go prints it: `2026-08-01 10:00:00.123 +0000 UTC`.
fn time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse() {
        return Some(time);
    }
    let mut words = text.split_whitespace();
    let (day, hour, zone) = (words.next()?, words.next()?, words.next()?);
    format!("{day}T{hour}{zone}").parse().ok()
}

/// Adds the groups to `offer`. A pool of the same name lends its shapes; else nodes of the group show one.
pub(super) fn join(offer: &mut Offer, groups: Vec<Group>, seen: &Seen<'_>) {
    let files = offer.pools.iter().enumerate();
    let files: BTreeMap<String, usize> = files
        .filter(|(_, pool)| pool.source == Source::File)
        .map(|(at, pool)| (pool.name.clone(), at))
        .collect();
    let mut names: BTreeSet<String> = offer.pools.iter().map(|pool| pool.name.clone()).collect();
    for group in groups {
        let Some(most) = group.most else {
            continue;
        };
        let bound = Bound {
            limit: most,
            used: group.size,
        };
        let starting = group
            .ready
            .map_or(0, |ready| group.size.saturating_sub(ready).max(0));
        let short = group.name.rsplit('/').next().unwrap_or_default();
        let (members, value) = members(short, seen);
        let members: BTreeSet<String> = members.iter().map(|node| (*node).to_owned()).collect();
        let own = files.get(&group.name).or_else(|| files.get(short));
        if let Some(pool) = own.and_then(|at| offer.pools.get_mut(*at)) {
            let nodes = pool.limits.entry(NODES.to_owned()).or_insert(bound);
            if bound.left() <= nodes.left() {
                *nodes = bound;
                pool.members = members;
                pool.starting = starting;
            }
            pool.halt = group.halt;
            continue;
        }
        if !names.insert(group.name.clone()) {
            offer.missing.push(format!(
                "the status of the Cluster Autoscaler has more than one group `{}`",
                group.name
            ));
            continue;
        }
        let nodes: Vec<&str> = members.iter().map(String::as_str).collect();
        let shapes = seen.shapes(value.unwrap_or(short), &nodes);
        offer.pools.push(Pool {
            name: group.name,
            source: Source::ClusterAutoscaler,
            weight: 0,
            labels: BTreeMap::new(),
            choices: BTreeMap::new(),
            open_labels: BTreeMap::new(),
            taints: Vec::new(),
            has_unknown_shapes: shapes.is_empty(),
            shapes,
            limits: [(NODES.to_owned(), bound)].into(),
            halt: group.halt,
            members,
            starting,
            min_values: BTreeMap::new(),
        });
    }
}

/// The nodes of the group `name`, and what its label calls it.
fn members<'a>(name: &str, seen: &Seen<'a>) -> (Vec<&'a str>, Option<&'a str>) {
    for key in GROUP_LABELS {
        let same = seen.members(key, name);
        if !same.is_empty() {
            return (same.to_vec(), None);
        }
        // Providers put the name of the pool between others.
        let fitting = seen.values(key).filter_map(|(value, nodes)| {
            let own = nodes
                .iter()
                .copied()
                .filter(|node| is_group(key, name, value, node));
            let own: Vec<&str> = own.collect();
            (!own.is_empty()).then_some((own, value))
        });
        // Of `gpu` and `a-gpu` the longer one is meant.
        if let Some((own, value)) = fitting.max_by_key(|(_, value)| value.len()) {
            return (own, Some(value));
        }
    }
    (Vec::new(), None)
}

/// Whether the group `name` is made for the pool `value`, which is what the label `key` of `node` says.
fn is_group(key: &str, name: &str, value: &str, node: &str) -> bool {
    let is_hex = |text: &str| text.len() >= 4 && text.chars().all(|c| c.is_ascii_hexdigit());
    let rest = |before: &str| name.strip_prefix(before)?.strip_prefix(value);
    match key {
        // `eks-gpu-1a2b3c4d-0000-1111-2222-333344445555`
        "eks.amazonaws.com/nodegroup" => rest("eks-").is_some_and(|rest| {
            let parts: Vec<&str> = rest
                .strip_prefix('-')
                .unwrap_or_default()
                .split('-')
                .collect();
            matches!(parts.len(), 1 | 5) && parts.iter().all(|part| is_hex(part))
        }),
        // `gke-prod-gpu-3c4d5e6f-grp`, with the node `gke-prod-gpu-3c4d5e6f-x1yz`
        "cloud.google.com/gke-nodepool" => name.strip_suffix("-grp").is_some_and(|stem| {
            let is_named = stem.rsplit_once('-').is_some_and(|(before, number)| {
                is_hex(number) && before.ends_with(&format!("-{value}"))
            });
            is_named
                && node
                    .strip_prefix(stem)
                    .is_some_and(|rest| rest.starts_with('-'))
        }),
        // `aks-gpu-12345678-vmss`
        "kubernetes.azure.com/agentpool" | "agentpool" => rest("aks-").is_some_and(|rest| {
            let number = rest
                .strip_prefix('-')
                .and_then(|rest| rest.strip_suffix("-vmss"));
            number.is_some_and(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()))
        }),
        // `eksctl-prod-nodegroup-gpu-NodeGroup-1ABC2DEF`
        "alpha.eksctl.io/nodegroup-name" => name
            .split_once("-nodegroup-")
            .and_then(|(_, rest)| rest.strip_prefix(value))
            .is_some_and(|rest| rest.starts_with("-NodeGroup-")),
        _ => false,
    }
}
