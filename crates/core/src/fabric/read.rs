//! From a document, or an object of the API, to a [`Fabric`], with every mistake at its place.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use thiserror::Error;

use super::{
    API_VERSION, Addresses, Expected, Fabric, FabricSpec, KIND, Network, Rdma,
    attachment::Attachment, network, ranges::Range,
};
use crate::{
    finding::{Finding, Severity, Span, catalogue},
    quantity,
    spec::{Collector, Document, Node, Place, decode, is_subdomain, nearest, wire::Object},
};

/// Most variables of a fabric: it is kept in the status of every job on it.
const MAX_VARIABLES: usize = 64;
/// Most characters of one value, for the same reason.
const MAX_VALUE: usize = 512;
/// Most networks of a pod.
const MAX_ATTACHMENTS: usize = 16;
/// Longest name of an interface in Linux.
const MAX_INTERFACE: usize = 15;

const TRANSPORTS: [&str; 4] = ["ib", "roce", "socket", "ofi"];

/// The result of reading a fabric.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The fabric; there unless a finding is an error.
    pub fabric: Option<Fabric>,
    /// Everything found, in the order of position.
    pub findings: Vec<Finding>,
}

/// Reads `document`, which [`is a fabric`](Document::is_fabric).
pub fn read(document: &Document) -> Read {
    read_tree(&document.tree, &document.source)
}

/// Why an object of the API is not a fabric.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAFabric {
    /// It cannot be read.
    #[error("it is nested too deeply")]
    TooDeep,
    /// It has no name.
    #[error("it has no name")]
    Unnamed,
    /// It is not valid; the first mistake.
    #[error("{0}")]
    Invalid(Box<Finding>),
}

/// Reads an object of the API, which has no positions.
pub fn read_value(value: &serde_json::Value) -> Result<Fabric, NotAFabric> {
    let tree = Node::from_json(value).ok_or(NotAFabric::TooDeep)?;
    let Read { fabric, findings } = read_tree(&tree, "");
    let mut findings = findings.into_iter();
    let error = findings.find(|finding| finding.severity == Severity::Error);
    fabric.ok_or_else(|| {
        error.map_or(NotAFabric::Unnamed, |first| {
            NotAFabric::Invalid(Box::new(first))
        })
    })
}

fn read_tree(tree: &Node, source: &str) -> Read {
    let collector = Collector::default();
    let object: Object<FabricSpec> = decode(tree, source, &collector);
    let root = Place::root(tree, &collector);
    if object.api_version != API_VERSION {
        root.key("apiVersion").report_with(
            &catalogue::WRONG_API_VERSION,
            format!(
                "`{KIND}` is not read in apiVersion `{}`",
                object.api_version
            ),
            format!("write `apiVersion: {API_VERSION}`"),
        );
    }
    let name = name(&root.key("metadata"), &object.metadata);
    check(&root.key("spec"), &object.spec);
    let failed = collector.failed();
    let fabric = name.filter(|_| !failed).map(|name| Fabric {
        name,
        spec: object.spec,
    });
    drop(root);
    Read {
        fabric,
        findings: collector.finish(),
    }
}

fn bad(place: &Place<'_>, message: impl Into<String>) {
    place.report(&catalogue::BAD_FABRIC, message);
}

fn name(metadata: &Place<'_>, meta: &ObjectMeta) -> Option<String> {
    let place = metadata.key("name");
    match meta.name.as_deref() {
        Some(name) if is_subdomain(name) => {
            if meta.namespace.is_some() {
                bad(
                    &metadata.key("namespace"),
                    "a fabric is cluster-scoped and has no namespace",
                );
            }
            Some(name.to_owned())
        }
        Some(name) => {
            bad(
                &place,
                format!(
                    "`{name}` cannot name a fabric: it must have lower case letters, digits, `-` and `.` only"
                ),
            );
            None
        }
        None => {
            bad(&place, "the fabric has no `metadata.name`");
            None
        }
    }
}

fn check(place: &Place<'_>, spec: &FabricSpec) {
    let attached = attachments(place, spec);
    if let Some(interface) = &spec.interface {
        let place = place.key("interface");
        check_interface(&place, interface);
        let any_free = attached.iter().any(|one| one.interface.is_none());
        let stated = attached.iter().filter_map(|one| one.interface.as_ref());
        let is_there = stated.clone().any(|name| name == interface);
        if !attached.is_empty() && !any_free && !is_there {
            let stated: Vec<String> = stated.map(|name| format!("`{name}`")).collect();
            bad(
                &place,
                format!(
                    "no attachment has the interface `{interface}`; the attachments have {}",
                    stated.join(", ")
                ),
            );
        }
    }
    if let Some(rdma) = &spec.rdma {
        check_rdma(&place.key("rdma"), rdma);
    }
    let variables = place.key("variables");
    let count = spec.variables.as_ref().map_or(0, BTreeMap::len);
    if count > MAX_VARIABLES {
        bad(
            &variables,
            format!("a fabric has at most {MAX_VARIABLES} variables, found {count}"),
        );
    }
    for (name, value) in spec.variables.iter().flatten() {
        let place = variables.key(name);
        if !is_variable(name) {
            bad(&place, format!("`{name}` cannot name a variable"));
        }
        if value.chars().count() > MAX_VALUE {
            bad(
                &place,
                format!("the value of `{name}` has more than {MAX_VALUE} characters"),
            );
        }
    }
    if let Some(expects) = &spec.expects {
        check_expected(&place.key("expects"), expects);
    }
    if let Some(size) = &spec.shm
        && quantity::units(size).is_none_or(|size| size == 0)
    {
        bad(
            &place.key("shm"),
            format!("`shm` must be a size such as `64Gi`, found `{}`", size.0),
        );
    }
    if let Some(network) = &spec.network {
        check_network(&place.key("network"), network);
    }
}

fn attachments(place: &Place<'_>, spec: &FabricSpec) -> Vec<Attachment> {
    let list = place.key("attachments");
    let items = spec.attachments.iter().flatten();
    if items.clone().count() > MAX_ATTACHMENTS {
        bad(
            &list,
            format!("a pod has at most {MAX_ATTACHMENTS} attachments"),
        );
    }
    let mut found: Vec<Attachment> = Vec::new();
    for (index, text) in items.enumerate() {
        let place = list.index(index);
        let one = Attachment::parse(text);
        let names = [Some(&one.name), one.namespace.as_ref()];
        if !names.into_iter().flatten().all(|name| is_subdomain(name)) {
            bad(
                &place,
                format!("an attachment is `[namespace/]name[@interface]`, found `{text}`"),
            );
        }
        if let Some(interface) = &one.interface {
            check_interface(&place, interface);
            if found.iter().any(|other| other.interface == one.interface) {
                bad(
                    &place,
                    format!("two attachments have the interface `{interface}`"),
                );
            }
        }
        found.push(one);
    }
    found
}

fn check_interface(place: &Place<'_>, name: &str) {
    let fits = (1..=MAX_INTERFACE).contains(&name.len());
    if !fits || name.contains(|c: char| c == '/' || c == ',' || c.is_whitespace()) {
        bad(
            place,
            format!(
                "an interface has a name of 1 to {MAX_INTERFACE} characters such as `net1`, found `{name}`"
            ),
        );
    }
}

fn check_rdma(place: &Place<'_>, rdma: &Rdma) {
    match rdma.resource.as_deref() {
        Some(name) if is_extended_resource(name) => {}
        Some(name) => bad(
            &place.key("resource"),
            format!("a device is counted as a resource such as `rdma/hca`, found `{name}`"),
        ),
        None => bad(
            place,
            "`rdma` needs the `resource` that devices are counted as",
        ),
    }
    if let Some(count) = rdma.count.filter(|count| *count < 1) {
        bad(
            &place.key("count"),
            format!("`count` must be at least 1, found {count}"),
        );
    }
}

fn check_expected(place: &Place<'_>, expects: &Expected) {
    if let Some(transport) = &expects.transport {
        word(&place.key("transport"), transport, &TRANSPORTS);
    }
    // What IPv4 asks of every link, and the largest that an interface can have.
    if let Some(mtu) = expects.mtu.filter(|mtu| !(68..=65_536).contains(mtu)) {
        bad(
            &place.key("mtu"),
            format!("`mtu` is from 68 to 65536 bytes, found {mtu}"),
        );
    }
    if let Some(speed) = expects.bandwidth_gbps.filter(|speed| *speed < 1) {
        bad(
            &place.key("bandwidthGbps"),
            format!("`bandwidthGbps` is at least 1, found {speed}"),
        );
    }
}

fn word(place: &Place<'_>, found: &str, known: &[&str]) -> bool {
    if known.contains(&found) {
        return true;
    }
    let list: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
    let message = format!(
        "`{}` is one of {}, found `{found}`",
        place.name(),
        list.join(", ")
    );
    match nearest(found, known.iter().copied()) {
        Some(meant) => {
            place.report_with(
                &catalogue::BAD_FABRIC,
                message,
                format!("did you mean `{meant}`?"),
            );
        }
        None => bad(place, message),
    }
    false
}

fn check_network(place: &Place<'_>, network: &Network) {
    let Some(plugin) = network.plugin.as_deref() else {
        return bad(place, "`network` needs a `plugin`");
    };
    if !word(&place.key("plugin"), plugin, &network::PLUGINS) {
        return;
    }
    let needs = |field: &str, stated: bool, ours: bool| {
        if ours && !stated {
            bad(place, format!("the plugin `{plugin}` needs `{field}`"));
        } else if !ours && stated {
            bad(
                &place.key(field),
                format!("the plugin `{plugin}` has no `{field}`"),
            );
        }
    };
    let shares = matches!(plugin, "macvlan" | "ipvlan");
    needs("master", network.master.is_some(), shares);
    if network.mode.is_some() && !shares {
        needs("mode", true, false);
    }
    match (plugin, &network.mode) {
        ("macvlan", Some(mode)) => {
            word(&place.key("mode"), mode, &network::MACVLAN_MODES);
        }
        ("ipvlan", Some(mode)) => {
            word(&place.key("mode"), mode, &network::IPVLAN_MODES);
        }
        _ => {}
    }
    if network.pkey.is_some() && plugin != "ib-sriov" {
        needs("pkey", true, false);
    }
    match plugin {
        "host-device" if network.device.is_some() || network.resource_name.is_some() => {}
        "host-device" => bad(
            place,
            "the plugin `host-device` needs `device` or `resourceName`",
        ),
        _ => {
            if network.device.is_some() {
                needs("device", true, false);
            }
            let stated = network.resource_name.is_some();
            needs("resourceName", stated, plugin == "ib-sriov");
        }
    }
    if let Some(namespace) = &network.namespace
        && !is_subdomain(namespace)
    {
        bad(
            &place.key("namespace"),
            format!("`{namespace}` cannot name a namespace"),
        );
    }
    if let Some(addresses) = &network.addresses {
        check_addresses(&place.key("addresses"), addresses);
    }
}

fn check_addresses(place: &Place<'_>, addresses: &Addresses) {
    let Some(by) = addresses.by.as_deref() else {
        return bad(place, "`addresses` needs `by`, the IPAM plugin");
    };
    if !word(&place.key("by"), by, &network::ADDRESSERS) {
        return;
    }
    let Some(text) = addresses.range.as_deref() else {
        if by != "dhcp" {
            bad(
                place,
                format!("`{by}` needs a `range` such as `10.10.0.0/16`"),
            );
        }
        return;
    };
    let Some(range) = Range::parse(text) else {
        return bad(
            &place.key("range"),
            format!("a range is written such as `10.10.0.0/16`, found `{text}`"),
        );
    };
    let single = [
        ("first", &addresses.first),
        ("last", &addresses.last),
        ("gateway", &addresses.gateway),
    ];
    for (field, address) in single {
        let Some(address) = address else { continue };
        let one = Range::between(address, address);
        if !one.is_some_and(|one| range.contains(one)) {
            bad(
                &place.key(field),
                format!("`{field}` must be an address of `{text}`, found `{address}`"),
            );
        }
    }
    if let (Some(first), Some(last)) = (&addresses.first, &addresses.last)
        && Range::between(first, last).is_some_and(Range::is_empty)
    {
        bad(
            &place.key("last"),
            format!("`last` is before `first`: `{last}`, `{first}`"),
        );
    }
    for (index, part) in addresses.exclude.iter().flatten().enumerate() {
        if !Range::parse(part).is_some_and(|part| range.contains(part)) {
            bad(
                &place.key("exclude").index(index),
                format!("`exclude` must be a range within `{text}`, found `{part}`"),
            );
        }
    }
}

/// A name as shells and Kubernetes take it.
fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
}

/// `domain/name`, and none of Kubernetes' own.
fn is_extended_resource(name: &str) -> bool {
    name.split_once('/').is_some_and(|(domain, device)| {
        is_subdomain(domain)
            && !device.is_empty()
            && device
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
    })
}

/// A finding for a second fabric of the same name.
pub(crate) fn twice(name: &str, span: Span, first_line: usize) -> Finding {
    Finding::new(
        &catalogue::BAD_FABRIC,
        "metadata.name",
        span,
        format!("fabric `{name}` is already in this file, on line {first_line}"),
    )
}
