//! Policies about the pods of a job: who may talk to them, and how many may be evicted.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    companions::{Companion, Companions, at},
    labels::{Labelled, pairs},
};
use super::{is, items, text};
use crate::spec::Node;

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY935",
            RISKY,
            "network policy between the ranks",
            "A pod that a NetworkPolicy selects gets only what some policy allows. The ranks of a job talk to each other on ports that they choose, \
             and look names up on port 53. Where no policy of the files allows that, they wait for each other until the rendezvous times out.",
        ),
        look: Look::Companion(network),
    },
    Advice {
        rule: rule(
            "TY936",
            ODD,
            "disruption budget without pods",
            "The selector of the PodDisruptionBudget matches no pod of the files in its namespace, so it protects nothing.",
        ),
        look: Look::Companion(budget),
    },
    Advice {
        rule: rule(
            "TY937",
            WRONG,
            "disruption budget that the cluster refuses",
            "A PodDisruptionBudget has `minAvailable` or `maxUnavailable`, and not both.",
        ),
        look: Look::Companion(two_budgets),
    },
];

/// Policies from which on they are not compared.
const MANY: usize = 64;

/// Whether the selector of a policy means these pods: without labels it means all.
fn selects(selector: Option<&Node>, pods: &Labelled<'_>) -> bool {
    let Some(selector) = selector else {
        return true;
    };
    if at(selector, &["matchExpressions"]).is_some() {
        return false;
    }
    let wanted = at(selector, &["matchLabels"])
        .map(pairs)
        .unwrap_or_default();
    pods.has_all(&wanted)
}

/// Whether a peer of a rule may be the pods themselves.
fn is_peer(peer: &Node, pods: &Labelled<'_>) -> bool {
    // What these mean is not in the files.
    let other = ["ipBlock", "namespaceSelector"]
        .iter()
        .any(|key| at(peer, &[key]).is_some());
    let by_expression = at(peer, &["podSelector", "matchExpressions"]).is_some();
    other || by_expression || selects(at(peer, &["podSelector"]), pods)
}

/// Which way a rule is about: the key of its list, and of the peers in it.
type Way = (&'static str, &'static str, &'static str);
const IN: Way = ("Ingress", "ingress", "from");
const OUT: Way = ("Egress", "egress", "to");

/// Whether a policy is about one way.
fn covers(policy: &Node, (word, list, _): Way) -> bool {
    let words = items(policy, &["spec", "policyTypes"]);
    if words.is_empty() {
        return word == IN.0 || at(policy, &["spec", list]).is_some();
    }
    words.iter().any(|it| it.as_str() == Some(word))
}

fn allows_ranks(policy: &Node, (_, list, peers): Way, pods: &Labelled<'_>) -> bool {
    items(policy, &["spec", list]).iter().any(|rule| {
        let ports = items(rule, &["ports"]);
        let any_port =
            ports.is_empty() || ports.iter().any(|port| at(port, &["endPort"]).is_some());
        let peers = items(rule, &[peers]);
        let any_peer = peers.is_empty() || peers.iter().any(|peer| is_peer(peer, pods));
        (any_port || !pods.on_gpus) && any_peer
    })
}

/// Whether a policy lets the pods look names up.
fn allows_names(policy: &Node) -> bool {
    items(policy, &["spec", OUT.1]).iter().any(|rule| {
        let ports = items(rule, &["ports"]);
        let by_port = ports.iter().any(|port| {
            at(port, &["endPort"]).is_some()
                || super::number(port, &["port"]) == Some(53)
                || text(port, &["port"]).is_some()
        });
        let peers = items(rule, &["to"]);
        let leaves = peers.is_empty()
            || peers.iter().any(|peer| {
                at(peer, &["ipBlock"]).is_some() || at(peer, &["namespaceSelector"]).is_some()
            });
        (ports.is_empty() || by_port) && leaves
    })
}

fn network(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    if !is(companion, "NetworkPolicy") || !version.starts_with("networking.k8s.io/") {
        return;
    }
    // Of many policies the files are those of a whole cluster, and looking at all of them each time takes too long.
    if all.of_kind("NetworkPolicy").nth(MANY).is_some() {
        return;
    }
    let selector = at(companion.tree, &["spec", "podSelector"]);
    let gangs = all.pods.gangs(companion.namespace);
    let Some(pods) = gangs.into_iter().find(|pods| selects(selector, pods)) else {
        return;
    };
    // The policies that select the same pods; of many one may be there that allows it.
    let mut others: Vec<&Node> = Vec::new();
    for (space, _, tree) in all.of_kind("NetworkPolicy") {
        let here = space == companion.namespace;
        if here && at(tree, &["spec", "podSelector", "matchExpressions"]).is_some() {
            // It may be the one that allows it.
            return;
        }
        if here && selects(at(tree, &["spec", "podSelector"]), pods) {
            others.push(tree);
        }
    }
    for way in [IN, OUT] {
        let (word, list, _) = way;
        if !covers(companion.tree, way) {
            continue;
        }
        let mut others = others.iter().filter(|tree| covers(tree, way));
        if !others.clone().any(|tree| allows_ranks(tree, way, pods)) {
            companion.place.key("spec").key(list).report_with(
                rule,
                format!("`{}` and the other policies of the files allow the ranks of a job no {word} from each other on all ports", companion.name),
                format!("add a rule to `{list}` with a `podSelector` of the pods themselves and without `ports`"),
            );
        } else if way == OUT && !others.any(|tree| allows_names(tree)) {
            companion.place.key("spec").key(list).report_with(
                rule,
                format!("`{}` and the other policies of the files let the ranks of a job look no names up", companion.name),
                "add a rule to `egress` for port 53 with the protocols UDP and TCP",
            );
        }
    }
}

fn budget(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    if !is(companion, "PodDisruptionBudget") {
        return;
    }
    let selector = at(companion.tree, &["spec", "selector"]);
    if selector.is_none_or(|it| at(it, &["matchExpressions"]).is_some()) {
        return;
    }
    let wanted = at(companion.tree, &["spec", "selector", "matchLabels"]).map(pairs);
    let wanted = wanted
        .filter(|wanted| !wanted.is_empty())
        .unwrap_or_default();
    let namespace = companion.namespace;
    if !wanted.is_empty()
        && all.pods.has(namespace)
        && all.pods.select(namespace, &wanted).is_empty()
    {
        let labels: Vec<String> = wanted
            .iter()
            .map(|(key, value)| format!("`{key}: {value}`"))
            .collect();
        companion.place.key("spec").key("selector").report_with(
            rule,
            format!(
                "no pod of the files in `{namespace}` has the labels {}",
                labels.join(", ")
            ),
            "select `training.kubeflow.org/job-name`, or label the templates of the pods",
        );
    }
}

fn two_budgets(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let has = |key: &str| at(companion.tree, &["spec", key]).is_some();
    if is(companion, "PodDisruptionBudget") && has("minAvailable") && has("maxUnavailable") {
        companion
            .place
            .key("spec")
            .key("maxUnavailable")
            .report_with(
                rule,
                "the budget has both `minAvailable` and `maxUnavailable`",
                "remove one of the two",
            );
    }
}
