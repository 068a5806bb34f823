//! Recovery: where checkpoints go, how many failures are allowed, what is left to read afterwards.
//!
//! Failure rates are those of [`crate::plan::recovery`]: 419 interruptions of 16,384 GPUs in 54 days.

use k8s_openapi::api::core::v1::{Volume, VolumeMount};

use super::{
    Profile, Rule,
    advice::{Advice, CAREFUL, Look, ODD, RISKY, rule},
    command::Command,
    companions::at,
    scene::{Pod, Scene},
};
use crate::{
    finding::Fix,
    plan::recovery::LLAMA3,
    spec::{Limit, RestartPolicy, Role, Value, is_within, keeps},
};

mod more;
mod times;

pub(super) use more::{OUTPUT_OPTIONS, RULES as MORE_RULES};
pub(super) use times::RULES as TIME_RULES;

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY401",
            RISKY,
            "nowhere to keep checkpoints",
            "A run without a checkpoint starts from step 0 after every failure. Where the run is long for its \
             number of GPUs, it is likely to be interrupted and never to finish. The chance is worked out \
             from GPU-hours and the 0.0197 failures per 1,000 GPU-hours of a published run of 16,384 \
             GPUs; a job without `activeDeadlineSeconds` is taken to run for a week. In a demo the rule reports \
             a chance of 5 % or more, in production every job that may run for more than an hour. A volume that is \
             there for data, by its name and by the command, is no place for checkpoints.",
        ),
        look: Look::Job(no_checkpoints),
    },
    Advice {
        rule: rule(
            "TY402",
            RISKY,
            "claim for one node mounted on several",
            "A claim with `ReadWriteOnce` can be mounted on one node at a time, with `ReadWriteOncePod` in one \
             pod. The pods on other nodes never start, and the gang waits with them.",
        ),
        look: Look::Beside(read_write_once),
    },
    Advice {
        rule: rule(
            "TY403",
            RISKY,
            "checkpoints on the disk of a node",
            "An `emptyDir` ends with its pod and a `hostPath` stays on its node. After a failure the next \
             attempt may be elsewhere and finds nothing to resume from.",
        ),
        look: Look::Job(local_checkpoints),
    },
    Advice {
        rule: rule(
            "TY404",
            ODD,
            "fewer restarts than failures to expect",
            "Every failure of a machine costs one restart of this budget. The number to expect is GPU-hours \
             times the 0.0197 failures per 1,000 GPU-hours of a published run of 16,384 GPUs; a job \
             without `activeDeadlineSeconds` is taken to run for a week.",
        ),
        look: Look::Job(too_few_restarts),
    },
    Advice {
        rule: rule(
            "TY405",
            CAREFUL,
            "no second attempt",
            "With a `backoffLimit` of 0 the first failure of the program ends the job, also one that the next \
             attempt would not have had.",
        ),
        look: Look::Job(no_second_attempt),
    },
    Advice {
        rule: rule(
            "TY406",
            ODD,
            "no time to save",
            "When its pod is deleted or preempted, the program gets SIGTERM and has \
             `terminationGracePeriodSeconds` to save. Less than the default of 30 s is rarely enough to \
             write the state of a model.",
        ),
        look: Look::Job(no_grace),
    },
    Advice {
        rule: rule(
            "TY407",
            ODD,
            "attempts that are never used",
            "`backoffLimit` says how many failures are allowed, but the restart policy `Never` ends the job at \
             the first one of its program. The launcher of an MPIJob of `kubeflow.org/v1` has `Never` \
             unless it states another.",
        ),
        look: Look::Job(never_restarts),
    },
    Advice {
        rule: rule(
            "TY408",
            CAREFUL,
            "a failure ends the job",
            "The role has the restart policy `Never`, stated or by default, so the first failure of the program \
             ends the job and frees its seats.",
        ),
        look: Look::Job(first_failure_ends_job),
    },
    Advice {
        rule: rule(
            "TY409",
            ODD,
            "job deleted before it is read",
            "`ttlSecondsAfterFinished` deletes the job, its pods and their logs. Nobody reads the reason of a \
             failure within a few minutes at night.",
        ),
        look: Look::Job(short_ttl),
    },
    Advice {
        rule: rule(
            "TY410",
            CAREFUL,
            "logs deleted with the pods",
            "`cleanPodPolicy: All` deletes finished pods too, and their logs with them. `Running` frees what is \
             still held and keeps the logs.",
        ),
        look: Look::Job(cleans_all),
    },
    Advice {
        rule: rule(
            "TY411",
            RISKY,
            "volume that only the master has",
            "The command of a role names a folder that another role mounts and this one does not. There it is an \
             empty folder of the image, or none.",
        ),
        look: Look::Job(missing_mount),
    },
];

/// Hours that a job without a deadline is taken to run.
const WEEK: f64 = 168.0;
/// The chance of an interruption from which on a run needs somewhere to save.
const CHANCE: f64 = 0.05;
/// Seconds that a job in production may run without a place to save.
const HOUR: u64 = 3_600;

/// Failures to expect, with the sentence that shows how they are worked out.
fn expected(scene: &Scene<'_>, gpus: u64) -> (f64, String) {
    let hours = match scene.job.run_policy.active_deadline_seconds {
        #[expect(
            clippy::cast_precision_loss,
            reason = "no real deadline has 2^53 seconds"
        )]
        Some(seconds) => seconds as f64 / 3_600.0,
        None => WEEK,
    };
    let rate: f64 = LLAMA3.iter().map(|component| component.rate).sum();
    #[expect(clippy::cast_precision_loss, reason = "no job has 2^53 GPUs")]
    let gpu_hours = gpus as f64 * hours;
    let failures = gpu_hours / 1_000.0 * rate;
    let sum = format!(
        "{gpus} GPUs for {hours:.0} h are {gpu_hours:.0} GPU-hours, at {rate:.4} failures per 1,000 that is {failures:.2} failures"
    );
    (failures, sum)
}

fn no_checkpoints(rule: &Rule, scene: &Scene<'_>) {
    let gpus = scene.gpus();
    let (failures, sum) = expected(scene, gpus);
    let chance = 1.0 - (-failures).exp();
    let stores = |pod: &Pod<'_>| {
        let words = pod.command();
        let mounted = pod.mounts().any(|(mount, _, volume)| {
            let keeps = mount.read_only != Some(true) && volume.is_some_and(keeps);
            keeps && volume.is_none_or(|volume| !is_for_data(&words, mount, volume))
        });
        let remote = |text: &str| {
            ["s3://", "gs://", "az://", "abfs", "hdfs://", "oss://"]
                .iter()
                .any(|start| text.contains(start))
        };
        let variables = pod.variables().any(|(_, value, _)| remote(value));
        // Another rule reports folders of the host.
        let on_host = pod
            .mounts()
            .any(|(_, _, volume)| volume.is_some_and(|volume| volume.host_path.is_some()));
        mounted || on_host || variables || words.words.iter().any(|word| remote(word.text))
    };
    let short = match scene.profile {
        Profile::Demo => chance < CHANCE,
        Profile::Production => {
            let deadline = scene.job.run_policy.active_deadline_seconds;
            gpus == 0 || deadline.is_some_and(|seconds| seconds <= HOUR)
        }
    };
    if short || scene.only_measures() || scene.pods.iter().any(stores) {
        return;
    }
    if let Some(pod) = scene.ranks().find(|pod| pod.gpus() > 0) {
        let message = if chance < CHANCE {
            "no volume outlives the pods, so any failure loses all progress".to_owned()
        } else {
            format!(
                "no volume outlives the pods: {sum}, a chance of {:.0} % to lose all progress",
                chance * 100.0
            )
        };
        pod.at().key("volumes").report_with(
            rule,
            message,
            "mount a claim with `ReadWriteMany` and save to it, or state `activeDeadlineSeconds` for a short run",
        );
    }
}

/// Whether a volume is there to be read: it is named so, and the command saves nothing in it.
fn is_for_data(command: &Command<'_>, mount: &VolumeMount, volume: &Volume) -> bool {
    let lower = |text: &str| text.to_ascii_lowercase();
    let says = |words: &[&str], text: &str| words.iter().any(|word| text.contains(word));
    let claim = volume.persistent_volume_claim.as_ref();
    let names = [
        lower(&mount.mount_path),
        lower(&volume.name),
        lower(claim.map_or("", |claim| claim.claim_name.as_str())),
    ];
    let kept = [
        "check", "ckpt", "output", "model", "save", "result", "work", "run", "log",
    ];
    let for_data = names.iter().any(|name| {
        says(&["dataset", "imagenet", "corpus"], name)
            || name == "/data"
            || name.ends_with("-data")
            || name == "data"
    });
    let saved = command.words.iter().any(|word| {
        let path = word.text.rsplit('=').next().unwrap_or(word.text);
        let option = word.text.split('=').next().unwrap_or_default();
        is_within(path, &mount.mount_path)
            && (says(&kept, &lower(path)) || says(&kept, &lower(option)))
    });
    let saves_by_option = command
        .option(OUTPUT_OPTIONS)
        .is_some_and(|word| is_within(word.text, &mount.mount_path));
    // What an image does without a command is not known; a volume of data is all it is given.
    for_data && !names.iter().any(|name| says(&kept, name)) && !saved && !saves_by_option
}

/// How a claim may be mounted, as the files say, or else the cluster.
fn access_modes<'a>(scene: &Scene<'a>, namespace: &str, name: &str) -> Vec<&'a str> {
    let companions = scene.companions;
    if let Some(object) = companions.find("PersistentVolumeClaim", namespace, name) {
        let modes = at(object, &["spec", "accessModes"]).map(|node| &node.value);
        return match modes {
            Some(Value::List(modes)) => modes.iter().filter_map(|mode| mode.as_str()).collect(),
            _ => Vec::new(),
        };
    }
    let modes = companions
        .cluster
        .and_then(|cluster| cluster.claim(scene, name));
    modes.into_iter().flatten().map(String::as_str).collect()
}

fn read_write_once(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    for pod in &scene.pods {
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            let Some(claim) = &volume.persistent_volume_claim else {
                continue;
            };
            let name = claim.claim_name.as_str();
            let modes = access_modes(scene, namespace, name);
            let once = modes
                .iter()
                .all(|mode| matches!(*mode, "ReadWriteOnce" | "ReadWriteOncePod"));
            let users = |pod: &&Pod<'_>| {
                pod.spec.volumes.iter().flatten().any(|other| {
                    other
                        .persistent_volume_claim
                        .as_ref()
                        .is_some_and(|other| other.claim_name == name)
                })
            };
            let pods: u32 = scene
                .pods
                .iter()
                .filter(users)
                .map(|pod| pod.replicas)
                .fold(0, u32::saturating_add);
            if once && !modes.is_empty() && pods > 1 {
                let place = pod
                    .at()
                    .key("volumes")
                    .index(index)
                    .key("persistentVolumeClaim")
                    .key("claimName");
                place.report_with(
                    rule,
                    format!("{pods} pods mount the claim `{name}`, which is for one node"),
                    "give the claim `ReadWriteMany`, or mount it in the pod of rank 0 only",
                );
            }
        }
    }
}

fn local_checkpoints(rule: &Rule, scene: &Scene<'_>) {
    let speaks = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.contains("checkpoint") || text.contains("ckpt")
    };
    for pod in &scene.pods {
        for (mount, place, volume) in pod.mounts() {
            let Some(volume) = volume else { continue };
            let local = match (&volume.empty_dir, &volume.host_path) {
                (Some(_), _) => "an `emptyDir`, which ends with the pod",
                (_, Some(_)) => "a `hostPath`, which stays on one node",
                _ => continue,
            };
            // Logs about checkpoints are no checkpoints.
            let holds_logs = is_within(&mount.mount_path, "/var/log");
            if !holds_logs && (speaks(&mount.mount_path) || speaks(&volume.name)) {
                place.key("mountPath").report_with(
                    rule,
                    format!("`{}` is {local}", mount.mount_path),
                    "save to a claim with `ReadWriteMany`",
                );
            }
        }
    }
}

fn too_few_restarts(rule: &Rule, scene: &Scene<'_>) {
    // torchrun restarts three times by default, but then nobody has written a number.
    let limit = match scene.job.elastic() {
        Some(elastic) => elastic
            .max_restarts
            .and_then(|limit| u32::try_from(limit).ok())
            .map(|limit| {
                (
                    limit,
                    "`maxRestarts`",
                    scene.spec().key("elasticPolicy").key("maxRestarts"),
                )
            }),
        None => match scene.job.settings.budget.infrastructure {
            Some(Limit::At(limit)) => {
                let place = scene.root.key("metadata").key("annotations");
                Some((
                    limit,
                    "the budget `infrastructure`",
                    place.key(crate::spec::annotation::BUDGET),
                ))
            }
            _ => None,
        },
    };
    let Some((limit, name, place)) = limit else {
        return;
    };
    let (failures, sum) = expected(scene, scene.gpus());
    if failures > f64::from(limit) {
        place.report_with(
            rule,
            format!("{name} is {limit}: {sum}"),
            format!(
                "allow at least {:.0}, twice the expected number",
                (failures * 2.0).ceil()
            ),
        );
    }
}

fn no_second_attempt(rule: &Rule, scene: &Scene<'_>) {
    if scene.job.run_policy.backoff_limit == Some(0) && scene.gpus() > 0 {
        scene.run_policy().key("backoffLimit").report_with(
            rule,
            format!(
                "`backoffLimit` is 0: one failure ends a job of {} GPUs",
                scene.gpus()
            ),
            "allow a few, such as `backoffLimit: 3`",
        );
    }
}

fn no_grace(rule: &Rule, scene: &Scene<'_>) {
    let saves = !scene.only_measures();
    for pod in scene.ranks().filter(|pod| saves && pod.gpus() > 0) {
        let Some(seconds) = pod.spec.termination_grace_period_seconds else {
            continue;
        };
        if seconds < 30 {
            pod.at().key("terminationGracePeriodSeconds").report_with(
                rule,
                format!("the program has {seconds} s to save after SIGTERM"),
                "give it at least as long as a checkpoint takes, such as 120",
            );
        }
    }
}

/// Roles whose restart policy is `Never`, with the way the job restarts taken into account.
fn roles_never_restarting<'s, 'a>(scene: &'s Scene<'a>) -> impl Iterator<Item = &'s Pod<'a>> {
    scene.pods.iter().filter(|pod| {
        let answers = !scene.job.kind.is_mpi() || pod.role == Role::Launcher;
        let policy = scene
            .job
            .roles
            .get(&pod.role)
            .map(|role| role.restart_policy);
        answers && policy == Some(RestartPolicy::Never)
    })
}

fn never_restarts(rule: &Rule, scene: &Scene<'_>) {
    let limit = scene.job.run_policy.backoff_limit.unwrap_or_default();
    for pod in roles_never_restarting(scene).filter(|_| limit > 0) {
        pod.place.key("restartPolicy").report_with(
            rule,
            format!(
                "`backoffLimit` is {limit}, but {} has the restart policy `Never`",
                pod.role
            ),
            format!("write `restartPolicy: OnFailure` for {}", pod.role),
        );
    }
}

fn first_failure_ends_job(rule: &Rule, scene: &Scene<'_>) {
    let limit = scene.job.run_policy.backoff_limit.unwrap_or_default();
    for pod in roles_never_restarting(scene).filter(|_| limit == 0) {
        pod.place.key("restartPolicy").report_with(
            rule,
            format!("the first failure of {} ends the job", pod.role),
            "write `restartPolicy: OnFailure`, and `backoffLimit` for how often",
        );
    }
}

fn short_ttl(rule: &Rule, scene: &Scene<'_>) {
    if !scene.is_job() {
        if scene.gpus() > 0 {
            short_ttl_of_others(rule, scene);
        }
        return;
    }
    if let Some(seconds) = scene.job.run_policy.ttl_seconds_after_finished
        && seconds < 600
    {
        scene
            .run_policy()
            .key("ttlSecondsAfterFinished")
            .report_fix(
                rule,
                format!("the job and its logs are deleted {seconds} s after the end"),
                "keep them for a day: `ttlSecondsAfterFinished: 86400`",
                Fix::Scalar("86400".to_owned()),
            );
    }
}

/// The same of an object that is no job of ours, wherever its kind has the field.
fn short_ttl_of_others(rule: &Rule, scene: &Scene<'_>) {
    const FIELD: &str = "ttlSecondsAfterFinished";
    let spec = scene.spec();
    let places = [
        spec.key(FIELD),
        spec.key("jobTemplate").key("spec").key(FIELD),
        spec.key("ttlStrategy").key("secondsAfterCompletion"),
        spec.key("ttlStrategy").key("secondsAfterFailure"),
    ];
    for place in places {
        if let Some(seconds) = place.whole_number().filter(|seconds| *seconds < 600) {
            place.report_with(
                rule,
                format!("the job and its logs are deleted {seconds} s after the end"),
                "keep them for a day, which is 86400",
            );
        }
    }
}

fn cleans_all(rule: &Rule, scene: &Scene<'_>) {
    if scene.job.run_policy.clean_pod_policy == Some(crate::spec::CleanPodPolicy::All) {
        scene.run_policy().key("cleanPodPolicy").report_with(
            rule,
            "finished pods are deleted with their logs",
            "write `cleanPodPolicy: Running`",
        );
    }
}

fn missing_mount(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let others = scene.ranks().filter(|other| other.role != pod.role);
        let folders: Vec<(&str, Role)> = others
            .flat_map(|other| {
                other
                    .mounts()
                    .map(|(mount, _, _)| (mount.mount_path.as_str(), other.role))
                    .collect::<Vec<_>>()
            })
            .filter(|(folder, _)| {
                folder.len() > 1
                    && !pod
                        .mounts()
                        .any(|(mount, _, _)| is_within(folder, &mount.mount_path))
            })
            .collect();
        let command = pod.command();
        for word in &command.words {
            let path = word.text.rsplit('=').next().unwrap_or(word.text);
            if let Some((folder, role)) = folders.iter().find(|(folder, _)| is_within(path, folder))
            {
                pod.command_at(word.item).report_with(
                    rule,
                    format!(
                        "{} uses `{path}`, but only {role} mounts `{folder}`",
                        pod.role
                    ),
                    format!("mount it in {} too", pod.role),
                );
            }
        }
    }
}
