//! Karpenter's `NodePool`: requirements, limits, taints and weight. Which instance types meet the requirements is only known
//! for types that a file describes or that nodes have.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::{
    NotAnOffer,
    fields::{amount, effect_of, wrong},
    file::INSTANCE_TYPE,
    seen::{Seen, Times},
};
use crate::{
    capacity::{Bound, Halt, NodeShape, Pool, Source, candidate::is_by_provider},
    gang::Taint,
};

/// The label that names the pool of a node.
pub(super) const NODE_POOL: &str = "karpenter.sh/nodepool";

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Raw {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Meta {
    name: String,
    labels: BTreeMap<String, String>,
    #[serde(rename = "deletionTimestamp")]
    deleted: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    template: Template,
    limits: BTreeMap<String, Value>,
    weight: Option<i64>,
    replicas: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Template {
    metadata: Meta,
    spec: TemplateSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TemplateSpec {
    requirements: Vec<Requirement>,
    taints: Vec<RawTaint>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
    #[serde(rename = "minValues")]
    min_values: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawTaint {
    key: String,
    value: String,
    effect: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    resources: BTreeMap<String, Value>,
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
}

/// Shapes that are not of one pool, by name.
pub(super) type Types = BTreeMap<String, Vec<NodeShape>>;

/// One pool, as its object says.
pub(super) struct NodePool {
    raw: Raw,
    limits: BTreeMap<String, Bound>,
}

impl NodePool {
    pub(super) fn read(value: &Value) -> Result<Self, NotAnOffer> {
        let name = value.pointer("/metadata/name").and_then(Value::as_str);
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Err(wrong("NodePool", "has no `metadata.name`"));
        };
        let place = format!("NodePool `{name}`");
        let raw: Raw = serde_json::from_value(value.clone())
            .map_err(|error| wrong(&place, format!("cannot be read: {error}")))?;
        let mut limits = BTreeMap::new();
        for (resource, limit) in &raw.spec.limits {
            let limit = amount(resource, limit).ok_or_else(|| {
                wrong(
                    &place,
                    format!(
                        "`{resource}` of `spec.limits` is not a quantity such as `8` or `64Gi`"
                    ),
                )
            })?;
            let used = raw.status.resources.get(resource);
            let used = used.and_then(|used| amount(resource, used)).unwrap_or(0);
            limits.insert(resource.clone(), Bound { limit, used });
        }
        Ok(Self { raw, limits })
    }

    pub(super) fn name(&self) -> &str {
        &self.raw.metadata.name
    }

    /// Those of `types` that may meet the requirements: where the pool names its types, only these.
    fn eligible<'t>(&self, types: &'t Types) -> Vec<&'t NodeShape> {
        let named = self.raw.spec.template.spec.requirements.iter();
        let mut named = named.filter(|own| own.key == INSTANCE_TYPE && own.operator == "In");
        match named.next() {
            Some(own) => {
                let values: BTreeSet<&String> = own.values.iter().collect();
                let shapes = values.into_iter().filter_map(|value| types.get(value));
                shapes.flatten().collect()
            }
            None => types.values().flatten().collect(),
        }
    }

    /// How many of `types` are compared with the requirements.
    pub(super) fn work(&self, types: &Types) -> usize {
        self.eligible(types).len()
    }

    /// The pool with those of `types` that meet its requirements, and the types that its nodes have. None, with a note, where it
    /// adds no nodes for pods. `own` are shapes that a file describes for this pool alone.
    pub(super) fn pool(
        self,
        own: &[NodeShape],
        types: &Types,
        seen: &Seen<'_>,
        times: &Times,
        notes: &mut Vec<String>,
    ) -> Option<Pool> {
        let mut described: Vec<NodeShape> = self.eligible(types).into_iter().cloned().collect();
        described.extend(own.iter().cloned());
        let Raw {
            metadata,
            spec,
            status,
        } = self.raw;
        let name = metadata.name;
        let why = if spec.replicas.is_some() {
            Some("is static (`spec.replicas`)")
        } else {
            metadata.deleted.map(|_| "is being deleted")
        };
        if let Some(why) = why {
            notes.push(format!(
                "NodePool `{name}` {why}: it adds no nodes for pods"
            ));
            return None;
        }
        let requirements = spec.template.spec.requirements;
        let mut labels = spec.template.metadata.labels;
        labels.insert(NODE_POOL.to_owned(), name.clone());
        let choices = choices(&requirements);
        let min_values = requirements
            .iter()
            .filter_map(|own| Some((own.key.clone(), own.min_values.filter(|least| *least > 1)?)))
            .collect();
        let members = seen.members(NODE_POOL, &name);
        let mut shapes: BTreeMap<String, NodeShape> = BTreeMap::new();
        let mut is_unsure = false;
        let shown = seen.shapes(&name, members).into_iter().map(|mut shape| {
            keep_own_labels(&mut shape);
            shape
        });
        // A file says more about a type than a node does: its price, and what daemon sets take.
        for shape in shown.chain(described) {
            // A node may be older than the requirements.
            match meets(&requirements, &shape) {
                Some(true) => {
                    shapes.insert(shape.name.clone(), shape);
                }
                Some(false) => {}
                None => is_unsure = true,
            }
        }
        let wanted = requirements
            .iter()
            .find(|own| own.key == INSTANCE_TYPE && own.operator == "In");
        let has_unknown_shapes = match wanted {
            Some(own) => own.values.iter().any(|kind| !shapes.contains_key(kind)),
            None => true,
        } || is_unsure;
        let mut shapes: Vec<NodeShape> = shapes.into_values().collect();
        for shape in &mut shapes {
            // The pool decides which of its own labels and taints a node has, but not what a type is.
            shape.labels.retain(|key, _| !labels.contains_key(key));
            for (key, values) in &choices {
                if let Some(value) = shape.labels.remove(key)
                    && values.contains(&value)
                {
                    shape.choices.entry(key.clone()).or_insert(vec![value]);
                }
            }
            narrow(&mut shape.choices, &requirements);
            shape.taints = Vec::new();
            if let Some(best) = &mut shape.best {
                best.taints.clear();
            }
            shape.ready_seconds = shape
                .ready_seconds
                .or_else(|| times.median(&name, &shape.name));
        }
        let taints = spec.template.spec.taints.into_iter();
        let ready = status
            .conditions
            .into_iter()
            .find(|own| own.kind == "Ready");
        let halt = ready.filter(|own| own.status == "False").map(|own| Halt {
            why: format!("not Ready: {}", first_of(own.message, own.reason)),
            until: None,
        });
        Some(Pool {
            source: Source::Karpenter,
            weight: spec.weight.unwrap_or(0),
            open_labels: open_labels(&requirements, &choices),
            labels,
            choices,
            taints: taints
                .filter_map(|taint| {
                    Some(Taint {
                        key: taint.key,
                        value: taint.value,
                        effect: effect_of(&taint.effect)?,
                    })
                })
                .collect(),
            shapes,
            has_unknown_shapes,
            limits: self.limits,
            halt,
            members: members.iter().map(|node| (*node).to_owned()).collect(),
            starting: 0,
            min_values,
            name,
        })
    }
}

/// Without labels that the node got from its pool or from people: the next node gets its own. What is left says what the type is.
fn keep_own_labels(shape: &mut NodeShape) {
    let is_own = |key: &str| {
        key == INSTANCE_TYPE
            || key == "kubernetes.io/arch"
            || key == "kubernetes.io/os"
            || is_by_provider(key) && !key.starts_with("karpenter.sh/")
    };
    let other: Vec<String> = shape
        .labels
        .keys()
        .filter(|key| !is_own(key))
        .cloned()
        .collect();
    shape.labels.retain(|key, _| is_own(key));
    shape.unsure_labels.extend(other);
}

fn first_of(message: String, reason: String) -> String {
    if message.is_empty() { reason } else { message }
}

/// The labels that a node gets from the requirements: one of several values each.
fn choices(requirements: &[Requirement]) -> BTreeMap<String, Vec<String>> {
    let mut choices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for own in requirements {
        if own.operator == "In" && own.key != INSTANCE_TYPE && !own.values.is_empty() {
            let values = choices
                .entry(own.key.clone())
                .or_insert_with(|| own.values.clone());
            values.retain(|value| own.values.contains(value));
        }
    }
    for own in requirements.iter().filter(|own| own.operator == "NotIn") {
        if let Some(values) = choices.get_mut(&own.key) {
            values.retain(|value| !own.values.contains(value));
        }
    }
    choices
}

/// The labels that the pool leaves to its pods, with the values that it excludes.
fn open_labels(
    requirements: &[Requirement],
    choices: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut open: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for own in requirements {
        let is_left = matches!(own.operator.as_str(), "Exists" | "NotIn")
            && !is_of_type(&own.key)
            && !choices.contains_key(&own.key);
        if is_left {
            let excluded = open.entry(own.key.clone()).or_default();
            excluded.extend(own.values.iter().cloned());
        }
    }
    open
}

/// The choices of a type, without those that the pool does not make.
fn narrow(choices: &mut BTreeMap<String, Vec<String>>, requirements: &[Requirement]) {
    for own in requirements {
        if let Some(values) = choices.get_mut(&own.key) {
            values.retain(|value| is_met(own, Some(value)) == Some(true));
        }
    }
}

/// Whether nodes of `shape` meet the requirements; none where a label that they name is not known of it.
fn meets(requirements: &[Requirement], shape: &NodeShape) -> Option<bool> {
    let mut all = Some(true);
    for own in requirements {
        let met = match shape.choices.get(&own.key) {
            Some(values) => Some(
                values
                    .iter()
                    .any(|value| is_met(own, Some(value)) == Some(true)),
            ),
            None => is_met(own, shape.labels.get(&own.key)),
        };
        match met {
            Some(true) => {}
            Some(false) => return Some(false),
            // A label that is not the type's own is set by the pool.
            None if is_chosen_by_pool(&own.key) || shape.unsure_labels.contains(&own.key) => {}
            None => all = None,
        }
    }
    all
}

/// Labels that Karpenter gives to a node as the pool asks, whatever its type.
fn is_chosen_by_pool(key: &str) -> bool {
    let of_provider = key.starts_with("karpenter.") && key != "karpenter.sh/capacity-type";
    !of_provider && key != INSTANCE_TYPE
}

/// Labels that the type or the place of a node decides.
fn is_of_type(key: &str) -> bool {
    !is_chosen_by_pool(key)
        || key == "karpenter.sh/capacity-type"
        || key.starts_with("kubernetes.io/")
        || key.starts_with("topology.kubernetes.io/")
}

fn is_met(own: &Requirement, value: Option<&String>) -> Option<bool> {
    let value = value?;
    let first: Option<i64> = own.values.first().and_then(|text| text.parse().ok());
    let number: Option<i64> = value.parse().ok();
    let compared = |holds: fn(i64, i64) -> bool| Some(holds(number?, first?));
    match own.operator.as_str() {
        "In" => Some(own.values.contains(value)),
        "NotIn" => Some(!own.values.contains(value)),
        "Exists" => Some(true),
        "DoesNotExist" => Some(false),
        "Gt" => compared(|number, bound| number > bound).or(Some(false)),
        "Lt" => compared(|number, bound| number < bound).or(Some(false)),
        "Gte" => compared(|number, bound| number >= bound).or(Some(false)),
        "Lte" => compared(|number, bound| number <= bound).or(Some(false)),
        _ => None,
    }
}
