//! Network attachments: their JSON, their plugin, their addresses.

use serde_json::Value as Json;

use super::super::{
    Rule,
    companions::{Companion, Companions, at},
};
use crate::{
    fabric::{self, ATTACHMENT_KIND, RESOURCE_NAME, Range, ranges},
    spec::{Node, Place, nearest},
};

/// Plugins that attach a pod to a network, and come with the usual CNI packages.
const PLUGINS: [&str; 16] = [
    "bridge",
    "cilium-cni",
    "dummy",
    "host-device",
    "ib-sriov",
    "ipoib",
    "ipvlan",
    "loopback",
    "macvlan",
    "ovn-k8s-cni-overlay",
    "ovs",
    "ptp",
    "sriov",
    "tap",
    "vlan",
    "whereabouts",
];

/// Plugins that change what another one made, and attach nothing by themselves.
const CHAINED: [&str; 6] = ["bandwidth", "firewall", "portmap", "rdma", "sbr", "tuning"];

/// Plugins that put the pods of several nodes into one network.
const SPANS_NODES: [&str; 7] = [
    "host-device",
    "ib-sriov",
    "ipoib",
    "ipvlan",
    "macvlan",
    "sriov",
    "vlan",
];

fn config(tree: &Node) -> Option<Result<Json, serde_json::Error>> {
    Some(serde_json::from_str(
        at(tree, &["spec", "config"])?.as_str()?,
    ))
}

/// The plugin that attaches: the configuration itself, or the first of its list.
fn main_plugin(tree: &Node) -> Option<Json> {
    let config = config(tree)?.ok()?;
    match config.get("plugins").and_then(Json::as_array) {
        Some(plugins) => plugins.first().cloned(),
        None => Some(config),
    }
}

fn place<'a>(companion: &Companion<'a>) -> Option<Place<'a>> {
    (companion.kind == ATTACHMENT_KIND).then(|| companion.place.key("spec").key("config"))
}

pub(in crate::lint) fn json(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some(place) = place(companion) else {
        return;
    };
    if let Some(Err(error)) = config(companion.tree) {
        place.report_with(
            rule,
            format!(
                "the configuration of `{}` is not valid JSON: {error}",
                companion.name
            ),
            "lines are counted within the string; check it with `jq .`",
        );
    }
}

/// The plugin of a companion that describes a network, and where its addresses are written: an
/// attachment, or a fabric that one is generated from.
pub(super) fn network<'a>(
    companion: &Companion<'a>,
    all: &Companions<'_>,
) -> Option<(Json, Place<'a>)> {
    if let Some(place) = place(companion) {
        return Some((main_plugin(companion.tree)?, place));
    }
    let fabric = (companion.kind == fabric::KIND).then(|| all.fabrics().get(companion.name))??;
    let place = companion.place.key("spec").key("network");
    Some((fabric::plugin(fabric)?, place.key("addresses")))
}

fn address_ranges(plugin: &Json) -> Option<(String, Vec<(String, Range)>)> {
    let ipam = plugin.get("ipam")?;
    let by = ipam.get("type")?.as_str()?.to_owned();
    Some((by, ranges(ipam)))
}

pub(in crate::lint) fn overlap(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let Some((plugin, place)) = network(companion, all) else {
        return;
    };
    let Some((by, own)) = address_ranges(&plugin) else {
        return;
    };
    let is_fabric = companion.kind == fabric::KIND;
    let this = (companion.namespace, companion.name);
    // Each pair is reported once: at the later of the two by name, and at the fabric.
    let attachments = all
        .of_kind(ATTACHMENT_KIND)
        .filter(
            |(namespace, name, _)| match all.fabrics().get(companion.name) {
                Some(described) if is_fabric => fabric::attachment_name(described).1 != *name,
                _ => (*namespace, *name) < this,
            },
        )
        .filter_map(|(_, name, tree)| Some((name, main_plugin(tree)?)));
    let fabrics = all
        .fabrics()
        .iter()
        .filter(|(name, _)| is_fabric && name.as_str() < companion.name)
        .filter_map(|(name, described)| Some((name.as_str(), fabric::plugin(described)?)));
    for (name, other) in attachments.chain(fabrics) {
        let Some((other_by, others)) = address_ranges(&other) else {
            continue;
        };
        // `whereabouts` keeps one list of addresses for all of its ranges.
        if by == "whereabouts" && other_by == "whereabouts" {
            continue;
        }
        for (written, range) in &own {
            if let Some((other, _)) = others.iter().find(|(_, other)| range.overlaps(*other)) {
                place.report_with(
                    rule,
                    format!(
                        "the addresses `{written}` of `{}` overlap `{other}` of `{name}`",
                        companion.name
                    ),
                    "give each network a range of its own",
                );
            }
        }
    }
}

pub(in crate::lint) fn host_local(rule: &Rule, companion: &Companion<'_>, all: &Companions<'_>) {
    let Some((plugin, place)) = network(companion, all) else {
        return;
    };
    let kind = plugin
        .get("type")
        .and_then(Json::as_str)
        .unwrap_or_default();
    let ipam = plugin
        .get("ipam")
        .and_then(|ipam| ipam.get("type"))
        .and_then(Json::as_str);
    if ipam == Some("host-local") && SPANS_NODES.contains(&kind) {
        place.report_with(
            rule,
            format!("every node hands out the same addresses of `{}`, so pods of two nodes may have the same one", companion.name),
            "use `whereabouts`, or one attachment with a range of its own for each node",
        );
    }
}

pub(in crate::lint) fn plugin(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some((place, plugin)) = place(companion).zip(main_plugin(companion.tree)) else {
        return;
    };
    let name = companion.name;
    let Some(kind) = plugin.get("type").and_then(Json::as_str) else {
        place.report_with(
            rule,
            format!("`{name}` names no plugin"),
            "add `\"type\"` to the configuration",
        );
        return;
    };
    if CHAINED.contains(&kind) {
        place.report_with(
            rule,
            format!("the plugin `{kind}` of `{name}` attaches nothing by itself"),
            "put it after another plugin in `plugins`",
        );
        return;
    }
    if !PLUGINS.contains(&kind) {
        // A plugin of a site's own is fine; a name that is almost a known one is not.
        if let Some(meant) = nearest(kind, PLUGINS) {
            let message = format!("`{name}` names the unknown plugin `{kind}`");
            place.report_with(rule, message, format!("did you mean `{meant}`?"));
        }
        return;
    }
    let has_resource = at(companion.tree, &["metadata", "annotations", RESOURCE_NAME]).is_some();
    let names_device = [
        "device",
        "hwaddr",
        "kernelpath",
        "pciBusID",
        "deviceID",
        "auxDevice",
    ]
    .iter()
    .any(|key| plugin.get(key).is_some());
    let needs = match kind {
        "host-device" if !names_device && !has_resource => {
            "which device: `\"device\"`, `\"pciBusID\"` or the annotation"
        }
        "sriov" | "ib-sriov" if !names_device && !has_resource => {
            "a resource of the node: the annotation"
        }
        _ => return,
    };
    place.report_with(
        rule,
        format!("the plugin `{kind}` of `{name}` needs to know {needs} `{RESOURCE_NAME}`"),
        format!("annotate the attachment with `{RESOURCE_NAME}`"),
    );
}
