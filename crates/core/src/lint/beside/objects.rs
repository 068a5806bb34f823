//! Schedules, batch Jobs and Deployments that cannot do what they are written for.

use super::{
    super::{
        Rule,
        advice::{Advice, Look, ODD, WRONG, rule},
        command::base_name,
        companions::{Companion, Companions, at},
        scene::is_gpu,
    },
    is, items, text,
};
use crate::spec::{Node, Place, Value};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY914",
            WRONG,
            "schedule that the cluster refuses",
            "A CronJob has five fields: minute, hour, day of the month, month, day of the week. A sixth one for seconds, a number out \
             of its range and a time zone in the schedule are refused.",
        ),
        look: Look::Companion(schedule),
    },
    Advice {
        rule: rule(
            "TY915",
            WRONG,
            "batch Job with fewer pods than nodes",
            "torchrun waits until as many agents have joined as `--nnodes` says. A batch Job runs `parallelism` pods at a time, one \
             where it states none, so the others never join.",
        ),
        look: Look::Companion(too_few_pods),
    },
    Advice {
        rule: rule(
            "TY916",
            ODD,
            "training in an object that never ends",
            "The pods of a Deployment, StatefulSet, ReplicaSet or DaemonSet are started again whenever they end, also after \
             success: the training begins once more and keeps its GPUs.",
        ),
        look: Look::Companion(never_ends),
    },
    Advice {
        rule: rule(
            "TY917",
            WRONG,
            "selector that does not match its template",
            "The API server refuses an object whose `selector` does not match the labels of its own template.",
        ),
        look: Look::Companion(own_selector),
    },
    Advice {
        rule: rule(
            "TY918",
            WRONG,
            "pods of an object that train apart",
            "Without `--nnodes` torchrun makes a world of one node. The pods of a PyTorchJob or a TrainJob are given the number by a \
             variable, those of a batch Job, a JobSet, a StatefulSet or a Volcano Job are not: each trains the whole model by itself, and all \
             write the same checkpoints. Reported where the pods are to be one world: they have a common `MASTER_ADDR`, or start \
             together by `minAvailable`.",
        ),
        look: Look::Companion(apart),
    },
];

/// What is wrong with one field of a schedule.
fn wrong_field(field: &str, name: &str, least: u32, most: u32) -> Option<String> {
    const NAMES: [&str; 19] = [
        "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC", "SUN",
        "MON", "TUE", "WED", "THU", "FRI", "SAT",
    ];
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        if step.is_some_and(|step| {
            step.parse::<u32>().is_ok_and(|step| step == 0) || step.parse::<u32>().is_err()
        }) {
            return Some(format!("the step of `{part}` is no number above 0"));
        }
        if matches!(range, "*" | "?") {
            continue;
        }
        for end in range.splitn(2, '-') {
            if NAMES.contains(&end.to_ascii_uppercase().as_str()) && least <= 1 && most <= 12 {
                continue;
            }
            match end.parse::<u32>() {
                Ok(number) if (least..=most).contains(&number) => {}
                _ => {
                    return Some(format!(
                        "the {name} `{end}` is not between {least} and {most}"
                    ));
                }
            }
        }
    }
    None
}

/// What is wrong with a schedule.
fn wrong_schedule(schedule: &str) -> Option<String> {
    const FIELDS: [(&str, u32, u32); 5] = [
        ("minute", 0, 59),
        ("hour", 0, 23),
        ("day of the month", 1, 31),
        ("month", 1, 12),
        ("day of the week", 0, 6),
    ];
    const WORDS: [&str; 7] = [
        "@annually",
        "@daily",
        "@hourly",
        "@midnight",
        "@monthly",
        "@weekly",
        "@yearly",
    ];
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        return Some("it has a time zone".to_owned());
    }
    if schedule.starts_with('@') {
        let known = WORDS.contains(&schedule) || schedule.starts_with("@every ");
        return (!known).then(|| "the word is unknown".to_owned());
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Some(format!("it has {} fields", fields.len()));
    }
    let mut pairs = fields.iter().zip(FIELDS);
    pairs.find_map(|(field, (name, least, most))| wrong_field(field, name, least, most))
}

fn schedule(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some(found) = text(companion.tree, &["spec", "schedule"]) else {
        return;
    };
    // A template that is not filled in is another rule's.
    if !is(companion, "CronJob") || found.contains(['$', '{', '<']) {
        return;
    }
    if let Some(wrong) = wrong_schedule(found.trim()) {
        companion.place.key("spec").key("schedule").report_with(
            rule,
            format!("the schedule `{found}` is refused: {wrong}"),
            "write five fields such as `0 2 * * *`, and the time zone in `timeZone`",
        );
    }
}

/// The words of the command of a container.
fn words(container: &Node) -> impl Iterator<Item = &str> {
    let lists = ["command", "args"].into_iter();
    let list = lists.flat_map(|key| items(container, &[key]).iter().filter_map(Node::as_str));
    list.flat_map(str::split_whitespace)
}

/// The value of the option with one of `names`.
fn option<'a>(words: &[&'a str], names: [&str; 2]) -> Option<&'a str> {
    let mut places = words.iter().enumerate();
    places.find_map(|(index, word)| match word.split_once('=') {
        Some((name, value)) if names.contains(&name) => Some(value),
        None if names.contains(word) => words.get(index + 1).copied(),
        _ => None,
    })
}

/// Whether a container runs torchrun.
fn runs_torch(container: &Node) -> bool {
    words(container).any(|word| base_name(word) == "torchrun" || word == "torch.distributed.run")
}

fn too_few_pods(rule: &Rule, companion: &Companion<'_>, companions: &Companions<'_>) {
    let path: &[&str] = match companion.kind {
        "Job" => &["spec"],
        "CronJob" => &["spec", "jobTemplate", "spec"],
        _ => return,
    };
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    let Some(spec) = at(companion.tree, path).filter(|_| version.starts_with("batch/")) else {
        return;
    };
    let parallelism = match at(spec, &["parallelism"]).map(|node| &node.value) {
        None => 1,
        Some(Value::Int(count)) => u64::try_from(*count).unwrap_or_default(),
        Some(_) => return,
    };
    // Several Jobs may be the nodes of one training.
    let path_of_job = ["spec", "template", "spec", "containers"];
    let jobs = companions
        .of_kind("Job")
        .filter(|(_, _, tree)| items(tree, &path_of_job).iter().any(runs_torch));
    if jobs.count() > 1 {
        return;
    }
    let place = path
        .iter()
        .fold(companion.place.clone(), |place, key| place.key(key));
    for container in items(spec, &["template", "spec", "containers"]) {
        let words: Vec<&str> = words(container).collect();
        let rank = option(&words, ["--node_rank", "--node-rank"]);
        // With a rank of its own each Job is one of the nodes.
        if !runs_torch(container) || rank.is_some_and(|rank| rank.parse::<u32>().is_ok()) {
            continue;
        }
        let number = option(&words, ["--nnodes", "-nnodes"]);
        let number = number.and_then(|text| text.parse::<u64>().ok());
        if let Some(nodes) = number.filter(|nodes| *nodes > parallelism) {
            place.key("parallelism").report_with(
                rule,
                format!("torchrun waits for {nodes} nodes, the Job runs {parallelism} pods at a time"),
                format!("write `parallelism: {nodes}` and `completions: {nodes}`, with `completionMode: Indexed`"),
            );
        }
    }
}

/// Kinds in whose pods nobody sets the variables that torchrun reads.
const WITHOUT_VARIABLES: [&str; 3] = ["Job", "JobSet", "StatefulSet"];

fn apart(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    if !WITHOUT_VARIABLES.contains(&companion.kind) {
        return;
    }
    let Some(spec) = at(companion.tree, &["spec"]) else {
        return;
    };
    // The pods of a work queue come one after the other, each with a part of the work.
    let number = |key: &str| match at(spec, &[key]).map(|node| &node.value) {
        Some(Value::Int(count)) => *count,
        _ => 0,
    };
    if number("completions") > number("parallelism") {
        return;
    }
    let search = Search {
        together: number("minAvailable") > 1,
        root: companion.place.key("spec"),
        rule,
    };
    search.node(spec, &mut Vec::new(), 1);
}

/// A step on the way to a value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

/// The search for containers that make a world of their own.
struct Search<'a> {
    /// Whether the pods start together.
    together: bool,
    root: Place<'a>,
    rule: &'a Rule,
}

impl Search<'_> {
    /// Looks below `node`, which is at `path`. A map above it says how many pods there are.
    fn node<'n>(&self, node: &'n Node, path: &mut Vec<Step<'n>>, pods: u64) {
        match &node.value {
            Value::Map(entries) => {
                let count = |key: &str| match at(node, &[key]).map(|node| &node.value) {
                    Some(Value::Int(count)) => u64::try_from(*count).ok(),
                    _ => None,
                };
                let stated = ["replicas", "parallelism"].into_iter().filter_map(count);
                let pods = stated.fold(pods, u64::saturating_mul);
                for entry in entries.iter().filter(|entry| entry.value.is_collection()) {
                    path.push(Step::Key(&entry.key));
                    self.node(&entry.value, path, pods);
                    path.pop();
                }
            }
            Value::List(list) => {
                let are_containers = matches!(path.last(), Some(Step::Key("containers")));
                for (index, item) in list.iter().enumerate() {
                    path.push(Step::Item(index));
                    if !are_containers {
                        self.node(item, path, pods);
                    } else if pods > 1 && is_world(item, self.together) {
                        self.report(path, pods);
                    }
                    path.pop();
                }
            }
            _ => {}
        }
    }

    fn report(&self, path: &[Step<'_>], pods: u64) {
        let place = path
            .iter()
            .fold(self.root.clone(), |place, step| match step {
                Step::Key(key) => place.key(key),
                Step::Item(index) => place.index(*index),
            });
        place.report_with(
            self.rule,
            format!("each of the {pods} pods trains alone: torchrun makes a world of one node without `--nnodes`"),
            format!(
                "add `--nnodes={pods}`, `--rdzv_backend=c10d` and `--rdzv_endpoint` with the name of the first pod, or make it a \
                 PyTorchJob, which sets them"
            ),
        );
    }
}

/// Whether the container starts torchrun for one node, and its pods are to be one world.
fn is_world(container: &Node, together: bool) -> bool {
    let words: Vec<&str> = words(container).collect();
    let begins = |start: &str| words.iter().any(|word| word.starts_with(start));
    let says = |part: &str| words.iter().any(|word| word.contains(part));
    let names = || {
        items(container, &["env"])
            .iter()
            .filter_map(|item| text(item, &["name"]))
    };
    let is_stated = ["--nnodes", "-nnodes", "--rdzv", "--standalone"]
        .into_iter()
        .any(begins)
        || says("PET_")
        || names().any(|name| name.starts_with("PET_"))
        || at(container, &["envFrom"]).is_some();
    // A script may start one pod otherwise than another, or give each a part of the work.
    let decides = words
        .iter()
        .any(|word| matches!(*word, "if" | "case" | "[" | "[["))
        || [
            "COMPLETION_INDEX",
            "TASK_INDEX",
            "POD_NAME",
            "HOSTNAME",
            "hostname",
        ]
        .into_iter()
        .any(says);
    let meets = begins("--master_addr")
        || begins("--master-addr")
        || says("MASTER_ADDR=")
        || names().any(|name| name == "MASTER_ADDR");
    runs_torch(container) && !is_stated && !decides && (meets || together)
}

/// Kinds whose pods are started again whenever they end.
const ENDLESS: [&str; 4] = ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"];

fn never_ends(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    const LAUNCHERS: [&str; 4] = ["torchrun", "horovodrun", "mpirun", "deepspeed"];
    if !ENDLESS.contains(&companion.kind) {
        return;
    }
    let path = ["spec", "template", "spec", "containers"];
    let place = path
        .iter()
        .fold(companion.place.clone(), |place, key| place.key(key));
    for (index, container) in items(companion.tree, &path).iter().enumerate() {
        // What has a port or a probe serves, with as many processes as it needs.
        let serves = ["ports", "readinessProbe", "livenessProbe", "startupProbe"]
            .iter()
            .any(|key| at(container, &[key]).is_some());
        let limits = at(container, &["resources", "limits"]).map(|limits| &limits.value);
        let on_gpus = matches!(limits, Some(Value::Map(entries)) if entries.iter().any(|entry| is_gpu(&entry.key)));
        let words: Vec<&str> = words(container).collect();
        let launcher = words
            .iter()
            .find(|word| LAUNCHERS.contains(&base_name(word)));
        // `--model finetuned-llama` is what a server loads.
        let is_script = |name: &str| matches!(name.rsplit_once('.'), Some((_, "py" | "sh")));
        let trains = words.iter().any(|word| {
            let name = base_name(word);
            is_script(name) && (name.contains("train") || name.contains("tune"))
        });
        // A shell that sleeps when its program has ended does not start it again.
        let stays = words
            .iter()
            .any(|word| matches!(*word, "infinity" | "tail"));
        if let Some(launcher) = launcher.filter(|_| on_gpus && trains && !serves && !stays) {
            place.index(index).report_with(
                rule,
                format!(
                    "`{}` is started again by the {} after it has trained",
                    base_name(launcher),
                    companion.kind
                ),
                "make it a job, such as a PyTorchJob, or a batch Job for one pod",
            );
        }
    }
}

fn own_selector(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    if !ENDLESS.contains(&companion.kind) || version != "apps/v1" {
        return;
    }
    // A patch of an object states a part of it.
    if items(companion.tree, &["spec", "template", "spec", "containers"]).is_empty() {
        return;
    }
    let selector = at(companion.tree, &["spec", "selector", "matchLabels"]);
    let Some(Value::Map(entries)) = selector.map(|node| &node.value) else {
        return;
    };
    let path = ["spec", "template", "metadata", "labels"];
    let place = companion
        .place
        .key("spec")
        .key("selector")
        .key("matchLabels");
    for entry in entries {
        let Some(wanted) = entry.value.as_str() else {
            continue;
        };
        let labels = at(companion.tree, &path);
        let found = labels.and_then(|labels| text(labels, &[&entry.key]));
        if found != Some(wanted) {
            place.key(&entry.key).report_with(
                rule,
                format!(
                    "the selector wants `{}: {wanted}`, the template has {}",
                    entry.key,
                    found.map_or_else(|| "no such label".to_owned(), |found| format!("`{found}`"))
                ),
                format!("label the template with `{}: {wanted}`", entry.key),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        for right in [
            "0 2 * * *",
            "*/15 * * * *",
            "0 2 * * 1-5",
            "0 0 1,15 * *",
            "@daily",
            "@every 1h",
            "30 4 * JAN-MAR MON",
            "0 2 * * ?",
        ] {
            assert_eq!(wrong_schedule(right), None, "{right}");
        }
        for wrong in [
            "0 0 2 * * *",
            "60 * * * *",
            "0 24 * * *",
            "0 2 0 * *",
            "0 2 * *",
            "TZ=UTC 0 2 * * *",
            "@sometimes",
            "*/0 * * * *",
            "at two",
        ] {
            assert!(wrong_schedule(wrong).is_some(), "{wrong}");
        }
    }
}
