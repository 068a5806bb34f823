//! Times that are too short, and pods that stay after their work.

use k8s_openapi::api::core::v1::Container;

use super::super::{
    Rule,
    advice::{Advice, Look, ODD, rule},
    scene::Scene,
};
use crate::spec::{CleanPodPolicy, Kind, RestartPolicy, RestartScope, Role};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY418",
            ODD,
            "deadline before the training begins",
            "`activeDeadlineSeconds` counts from the start of the job: nodes are found, images of many GB are pulled and the \
             ranks meet before the first step. With several pods on GPUs less than five minutes is rarely enough, and the job \
             fails without a retry.",
        ),
        look: Look::Job(short_deadline),
    },
    Advice {
        rule: rule(
            "TY419",
            ODD,
            "preStop hook longer than the grace",
            "The time of the hook is part of `terminationGracePeriodSeconds`. Where the hook sleeps that long, the program \
             gets SIGKILL without the time to save anything.",
        ),
        look: Look::Job(long_hook),
    },
    Advice {
        rule: rule(
            "TY420",
            ODD,
            "rank that is started again after it succeeded",
            "Where a failed pod is restarted alone, the restart policy `Always` restarts it whatever the exit code. A rank that has \
             finished its training starts it once more, so its pod never succeeds. Where one failure restarts all pods of the job, \
             `Always` means the same as `OnFailure`.",
        ),
        look: Look::Job(always),
    },
    Advice {
        rule: rule(
            "TY421",
            ODD,
            "workers that keep their GPUs after the end",
            "The workers of an MPIJob do not end by themselves: they wait for the next ranks. With the `cleanPodPolicy` `None` \
             they hold their GPUs until the job is deleted.",
        ),
        look: Look::Job(waiting_workers),
    },
];

/// Seconds in which a gang on GPUs can hardly begin.
const LEAST_DEADLINE: u64 = 300;

fn short_deadline(rule: &Rule, scene: &Scene<'_>) {
    if !scene.is_job() {
        return short_deadline_of_others(rule, scene);
    }
    let Some(seconds) = scene.job.run_policy.active_deadline_seconds else {
        return;
    };
    let is_gang = scene.gpus() > 0 && scene.pod_count() > 1;
    if seconds < LEAST_DEADLINE && is_gang && !scene.only_measures() {
        scene.run_policy().key("activeDeadlineSeconds").report_with(
            rule,
            format!(
                "the job fails {seconds} s after its start, the images of {} pods included",
                scene.pod_count()
            ),
            "state the time that the training takes, and an hour for its start",
        );
    }
}

/// The same of an object that is no job of ours.
fn short_deadline_of_others(rule: &Rule, scene: &Scene<'_>) {
    const FIELD: &str = "activeDeadlineSeconds";
    let spec = scene.spec();
    let places = [
        spec.key(FIELD),
        spec.key("jobTemplate").key("spec").key(FIELD),
    ];
    let is_gang = scene.gpus() > 0 && scene.pod_count() > 1 && !scene.only_measures();
    for place in places.into_iter().filter(|_| is_gang) {
        let seconds = place.whole_number().and_then(|it| u64::try_from(it).ok());
        if let Some(seconds) = seconds.filter(|seconds| *seconds < LEAST_DEADLINE) {
            place.report_with(
                rule,
                format!(
                    "the job fails {seconds} s after its start, the images of {} pods included",
                    scene.pod_count()
                ),
                "state the time that the training takes, and an hour for its start",
            );
        }
    }
}

/// Seconds that the hook of a container sleeps.
fn hook(container: &Container) -> Option<i64> {
    let handler = container.lifecycle.as_ref()?.pre_stop.as_ref()?;
    if let Some(sleep) = &handler.sleep {
        return Some(sleep.seconds);
    }
    let items = handler.exec.as_ref()?.command.as_ref()?;
    let mut words = items.iter().flat_map(|item| item.split_whitespace());
    words.find(|word| word.trim_end_matches(';').ends_with("sleep"))?;
    words.next()?.trim_end_matches([';', 's']).parse().ok()
}

fn long_hook(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let stated = pod.spec.termination_grace_period_seconds;
        let grace = stated.unwrap_or(30);
        // Of a part of a manifest the rest may be elsewhere.
        if scene.part && stated.is_none() {
            continue;
        }
        for (container, place) in pod.containers() {
            let Some(seconds) = hook(container).filter(|seconds| *seconds >= grace) else {
                continue;
            };
            place.key("lifecycle").key("preStop").report_with(
                rule,
                format!("the hook sleeps {seconds} s, the pod has {grace} s in all to end"),
                format!(
                    "shorten the hook, or raise `terminationGracePeriodSeconds` above {}",
                    seconds.saturating_add(30)
                ),
            );
        }
    }
}

fn always(rule: &Rule, scene: &Scene<'_>) {
    // The pods of a gang are never restarted in place.
    let in_place = scene.is_job() && scene.job.restart_scope() == RestartScope::Pod;
    for pod in scene.pods.iter().filter(|_| in_place) {
        let ends = match (scene.job.kind, pod.role) {
            // Parameter servers do not end by themselves, nor do workers that wait for `mpirun`.
            (Kind::MpiV1 | Kind::MpiV2, of) => of == Role::Launcher,
            (Kind::Paddle, Role::Master) => false,
            (_, of) => of.lower() != "ps",
        };
        let policy = scene
            .job
            .roles
            .get(&pod.role)
            .map(|role| role.restart_policy);
        if ends && policy == Some(RestartPolicy::Always) {
            pod.place.key("restartPolicy").report_with(
                rule,
                format!("{} is started again after it succeeded", pod.role),
                "write `restartPolicy: OnFailure`",
            );
        }
    }
}

fn waiting_workers(rule: &Rule, scene: &Scene<'_>) {
    let policy = &scene.job.run_policy;
    let kept = policy.clean_pod_policy == Some(CleanPodPolicy::None);
    let Some(worker) = scene.role(Role::Worker).filter(|_| scene.job.kind.is_mpi()) else {
        return;
    };
    if kept && worker.gpus() > 0 {
        let held = worker.gpus().saturating_mul(worker.replicas.into());
        scene.run_policy().key("cleanPodPolicy").report_with(
            rule,
            format!("the workers hold {held} GPUs after the launcher has ended"),
            "write `cleanPodPolicy: Running`, which keeps the logs of what has ended",
        );
    }
}
