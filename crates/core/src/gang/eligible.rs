//! Which nodes a pod may be on, whatever else runs there.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::{Constraints, Node, Taint, TaintEffect};

/// The taint that stands for a cordon.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// Why a node seats no pod of a shape, however much is free on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bar {
    /// Its kubelet does not respond.
    NotReady,
    /// It is quarantined.
    Quarantined,
    /// It failed a preflight, and has passed none since.
    Probation,
    /// It is cordoned.
    Cordoned,
    /// It has a taint that the pod does not tolerate.
    Taint(String),
    /// It does not match `nodeSelector`.
    Selector,
    /// It does not match the required node affinity.
    Affinity,
}

impl Bar {
    /// What keeps pods with `constraints` from the node `name`, where anything does.
    pub(super) fn find(name: &str, node: &Node, constraints: &Constraints) -> Option<Self> {
        if node.is_quarantined() {
            return Some(Self::Quarantined);
        }
        if node.is_on_probation() {
            return Some(Self::Probation);
        }
        if !node.ready {
            return Some(Self::NotReady);
        }
        let cordon = || Taint {
            key: CORDON.to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
        };
        if node.unschedulable && !is_tolerated(&cordon(), &constraints.tolerations) {
            return Some(Self::Cordoned);
        }
        let taint = node.taints.iter().find(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule
                && !is_tolerated(taint, &constraints.tolerations)
        });
        if let Some(taint) = taint {
            return Some(Self::Taint(taint.key.clone()));
        }
        if !fits_selector(node, constraints) {
            return Some(Self::Selector);
        }
        (!fits_affinity(name, node, constraints)).then_some(Self::Affinity)
    }
}

impl Bar {
    /// The state of a node, in a few words.
    pub(super) fn state(&self) -> String {
        match self {
            Self::NotReady => "not ready".to_owned(),
            Self::Quarantined => "quarantined".to_owned(),
            Self::Probation => "on probation".to_owned(),
            Self::Cordoned => "cordoned".to_owned(),
            Self::Taint(key) => format!("taint {key}"),
            Self::Selector => "not selected".to_owned(),
            Self::Affinity => "excluded by affinity".to_owned(),
        }
    }
}

impl Constraints {
    /// Whether `nodeSelector` and the required node affinity let pods on the node `name`, whatever its state.
    pub(crate) fn selects(&self, name: &str, node: &Node) -> bool {
        fits_selector(node, self) && fits_affinity(name, node, self)
    }

    /// Whether pods may be on the node `name` as it is now, however much is free there.
    pub(crate) fn admits(&self, name: &str, node: &Node) -> bool {
        Bar::find(name, node, self).is_none()
    }

    /// Whether the required node affinity lets pods on the node `name`.
    pub(crate) fn affinity_admits(&self, name: &str, node: &Node) -> bool {
        fits_affinity(name, node, self)
    }

    /// The taints of `node` that keep pods away.
    pub(crate) fn untolerated<'n>(&self, node: &'n Node) -> impl Iterator<Item = &'n Taint> {
        node.taints.iter().filter(|taint| {
            taint.effect != TaintEffect::PreferNoSchedule && !is_tolerated(taint, &self.tolerations)
        })
    }
}

pub(super) fn fits_selector(node: &Node, constraints: &Constraints) -> bool {
    let mut wanted = constraints.node_selector.iter();
    wanted.all(|(key, value)| node.labels.get(key) == Some(value))
}

pub(super) fn fits_affinity(name: &str, node: &Node, constraints: &Constraints) -> bool {
    constraints.node_affinity.as_ref().is_none_or(
        |NodeSelector {
             node_selector_terms,
         }| {
            node_selector_terms
                .iter()
                .any(|term| fits_term(name, node, term))
        },
    )
}

/// Whether every taint that keeps pods away is tolerated.
pub(super) fn tolerates_all(node: &Node, tolerations: &[Toleration]) -> bool {
    node.taints.iter().all(|taint| {
        taint.effect == TaintEffect::PreferNoSchedule || is_tolerated(taint, tolerations)
    })
}

fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let effect = match toleration.effect.as_deref() {
            None | Some("") => true,
            Some("NoSchedule") => taint.effect == TaintEffect::NoSchedule,
            Some("PreferNoSchedule") => taint.effect == TaintEffect::PreferNoSchedule,
            Some("NoExecute") => taint.effect == TaintEffect::NoExecute,
            Some(_) => false,
        };
        let key = toleration.key.as_deref().unwrap_or_default();
        let value = toleration.value.as_deref().unwrap_or_default();
        effect
            && match toleration.operator.as_deref().unwrap_or("Equal") {
                "Exists" => key.is_empty() || key == taint.key,
                "Lt" => key == taint.key && number(&taint.value) < number(value),
                "Gt" => key == taint.key && number(&taint.value) > number(value),
                _ => key == taint.key && value == taint.value,
            }
    })
}

/// A term without requirements selects nothing.
fn fits_term(name: &str, node: &Node, term: &NodeSelectorTerm) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |wanted: &NodeSelectorRequirement| {
        let found = node.labels.get(&wanted.key).map(String::as_str);
        fits(found, &wanted.operator, wanted.values.as_deref())
    };
    let by_field = |wanted: &NodeSelectorRequirement| {
        wanted.key == "metadata.name"
            && fits(Some(name), &wanted.operator, wanted.values.as_deref())
    };
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

/// Whether `selector` selects something with these labels; no selector selects nothing.
pub(super) fn selects(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else {
        return false;
    };
    let mut exact = selector.match_labels.iter().flatten();
    let mut others = selector.match_expressions.iter().flatten();
    exact.all(|(key, value)| labels.get(key) == Some(value))
        && others.all(|wanted| {
            let found = labels.get(&wanted.key).map(String::as_str);
            fits(found, &wanted.operator, wanted.values.as_deref())
        })
}

fn fits(found: Option<&str>, operator: &str, values: Option<&[String]>) -> bool {
    let values = values.unwrap_or_default();
    let is_named = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let compared = || Some((number(found?)?, number(values.first()?)?));
    match operator {
        "In" => is_named(),
        "NotIn" => !is_named(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(|(found, bound)| found > bound),
        "Lt" => compared().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests;
