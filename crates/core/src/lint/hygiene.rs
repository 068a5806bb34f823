//! Hygiene and safety: images that change, secrets that show, rights that are not needed.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    companions::{Companion, Companions, at},
    recovery::OUTPUT_OPTIONS,
    scene::{Scene, variables},
};
use crate::spec::{is_within, placeholder};

mod downloads;
mod files;
mod image;
mod keys;
mod more;

pub(super) use downloads::download_call;
pub(super) use files::RULES as FILE_RULES;
pub(super) use image::{RULES as IMAGE_RULES, is_moving};
pub(super) use keys::RULES as KEY_RULES;
pub(super) use more::{RULES as MORE_RULES, is_example};

/// A suppression without a reason. Reported by the linter itself.
pub(super) const NO_REASON: Rule = rule(
    "TY610",
    ODD,
    "finding allowed without a reason",
    "`trainyard.dev/lint-allow` says which findings of the object are intended. An entry has the form \
     `TY402: reason`, several are separated by `;`. One without a reason allows nothing, because the next \
     reader could not know whether it still holds.",
);

/// A suppression that cannot have an effect. Reported by the linter itself.
pub(super) const ALLOWS_NOTHING: Rule = rule(
    "TY611",
    ODD,
    "suppression without effect",
    "The entry of `trainyard.dev/lint-allow` names no finding of the object: the code is unknown, is one of \
     those that make a job invalid, or nothing of the kind is found any more. An old entry would hide \
     the next finding.",
);

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY601",
            RISKY,
            "image that may change",
            "An image without a tag, or with one that moves such as `latest`, `latest-gpu`, `nightly` or `main`, is another one \
             tomorrow. Pods of one gang may then run different programs, and a restart is not the same run.",
        ),
        look: Look::Job(image::latest),
    },
    Advice {
        rule: rule(
            "TY602",
            RISKY,
            "secret in the file",
            "Whoever may read the job, its pods or the repository of the file reads the secret. A variable can \
             take its value from a Secret with `valueFrom.secretKeyRef`.",
        ),
        look: Look::Job(secrets),
    },
    Advice {
        rule: rule(
            "TY603",
            RISKY,
            "privileged container",
            "A privileged container can do on the node whatever root can, to every other job on it. RDMA needs \
             the capability IPC_LOCK only, and devices come by resources. The capabilities SYS_ADMIN and ALL, and the \
             processes of the node (`hostPID`), amount to the same; with `hostIPC` it can read and write their shared memory.",
        ),
        look: Look::Job(privileged),
    },
    Advice {
        rule: rule(
            "TY604",
            ODD,
            "folder of the node",
            "A `hostPath` volume is whatever the node has there: it differs from node to node, is shared with \
             every other pod, and is refused by the baseline pod security standard.",
        ),
        look: Look::Job(host_path),
    },
    Advice {
        rule: rule(
            "TY605",
            WRONG,
            "root where it is refused",
            "The namespace enforces the restricted pod security standard, which refuses pods that may run as root. \
             The job stays without pods.",
        ),
        look: Look::Beside(restricted),
    },
    Advice {
        rule: rule(
            "TY606",
            ODD,
            "download at every start",
            "What the command downloads or installs, it does again in every pod and after every restart, while \
             the GPUs wait, and the run depends on what the other end serves that day. An image or an init \
             container with a shared volume does it once.",
        ),
        look: Look::Beside(downloads::downloads),
    },
    Advice {
        rule: rule(
            "TY607",
            RISKY,
            "output into a read-only mount",
            "The program writes, or keeps downloads, in a folder that is mounted read-only. It fails \
             at the first file, which for a checkpoint is hours into the run. So does a folder on no volume, where the container has \
             `readOnlyRootFilesystem`.",
        ),
        look: Look::Job(read_only),
    },
    Advice {
        rule: rule(
            "TY608",
            ODD,
            "claim without a class",
            "An empty `storageClassName` is not the default class, but none: only a volume that somebody made by \
             hand fits, and without one the claim stays Pending. Without the field the default class is \
             used.",
        ),
        look: Look::Companion(empty_class),
    },
    Advice {
        rule: rule(
            "TY609",
            RISKY,
            "object in another namespace",
            "Pods use claims, config maps, secrets and service accounts of their own namespace only. The files have the object, \
             but in another one.",
        ),
        look: Look::Beside(other_namespace),
    },
    Advice {
        rule: NO_REASON,
        look: Look::Linter,
    },
    Advice {
        rule: ALLOWS_NOTHING,
        look: Look::Linter,
    },
];

fn secrets(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            for (name, value, place) in variables(container, &place) {
                if is_secret(name, value) {
                    place.report_with(
                        rule,
                        format!("`{name}` holds its secret in plain text"),
                        "take it from a Secret with `valueFrom.secretKeyRef`, and change it",
                    );
                } else if is_filled_secret(name, value) {
                    place.report_with(
                        rule,
                        format!("`{name}` is filled in as plain text, where everybody who may read the pod sees it"),
                        "take it from a Secret with `valueFrom.secretKeyRef`",
                    );
                }
            }
        }
        for (name, value, place) in pod.assigned() {
            if is_secret(name, value) {
                place.report_with(
                    rule,
                    format!("the command sets `{name}` to its secret in plain text"),
                    "set it in `env` from a Secret with `valueFrom.secretKeyRef`, and change it",
                );
            }
        }
        let command = pod.command();
        for (at, option) in command.words.iter().enumerate() {
            let next = command.words.get(at + 1).map_or("", |next| next.text);
            let (name, value) = option.text.split_once('=').unwrap_or((option.text, next));
            let named = name.starts_with("--") && is_secret(&name.replace('-', "_"), value);
            let known = has_known_form(option.text);
            let named = named && !value.starts_with('-');
            if named || known && !command.is_shell {
                // The name of an option, and never the secret itself.
                let message = if named {
                    format!("the argument `{name}` has a secret in plain text")
                } else {
                    "an argument is a secret in plain text".to_owned()
                };
                pod.command_at(option.item).report_with(
                    rule,
                    message,
                    "pass it by a variable from a Secret with `valueFrom.secretKeyRef`, and change it",
                );
            }
        }
    }
}

/// Whether the variable `name` is a secret that somebody fills in before the file is used: `${HF_TOKEN}`.
pub(in crate::lint) fn is_filled_secret(name: &str, value: &str) -> bool {
    let whole = value
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        .or_else(|| value.strip_prefix('$'));
    // Were the value there, it would be one of a secret.
    whole.is_some_and(placeholder::is_variable) && is_secret(name, "filled-in")
}

/// Whether the variable `name` holds a secret in `value`.
///
/// The word names the thing itself only at the end: `TOKEN_FILE` is a path, `MAX_TOKEN` a number.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    const WORDS: [&str; 12] = [
        "ACCESS_KEY",
        "ACCESS_KEY_ID",
        "APIKEY",
        "API_KEY",
        "CREDENTIALS",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PRIVATE_KEY",
        "SECRET",
        "SECRET_KEY",
        "TOKEN",
    ];
    let name = name.to_ascii_uppercase();
    let plain =
        !value.is_empty() && !value.starts_with(['/', '$', '<']) && value.parse::<f64>().is_err();
    let switch = matches!(
        value.to_ascii_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "none" | "null"
    );
    // Special tokens of a tokenizer are in brackets or bars.
    let special = value.starts_with(['[', '|']) || name.ends_with("PAD_TOKEN");
    let named = WORDS.iter().any(|word| name.ends_with(word));
    plain && !switch && !special && (named || has_known_form(value))
}

/// Whether a text has the form in which a well-known service hands out its keys.
fn has_known_form(text: &str) -> bool {
    let forms = [
        ("hf_", 20),
        ("AKIA", 16),
        ("ghp_", 20),
        ("github_pat_", 20),
        ("glpat-", 16),
        ("sk-", 20),
        ("xoxb-", 16),
    ];
    let known = forms.iter().any(|(start, least)| {
        let rest = text.strip_prefix(start);
        let is_key = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        rest.is_some_and(|rest| rest.len() >= *least && rest.chars().all(is_key))
    });
    known || text.contains("-----BEGIN") && text.contains("PRIVATE KEY")
}

fn privileged(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        if pod.spec.host_pid == Some(true) {
            pod.at().key("hostPID").report_with(
                rule,
                "the pod sees, and may end, every process of its node",
                "remove `hostPID`",
            );
        }
        if pod.spec.host_ipc == Some(true) {
            pod.at().key("hostIPC").report_with(
                rule,
                "the pod shares the shared memory of its node with every other process there",
                "remove `hostIPC`; for a larger `/dev/shm` mount an `emptyDir` with `medium: Memory` there",
            );
        }
        for (container, place) in pod.containers() {
            let context = container.security_context.as_ref();
            let added = context
                .and_then(|context| context.capabilities.as_ref())
                .and_then(|found| found.add.as_ref());
            let strong =
                added.into_iter().flatten().enumerate().find(|(_, name)| {
                    matches!(name.trim_start_matches("CAP_"), "SYS_ADMIN" | "ALL")
                });
            if let Some((index, name)) = strong {
                let place = place.key("securityContext").key("capabilities").key("add");
                place.index(index).report_with(
                    rule,
                    format!(
                        "the capability {name} of `{}` is nearly all that root may",
                        container.name
                    ),
                    "add the capabilities that are needed only; for RDMA that is `IPC_LOCK`",
                );
            }
        }
        for (container, place) in pod.containers() {
            let context = container.security_context.as_ref();
            if context.and_then(|context| context.privileged) == Some(true) {
                place.key("securityContext").key("privileged").report_with(
                    rule,
                    format!(
                        "the container `{}` may do anything on its node",
                        container.name
                    ),
                    "remove it; for RDMA add the capability `IPC_LOCK`",
                );
            }
        }
    }
}

fn host_path(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            if let Some(source) = &volume.host_path {
                pod.at()
                    .key("volumes")
                    .index(index)
                    .key("hostPath")
                    .key("path")
                    .report_with(
                        rule,
                        format!(
                            "the volume `{}` is the folder `{}` of whatever node the pod is on",
                            volume.name, source.path
                        ),
                        instead_of(&source.path),
                    );
            }
        }
    }
}

/// What does what a folder of the node is commonly mounted for.
fn instead_of(path: &str) -> &'static str {
    if is_within(path, "/dev/shm") {
        "mount an `emptyDir` with `medium: Memory`, which no other pod sees"
    } else if is_within(path, "/dev") {
        "ask for the device by a resource, such as `rdma/hca`: its plugin hands it to one container"
    } else {
        "use a claim, or an `emptyDir` for what may be lost"
    }
}

fn restricted(rule: &Rule, scene: &Scene<'_>) {
    const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    let namespace = scene.job.namespace.as_str();
    if scene.companions.namespace_label(namespace, ENFORCE) != Some("restricted") {
        return;
    }
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            if may_be_root(pod.spec, container) {
                place.key("securityContext").report_with(
                    rule,
                    format!("the namespace `{namespace}` is restricted, and the container `{}` may run as root", container.name),
                    "set `runAsNonRoot: true` and a `runAsUser` above 0",
                );
            }
        }
    }
}

fn may_be_root(pod: &PodSpec, container: &Container) -> bool {
    let (pod, own) = (
        pod.security_context.as_ref(),
        container.security_context.as_ref(),
    );
    let non_root = own
        .and_then(|own| own.run_as_non_root)
        .or(pod.and_then(|pod| pod.run_as_non_root));
    let user = own
        .and_then(|own| own.run_as_user)
        .or(pod.and_then(|pod| pod.run_as_user));
    non_root != Some(true) || user == Some(0)
}

fn read_only(rule: &Rule, scene: &Scene<'_>) {
    const VARIABLES: [&str; 10] = [
        "CHECKPOINT_DIR",
        "HF_DATASETS_CACHE",
        "HF_HOME",
        "HF_HUB_CACHE",
        "OUTPUT_DIR",
        "TORCH_HOME",
        "TRANSFORMERS_CACHE",
        "TRITON_CACHE_DIR",
        "WANDB_DIR",
        "XDG_CACHE_HOME",
    ];
    for pod in &scene.pods {
        let command = pod.command();
        let option = command
            .option(OUTPUT_OPTIONS)
            .map(|word| (word.text, pod.command_at(word.item)));
        let stated = pod
            .variables()
            .filter(|(name, _, _)| VARIABLES.contains(name))
            .map(|(_, value, place)| (value, place));
        let context = pod.trainer.security_context.as_ref();
        let fixed_root =
            context.and_then(|context| context.read_only_root_filesystem) == Some(true);
        for (path, place) in option.into_iter().chain(stated) {
            let Some((mount, _, volume)) = pod.mount_of(path) else {
                // The runtime mounts memory there in every container.
                if fixed_root && path.starts_with('/') && !is_within(path, "/dev/shm") {
                    place.report_with(
                        rule,
                        format!("the program writes `{path}`, which is on no volume, and the root file system is read-only"),
                        "mount a volume there",
                    );
                }
                continue;
            };
            let is_fixed =
                volume.is_some_and(|volume| volume.config_map.is_some() || volume.secret.is_some());
            let claim = volume
                .and_then(|volume| volume.persistent_volume_claim.as_ref())
                .and_then(|claim| claim.read_only);
            if mount.read_only == Some(true) || is_fixed || claim == Some(true) {
                place.report_with(
                    rule,
                    format!(
                        "the program writes `{path}`, but `{}` is mounted read-only",
                        mount.mount_path
                    ),
                    "write to another folder, or mount it without `readOnly`",
                );
            }
        }
    }
}

fn empty_class(rule: &Rule, companion: &Companion<'_>, _: &Companions<'_>) {
    let spec = |key: &str| at(companion.tree, &["spec", key]);
    let bound = spec("volumeName").is_some() || spec("selector").is_some();
    let is_claim = companion.kind == "PersistentVolumeClaim";
    if is_claim
        && !bound
        && spec("storageClassName").is_some_and(|class| class.as_str() == Some(""))
    {
        companion
            .place
            .key("spec")
            .key("storageClassName")
            .report_with(
                rule,
                format!(
                    "the claim `{}` asks for no class, so no volume is made for it",
                    companion.name
                ),
                "remove `storageClassName` to have the default class",
            );
    }
}

fn other_namespace(rule: &Rule, scene: &Scene<'_>) {
    let namespace = scene.job.namespace.as_str();
    for pod in &scene.pods {
        let account = pod.spec.service_account_name.as_deref().unwrap_or_default();
        let elsewhere = scene
            .companions
            .elsewhere("ServiceAccount", namespace, account);
        if let Some(other) = elsewhere.filter(|_| account != "default") {
            pod.at().key("serviceAccountName").report_with(
                rule,
                format!(
                    "ServiceAccount `{account}` is in namespace `{other}`, the job in `{namespace}`"
                ),
                format!("add `namespace: {namespace}` to its `metadata`"),
            );
        }
        for (index, volume) in pod.spec.volumes.iter().flatten().enumerate() {
            let (kind, name, source, field) = if let Some(claim) = &volume.persistent_volume_claim {
                (
                    "PersistentVolumeClaim",
                    claim.claim_name.as_str(),
                    "persistentVolumeClaim",
                    "claimName",
                )
            } else if let Some(map) = &volume.config_map {
                ("ConfigMap", map.name.as_str(), "configMap", "name")
            } else if let Some(secret) = &volume.secret {
                (
                    "Secret",
                    secret.secret_name.as_deref().unwrap_or_default(),
                    "secret",
                    "secretName",
                )
            } else {
                continue;
            };
            if let Some(other) = scene.companions.elsewhere(kind, namespace, name) {
                pod.at()
                    .key("volumes")
                    .index(index)
                    .key(source)
                    .key(field)
                    .report_with(
                        rule,
                        format!(
                            "{kind} `{name}` is in namespace `{other}`, the job in `{namespace}`"
                        ),
                        format!("add `namespace: {namespace}` to its `metadata`"),
                    );
            }
        }
    }
}
