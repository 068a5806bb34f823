//! Sweeps and workflows that name what they do not have: trials of Katib, steps of Argo.

use std::collections::BTreeSet;

use super::super::{
    Rule,
    advice::{Advice, Look, WRONG, rule},
    companions::{Companion, Companions, at},
};
use super::{items, number, text};
use crate::spec::{Node, Place, Value};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY930",
            WRONG,
            "sweep that does not fit together",
            "A trial of an Experiment is made of `trialSpec`, in which every `${trialParameters.NAME}` is replaced by the parameter that \
             `trialParameters` refers to. A name that is not there, no `primaryContainerName` in the pods, more trials at a time than in all, or \
             an empty range of a parameter: Katib refuses the Experiment or its trials.",
        ),
        look: Look::Companion(experiment),
    },
    Advice {
        rule: rule(
            "TY931",
            WRONG,
            "workflow that names a step or a parameter it does not have",
            "`entrypoint`, the tasks of a DAG and the steps name templates of the same workflow, `dependencies` name tasks of the same DAG, and \
             `{{workflow.parameters.NAME}}` a parameter of `arguments`. Argo refuses a workflow in which one is missing.",
        ),
        look: Look::Companion(workflow),
    },
];

/// Calls `look` with every text below `node`.
fn texts<'a>(node: &'a Node, look: &mut impl FnMut(&'a str)) {
    match &node.value {
        Value::String(text) => look(text),
        Value::Map(entries) => entries.iter().for_each(|entry| texts(&entry.value, look)),
        Value::List(items) => items.iter().for_each(|item| texts(item, look)),
        _ => {}
    }
}

/// The names between `open` and `close` in all texts below `node`.
fn marks<'a>(node: &'a Node, open: &str, close: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    texts(node, &mut |text| {
        for part in text.split(open).skip(1) {
            if let Some((name, _)) = part.split_once(close) {
                found.insert(name.trim());
            }
        }
    });
    found
}

fn names<'a>(node: &'a Node, path: &[&str]) -> BTreeSet<&'a str> {
    let list = items(node, path).iter();
    list.filter_map(|item| text(item, &["name"])).collect()
}

fn experiment(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    let Some(spec) = at(companion.tree, &["spec"])
        .filter(|_| companion.kind == "Experiment" && version.starts_with("kubeflow.org/"))
    else {
        return;
    };
    let place = companion.place.key("spec");
    let count = |key: &str| number(spec, &[key]);
    if let Some((at_a_time, all)) = count("parallelTrialCount").zip(count("maxTrialCount"))
        && at_a_time > all
    {
        place.key("parallelTrialCount").report_with(
            rule,
            format!("`parallelTrialCount` is {at_a_time}, `maxTrialCount` is {all}"),
            format!("run {all} trials at a time at most"),
        );
    }
    let list = place.key("parameters");
    for (index, parameter) in items(spec, &["parameters"]).iter().enumerate() {
        let end = |key: &str| {
            text(parameter, &["feasibleSpace", key])?
                .parse::<f64>()
                .ok()
        };
        if let Some((least, most)) = end("min").zip(end("max"))
            && least > most
        {
            list.index(index).key("feasibleSpace").report_with(
                rule,
                format!("the parameter is from {least} to {most}, which is nothing"),
                "write the smaller end as `min`",
            );
        }
    }
    let template = place.key("trialTemplate");
    let parameters = names(spec, &["parameters"]);
    let list = template.key("trialParameters");
    let stated = items(spec, &["trialTemplate", "trialParameters"]).iter();
    for (index, stated) in stated.enumerate() {
        let reference = text(stated, &["reference"]).unwrap_or_default();
        // Katib has values of its own, such as `${trialSpec.Name}`.
        if !parameters.is_empty() && !reference.starts_with('$') && !parameters.contains(reference)
        {
            list.index(index).key("reference").report_with(
                rule,
                format!("there is no parameter `{reference}`"),
                "name one of `spec.parameters`",
            );
        }
    }
    if let Some(trial) = at(spec, &["trialTemplate", "trialSpec"]) {
        let known = names(spec, &["trialTemplate", "trialParameters"]);
        let used = marks(trial, "${trialParameters.", "}");
        if let Some(name) = used.into_iter().find(|name| !known.contains(name)) {
            template.key("trialSpec").report_with(
                rule,
                format!("`${{trialParameters.{name}}}` is none of `trialParameters`"),
                "add it to `trialParameters`, or name one of them",
            );
        }
        let primary = text(spec, &["trialTemplate", "primaryContainerName"]);
        let mut containers = BTreeSet::new();
        container_names(trial, &mut containers);
        let primary = primary.filter(|name| !containers.is_empty() && !containers.contains(name));
        if let Some(name) = primary {
            template.key("primaryContainerName").report_with(
                rule,
                format!("no container of the trial has the name `{name}`"),
                "name the container that prints the metric",
            );
        }
    }
}

fn container_names<'a>(node: &'a Node, found: &mut BTreeSet<&'a str>) {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries {
                if entry.key == "containers" {
                    found.extend(names(node, &["containers"]));
                }
                container_names(&entry.value, found);
            }
        }
        Value::List(items) => items.iter().for_each(|item| container_names(item, found)),
        _ => {}
    }
}

fn workflow(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let version = text(companion.tree, &["apiVersion"]).unwrap_or_default();
    let (path, is_whole): (&[&str], bool) = match companion.kind {
        "Workflow" => (&["spec"], true),
        "WorkflowTemplate" | "ClusterWorkflowTemplate" => (&["spec"], false),
        "CronWorkflow" => (&["spec", "workflowSpec"], true),
        _ => return,
    };
    let Some(spec) = at(companion.tree, path).filter(|_| version.starts_with("argoproj.io/"))
    else {
        return;
    };
    // Its templates are in another object.
    if at(spec, &["workflowTemplateRef"]).is_some() {
        return;
    }
    let place = path
        .iter()
        .fold(companion.place.clone(), |place, key| place.key(key));
    let templates = names(spec, &["templates"]);
    let entry = text(spec, &["entrypoint"]);
    if let Some(name) = entry.filter(|name| is_plain(name) && !templates.contains(name)) {
        place.key("entrypoint").report_with(
            rule,
            format!("the workflow has no template `{name}`"),
            "name one of `templates`",
        );
    }
    let list = place.key("templates");
    for (index, template) in items(spec, &["templates"]).iter().enumerate() {
        of_template(rule, template, &list.index(index), &templates);
    }
    let parameters = names(spec, &["arguments", "parameters"]);
    // Who submits a template gives it its parameters.
    let used = marks(spec, "{{workflow.parameters.", "}}");
    if let Some(name) = used
        .into_iter()
        .find(|name| is_whole && is_plain(name) && *name != "json" && !parameters.contains(name))
    {
        place.key("arguments").report_with(
            rule,
            format!("the workflow has no parameter `{name}`"),
            "add it to `arguments.parameters`",
        );
    }
}

/// Whether a name is written out.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['$', '{', '}'])
}

fn of_template(rule: &Rule, template: &Node, place: &Place<'_>, templates: &BTreeSet<&str>) {
    let check = |step: &Node, place: &Place<'_>| {
        let name = text(step, &["template"]).unwrap_or_default();
        if is_plain(name) && !templates.contains(name) {
            place.key("template").report_with(
                rule,
                format!("the workflow has no template `{name}`"),
                "name one of `templates`",
            );
        }
    };
    let tasks = names(template, &["dag", "tasks"]);
    let list = place.key("dag").key("tasks");
    for (index, task) in items(template, &["dag", "tasks"]).iter().enumerate() {
        let place = list.index(index);
        check(task, &place);
        let named = items(task, &["dependencies"])
            .iter()
            .filter_map(Node::as_str);
        for name in named.filter(|name| is_plain(name) && !tasks.contains(name)) {
            place.key("dependencies").report_with(
                rule,
                format!("the DAG has no task `{name}`"),
                "name one of its `tasks`",
            );
        }
    }
    let list = place.key("steps");
    for (index, group) in items(template, &["steps"]).iter().enumerate() {
        let place = list.index(index);
        if let Value::List(steps) = &group.value {
            for (index, step) in steps.iter().enumerate() {
                check(step, &place.index(index));
            }
        }
    }
}
