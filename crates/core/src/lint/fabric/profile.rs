//! The fabric that a job names: whether the files hold it, and where the job says otherwise.

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, rule},
    scene::{Pod, Scene},
};
use crate::{
    fabric::{NETWORKS, Setting},
    spec::{Place, annotation, nearest},
};

/// The rules of a job on a fabric.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY319",
            ODD,
            "fabric that is not in the files",
            "The files bring fabrics, but not the one that the job names. Unless the cluster has it, the job \
             waits for it and starts no pod.",
        ),
        look: Look::Beside(missing),
    },
    Advice {
        rule: rule(
            "TY320",
            ODD,
            "setting that is not the fabric's",
            "The job names a fabric and sets something otherwise than the platform has it. What the job says \
             holds: the fabric never overrides it. On a fabric that works, the platform's value is the one \
             that was tried.",
        ),
        look: Look::Beside(disagreements),
    },
];

fn missing(rule: &Rule, scene: &Scene<'_>) {
    let fabrics = scene.companions.fabrics();
    let Some(name) = &scene.job.settings.fabric else {
        return;
    };
    if fabrics.is_empty() || fabrics.contains_key(name) {
        return;
    }
    let annotations = scene.root.key("metadata").key("annotations");
    let hint = match nearest(name, fabrics.keys().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "see that the cluster has it: `kubectl get fabrics`".to_owned(),
    };
    annotations.key(annotation::FABRIC).report_with(
        rule,
        format!("the files have no fabric `{name}`"),
        hint,
    );
}

fn disagreements(rule: &Rule, scene: &Scene<'_>) {
    let Some(fitted) = scene.fitted else { return };
    let fabric = scene.job.settings.fabric.as_deref().unwrap_or_default();
    for pod in &scene.pods {
        let Some(fitting) = fitted.roles.get(&pod.role) else {
            continue;
        };
        for disagreement in &fitting.disagreements {
            place(pod, &disagreement.setting).report_with(
                rule,
                format!("{disagreement}"),
                format!("leave it to the fabric `{fabric}`, or keep it if it is intended"),
            );
        }
        for why in &fitting.left_out {
            pod.trainer_at().report_with(
                rule,
                format!("the fabric `{fabric}` cannot add {why}"),
                "see `trainyard render` for what is added",
            );
        }
    }
}

fn place<'a>(pod: &Pod<'a>, setting: &Setting) -> Place<'a> {
    let trainer = pod.trainer_at();
    match setting {
        Setting::Variable(name) => pod
            .variable(name)
            .map_or_else(|| trainer.key("env"), |(_, place)| place),
        Setting::Forwarded(_) => trainer.key("command"),
        Setting::Interface => {
            let metadata = pod.template_at().key("metadata");
            metadata.key("annotations").key(NETWORKS)
        }
        Setting::Resource(_) => trainer.key("resources"),
        Setting::SharedMemory => trainer.key("volumeMounts"),
    }
}
