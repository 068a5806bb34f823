//! Restarts without an end, and output that is lost or cannot be written.

use k8s_openapi::api::core::v1::Container;

use super::{
    super::{
        Profile, Rule,
        advice::{Advice, Look, ODD, RISKY, rule},
        command::Command,
        hygiene::download_call,
        scene::{Pod, Scene},
        script::{Found, files, lines_of_all_ranks},
    },
    access_modes,
};
use crate::{
    finding::{Above, Fix},
    spec::{Kind, RestartPolicy, Role, is_within},
};

/// The rules about restarts and output.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY412",
            ODD,
            "restarts without a limit",
            "Without `backoffLimit` nothing says how often the job may fail, so a program that always fails holds its GPUs: the Go \
             operators restart it without end, and Trainyard until it is sure that a retry does not help. `activeDeadlineSeconds` and `user` in \
             `trainyard.dev/budget` are limits, too. `maxRestarts` of an elastic job is none: torchrun counts from 0 again in every \
             pod that is started. In a demo the rule looks at jobs with GPUs only.",
        ),
        look: Look::Job(unlimited_restarts),
    },
    Advice {
        rule: rule(
            "TY413",
            RISKY,
            "output that ends with the pod",
            "The program writes its checkpoints to a folder that no volume is mounted at, or to an `emptyDir`. The folder ends with its \
             pod, so after a failure the next attempt finds nothing, and at the end the result is gone.",
        ),
        look: Look::Job(lost_output),
    },
    Advice {
        rule: rule(
            "TY414",
            RISKY,
            "program that uses a volume of another role",
            "The program is in a ConfigMap of the files, every rank runs it, and it uses a folder that another role mounts and this \
             one does not. There it is an empty folder of the image, or none.",
        ),
        look: Look::Beside(volume_of_another_role),
    },
    Advice {
        rule: rule(
            "TY415",
            RISKY,
            "claim for reading that is written",
            "The claim has the access mode `ReadOnlyMany` only, and a container downloads or saves into it. It is mounted \
             read-only, and the first write fails.",
        ),
        look: Look::Beside(written_read_only),
    },
    Advice {
        rule: rule(
            "TY416",
            RISKY,
            "checkpoints in a folder that ends with the pod",
            "The folder of `trainyard.dev/checkpoints` is on an `emptyDir` or an `ephemeral` volume, or on no volume at all. An attempt \
             with new pods finds an empty folder and starts at step 0.",
        ),
        look: Look::Job(lost_checkpoints),
    },
    Advice {
        rule: rule(
            "TY417",
            ODD,
            "probe that ends a rank",
            "The kubelet ends a container whose `livenessProbe` fails a few times in a row. A rank answers nothing while it imports, compiles, loads \
             data or waits in a collective, and one rank that is ended is an attempt of the whole gang. The operator restarts what fails, and \
             the watch of the supervisor finds what hangs. A probe that runs a command in the container, or that is given ten minutes, \
             is not reported.",
        ),
        look: Look::Job(liveness),
    },
];

/// Seconds without an answer from which on a rank that is busy is not ended.
const LIVENESS_SECONDS: i64 = 600;

fn liveness(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let Some(probe) = &pod.trainer.liveness_probe else {
            continue;
        };
        let period = probe.period_seconds.unwrap_or(10).max(1);
        let failures = probe.failure_threshold.unwrap_or(3).max(1);
        let seconds = i64::from(period) * i64::from(failures);
        if probe.exec.is_some() || seconds >= LIVENESS_SECONDS {
            continue;
        }
        pod.trainer_at().key("livenessProbe").report_with(
            rule,
            format!(
                "a rank of {} that does not answer for {seconds} s is ended, and the gang with it",
                pod.owner()
            ),
            if scene.is_job() {
                "remove the probe; `trainyard.dev/hang-after` ends a job that makes no progress"
            } else {
                "remove the probe, or let it run a command that looks for progress"
            },
        );
    }
}

fn lost_checkpoints(rule: &Rule, scene: &Scene<'_>) {
    let Some(path) = &scene.job.settings.checkpoints else {
        return;
    };
    let rank = scene.ranks().next().or_else(|| scene.pods.first());
    let Some(pod) = rank else {
        return;
    };
    let lost = match pod.mount_of(path) {
        None => "on no volume, so it ends with its pod",
        Some((_, _, Some(volume))) if volume.empty_dir.is_some() => {
            "on an `emptyDir`, which ends with its pod"
        }
        Some((_, _, Some(volume))) if volume.ephemeral.is_some() => {
            "on an `ephemeral` volume, which ends with its pod"
        }
        Some(_) => return,
    };
    pod.trainer_at().key("volumeMounts").report_with(
        rule,
        format!(
            "the folder of checkpoints, `{path}`, is {lost}: the next attempt starts at step 0"
        ),
        "mount a claim with `ReadWriteMany` there",
    );
}

/// A limit in the run policy, as lines above what is there.
fn limit(scene: &Scene<'_>) -> Option<Fix> {
    let policy = scene.run_policy();
    let line = "backoffLimit: 3".to_owned();
    let above = if let Some(span) = policy.first_span() {
        Above {
            span,
            lines: vec![line],
        }
    } else {
        let spec = scene.spec();
        let span = spec
            .key_span(scene.job.kind.replica_map())
            .filter(|_| !policy.is_there())?;
        Above {
            span,
            lines: vec!["runPolicy:".to_owned(), format!("  {line}")],
        }
    };
    Some(Fix::Above(vec![above]))
}

fn unlimited_restarts(rule: &Rule, scene: &Scene<'_>) {
    let policy = &scene.job.run_policy;
    let limited = policy.backoff_limit.is_some()
        || policy.active_deadline_seconds.is_some()
        || scene.job.settings.budget.user.is_some();
    // An `MPIJob` of version v2beta1 has a limit of its own.
    let has_default = scene.job.kind == Kind::MpiV2;
    let small = scene.profile == Profile::Demo && scene.gpus() == 0;
    if limited || has_default || small || scene.only_measures() {
        return;
    }
    let restarts = scene.pods.iter().any(|pod| {
        let answers = !scene.job.kind.is_mpi() || pod.role == Role::Launcher;
        let stated = scene.job.roles.get(&pod.role);
        let restart = stated.map(|role| role.restart_policy);
        // `ExitCode` ends the job where the program itself fails.
        answers
            && matches!(
                restart,
                Some(RestartPolicy::OnFailure | RestartPolicy::Always)
            )
    });
    if !restarts {
        return;
    }
    let stated = scene.job.elastic().and_then(|elastic| elastic.max_restarts);
    let message = match stated {
        Some(count) => format!(
            "`backoffLimit` is not set: `maxRestarts` is {count} for each pod that is started, and no total"
        ),
        None => {
            "`backoffLimit` is not set, so nothing limits how often the job may fail".to_owned()
        }
    };
    scene.run_policy().key("backoffLimit").report_fix(
        rule,
        message,
        "write `backoffLimit: 3` in `runPolicy`",
        limit(scene),
    );
}

/// Options and variables that name where a program saves.
pub(in crate::lint) const OUTPUT_OPTIONS: &[&str] = &[
    "--checkpoint-dir",
    "--checkpoint-path",
    "--checkpoints",
    "--ckpt-dir",
    "--ckpt-path",
    "--output-dir",
    "--output-path",
    "--save",
    "--save-dir",
    "--save-path",
    "--default-root-dir",
];
const OUTPUT_VARIABLES: [&str; 4] = [
    "CHECKPOINT_DIR",
    "CHECKPOINT_PATH",
    "CKPT_DIR",
    "OUTPUT_DIR",
];

fn lost_output(rule: &Rule, scene: &Scene<'_>) {
    if scene.gpus() == 0 || scene.only_measures() || scene.part {
        return;
    }
    let is_named = |text: &str| {
        let text = text.to_ascii_lowercase();
        text.contains("checkpoint") || text.contains("ckpt")
    };
    for pod in &scene.pods {
        let command = pod.command();
        let option = command
            .option(OUTPUT_OPTIONS)
            .map(|word| (word.text, pod.command_at(word.item)));
        let stated = pod
            .variables()
            .filter(|(name, _, _)| OUTPUT_VARIABLES.contains(name))
            .map(|(_, value, place)| (value, place));
        // What the launcher of an `MPIJob` names is a folder of its workers.
        let writer = match pod.role {
            Role::Launcher => scene.role(Role::Worker).unwrap_or(pod),
            _ => pod,
        };
        for (path, place) in option.into_iter().chain(stated) {
            if let Some(found) = relative(writer, path) {
                place.report_with(
                    rule,
                    format!("the program saves to `{path}`, {found}: it ends with the pod"),
                    "name a folder of a claim by its whole path, such as `/checkpoints/run`",
                );
                continue;
            }
            if !path.starts_with('/') || path.starts_with("/dev/") || path.contains('$') {
                continue;
            }
            let found = match writer.mount_of(path) {
                None => "no volume is mounted there",
                Some((mount, _, Some(volume))) => {
                    // Another rule reports those whose name says what they are for.
                    let said = is_named(&mount.mount_path) || is_named(&volume.name);
                    match volume.empty_dir {
                        Some(_) if !said => "that is an `emptyDir`",
                        _ => continue,
                    }
                }
                Some(_) => continue,
            };
            place.report_with(
                rule,
                format!("the program saves to `{path}`, and {found}: it ends with the pod"),
                "mount a claim there, or save to a folder of one",
            );
        }
    }
}

/// Where a folder that is named from the working directory is, where that is on no volume.
fn relative(pod: &Pod<'_>, path: &str) -> Option<String> {
    let is_folder = !path.starts_with(['/', '-', '~']) && !path.contains(['$', ':', '{', ',']);
    // A script may change its folder, and what ends like a word is no folder.
    let command = pod.command();
    let moves = command.words.iter().any(|word| word.text == "cd");
    if !is_folder || path.is_empty() || moves {
        return None;
    }
    if let Some(folder) = pod.trainer.working_dir.as_deref() {
        let whole = format!("{}/{path}", folder.trim_end_matches('/'));
        return pod
            .mount_of(&whole)
            .is_none()
            .then(|| format!("which is below `{folder}`, on no volume"));
    }
    // The image says where it starts, which may be where a volume is mounted. One for data, or for checkpoints, is not.
    let mut mounts = pod.mounts();
    let named = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let words = [
            "checkpoint",
            "ckpt",
            "data",
            "shm",
            "output",
            "result",
            "cache",
            "script",
        ];
        words.iter().any(|word| name.contains(word))
    };
    let elsewhere = mounts.all(|(mount, _, _)| named(&mount.mount_path));
    elsewhere.then(|| "a folder in the image's working directory, on no volume".to_owned())
}

fn volume_of_another_role(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let others = scene.ranks().filter(|other| other.role != pod.role);
        let folders: Vec<(&str, Role)> = others
            .flat_map(|other| {
                let mounts = other.mounts();
                let kept = mounts.filter(|(_, _, volume)| {
                    volume.is_some_and(|volume| volume.persistent_volume_claim.is_some())
                });
                kept.map(|(mount, _, _)| (mount.mount_path.as_str(), other.role))
                    .collect::<Vec<_>>()
            })
            .filter(|(folder, _)| folder.len() > 1 && pod.mount_of(folder).is_none())
            .collect();
        if folders.is_empty() {
            continue;
        }
        for found in files(scene, pod) {
            let Found::Script(script) = found else {
                continue;
            };
            let used = lines_of_all_ranks(script.text)
                .into_iter()
                .find_map(|(number, line)| {
                    let names = |folder: &str| {
                        let mut parts = line.split(['"', '\'', ' ', '=', '(', ')', ',']);
                        parts.any(|part| is_within(part, folder))
                    };
                    let (folder, owner) = folders.iter().find(|(folder, _)| names(folder))?;
                    Some((number, *folder, *owner))
                });
            if let Some((number, folder, role)) = used {
                pod.command_at(script.item).report_with(
                    rule,
                    format!(
                        "line {number} of `{}` uses `{folder}` in every rank, but only {role} mounts it",
                        script.key
                    ),
                    format!("mount the claim in {} too, or use the folder in rank 0 only", pod.role),
                );
            }
        }
    }
}

fn written_read_only(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
                let mut volumes = pod.spec.volumes.iter().flatten();
                let volume = volumes.find(|volume| volume.name == mount.name);
                let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
                let Some(claim) = claim else { continue };
                let modes = access_modes(scene, namespace, &claim.claim_name);
                let only_read =
                    !modes.is_empty() && modes.iter().all(|mode| *mode == "ReadOnlyMany");
                if only_read && writes(pod, container, &mount.mount_path) {
                    let place = place.key("volumeMounts").index(index).key("mountPath");
                    place.report_with(
                        rule,
                        format!(
                            "`{}` writes to `{}`, but the claim `{}` is `ReadOnlyMany`",
                            container.name, mount.mount_path, claim.claim_name
                        ),
                        "fill the volume through a claim with `ReadWriteMany`, or save elsewhere",
                    );
                }
            }
        }
    }
}

/// Whether a container downloads or saves into `folder`.
fn writes(pod: &Pod<'_>, container: &Container, folder: &str) -> bool {
    let command = Command::of(container);
    let saves = command
        .option(OUTPUT_OPTIONS)
        .is_some_and(|word| is_within(word.text, folder));
    let copies = download_call(&command).is_some()
        || command
            .call(&["cp", "rsync", "tar", "unzip", "rclone", "s5cmd", "dd"])
            .is_some();
    let names = || {
        command
            .words
            .iter()
            .any(|word| is_within(word.text, folder))
    };
    let stated = std::ptr::eq(container, pod.trainer)
        && pod
            .variables()
            .any(|(name, value, _)| OUTPUT_VARIABLES.contains(&name) && is_within(value, folder));
    saves || stated || copies && names()
}
