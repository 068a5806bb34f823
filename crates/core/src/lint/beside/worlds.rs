//! Ranks in objects of others: how many nodes a launcher waits for, and by which name they find the first one.
//!
//! Owns what the pods of a batch Job, a `JobSet`, a `LeaderWorkerSet`, a `StatefulSet` and a Volcano Job are called and how many
//! there are.

use super::super::{
    Rule,
    advice::{Advice, CAREFUL, Look, RISKY, WRONG, rule},
    command::base_name,
    companions::{Companion, Companions, at},
    scene::is_gpu,
};
use super::{items, number, text};
use crate::spec::{Node, Place, Value};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY924",
            WRONG,
            "nodes and pods of an object disagree",
            "torchrun waits until as many agents have joined as `--nnodes` says. With fewer pods than that it waits until its timeout; with \
             more, those above the number find the rendezvous closed. Looked for in a JobSet, a LeaderWorkerSet, a StatefulSet and a Volcano \
             Job; of several replicas each may be a world of its own.",
        ),
        look: Look::Companion(nodes),
    },
    Advice {
        rule: rule(
            "TY925",
            RISKY,
            "gang of another size than the job",
            "Volcano starts the pods when nodes for `minAvailable` of them are free. With more than the tasks have in all, the job is refused or \
             never starts. With fewer than torchrun waits for, a part of the ranks holds its GPUs until the others fit.",
        ),
        look: Look::Companion(gang),
    },
    Advice {
        rule: rule(
            "TY926",
            WRONG,
            "rendezvous host that no name server knows",
            "The pods of an Indexed Job have the names `<job>-<index>.<subdomain>` if their template has that `subdomain`, those of a \
             StatefulSet `<set>-<index>.<serviceName>`, those of a JobSet `<set>-<job>-<index>-<pod>.<set>`. For a Job and a StatefulSet a \
             headless Service must have the name of the subdomain: `clusterIP: None`. Otherwise every rank waits for a name that nobody knows.",
        ),
        look: Look::Companion(host),
    },
    Advice {
        rule: rule(
            "TY927",
            WRONG,
            "index of a Job that has none",
            "Only the pods of a Job with `completionMode: Indexed` have `JOB_COMPLETION_INDEX`. In the pods of another Job it is empty, so all of \
             them do the same part of the work.",
        ),
        look: Look::Companion(index),
    },
];

/// The rules about plugins and restarts of others, which have later codes.
pub(in crate::lint) static LATER_RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY939",
            RISKY,
            "Volcano plugin that is missing",
            "The hosts in `/etc/volcano` and the names of the pods are made by the plugin `svc` of a Volcano Job, and `MASTER_ADDR`, `RANK` and \
             `WORLD_SIZE` by the plugin `pytorch`. Without it the file, or the variable, is not there.",
        ),
        look: Look::Companion(plugins),
    },
    Advice {
        rule: rule(
            "TY940",
            CAREFUL,
            "JobSet that the first failure ends",
            "A JobSet without a `failurePolicy` fails when one of its Jobs does, and a Job with a `backoffLimit` of 0 when one of its pods does. So \
             the first pod that is lost ends the training, though the next attempt would resume from the last checkpoint.",
        ),
        look: Look::Companion(first_failure),
    },
    Advice {
        rule: rule(
            "TY941",
            WRONG,
            "PriorityClass that the cluster refuses",
            "The names that begin with `system-` and the values above 1,000,000,000 are those of the system.",
        ),
        look: Look::Companion(class),
    },
];

/// The words of the command of a container.
fn words(container: &Node) -> Vec<&str> {
    let lists = ["command", "args"].into_iter();
    let list = lists.flat_map(|key| items(container, &[key]).iter().filter_map(Node::as_str));
    list.flat_map(str::split_whitespace).collect()
}

/// The value of the option with one of `names`.
fn option<'a>(words: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut places = words.iter().enumerate();
    places.find_map(|(index, word)| match word.split_once('=') {
        Some((name, value)) if names.contains(&name) => Some(value.trim_matches(['"', '\''])),
        None if names.contains(word) => words.get(index + 1).copied(),
        _ => None,
    })
}

/// The number of nodes that a container waits for, where it is one number.
fn waits_for(container: &Node) -> Option<u64> {
    let words = words(container);
    let runs = words
        .iter()
        .any(|word| base_name(word) == "torchrun" || *word == "torch.distributed.run");
    option(&words, &["--nnodes"]).filter(|_| runs)?.parse().ok()
}

/// Pods of one template.
struct Group<'a> {
    name: &'a str,
    /// Objects of the template, such as the Jobs of a `JobSet`.
    copies: u64,
    /// Pods of each.
    pods: u64,
    spec: &'a Node,
    place: Place<'a>,
}

impl Group<'_> {
    fn nodes(&self) -> Option<u64> {
        let containers = items(self.spec, &["containers"]);
        containers.iter().find_map(waits_for)
    }
}

fn count(node: &Node, path: &[&str]) -> Option<u64> {
    match at(node, path).map(|node| &node.value) {
        None => Some(1),
        Some(Value::Int(count)) => u64::try_from(*count).ok(),
        Some(_) => None,
    }
}

/// The pods of an object; none where the kind is another, or a number is still to be filled in.
fn groups<'a>(companion: &Companion<'a>) -> Option<Vec<Group<'a>>> {
    let tree = companion.tree;
    let version = text(tree, &["apiVersion"])?;
    let group = version.split('/').next().unwrap_or_default();
    let root = companion.place.key("spec");
    let pods_of = |path: &[&str]| at(tree, path);
    match (group, companion.kind) {
        ("jobset.x-k8s.io", "JobSet") => {
            let list = root.key("replicatedJobs");
            let jobs = items(tree, &["spec", "replicatedJobs"]).iter().enumerate();
            jobs.map(|(index, job)| {
                Some(Group {
                    name: text(job, &["name"])?,
                    copies: count(job, &["replicas"])?,
                    pods: count(job, &["template", "spec", "parallelism"])?,
                    spec: at(job, &["template", "spec", "template", "spec"])?,
                    place: list
                        .index(index)
                        .key("template")
                        .key("spec")
                        .key("parallelism"),
                })
            })
            .collect()
        }
        ("batch.volcano.sh", "Job") => {
            let list = root.key("tasks");
            let tasks = items(tree, &["spec", "tasks"]).iter().enumerate();
            tasks
                .map(|(index, task)| {
                    Some(Group {
                        name: text(task, &["name"]).unwrap_or_default(),
                        copies: 1,
                        pods: count(task, &["replicas"])?,
                        spec: at(task, &["template", "spec"])?,
                        place: list.index(index).key("replicas"),
                    })
                })
                .collect()
        }
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet") => {
            let path = ["spec", "leaderWorkerTemplate", "workerTemplate", "spec"];
            Some(vec![Group {
                name: companion.name,
                copies: count(tree, &["spec", "replicas"])?,
                pods: count(tree, &["spec", "leaderWorkerTemplate", "size"])?,
                spec: pods_of(&path)?,
                place: root.key("leaderWorkerTemplate").key("size"),
            }])
        }
        ("apps", "StatefulSet") => Some(vec![Group {
            name: companion.name,
            copies: 1,
            pods: count(tree, &["spec", "replicas"])?,
            spec: pods_of(&["spec", "template", "spec"])?,
            place: root.key("replicas"),
        }]),
        _ => None,
    }
}

fn nodes(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let Some(groups) = groups(companion) else {
        return;
    };
    let ranks: Vec<(&Group<'_>, u64)> = groups
        .iter()
        .filter_map(|group| Some((group, group.nodes()?)))
        .collect();
    let all = ranks
        .iter()
        .map(|(group, _)| group.copies.saturating_mul(group.pods));
    let all = all.fold(0, u64::saturating_add);
    for (group, nodes) in &ranks {
        let own = group.copies.saturating_mul(group.pods);
        if ![all, own, group.pods, group.copies].contains(nodes) {
            group.place.report_with(
                rule,
                format!("torchrun waits for {nodes} nodes, the object has {all} pods"),
                "make the two the same",
            );
            return;
        }
    }
}

fn gang(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let is_volcano = text(companion.tree, &["apiVersion"])
        .is_some_and(|version| version.starts_with("batch.volcano.sh/"));
    let least = number(companion.tree, &["spec", "minAvailable"]);
    let Some(least) = least
        .and_then(|it| u64::try_from(it).ok())
        .filter(|_| is_volcano)
    else {
        return;
    };
    let Some(groups) = groups(companion).filter(|_| companion.kind == "Job") else {
        return;
    };
    let pods = groups
        .iter()
        .map(|group| group.pods)
        .fold(0, u64::saturating_add);
    let nodes = groups
        .iter()
        .filter_map(Group::nodes)
        .max()
        .unwrap_or_default();
    let place = companion.place.key("spec").key("minAvailable");
    if least > pods {
        place.report_with(
            rule,
            format!("`minAvailable` is {least}, the tasks have {pods} pods in all"),
            format!("write `minAvailable: {pods}`"),
        );
    } else if least < nodes.min(pods) {
        place.report_with(
            rule,
            format!("`minAvailable` is {least}, torchrun waits for {nodes} nodes"),
            format!("write `minAvailable: {pods}`"),
        );
    }
}

fn plugins(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let is_volcano = text(companion.tree, &["apiVersion"])
        .is_some_and(|version| version.starts_with("batch.volcano.sh/"));
    let Some(groups) = groups(companion).filter(|_| is_volcano && companion.kind == "Job") else {
        return;
    };
    let has = |plugin: &str| at(companion.tree, &["spec", "plugins", plugin]).is_some();
    let containers = groups
        .iter()
        .flat_map(|group| items(group.spec, &["containers"]));
    for container in containers {
        let used = words(container);
        let own = |name: &str| {
            let mut set = items(container, &["env"]).iter();
            set.any(|it| text(it, &["name"]) == Some(name)) || at(container, &["envFrom"]).is_some()
        };
        let reads = |name: &&str| {
            let marks = [format!("$({name})"), format!("${{{name}}}")];
            let by_mark = used
                .iter()
                .any(|word| marks.iter().any(|mark| word.contains(mark)));
            by_mark && !own(name)
        };
        let variable = ["MASTER_ADDR", "RANK", "WORLD_SIZE"]
            .into_iter()
            .find(reads);
        let wrong = if used.iter().any(|word| word.contains("/etc/volcano/")) && !has("svc") {
            Some(("svc", "the file in `/etc/volcano` is".to_owned()))
        } else {
            // Another one may set it, such as that of MPI or of Ray.
            let others = ["pytorch", "mpi", "tensorflow", "ray"];
            let none = !others.iter().any(|plugin| has(plugin));
            variable
                .filter(|_| none)
                .map(|name| ("pytorch", format!("`{name}` is")))
        };
        if let Some((plugin, what)) = wrong {
            companion.place.key("spec").key("plugins").report_with(
                rule,
                format!("{what} made by the plugin `{plugin}`, which the Job does not have"),
                format!("add `{plugin}` to `plugins`"),
            );
            return;
        }
    }
}

fn first_failure(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let is_set = text(companion.tree, &["apiVersion"])
        .is_some_and(|version| version.starts_with("jobset.x-k8s.io/"));
    if !is_set || at(companion.tree, &["spec", "failurePolicy"]).is_some() {
        return;
    }
    let jobs = items(companion.tree, &["spec", "replicatedJobs"]);
    let none = |job: &Node| number(job, &["template", "spec", "backoffLimit"]) == Some(0);
    let on_gpus = jobs.iter().any(|job| {
        let path = ["template", "spec", "template", "spec", "containers"];
        items(job, &path).iter().any(|container| {
            let limits = at(container, &["resources", "limits"]).map(|limits| &limits.value);
            matches!(limits, Some(Value::Map(entries)) if entries.iter().any(|entry| is_gpu(&entry.key)))
        })
    });
    if on_gpus && jobs.iter().all(none) {
        companion.place.key("spec").key("failurePolicy").report_with(
            rule,
            "the first pod that fails ends the JobSet: it has no `failurePolicy`, and its Jobs no second attempt",
            "write `failurePolicy: {maxRestarts: 3}`",
        );
    }
}

fn class(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    const MOST: i64 = 1_000_000_000;
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    if companion.kind != "PriorityClass" || !version.starts_with("scheduling.k8s.io/") {
        return;
    }
    let value = number(companion.tree, &["value"]).unwrap_or_default();
    if companion.name.starts_with("system-") {
        let place = companion.place.key("metadata").key("name");
        place.report_with(
            rule,
            format!(
                "`{}` begins with `system-`, which is for the system",
                companion.name
            ),
            "give the class another name",
        );
    } else if value > MOST {
        companion.place.key("value").report_with(
            rule,
            format!("`value` is {value}, the largest is {MOST}"),
            format!("write a number up to {MOST}"),
        );
    }
}

/// The hosts that the containers of a pod name for the rendezvous.
fn hosts(spec: &Node) -> Vec<&str> {
    const OPTIONS: [&str; 4] = [
        "--rdzv_endpoint",
        "--rdzv-endpoint",
        "--master_addr",
        "--master-addr",
    ];
    const VARIABLES: [&str; 3] = ["MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"];
    let mut found = Vec::new();
    for container in items(spec, &["containers"]) {
        found.extend(option(&words(container), &OPTIONS));
        for variable in items(container, &["env"]) {
            let name = text(variable, &["name"]).unwrap_or_default();
            found.extend(text(variable, &["value"]).filter(|_| VARIABLES.contains(&name)));
        }
    }
    let hosts = found
        .into_iter()
        .map(|host| host.split(':').next().unwrap_or(host));
    hosts.filter(|host| !host.contains(['$', '{'])).collect()
}

/// The number at the end of the name of a pod, after `start`.
fn index_after(pod: &str, start: &str) -> Option<u64> {
    let rest = pod.strip_prefix(start)?.strip_prefix('-')?;
    rest.parse().ok()
}

fn host(rule: &Rule, companion: &Companion<'_>, companions: &Companions<'_>) {
    let tree = companion.tree;
    let version = text(tree, &["apiVersion"]).unwrap_or_default();
    let root = companion.place.key("spec");
    match (version, companion.kind) {
        ("batch/v1", "Job") => {
            let Some(spec) = at(tree, &["spec", "template", "spec"]) else {
                return;
            };
            let place = root.key("template").key("spec").key("subdomain");
            for host in hosts(spec) {
                let (pod, domain) = host.split_once('.').unwrap_or((host, ""));
                if index_after(pod, companion.name).is_none() {
                    continue;
                }
                let subdomain = text(spec, &["subdomain"]);
                let indexed = text(tree, &["spec", "completionMode"]) == Some("Indexed");
                let domain = domain.split('.').next().unwrap_or_default();
                let wrong = if !indexed {
                    Some("the names of its pods end with random letters unless `completionMode` is `Indexed`".to_owned())
                } else if subdomain.is_none() {
                    Some("the template has no `subdomain`".to_owned())
                } else if !domain.is_empty() && subdomain != Some(domain) {
                    Some(format!(
                        "the subdomain is `{}`",
                        subdomain.unwrap_or_default()
                    ))
                } else {
                    not_headless(companion, companions, subdomain.unwrap_or_default())
                };
                if let Some(wrong) = wrong {
                    report(rule, &place, host, &wrong);
                    return;
                }
            }
        }
        ("apps/v1", "StatefulSet") => {
            let Some(spec) = at(tree, &["spec", "template", "spec"]) else {
                return;
            };
            let service = text(tree, &["spec", "serviceName"]).unwrap_or_default();
            for host in hosts(spec) {
                let (pod, domain) = host.split_once('.').unwrap_or((host, ""));
                let domain = domain.split('.').next().unwrap_or_default();
                if index_after(pod, companion.name).is_none() || domain.is_empty() {
                    continue;
                }
                let wrong = if domain == service {
                    not_headless(companion, companions, service)
                } else {
                    Some(format!("`serviceName` is `{service}`"))
                };
                if let Some(wrong) = wrong {
                    report(rule, &root.key("serviceName"), host, &wrong);
                    return;
                }
            }
        }
        _ if version.starts_with("jobset.x-k8s.io/") => in_set(rule, companion),
        _ => {}
    }
}

fn report(rule: &Rule, place: &Place<'_>, host: &str, wrong: &str) {
    place.report_with(
        rule,
        format!("no pod has the name `{host}`: {wrong}"),
        "name the first pod as its object does, and give the pods a headless Service of that subdomain",
    );
}

/// What is wrong with the Service of a subdomain, where the files have it.
fn not_headless(
    companion: &Companion<'_>,
    companions: &Companions<'_>,
    name: &str,
) -> Option<String> {
    let service = companions.find("Service", companion.namespace, name)?;
    let headless = text(service, &["spec", "clusterIP"]) == Some("None");
    (!headless && !companions.is_repeated("Service", companion.namespace, name))
        .then(|| format!("the Service `{name}` is not headless, it has no `clusterIP: None`"))
}

fn in_set(rule: &Rule, companion: &Companion<'_>) {
    let Some(groups) = groups(companion) else {
        return;
    };
    for host in groups.iter().flat_map(|group| hosts(group.spec)) {
        let pod = host.split('.').next().unwrap_or(host);
        let Some(rest) = pod
            .strip_prefix(companion.name)
            .and_then(|rest| rest.strip_prefix('-'))
        else {
            continue;
        };
        // A pod has two numbers at the end of its name.
        let mut ends = rest.rsplitn(3, '-');
        let last = ends.next().and_then(|it| it.parse::<u64>().ok());
        let first = ends.next().and_then(|it| it.parse::<u64>().ok());
        let Some(((first, last), job)) = first.zip(last).zip(ends.next()) else {
            continue;
        };
        let known = groups
            .iter()
            .any(|group| group.name == job && first < group.copies && last < group.pods);
        if !known {
            let names: Vec<String> = groups
                .iter()
                .map(|group| format!("`{}-{}-0-0`", companion.name, group.name))
                .collect();
            let place = companion.place.key("spec").key("replicatedJobs");
            report(
                rule,
                &place,
                host,
                &format!("the first pods are {}", names.join(", ")),
            );
            return;
        }
    }
}

fn index(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let path: &[&str] = match companion.kind {
        "Job" => &["spec"],
        "CronJob" => &["spec", "jobTemplate", "spec"],
        _ => return,
    };
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    let Some(spec) = at(companion.tree, path).filter(|_| version.starts_with("batch/")) else {
        return;
    };
    if text(spec, &["completionMode"]) == Some("Indexed") {
        return;
    }
    let set_by_hand = |container: &Node| {
        let own = items(container, &["env"]).iter();
        own.into_iter()
            .any(|it| text(it, &["name"]) == Some("JOB_COMPLETION_INDEX"))
    };
    for container in items(spec, &["template", "spec", "containers"]) {
        let command = words(container);
        let in_command = command.iter().any(|word| {
            [
                "$(JOB_COMPLETION_INDEX)",
                "$JOB_COMPLETION_INDEX",
                "${JOB_COMPLETION_INDEX}",
            ]
            .iter()
            .any(|mark| word.contains(mark))
        });
        if in_command && !set_by_hand(container) {
            let place = path
                .iter()
                .fold(companion.place.clone(), |place, key| place.key(key));
            place.key("completionMode").report_with(
                rule,
                "the command uses `JOB_COMPLETION_INDEX`, which the pods of this Job do not have",
                "write `completionMode: Indexed`, and `completions` for how many indices there are",
            );
            return;
        }
    }
}
