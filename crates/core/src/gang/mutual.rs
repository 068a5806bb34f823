//! Constraints between pods: spread, affinity and anti-affinity, counted while a gang is seated.
//!
//! They are kept as Kubernetes keeps them when it takes one pod after the other, so that a gang seated here
//! passes there too. Terms that select namespaces by labels are taken to mean all namespaces where they keep
//! pods apart, and the pod's own where they bring them together: the labels of namespaces are not known.

use k8s_openapi::{
    api::core::v1::{PodAffinityTerm, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement},
};

use super::{
    Gang, Shape,
    eligible::{fits_affinity, fits_selector, selects, tolerates_all},
    node_table::{NodeTable, PlacedPod},
};

const NO_DOMAIN: u32 = u32::MAX;

/// What is counted for one term.
struct Rule {
    /// The shape whose pods have the term.
    owner: usize,
    kind: RuleKind,
    /// The domain of each node under the term's key.
    domain_of: Vec<u32>,
    /// Pods that the term selects, by domain.
    selected: Vec<u32>,
    /// Pods of this gang that have the term, by domain.
    owners: Vec<u32>,
    /// Which shapes of the gang the term selects.
    selects_shape: Vec<bool>,
}

enum RuleKind {
    Spread {
        max_skew: u32,
        min_domains: u32,
        /// The domains that count.
        counted: Vec<bool>,
        /// The fewest selected pods of a domain that counts.
        least: u32,
    },
    Affinity,
    AntiAffinity,
}

/// The constraints between the pods of one gang, and between them and all others.
pub(super) struct Mutual {
    rules: Vec<Rule>,
}

impl Mutual {
    pub(super) fn new(table: &NodeTable<'_>, gang: &Gang) -> Self {
        let mut rules = Vec::new();
        for (owner, shape) in gang.shapes.iter().enumerate() {
            let constraints = &shape.constraints;
            let mut keys: Vec<&str> = Vec::new();
            for spread in &constraints.spread {
                keys.push(&spread.topology_key);
            }
            for spread in &constraints.spread {
                rules.push(Rule::of_spread(table, gang, owner, spread, &keys));
            }
            for term in &constraints.affinity {
                rules.push(Rule::of_term(table, gang, owner, term, RuleKind::Affinity));
            }
            for term in &constraints.anti_affinity {
                rules.push(Rule::of_term(
                    table,
                    gang,
                    owner,
                    term,
                    RuleKind::AntiAffinity,
                ));
            }
        }
        Self { rules }
    }

    /// Whether a pod of `shape` may be on `node` now.
    pub(super) fn allows(&self, shape: usize, node: usize) -> bool {
        self.rules.iter().all(|rule| rule.allows(shape, node))
    }

    /// Counts a pod of `shape` on `node`.
    pub(super) fn add(&mut self, shape: usize, node: usize) {
        for rule in &mut self.rules {
            let domain = rule.domain_of[node];
            if domain == NO_DOMAIN {
                continue;
            }
            rule.selected[domain as usize] += u32::from(rule.selects_shape[shape]);
            rule.owners[domain as usize] += u32::from(rule.owner == shape);
            rule.settle();
        }
    }
}

impl Rule {
    fn new(table: &NodeTable<'_>, gang: &Gang, owner: usize, kind: RuleKind, key: &str) -> Self {
        let (domain_of, count) = domains(table, key);
        Self {
            owner,
            kind,
            domain_of,
            selected: vec![0; count],
            owners: vec![0; count],
            selects_shape: vec![false; gang.shapes.len()],
        }
    }

    fn of_spread(
        table: &NodeTable<'_>,
        gang: &Gang,
        owner: usize,
        spread: &TopologySpreadConstraint,
        keys: &[&str],
    ) -> Self {
        let shape = &gang.shapes[owner];
        let kind = RuleKind::Spread {
            max_skew: u32::try_from(spread.max_skew).unwrap_or(1).max(1),
            min_domains: u32::try_from(spread.min_domains.unwrap_or(1)).unwrap_or(1),
            counted: Vec::new(),
            least: 0,
        };
        let mut rule = Self::new(table, gang, owner, kind, &spread.topology_key);
        let honours = |policy: Option<&str>, default| policy.unwrap_or(default) == "Honor";
        let by_affinity = honours(spread.node_affinity_policy.as_deref(), "Honor");
        let by_taints = honours(spread.node_taints_policy.as_deref(), "Ignore");
        let constraints = &shape.constraints;
        let mut counted = vec![false; rule.selected.len()];
        for (at, (name, node)) in table.names.iter().zip(&table.nodes).enumerate() {
            let has_keys = keys.iter().all(|key| label(table, at, key).is_some());
            let is_meant = !by_affinity
                || (fits_selector(node, constraints) && fits_affinity(name, node, constraints));
            let is_clean = !by_taints || tolerates_all(node, &constraints.tolerations);
            if !(has_keys && is_meant && is_clean) {
                rule.domain_of[at] = NO_DOMAIN;
            } else if rule.domain_of[at] != NO_DOMAIN {
                counted[rule.domain_of[at] as usize] = true;
            }
        }
        if let RuleKind::Spread { counted: own, .. } = &mut rule.kind {
            *own = counted;
        }
        let selector = with_label_keys(spread, shape);
        let namespace = gang.key.namespace.as_str();
        rule.count(table, gang, |placed| {
            !placed.leaving
                && placed.namespace == namespace
                && selects(selector.as_ref(), placed.labels)
        });
        for (own, shape) in rule.selects_shape.iter_mut().zip(&gang.shapes) {
            *own = selects(selector.as_ref(), &shape.labels);
        }
        rule
    }

    fn of_term(
        table: &NodeTable<'_>,
        gang: &Gang,
        owner: usize,
        term: &PodAffinityTerm,
        kind: RuleKind,
    ) -> Self {
        let apart = matches!(kind, RuleKind::AntiAffinity);
        let mut rule = Self::new(table, gang, owner, kind, &term.topology_key);
        let own = gang.key.namespace.as_str();
        rule.count(table, gang, |placed| is_selected(term, own, apart, placed));
        for (selected, shape) in rule.selects_shape.iter_mut().zip(&gang.shapes) {
            *selected = reaches(term, own, own, apart)
                && selects(term.label_selector.as_ref(), &shape.labels);
        }
        rule
    }

    /// Counts the pods that are there; those that hold seats of the gang itself are added with their shapes.
    fn count(
        &mut self,
        table: &NodeTable<'_>,
        gang: &Gang,
        selected: impl Fn(&PlacedPod<'_>) -> bool,
    ) {
        for placed in &table.placed_pods {
            let domain = self.domain_of[placed.node as usize];
            if domain != NO_DOMAIN && !is_own(placed, gang) && selected(placed) {
                self.selected[domain as usize] += 1;
            }
        }
        self.settle();
    }

    /// Works out the fewest pods of a domain. With fewer domains than are asked for, it is none.
    fn settle(&mut self) {
        if let RuleKind::Spread {
            min_domains,
            counted,
            least,
            ..
        } = &mut self.kind
        {
            let in_use = || {
                self.selected
                    .iter()
                    .zip(counted.iter())
                    .filter(|(_, c)| **c)
            };
            let is_wide = in_use().count() >= *min_domains as usize;
            let fewest = in_use().map(|(n, _)| *n).min();
            *least = fewest.filter(|_| is_wide).unwrap_or(0);
        }
    }

    fn allows(&self, shape: usize, node: usize) -> bool {
        let domain = self.domain_of[node];
        let at = domain as usize;
        match &self.kind {
            RuleKind::AntiAffinity => {
                let has_own = self.owner == shape;
                domain == NO_DOMAIN
                    || !(has_own && self.selected[at] > 0
                        || self.selects_shape[shape] && self.owners[at] > 0)
            }
            // A pod that only counts for the spread of others must not violate it either: it is unknown
            // which pod is bound first.
            RuleKind::Spread { .. } if self.owner != shape => {
                let counts =
                    domain != NO_DOMAIN && self.selects_shape[shape] && self.owners[at] > 0;
                !counts || self.is_even_with(at, 1)
            }
            _ if self.owner != shape => true,
            _ if domain == NO_DOMAIN => false,
            RuleKind::Affinity => {
                // The first pod of those that want each other may be anywhere.
                let is_first = self.selects_shape[shape] && self.selected.iter().all(|n| *n == 0);
                self.selected[at] > 0 || is_first
            }
            RuleKind::Spread { .. } => self.is_even_with(at, u32::from(self.selects_shape[shape])),
        }
    }

    /// Whether a domain with `more` pods is within the skew.
    fn is_even_with(&self, domain: usize, more: u32) -> bool {
        match &self.kind {
            RuleKind::Spread {
                max_skew, least, ..
            } => (self.selected[domain] + more).saturating_sub(*least) <= *max_skew,
            _ => true,
        }
    }
}

/// Whether the pod is one of the gang that has its seat.
fn is_own(placed: &PlacedPod<'_>, gang: &Gang) -> bool {
    placed.is_held && placed.gang == Some(&gang.key)
}

/// The nodes with a pod whose anti-affinity excludes a pod of `shape`.
pub(super) fn excluded_by_anti_affinity(
    table: &NodeTable<'_>,
    gang: &Gang,
    shape: &Shape,
) -> Vec<usize> {
    let mut nodes = Vec::new();
    for placed in table
        .placed_pods
        .iter()
        .filter(|placed| !is_own(placed, gang))
    {
        for term in placed.anti_affinity {
            if !(reaches(term, placed.namespace, &gang.key.namespace, true)
                && selects(term.label_selector.as_ref(), &shape.labels))
            {
                continue;
            }
            let key = term.topology_key.as_str();
            let Some(place) = label(table, placed.node as usize, key) else {
                continue;
            };
            nodes.extend((0..table.nodes.len()).filter(|at| label(table, *at, key) == Some(place)));
        }
    }
    nodes
}

/// Whether `term` of a pod in namespace `own` selects `placed`.
fn is_selected(term: &PodAffinityTerm, own: &str, apart: bool, placed: &PlacedPod<'_>) -> bool {
    reaches(term, own, placed.namespace, apart)
        && selects(term.label_selector.as_ref(), placed.labels)
}

/// Whether `term` of a pod in namespace `own` is about pods in `namespace`.
fn reaches(term: &PodAffinityTerm, own: &str, namespace: &str, apart: bool) -> bool {
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let selects_any = term.namespace_selector.is_some();
    if listed.iter().any(|name| name == namespace) {
        return true;
    }
    match (listed.is_empty(), selects_any) {
        (true, false) => own == namespace,
        (_, true) => apart || own == namespace,
        (false, false) => false,
    }
}

/// The selector of a spread constraint with the values that `matchLabelKeys` adds.
fn with_label_keys(spread: &TopologySpreadConstraint, shape: &Shape) -> Option<LabelSelector> {
    let mut selector = spread.label_selector.clone()?;
    for key in spread.match_label_keys.iter().flatten() {
        if let Some(value) = shape.labels.get(key) {
            selector
                .match_expressions
                .get_or_insert_default()
                .push(LabelSelectorRequirement {
                    key: key.clone(),
                    operator: "In".to_owned(),
                    values: Some(vec![value.clone()]),
                });
        }
    }
    Some(selector)
}

/// The value of a node's label; a node is called by its name where it has no label for that.
fn label<'a>(table: &NodeTable<'a>, node: usize, key: &str) -> Option<&'a str> {
    let own = table.nodes[node].labels.get(key).map(String::as_str);
    own.or_else(|| (key == "kubernetes.io/hostname").then(|| table.names[node]))
}

/// The domains of a label key, numbered, and how many there are.
fn domains(table: &NodeTable<'_>, key: &str) -> (Vec<u32>, usize) {
    let mut numbers = std::collections::BTreeMap::new();
    let of_node = (0..table.nodes.len())
        .map(|at| match label(table, at, key) {
            Some(value) => {
                let next = u32::try_from(numbers.len()).unwrap_or(NO_DOMAIN);
                *numbers.entry(value).or_insert(next)
            }
            None => NO_DOMAIN,
        })
        .collect();
    (of_node, numbers.len())
}
