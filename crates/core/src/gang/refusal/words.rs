//! The numbers of a refusal as words.

use std::collections::BTreeSet;

use super::{Count, is_single};
use crate::{
    gang::{
        Gang, GangKey,
        amounts::Need,
        ask::{Ask, Group},
        eligible::Bar,
        node_table::NodeTable,
    },
    resources::{CPU, MEMORY, PODS, is_accelerator},
    spec::Wish,
};

/// Holders that are named before the rest is only counted.
const NAMED: usize = 3;

/// The parts of the sentence: what is needed, what there is, where the rest is. `named` gets the gangs that it names.
pub(super) fn sentence(
    table: &NodeTable<'_>,
    ask: &Ask<'_>,
    groups: &[Group],
    count: &Count<'_>,
    promised: Option<&Gang>,
    named: &mut BTreeSet<GangKey>,
) -> Vec<String> {
    let mut parts = vec![needs(table, ask, &groups[0], count)];
    if count.best >= count.wanted {
        let lacking = lacking(table, groups);
        parts.push(missing_beside(table, ask, lacking));
        parts.extend(lacking.into_iter().flat_map(|group| absent(table, group)));
        return parts;
    }
    parts.push(match count.name {
        Some(name) => format!(
            "best {} `{name}` has {}",
            table.tier_names[count.tier], count.best
        ),
        None => format!("the cluster has {}", count.best),
    });
    let mut more = "more ";
    for holder in count.holders.iter().take(NAMED) {
        let own = ask.gang.key.namespace == holder.gang.namespace;
        let name = if own {
            holder.gang.name.clone()
        } else {
            holder.gang.to_string()
        };
        named.insert(holder.gang.clone());
        parts.push(format!(
            "{} {more}{} held by `{name}`",
            holder.seats,
            is_or_are(holder.seats)
        ));
        more = "";
    }
    let others = count.holders.iter().skip(NAMED);
    let seats: usize = others.clone().map(|holder| holder.seats).sum();
    if seats > 0 {
        parts.push(format!("{seats} by {} other gangs", others.count()));
    }
    if let (Some(gang), true) = (promised, count.kept > 0) {
        named.insert(gang.key.clone());
        parts.push(format!(
            "{} {} reserved for `{}`, which waits longer or has a higher priority",
            count.kept,
            is_or_are(count.kept),
            gang.key.name
        ));
    }
    if count.foreign > 0 {
        parts.push(format!(
            "{} {} used by other pods",
            count.foreign,
            is_or_are(count.foreign)
        ));
    }
    parts.extend(absent(table, &groups[0]));
    parts.extend(count.barred.iter().map(|(bar, nodes)| barred(bar, *nodes)));
    parts
}

/// `needs 8 nodes with 8 free GPUs under one rack`.
fn needs(table: &NodeTable<'_>, ask: &Ask<'_>, group: &Group, count: &Count<'_>) -> String {
    let each = amounts(table, group);
    let accelerators = accelerators(table, group);
    let wanted = count.wanted;
    let what = if accelerators > 0 && is_single(table, group) {
        let nodes = if wanted == 1 { "node" } else { "nodes" };
        let mut what = format!(
            "{wanted} {nodes} with {accelerators} free {}",
            gpu_word(accelerators)
        );
        for device in devices(table, group) {
            what.push_str(" and ");
            what.push_str(&device);
        }
        what
    } else if wanted == 1 {
        format!("a seat with {each}")
    } else {
        format!("{wanted} seats with {each} each")
    };
    let mut words = format!("needs {what}");
    if ask.top > 0 {
        words.push_str(" under one ");
        words.push_str(table.tier_names[ask.top]);
    }
    if ask.traffic.tensor_group > 1
        && ask
            .grains
            .iter()
            .all(|way| way.iter().any(|grain| *grain > 1))
    {
        let together = ask.traffic.tensor_group;
        words = format!("{words}, {together} beside each other");
    }
    words
}

/// Resources that no node has as much of as one pod needs, even when it is empty.
fn absent(table: &NodeTable<'_>, group: &Group) -> Vec<String> {
    let lacking = group.need.iter().filter(|(at, amount)| {
        let need: Need = vec![(*at, *amount)];
        let mut nodes = (0..table.nodes.len()).filter(|node| group.eligible[*node]);
        nodes.all(|node| table.fits_when_bare(node, &need) == 0)
    });
    let words = lacking.map(|(at, amount)| match table.resources[*at] {
        CPU | MEMORY => "no node is that large".to_owned(),
        name if (0..table.nodes.len())
            .all(|node| table.fits_when_bare(node, &vec![(*at, 1)]) == 0) =>
        {
            format!("no node reports any `{name}`")
        }
        name => format!("no node has {}", device(name, *amount)),
    });
    words.collect()
}

/// The group that finds no room where the largest one by itself would fit.
fn lacking<'g>(table: &NodeTable<'_>, groups: &'g [Group]) -> Option<&'g Group> {
    groups.iter().skip(1).find(|group| {
        let fits: usize = (0..table.nodes.len())
            .filter(|node| group.eligible[*node])
            .map(|node| table.usable.fits(node, &group.need) as usize)
            .sum();
        fits < group.pods.len()
    })
}

/// What is missing where the largest group by itself would fit.
fn missing_beside(table: &NodeTable<'_>, ask: &Ask<'_>, lacking: Option<&Group>) -> String {
    match lacking {
        Some(group) => {
            let role = group
                .pods
                .first()
                .map(|pod| ask.gang.pods[*pod as usize].role);
            let role = role.map(|role| role.to_string()).unwrap_or_default();
            format!(
                "there are that many, but not {} more with {} for role {role}",
                group.pods.len(),
                amounts(table, group)
            )
        }
        None if ask.is_mutual => {
            "there are that many, but pod affinity and topology spread constraints rule them out"
                .to_owned()
        }
        None => "there are that many, but not for all pods together".to_owned(),
    }
}

pub(super) fn no_such_level(table: &NodeTable<'_>, ask: &Ask<'_>) -> String {
    let wish = ask
        .gang
        .wish
        .as_ref()
        .map(Wish::to_string)
        .unwrap_or_default();
    let levels: Vec<String> = table
        .tier_names
        .iter()
        .skip(1)
        .map(|name| format!("`{name}`"))
        .collect();
    format!(
        "asks for `{wish}`, and the cluster has no such level; it has {}",
        levels.join(", ")
    )
}

fn barred(bar: &Bar, nodes: usize) -> String {
    let (noun, be) = if nodes == 1 {
        ("node", "is")
    } else {
        ("nodes", "are")
    };
    match bar {
        Bar::NotReady => format!("{nodes} {noun} {be} not ready"),
        Bar::Quarantined => format!("{nodes} {noun} {be} quarantined"),
        Bar::Probation => format!("{nodes} {noun} {be} on probation"),
        Bar::Cordoned => format!("{nodes} {noun} {be} cordoned"),
        Bar::Taint(key) => {
            let have = if nodes == 1 { "has" } else { "have" };
            format!("{nodes} {noun} {have} the taint `{key}`, which the pods do not tolerate")
        }
        Bar::Selector => format!("{nodes} {noun} {be} excluded by `nodeSelector`"),
        Bar::Affinity => format!("{nodes} {noun} {be} excluded by the required node affinity"),
    }
}

/// `8 GPUs`.
pub(super) fn gpus(count: i64) -> String {
    format!("{count} {}", gpu_word(count))
}

fn gpu_word(count: i64) -> &'static str {
    if count == 1 { "GPU" } else { "GPUs" }
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

fn accelerators(table: &NodeTable<'_>, group: &Group) -> i64 {
    let named = group
        .need
        .iter()
        .map(|(at, amount)| (table.resources[*at], amount));
    named
        .filter(|(name, _)| is_accelerator(name))
        .map(|(_, amount)| amount)
        .sum()
}

/// `` 1 `rdma/hca` ``, for every resource that is neither usual nor an accelerator.
fn devices(table: &NodeTable<'_>, group: &Group) -> Vec<String> {
    let named = group
        .need
        .iter()
        .map(|(at, amount)| (table.resources[*at], amount));
    named
        .filter(|(name, _)| ![CPU, MEMORY, PODS].contains(name) && !is_accelerator(name))
        .map(|(name, amount)| device(name, *amount))
        .collect()
}

/// `` 1 `rdma/hca` ``, or `` 5120 MiB `ephemeral-storage` `` for what is counted in bytes.
fn device(name: &str, amount: i64) -> String {
    if name == "ephemeral-storage" || name.starts_with("hugepages-") {
        format!("{} `{name}`", mebibytes(amount))
    } else {
        format!("{amount} `{name}`")
    }
}

fn mebibytes(amount: i64) -> String {
    format!("{} MiB", amount.saturating_add((1 << 20) - 1) >> 20)
}

/// `8 GPUs, 4 CPUs and 16 GiB`; resources that every pod asks for are left out.
fn amounts(table: &NodeTable<'_>, group: &Group) -> String {
    let mut words = Vec::new();
    let accelerators = accelerators(table, group);
    if accelerators > 0 {
        words.push(gpus(accelerators));
    }
    for (at, amount) in &group.need {
        match table.resources[*at] {
            CPU if amount % 1000 == 0 => words.push(format!("{} CPUs", amount / 1000)),
            CPU => words.push(format!("{amount}m CPU")),
            MEMORY => words.push(mebibytes(*amount)),
            _ => {}
        }
    }
    words.extend(devices(table, group));
    match words.split_last() {
        None => "room for a pod".to_owned(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
