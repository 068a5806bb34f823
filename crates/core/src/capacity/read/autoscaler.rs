//! The status of the Cluster Autoscaler, in both of its forms: YAML since 1.30, lines of text before. It names groups and their
//! sizes; labels, taints and resources of a group are not in it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::{NotAnOffer, fields::wrong, seen::Seen};
use crate::{
    capacity::{Bound, Halt, Offer, Pool, Source, offer::NODES},
    spec,
};

/// The usual name of its `ConfigMap`.
const NAME: &str = "cluster-autoscaler-status";
/// An autoscaler that runs writes its status every 10 s; by its own rule it is dead after 3 min.
const FRESH_SECONDS: i64 = 180;
/// Labels by which providers name the group of a node.
const GROUP_LABELS: [&str; 8] = [
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "node.cluster.x-k8s.io/machine-deployment",
    "kwok-nodegroup",
    "cluster-autoscaler.kubernetes.io/node-group",
];

/// One group of nodes.
pub(super) struct Group {
    name: String,
    size: i64,
    most: i64,
    halt: Option<Halt>,
}

pub(super) fn is_status(value: &Value) -> bool {
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    name == Some(NAME) && status(value).is_some()
}

fn status(value: &Value) -> Option<&str> {
    value.pointer("/data/status")?.as_str()
}

/// The groups, and what else the status says.
pub(super) fn read(value: &Value, now: Timestamp) -> Result<(Vec<Group>, Vec<String>), NotAnOffer> {
    let text = status(value).unwrap_or_default();
    let (written, groups) = if text
        .trim_start()
        .starts_with("Cluster-autoscaler status at")
    {
        (time_of_text(text), of_text(text))
    } else {
        of_yaml(text)?
    };
    let mut notes = Vec::new();
    let age = written.map(|written| now.duration_since(written).as_secs());
    if let Some(age) = age.filter(|age| *age > FRESH_SECONDS) {
        notes.push(format!(
            "the status of the Cluster Autoscaler is {} min old: it may not be running",
            age / 60
        ));
    }
    Ok((groups, notes))
}

fn of_yaml(text: &str) -> Result<(Option<Timestamp>, Vec<Group>), NotAnOffer> {
    let place = format!("ConfigMap `{NAME}`");
    let file = spec::read(text.as_bytes()).map_err(|finding| {
        wrong(
            &place,
            format!("its status is not valid YAML: {}", finding.message),
        )
    })?;
    let tree = file.documents.first().map(|own| own.tree.to_json());
    let tree = tree.unwrap_or_default();
    let written = tree.get("time").and_then(Value::as_str).and_then(time);
    let groups = tree.get("nodeGroups").and_then(Value::as_array);
    let groups = groups.into_iter().flatten().filter_map(|group| {
        let number = |key: &str| group.pointer(key).and_then(Value::as_i64);
        let text = |key: &str| group.pointer(key).and_then(Value::as_str);
        let backoff = |key: &str| text(&format!("/scaleUp/backoffInfo/{key}")).unwrap_or_default();
        let halt = (text("/scaleUp/status") == Some("Backoff")).then(|| {
            let parts = [backoff("errorCode"), backoff("errorMessage")];
            let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            Halt {
                why: match parts.as_slice() {
                    [] => "the last scale-up failed".to_owned(),
                    parts => format!("the last scale-up failed: {}", parts.join(": ")),
                },
                until: None,
            }
        });
        Some(Group {
            name: text("/name")?.to_owned(),
            size: number("/health/cloudProviderTarget").unwrap_or(0).max(0),
            most: number("/health/maxSize")?.max(0),
            halt,
        })
    });
    Ok((written, groups.collect()))
}

/// The form before 1.30: a heading, and for each group its name and lines of numbers.
fn of_text(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines() {
        let Some((key, rest)) = line.trim().split_once(':') else {
            continue;
        };
        let rest = rest.trim();
        match (key, groups.last_mut()) {
            ("Name", _) if !rest.is_empty() => groups.push(Group {
                name: rest.to_owned(),
                size: 0,
                most: 0,
                halt: None,
            }),
            ("Health", Some(group)) => {
                group.size = number(rest, "cloudProviderTarget=").unwrap_or(0);
                group.most = number(rest, "maxSize=").unwrap_or(0);
            }
            ("ScaleUp", Some(group)) if rest.starts_with("Backoff") => {
                group.halt = Some(Halt {
                    why: "the last scale-up failed".to_owned(),
                    until: None,
                });
            }
            _ => {}
        }
    }
    groups
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
    for group in groups {
        let bound = Bound {
            limit: group.most,
            used: group.size,
        };
        let short = group.name.rsplit('/').next().unwrap_or_default();
        let own = offer.pools.iter_mut().find(|pool| {
            pool.source == Source::File && (pool.name == group.name || pool.name == short)
        });
        if let Some(pool) = own {
            let nodes = pool.limits.entry(NODES.to_owned()).or_insert(bound);
            if bound.left() < nodes.left() {
                *nodes = bound;
            }
            pool.halt = group.halt;
            continue;
        }
        let shapes = label_of(short, seen)
            .map(|(key, value)| seen.shapes(key, &value))
            .unwrap_or_default();
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
        });
    }
}

/// The label by which the nodes of the group `name` are known, where exactly one value fits.
fn label_of(name: &str, seen: &Seen<'_>) -> Option<(&'static str, String)> {
    GROUP_LABELS.into_iter().find_map(|key| {
        let values = seen.values(key);
        if let Some(same) = values.iter().find(|value| **value == name) {
            return Some((key, (*same).to_owned()));
        }
        // Providers put the name of the pool between others: `eks-gpu-1a2b`, `gke-prod-gpu-3c4d-grp`.
        let within = format!("-{name}-");
        let mut fitting = values
            .into_iter()
            .filter(|value| within.contains(&format!("-{value}-")));
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => Some((key, only.to_owned())),
            _ => None,
        }
    })
}
