//! The sentences of answers.

use super::{Answer, Change, Changes, Obstacle, Order, Part, Unknown, Why, offer::NODES};
use crate::resources::{CPU, MEMORY, is_accelerator};

/// Obstacles, parts and unknown things that are named before the rest is counted.
const NAMED: usize = 4;

pub(super) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::FitsNow => "fits now".to_owned(),
        Answer::FitsAfterScaleUp { order } => {
            format!("fits after a scale-up: {}", order_words(order))
        }
        Answer::MayFit { unknown, order } => {
            // Nothing need be added for what changes by itself.
            let passes = |own: &Unknown| {
                matches!(
                    own,
                    Unknown::Nodes { .. }
                        | Unknown::Pods
                        | Unknown::OtherPods
                        | Unknown::Arriving { .. }
                )
            };
            let is_later = order.is_none() && unknown.iter().all(passes);
            let begin = if is_later {
                "may fit later"
            } else {
                "may fit after a scale-up"
            };
            let mut words = format!("{begin}; {}", list(unknown, unknown_words));
            if let Some(order) = order {
                words = format!("{words}; if so: {}", order_words(order));
            }
            words
        }
        Answer::FitsWhenOthersEnd { obstacles } => {
            let why = obstacles_words(obstacles, 0);
            format!("fits when other gangs have ended; no scale-up helps: {why}")
        }
        Answer::NeverFits(never) => {
            let why = obstacles_words(&never.obstacles, never.more_pools);
            let mut words = format!("never fits: {why}");
            if !never.changes.is_empty() {
                let changes: Vec<String> = never.changes.iter().map(changes_words).collect();
                words = format!("{words}; fits {}", changes.join(", or "));
            }
            words
        }
    }
}

/// `4 nodes `p5` of pool `gpu` (8 GPUs each); such nodes were ready after 6 min; 393.28 USD an hour`.
fn order_words(order: &Order) -> String {
    let mut parts = vec![list(&order.parts, part_words)];
    if order.pods_on_present_nodes > 0 {
        let on = order.pods_on_present_nodes;
        parts.push(format!("{on} of {} pods on nodes that exist", order.pods));
    }
    if order.unseated > 0 {
        let pods = order.pods;
        parts.push(format!(
            "starts with {pods} pods, {} more do not fit",
            order.unseated
        ));
    }
    parts.push(match order.ready_seconds {
        Some(seconds) => format!("such nodes were ready after {}", time(seconds)),
        None => "how long such nodes take is not known".to_owned(),
    });
    parts.push(match &order.price_per_hour {
        Some(price) => {
            let currency = order.currency.as_deref();
            let currency = currency.map(|own| format!(" {own}")).unwrap_or_default();
            format!("{price}{currency} an hour")
        }
        None => "the price is not known".to_owned(),
    });
    for part in &order.parts {
        if let Some(halt) = &part.halt {
            let until = halt.until.map(|at| format!(" until {at}"));
            let until = until.unwrap_or_default();
            parts.push(format!(
                "pool `{}` adds nothing{until}: {}",
                part.pool, halt.why
            ));
        }
    }
    parts.join("; ")
}

fn part_words(part: &Part) -> String {
    let mut each = Vec::new();
    if part.accelerators > 0 {
        each.push(format!("{} each", gpus(part.accelerators)));
    }
    each.extend(part.labels.iter().map(|(key, value)| {
        let short = key.rsplit('/').next().unwrap_or(key);
        format!("{short} {value}")
    }));
    let each = if each.is_empty() {
        String::new()
    } else {
        format!(" ({})", each.join(", "))
    };
    let nodes = counted(part.nodes, "node");
    format!("{nodes} `{}` of pool `{}`{each}", part.shape, part.pool)
}

fn unknown_words(unknown: &Unknown) -> String {
    match unknown {
        Unknown::Shape { pool } => format!(
            "the size of the nodes of pool `{pool}` is not known: describe them in a file (`--capacity`)"
        ),
        Unknown::Label { pool, key, value } => {
            format!("whether nodes of pool `{pool}` have the label `{key}={value}` is not known")
        }
        Unknown::Domain { pool, level } => format!(
            "whether new nodes of pool `{pool}` would be in one {level} is not known: state the label of the level under `labels` where it is"
        ),
        Unknown::Pools { why } => format!("not all that could add nodes was read: {why}"),
        Unknown::Size { pool, shape } => format!(
            "nodes `{shape}` of pool `{pool}` differ in size or taints, and only some of them are enough: describe the next in a file (`--capacity`)"
        ),
        Unknown::Resource {
            pool,
            shape,
            resource,
        } => format!(
            "how much `{resource}` a node `{shape}` of pool `{pool}` has is not known: state it under `allocatable`"
        ),
        Unknown::Key { pool, key } => format!(
            "which value of the label `{key}` new nodes of pool `{pool}` would have is not known: state it under `labels`"
        ),
        Unknown::MinValues { pool, key, least } => format!(
            "pool `{pool}` adds nodes only if at least {least} values of `{key}` are possible (`minValues`), and fewer are known"
        ),
        Unknown::Arriving { pool } => format!(
            "pool `{pool}` counts nodes that are not in the cluster yet, and whether the gang can have them is not known"
        ),
        Unknown::Nodes { nodes } => {
            let noun = counted(*nodes as u64, "node");
            let verb = if *nodes == 1 { "accepts" } else { "accept" };
            format!(
                "{noun} {verb} no pods at present (not ready, cordoned, quarantined, on probation or with a taint that passes)"
            )
        }
        Unknown::Pods => {
            "pods that Trainyard did not start take the room, and when they end is not known"
                .to_owned()
        }
        Unknown::OtherPods => {
            "the pod affinity asks for pods that are not running, and may run later".to_owned()
        }
        Unknown::Search => {
            "the search for nodes was cut short, with no plan and no proof that there is none"
                .to_owned()
        }
    }
}

fn obstacles_words(obstacles: &[Obstacle], more: usize) -> String {
    if obstacles.is_empty() {
        return "there is no pool that could add nodes".to_owned();
    }
    let mut words: Vec<String> = obstacles.iter().take(NAMED).map(obstacle_words).collect();
    let more = more + obstacles.len().saturating_sub(NAMED);
    if more > 0 {
        words.push(format!("{} more", counted(more as u64, "pool")));
    }
    words.join("; ")
}

fn obstacle_words(obstacle: &Obstacle) -> String {
    let pool = &obstacle.pool;
    let shape = obstacle.shape.as_deref().unwrap_or_default();
    match &obstacle.why {
        Why::Taint { key, .. } => {
            format!("pool `{pool}` has the taint `{key}`, which the pods do not tolerate")
        }
        Why::Selector { key, value, has } => {
            let has = match has {
                Some(has) => format!("has `{has}`"),
                None => "does not have the label".to_owned(),
            };
            format!("`nodeSelector` asks for `{key}={value}`, and pool `{pool}` {has}")
        }
        Why::Affinity => format!("the required node affinity excludes pool `{pool}`"),
        Why::TooSmall {
            resource,
            asks,
            has,
        } => format!(
            "one pod asks for {}, and `{shape}` of pool `{pool}` has {}",
            amount(resource, *asks),
            amount(resource, *has)
        ),
        Why::Limit {
            resource,
            limit,
            used,
            holds,
        } => format!(
            "pool `{pool}` is limited to {}, {} used: room for {} of the gang",
            amount(resource, *limit),
            plain(resource, *used),
            counted(*holds, "pod")
        ),
        Why::Level { level } => {
            format!("pool `{pool}` cannot add enough nodes in one {level}")
        }
        Why::Mutual => format!(
            "pod affinity and topology spread constraints rule out the nodes of pool `{pool}`"
        ),
        Why::NotAlone => format!("the nodes of pool `{pool}` are not enough for all pods together"),
    }
}

fn changes_words(changes: &Changes) -> String {
    let all: Vec<String> = changes.all.iter().map(change_words).collect();
    let nodes = changes.order.as_ref().map(|order| {
        let nodes = order.parts.iter().map(|part| part.nodes);
        counted(nodes.fold(0, u64::saturating_add), "new node")
    });
    let nodes = nodes.unwrap_or_else(|| "the nodes that exist".to_owned());
    format!("{} (on {nodes})", all.join(" and "))
}

fn change_words(change: &Change) -> String {
    match change {
        Change::Tolerate { key, value, effect } if value.is_empty() => {
            format!("with a toleration for the taint `{key}:{effect}`")
        }
        Change::Tolerate { key, value, effect } => {
            format!("with a toleration for the taint `{key}={value}:{effect}`")
        }
        Change::Unselect { key, value } => format!("without `{key}={value}` in `nodeSelector`"),
        Change::DropAffinity => "without the required node affinity".to_owned(),
        Change::Prefer { level } => format!("with `preferred={level}`"),
        Change::RaiseLimit {
            pool,
            shape,
            resource,
            from,
            to,
        } => {
            let shape = shape.as_ref().map(|own| format!(" for `{own}`"));
            let shape = shape.unwrap_or_default();
            format!(
                "with the limit of pool `{pool}`{shape} raised from {} to {}",
                plain(resource, *from),
                amount(resource, *to)
            )
        }
        Change::AskForLess { resource, from, to } => format!(
            "with {} instead of {} for each pod",
            amount(resource, *to),
            plain(resource, *from)
        ),
        Change::FewerPods { from, to } => format!("with {to} instead of {from} pods"),
    }
}

/// `8 GPUs`, `16 CPUs`, `64 GiB of memory`, `4 nodes`, `` 1 `rdma/hca` ``.
fn amount(resource: &str, amount: i64) -> String {
    let plain = plain(resource, amount);
    match resource {
        NODES => counted(u64::try_from(amount).unwrap_or(0), "node"),
        CPU if amount == 1000 => "1 CPU".to_owned(),
        CPU => format!("{plain} CPUs"),
        MEMORY => format!("{plain} of memory"),
        name if is_accelerator(name) => gpus(amount),
        name => format!("{plain} `{name}`"),
    }
}

/// The number alone.
fn plain(resource: &str, amount: i64) -> String {
    match resource {
        CPU if amount % 1000 == 0 => (amount / 1000).to_string(),
        CPU => format!("{}.{:03}", amount / 1000, amount % 1000)
            .trim_end_matches('0')
            .to_owned(),
        MEMORY | "ephemeral-storage" => bytes(amount),
        name if name.starts_with("hugepages-") => bytes(amount),
        _ => amount.to_string(),
    }
}

fn bytes(amount: i64) -> String {
    match amount {
        amount if amount % (1 << 30) == 0 => format!("{} GiB", amount >> 30),
        amount if amount % (1 << 20) == 0 => format!("{} MiB", amount >> 20),
        amount => format!("{amount} bytes"),
    }
}

fn gpus(count: i64) -> String {
    let word = if count == 1 { "GPU" } else { "GPUs" };
    format!("{count} {word}")
}

fn counted(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h", seconds.div_ceil(3_600)),
    }
}

/// The first few in words, the rest as a number.
fn list<T>(items: &[T], words: impl Fn(&T) -> String) -> String {
    let mut all: Vec<String> = items.iter().take(NAMED).map(words).collect();
    if items.len() > NAMED {
        all.push(format!("{} more", items.len() - NAMED));
    }
    match all.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}
