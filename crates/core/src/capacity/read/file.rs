//! The file of an administrator: `kind: Capacity`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{MAX_SHAPES, NotAnOffer, fields::Fields};
use crate::capacity::{Bound, NodeShape, Offer, Pool, Source, offer::NODES};

/// The API group of the file.
pub(super) const GROUP: &str = "trainyard.dev";

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// The offer of `value`, and its instance types that are of no pool.
pub(super) fn read(value: &Value) -> Result<(Offer, Vec<NodeShape>), NotAnOffer> {
    let known = [
        "apiVersion",
        "kind",
        "metadata",
        "currency",
        "pools",
        "instanceTypes",
    ];
    let own = Fields::of(value, "Capacity", &known)?;
    let mut offer = Offer {
        currency: own.text("currency")?,
        ..Offer::default()
    };
    let types = shapes(&own, "instanceTypes", "Capacity")?;
    let pools = own.list("pools")?;
    if pools.len() > super::MAX_POOLS {
        return Err(NotAnOffer::TooMany {
            what: "pools",
            most: super::MAX_POOLS,
        });
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for (at, item) in pools.iter().enumerate() {
        let pool = pool(item, at)?;
        if let Some(first) = names.insert(pool.name.clone(), at) {
            return Err(own.error(format!(
                "pools[{first}] and pools[{at}] are both called `{}`",
                pool.name
            )));
        }
        offer.pools.push(pool);
    }
    Ok((offer, types))
}

fn pool(value: &Value, at: usize) -> Result<Pool, NotAnOffer> {
    let known = [
        "name", "weight", "labels", "taints", "zones", "atMost", "shapes",
    ];
    let own = Fields::of(value, format!("pools[{at}]"), &known)?;
    let name = own
        .text("name")?
        .ok_or_else(|| own.error("has no `name`"))?;
    let own = Fields::of(value, format!("pool `{name}`"), &known)?;
    let shapes = shapes(&own, "shapes", &format!("pool `{name}`"))?;
    let limits = own.amounts("atMost")?.into_iter();
    Ok(Pool {
        source: Source::File,
        weight: own.whole("weight", 0, 1_000_000)?.unwrap_or(0),
        labels: own.texts_by_name("labels")?,
        choices: zones(&own)?,
        open_labels: BTreeMap::new(),
        taints: own.taints("taints")?,
        has_unknown_shapes: shapes.is_empty(),
        shapes,
        limits: limits
            .map(|(name, limit)| (name, Bound { limit, used: 0 }))
            .collect(),
        halt: None,
        members: BTreeSet::new(),
        starting: 0,
        min_values: BTreeMap::new(),
        name,
    })
}

fn shapes(own: &Fields<'_>, key: &str, place: &str) -> Result<Vec<NodeShape>, NotAnOffer> {
    let items = own.list(key)?;
    if items.len() > MAX_SHAPES {
        return Err(NotAnOffer::TooMany {
            what: "shapes of nodes",
            most: MAX_SHAPES,
        });
    }
    let shapes = items.iter().enumerate();
    shapes
        .map(|(at, item)| shape(item, &format!("{place}, {key}[{at}]"), place))
        .collect()
}

fn shape(value: &Value, place: &str, parent: &str) -> Result<NodeShape, NotAnOffer> {
    let known = [
        "name",
        "allocatable",
        "daemons",
        "labels",
        "taints",
        "zones",
        "atMost",
        "pricePerHour",
        "readyAfter",
    ];
    let own = Fields::of(value, place, &known)?;
    let name = own
        .text("name")?
        .ok_or_else(|| own.error("has no `name`"))?;
    let own = Fields::of(value, format!("{parent}, shape `{name}`"), &known)?;
    let capacity = own.resources("allocatable")?;
    if own.get("allocatable").is_none() || capacity.iter().next().is_none() {
        return Err(own.error(
            "has no `allocatable`; copy it from such a node: `kubectl get node NODE -o yaml`",
        ));
    }
    let mut allocatable = capacity.clone();
    for (resource, taken) in own.amounts("daemons")? {
        let left = allocatable.get(&resource).saturating_sub(taken);
        if left < 0 {
            return Err(own.error(format!(
                "`daemons` take more `{resource}` than `allocatable` has"
            )));
        }
        allocatable.set(&resource, left);
    }
    let mut labels = own.texts_by_name("labels")?;
    labels
        .entry(INSTANCE_TYPE.to_owned())
        .or_insert_with(|| name.clone());
    let at_most = own.amounts("atMost")?;
    if let Some(other) = at_most.keys().find(|key| *key != NODES) {
        return Err(own.error(format!(
            "`atMost` of a shape counts `nodes` only; move `{other}` to the pool"
        )));
    }
    Ok(NodeShape {
        labels,
        choices: zones(&own)?,
        taints: own.taints("taints")?,
        allocatable,
        capacity,
        price: own.price("pricePerHour")?,
        at_most: at_most
            .get(NODES)
            .and_then(|nodes| u64::try_from(*nodes).ok()),
        ready_seconds: own.seconds("readyAfter")?,
        name,
        ..NodeShape::default()
    })
}

fn zones(own: &Fields<'_>) -> Result<BTreeMap<String, Vec<String>>, NotAnOffer> {
    let mut zones = own.texts("zones")?;
    zones.dedup();
    Ok(if zones.is_empty() {
        BTreeMap::new()
    } else {
        BTreeMap::from([(ZONE.to_owned(), zones)])
    })
}
