//! The network attachment that a fabric describes.
//!
//! Owns the JSON of each plugin as its own documentation has it. What a fabric may say of its
//! network is checked where it is read.

use serde_json::{Map, Value, json};

use super::{Addresses, Fabric, Network, attachment::Attachment};

/// The kind of what is generated.
pub const ATTACHMENT_KIND: &str = "NetworkAttachmentDefinition";
/// The annotation of an attachment that names the resource of the node its devices are counted as.
pub const RESOURCE_NAME: &str = "k8s.v1.cni.cncf.io/resourceName";

pub(super) const PLUGINS: [&str; 4] = ["macvlan", "ipvlan", "host-device", "ib-sriov"];
pub(super) const MACVLAN_MODES: [&str; 4] = ["bridge", "private", "vepa", "passthru"];
pub(super) const IPVLAN_MODES: [&str; 3] = ["l2", "l3", "l3s"];
pub(super) const ADDRESSERS: [&str; 3] = ["whereabouts", "host-local", "dhcp"];

/// Namespace and name of the attachment that is generated from `fabric`: its first one, else its own
/// name.
pub fn attachment_name(fabric: &Fabric) -> (Option<String>, String) {
    let first = fabric
        .spec
        .attachments
        .as_ref()
        .and_then(|list| list.first());
    let first = first.map(|text| Attachment::parse(text));
    let network = fabric.spec.network.as_ref();
    let stated = network.and_then(|network| network.namespace.clone());
    match first {
        Some(first) => (stated.or(first.namespace), first.name),
        None => (stated, fabric.name.clone()),
    }
}

/// The network attachment of `fabric`, where it describes a network.
pub fn attachment(fabric: &Fabric) -> Option<Value> {
    let network = fabric.spec.network.as_ref()?;
    let config = plugin(fabric)?;
    let (namespace, name) = attachment_name(fabric);
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    if let Some(namespace) = namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    if let Some(resource) = &network.resource_name {
        metadata.insert("annotations".to_owned(), json!({RESOURCE_NAME: resource}));
    }
    Some(json!({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": ATTACHMENT_KIND,
        "metadata": metadata,
        "spec": {"config": config.to_string()},
    }))
}

/// The configuration of the plugin of `fabric`, where it describes a network.
pub(crate) fn plugin(fabric: &Fabric) -> Option<Value> {
    let network = fabric.spec.network.as_ref()?;
    let (_, name) = attachment_name(fabric);
    let mtu = fabric.spec.expects.as_ref().and_then(|expects| expects.mtu);
    Some(config(&name, network, mtu))
}

fn config(name: &str, network: &Network, mtu: Option<i64>) -> Value {
    let plugin = network.plugin.as_deref().unwrap_or_default();
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| {
        config.insert(key.to_owned(), value);
    };
    set("cniVersion", json!("1.0.0"));
    set("name", json!(name));
    set("type", json!(plugin));
    if let Some(master) = &network.master {
        set("master", json!(master));
    }
    match (plugin, &network.mode) {
        (_, Some(mode)) => set("mode", json!(mode)),
        ("macvlan", None) => set("mode", json!("bridge")),
        ("ipvlan", None) => set("mode", json!("l2")),
        _ => {}
    }
    if let (Some(mtu), "macvlan" | "ipvlan") = (mtu, plugin) {
        set("mtu", json!(mtu));
    }
    if let Some(device) = &network.device {
        set("device", json!(device));
    }
    if let Some(pkey) = &network.pkey {
        set("pkey", json!(pkey));
    }
    if let Some(addresses) = &network.addresses {
        set("ipam", ipam(addresses));
    }
    Value::Object(config)
}

fn ipam(addresses: &Addresses) -> Value {
    let by = addresses.by.as_deref().unwrap_or_default();
    let mut ipam = Map::new();
    let mut set = |key: &str, value: Value| {
        ipam.insert(key.to_owned(), value);
    };
    set("type", json!(by));
    match by {
        "host-local" => {
            let mut range = Map::new();
            let parts = [
                ("subnet", &addresses.range),
                ("rangeStart", &addresses.first),
                ("rangeEnd", &addresses.last),
                ("gateway", &addresses.gateway),
            ];
            for (key, part) in parts {
                if let Some(part) = part {
                    range.insert(key.to_owned(), json!(part));
                }
            }
            set("ranges", json!([[range]]));
        }
        "whereabouts" => {
            let parts = [
                ("range", &addresses.range),
                ("range_start", &addresses.first),
                ("range_end", &addresses.last),
                ("gateway", &addresses.gateway),
            ];
            for (key, part) in parts {
                if let Some(part) = part {
                    set(key, json!(part));
                }
            }
            if let Some(exclude) = &addresses.exclude {
                set("exclude", json!(exclude));
            }
        }
        _ => {}
    }
    Value::Object(ipam)
}
