//! Hygiene and safety: images that change, secrets that show, rights that are not needed.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{
    Rule,
    advice::{Advice, Look, ODD, PYTORCH, RISKY, WRONG, example, rule},
    companions::{Companion, Companions, at},
    scene::{Scene, is_within, variables},
};

mod image;

pub(super) use image::RULES as IMAGE_RULES;

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
            "An image without a tag, or with `latest`, is another one tomorrow. Pods of one gang may then run \
             different programs, and a restart is not the same run.",
        ),
        look: Look::Job(image::latest),
        catches: example(PYTORCH, &[("train:1.4.0", "train:latest")]),
        spares: example(PYTORCH, &[("train:1.4.0", "train:latest@sha256:4f2b")]),
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
        catches: example(
            PYTORCH,
            &[(
                "NCCL_SOCKET_IFNAME\n              value: eth0",
                "WANDB_API_KEY\n              value: 0123456789abcdef",
            )],
        ),
        spares: example(
            PYTORCH,
            &[(
                "NCCL_SOCKET_IFNAME\n              value: eth0",
                "TOKENIZER_PATH\n              value: /data/tokenizer",
            )],
        ),
    },
    Advice {
        rule: rule(
            "TY603",
            RISKY,
            "privileged container",
            "A privileged container can do on the node whatever root can, to every other job on it. RDMA needs \
             the capability IPC_LOCK only, and devices come by resources.",
        ),
        look: Look::Job(privileged),
        catches: example(
            PYTORCH,
            &[(
                "            resources:",
                "            securityContext: {privileged: true}\n            resources:",
            )],
        ),
        spares: example(
            PYTORCH,
            &[(
                "            resources:",
                "            securityContext: {privileged: false}\n            resources:",
            )],
        ),
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
        catches: example(
            PYTORCH,
            &[(
                "          volumes:\n",
                "          volumes:\n          - name: data\n            hostPath: {path: /data}\n",
            )],
        ),
        spares: example(
            PYTORCH,
            &[(
                "          volumes:\n",
                "          volumes:\n          - name: data\n            persistentVolumeClaim: {claimName: data}\n",
            )],
        ),
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
        catches: example(
            PYTORCH,
            &[(
                "---\napiVersion: v1\n",
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {pod-security.kubernetes.io/enforce: restricted}}\n---\napiVersion: v1\n",
            )],
        ),
        spares: example(
            PYTORCH,
            &[(
                "---\napiVersion: v1\n",
                "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {pod-security.kubernetes.io/enforce: baseline}}\n---\napiVersion: v1\n",
            )],
        ),
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
        look: Look::Job(downloads),
        catches: example(
            PYTORCH,
            &[(
                "[torchrun, train.py]",
                "[sh, -c, \"pip install einops && torchrun train.py\"]",
            )],
        ),
        spares: example(
            PYTORCH,
            &[(
                "[torchrun, train.py]",
                "[sh, -c, \"pip check && torchrun train.py\"]",
            )],
        ),
    },
    Advice {
        rule: rule(
            "TY607",
            RISKY,
            "output into a read-only mount",
            "The program writes, or keeps downloads, in a folder that is mounted read-only. It fails \
             at the first file, which for a checkpoint is hours into the run.",
        ),
        look: Look::Job(read_only),
        catches: example(
            PYTORCH,
            &[(
                "              mountPath: /checkpoints",
                "              mountPath: /checkpoints\n              readOnly: true",
            )],
        ),
        spares: example(
            PYTORCH,
            &[
                ("--save-dir", "--data-dir"),
                (
                    "              mountPath: /checkpoints",
                    "              mountPath: /checkpoints\n              readOnly: true",
                ),
            ],
        ),
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
        catches: example(
            PYTORCH,
            &[("storageClassName: shared", "storageClassName: \"\"")],
        ),
        spares: example(
            PYTORCH,
            &[(
                "storageClassName: shared",
                "storageClassName: \"\"\n  volumeName: checkpoints-1",
            )],
        ),
    },
    Advice {
        rule: rule(
            "TY609",
            RISKY,
            "object in another namespace",
            "Pods use claims, config maps and secrets of their own namespace only. The files have the object, \
             but in another one.",
        ),
        look: Look::Beside(other_namespace),
        catches: example(
            PYTORCH,
            &[(
                "  name: checkpoints\n  namespace: team\n",
                "  name: checkpoints\n",
            )],
        ),
        spares: example(
            PYTORCH,
            &[(
                "  name: checkpoints\n  namespace: team\n",
                "  name: others\n",
            )],
        ),
    },
    Advice {
        rule: NO_REASON,
        look: Look::Linter,
        catches: example(
            PYTORCH,
            &[
                (
                    "  namespace: team\nspec:\n  nproc",
                    "  namespace: team\n  annotations: {trainyard.dev/lint-allow: TY601}\nspec:\n  nproc",
                ),
                ("train:1.4.0", "train"),
            ],
        ),
        spares: example(
            PYTORCH,
            &[
                (
                    "  namespace: team\nspec:\n  nproc",
                    "  namespace: team\n  annotations: {trainyard.dev/lint-allow: \"TY601: built every night\"}\nspec:\n  nproc",
                ),
                ("train:1.4.0", "train"),
            ],
        ),
    },
    Advice {
        rule: ALLOWS_NOTHING,
        look: Look::Linter,
        catches: example(
            PYTORCH,
            &[(
                "  namespace: team\nspec:\n  nproc",
                "  namespace: team\n  annotations: {trainyard.dev/lint-allow: \"TY601: built every night\"}\nspec:\n  nproc",
            )],
        ),
        spares: example(
            PYTORCH,
            &[
                (
                    "  namespace: team\nspec:\n  nproc",
                    "  namespace: team\n  annotations: {trainyard.dev/lint-allow: \"TY601: built every night\"}\nspec:\n  nproc",
                ),
                ("train:1.4.0", "train"),
            ],
        ),
    },
];

fn secrets(rule: &Rule, scene: &Scene<'_>) {
    const WORDS: [&str; 8] = [
        "API_KEY",
        "APIKEY",
        "ACCESS_KEY",
        "PASSWD",
        "PASSWORD",
        "PRIVATE_KEY",
        "SECRET",
        "TOKEN",
    ];
    // Such a word names the thing itself only at the end: `TOKEN_FILE` is a path, `MAX_TOKEN` a number.
    let is_secret = |name: &str, value: &str| {
        let name = name.to_ascii_uppercase();
        let plain =
            !value.is_empty() && !value.starts_with(['/', '$']) && value.parse::<f64>().is_err();
        let switch = matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "yes" | "no"
        );
        plain && !switch && WORDS.iter().any(|word| name.ends_with(word))
    };
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            for (name, value, place) in variables(container, &place) {
                if is_secret(name, value) {
                    place.report_with(
                        rule,
                        format!("`{name}` holds its secret in plain text"),
                        "take it from a Secret with `valueFrom.secretKeyRef`, and change it",
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
    }
}

fn privileged(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
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

fn downloads(rule: &Rule, scene: &Scene<'_>) {
    const CALLS: [&[&str]; 9] = [
        &["pip", "install"],
        &["pip3", "install"],
        &["conda", "install"],
        &["apt-get", "install"],
        &["git", "clone"],
        &["huggingface-cli", "download"],
        &["hf", "download"],
        &["aws", "s3"],
        &["gsutil", "cp"],
    ];
    for pod in &scene.pods {
        let command = pod.command();
        let call = CALLS.iter().find_map(|call| {
            let at = command.words.windows(call.len()).position(|words| {
                words
                    .iter()
                    .zip(*call)
                    .all(|(word, wanted)| word.text == *wanted)
            })?;
            Some((command.words.get(at)?.item, call.join(" ")))
        });
        let fetch = ["wget", "curl"].iter().find_map(|name| {
            let at = command.words.iter().position(|word| word.text == *name)?;
            Some((command.words.get(at)?.item, (*name).to_owned()))
        });
        if let Some((item, call)) = call.or(fetch) {
            pod.command_at(item).report_with(
                rule,
                format!(
                    "`{call}` runs in {} of {}, at every start",
                    match pod.replicas {
                        1 => "the pod".to_owned(),
                        count => format!("each of the {count} pods"),
                    },
                    pod.role
                ),
                "build it into the image, or do it once in an init container with a shared volume",
            );
        }
    }
}

fn read_only(rule: &Rule, scene: &Scene<'_>) {
    const OPTIONS: &[&str] = &[
        "--checkpoint-dir",
        "--checkpoint_dir",
        "--ckpt-dir",
        "--output-dir",
        "--output_dir",
        "--save",
        "--save-dir",
        "--save_dir",
    ];
    const VARIABLES: [&str; 5] = [
        "CHECKPOINT_DIR",
        "HF_HOME",
        "OUTPUT_DIR",
        "TORCH_HOME",
        "TRANSFORMERS_CACHE",
    ];
    for pod in &scene.pods {
        let command = pod.command();
        let option = command
            .option(OPTIONS)
            .map(|word| (word.text, pod.command_at(word.item)));
        let stated = pod
            .variables()
            .filter(|(name, _, _)| VARIABLES.contains(name))
            .map(|(_, value, place)| (value, place));
        for (path, place) in option.into_iter().chain(stated) {
            let Some((mount, _, volume)) = pod.mount_of(path) else {
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
