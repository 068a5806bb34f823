//! Shape: numbers that must agree, names that must exist, commands that do not train.

use k8s_openapi::api::core::v1::Container;

use super::{
    Rule,
    advice::{Advice, Look, ODD, RISKY, WRONG, rule},
    command::{Word, base_name},
    scene::Scene,
};
use crate::{
    launch::given_volumes,
    spec::{Kind, Role, nearest},
};

mod apart;
mod elastic;
mod names;
mod program;
mod reference;
mod refused;
pub(super) mod world;

pub(super) use apart::RULES as APART_RULES;
pub(super) use elastic::RULES as ELASTIC_RULES;
pub(super) use names::RULES as NAME_RULES;
pub(super) use program::RULES as PROGRAM_RULES;
pub(super) use reference::RULES as REFERENCE_RULES;
pub(super) use refused::RULES as REFUSED_RULES;

/// The rules of this family.
pub(super) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY150",
            WRONG,
            "nodes and replicas disagree",
            "torchrun waits until as many agents have joined as `--nnodes` says. With fewer pods than \
             that it waits until its timeout; with more, those above the number find the rendezvous \
             closed. Without the option torchrun takes the number from the variable PET_NNODES, \
             which every pod is given.",
        ),
        look: Look::Job(world::nodes),
    },
    Advice {
        rule: rule(
            "TY151",
            RISKY,
            "more processes than GPUs",
            "Every process of a pod takes the GPU with its local rank. A process without one ends with \
             `invalid device ordinal`, and the gang with it.",
        ),
        look: Look::Job(world::too_many_processes),
    },
    Advice {
        rule: rule(
            "TY152",
            ODD,
            "GPUs without a process",
            "A pod reserves more GPUs than it starts processes. In data-parallel training each process \
             uses one GPU, so the others are paid for and idle.",
        ),
        look: Look::Job(world::idle_gpus),
    },
    Advice {
        rule: rule(
            "TY153",
            WRONG,
            "more ranks than slots",
            "The hostfile gives every worker `slotsPerWorker` slots. Open MPI refuses to start more \
             ranks than there are slots unless `--oversubscribe` is set.",
        ),
        look: Look::Job(world::too_many_ranks),
    },
    Advice {
        rule: rule(
            "TY154",
            ODD,
            "slots without a rank",
            "`mpirun` starts fewer ranks than the workers have slots, so some of what is reserved is \
             never used.",
        ),
        look: Look::Job(world::idle_slots),
    },
    Advice {
        rule: rule(
            "TY155",
            ODD,
            "slots and GPUs disagree",
            "In GPU training a slot is a rank and a rank is a GPU. With more slots than GPUs ranks \
             share a device or fail, with fewer some GPUs are idle.",
        ),
        look: Look::Job(world::slots_and_gpus),
    },
    Advice {
        rule: rule(
            "TY156",
            WRONG,
            "rendezvous host that will not exist",
            "The rendezvous address is a pod that the job never has, so every rank waits for \
             a name that no DNS server knows. Pods are named `<job>-<role>-<index>`, and a job \
             without a Master has no `-master-0`.",
        ),
        look: Look::Job(rendezvous_host),
    },
    Advice {
        rule: rule(
            "TY157",
            WRONG,
            "torchrun is given no script",
            "torchrun starts a Python file (or with `-m` a module) in every process. It has no option \
             `-c`, and a `python` after it is taken for the name of the script unless `--no-python` is \
             given.",
        ),
        look: Look::Job(inline_code),
    },
    Advice {
        rule: rule(
            "TY158",
            RISKY,
            "no command on a base image",
            "The image is a general one whose own command is a shell or an interpreter. Without a \
             command of the job it ends at once with exit code 0, and the job succeeds without having \
             trained.",
        ),
        look: Look::Job(no_command),
    },
    Advice {
        rule: rule(
            "TY159",
            RISKY,
            "variable that the mode does not set",
            "A PyTorchJob without a Master is given no MASTER_ADDR, MASTER_PORT, RANK or WORLD_SIZE: \
             torchrun deals them out among its own processes. In the command of the container they \
             are empty.",
        ),
        look: Look::Job(not_injected),
    },
    Advice {
        rule: rule(
            "TY160",
            ODD,
            "deprecated launcher",
            "`torch.distributed.launch` is deprecated in favour of `torchrun`. It does not restart \
             processes as torchrun does, and passes the local rank as an argument.",
        ),
        look: Look::Job(old_launcher),
    },
    Advice {
        rule: rule(
            "TY161",
            ODD,
            "port name that the operator does not look for",
            "The operator finds the rendezvous port by its name. Under another name it is only one \
             more port, and the ranks use the default number.",
        ),
        look: Look::Job(port_name),
    },
    Advice {
        rule: rule(
            "TY162",
            ODD,
            "variable that is overwritten",
            "The operator sets these variables itself, differently in every pod, after those of the \
             file. A value in the file is never seen.",
        ),
        look: Look::Job(overwritten),
    },
    Advice {
        rule: rule(
            "TY163",
            WRONG,
            "mount without a volume",
            "A container mounts a volume that its pod does not have. The cluster refuses such a pod, so \
             the job stays without pods.",
        ),
        look: Look::Job(mounts),
    },
];

fn rendezvous_host(rule: &Rule, scene: &Scene<'_>) {
    const OPTIONS: &[&str] = &["--rdzv_endpoint", "--master_addr", "--rdzv-endpoint"];
    const VARIABLES: [&str; 3] = ["MASTER_ADDR", "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR"];
    for pod in scene.ranks() {
        let option = pod.command().option(OPTIONS);
        let stated = option.map(|word| (word.text, pod.command_at(word.item)));
        let variables = pod
            .variables()
            .filter(|(name, _, _)| VARIABLES.contains(name));
        for (value, place) in stated
            .into_iter()
            .chain(variables.map(|(_, value, place)| (value, place)))
        {
            if let Some(name) = missing_pod(scene, value) {
                let there = if scene.job.roles.contains_key(&Role::Master) {
                    format!("{}-master-0", scene.job.name)
                } else {
                    format!("{}-worker-0", scene.job.name)
                };
                place.report_with(
                    rule,
                    format!("the rendezvous host is `{name}`, the job has no such pod"),
                    format!("leave it out, or name `{there}`"),
                );
            }
        }
    }
}

/// The pod that `endpoint` names, where its name looks like one of this job but no pod has it.
fn missing_pod<'a>(scene: &Scene<'_>, endpoint: &'a str) -> Option<&'a str> {
    let host = endpoint.split([':', '.']).next()?;
    let job = scene.job.name.as_str();
    let rest = host
        .strip_prefix(job)
        .and_then(|rest| rest.strip_prefix('-'));
    // The pod of an etcd server may be named like a master, and is a valid rendezvous host.
    let foreign = host.ends_with("-master-0") && rest.is_none() && !host.contains("etcd");
    if foreign {
        return Some(host);
    }
    let (role, index) = rest?.rsplit_once('-')?;
    let role = Role::ALL.into_iter().find(|known| known.lower() == role)?;
    let index: u32 = index.parse().ok()?;
    let bound = match scene.job.elastic() {
        Some(elastic) if role == Role::Worker => elastic.max_replicas,
        _ => scene.job.role_replicas(role),
    };
    (index >= bound).then_some(host)
}

fn inline_code(rule: &Rule, scene: &Scene<'_>) {
    for pod in scene.ranks() {
        let command = pod.command();
        let Some(start) = command.torchrun() else {
            continue;
        };
        let after = command.words.iter().skip(start + 1);
        let options: Vec<&Word<'_>> = after.take_while(|word| !is_script(word.text)).collect();
        if options
            .iter()
            .any(|word| matches!(word.text, "--no-python" | "--no_python"))
        {
            continue;
        }
        let code = options.iter().find(|word| word.text == "-c").copied();
        let python = command.words.get(start + 1 + options.len());
        let python = python.filter(|word| matches!(base_name(word.text), "python" | "python3"));
        if let Some(word) = code.or(python) {
            pod.command_at(word.item).report_with(
                rule,
                format!("`torchrun` needs a script, found `{}`", word.text),
                "put the code into a file of the image or of a ConfigMap and name that",
            );
        }
    }
}

/// Whether a word after `torchrun` is what it runs.
fn is_script(word: &str) -> bool {
    let is_python = matches!(base_name(word), "python" | "python3");
    !word.starts_with('-')
        && (is_python || [".py", ".pyc", ".sh"].iter().any(|end| word.ends_with(end)))
}

/// Images that hold a framework or less, and no training program.
const BASE_IMAGES: [&str; 14] = [
    "alpine",
    "busybox",
    "debian",
    "mpioperator/base",
    "nvcr.io/nvidia/jax",
    "nvcr.io/nvidia/pytorch",
    "nvcr.io/nvidia/tensorflow",
    "nvidia/cuda",
    "paddlepaddle/paddle",
    "python",
    "pytorch/pytorch",
    "rocm/pytorch",
    "tensorflow/tensorflow",
    "ubuntu",
];

fn no_command(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let lends_its_place = scene.job.kind.is_mpi() && pod.role == Role::Worker;
        let image = pod.trainer.image.as_deref().unwrap_or_default();
        if lends_its_place || !pod.command().is_empty() || !is_base(image) {
            continue;
        }
        pod.trainer_at().key("image").report_with(
            rule,
            format!("`{image}` is a base image and the container has no command: nothing trains"),
            "state the program in `command`",
        );
    }
}

fn is_base(image: &str) -> bool {
    let name = image.split('@').next().unwrap_or(image);
    let name = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => name,
    };
    let name = name.strip_prefix("docker.io/").unwrap_or(name);
    let name = name.strip_prefix("library/").unwrap_or(name);
    BASE_IMAGES.contains(&name)
}

const RANK_VARIABLES: [&str; 4] = ["MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"];

fn not_injected(rule: &Rule, scene: &Scene<'_>) {
    let has_master = scene.job.roles.contains_key(&Role::Master);
    if scene.job.kind != Kind::PyTorch || has_master {
        return;
    }
    for pod in scene.ranks() {
        let command = pod.command();
        for name in RANK_VARIABLES {
            let used = command.words.iter().find(|word| uses(word.text, name));
            if let (Some(word), false) = (used, pod.has_variable(name)) {
                pod.command_at(word.item).report_with(
                    rule,
                    format!("`{name}` is not set in a PyTorchJob without a Master"),
                    "let `torchrun` start the script, which then finds it in its own environment",
                );
            }
        }
    }
}

/// Whether `word` refers to the variable `name` as `$(name)`, `$name` or `${name}`.
fn uses(word: &str, name: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    word.split('$').skip(1).any(|part| {
        let part = part.strip_prefix(['(', '{']).unwrap_or(part);
        part.strip_prefix(name).is_some_and(is_end)
    })
}

fn old_launcher(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let command = pod.command();
        if let Some(at) = command.module("torch.distributed.launch") {
            let item = command.words.get(at).map_or(0, |word| word.item);
            pod.command_at(item).report_with(
                rule,
                "`torch.distributed.launch` is deprecated",
                "call `torchrun`, and read LOCAL_RANK from the environment instead of `--local_rank`",
            );
        }
    }
}

fn port_name(rule: &Rule, scene: &Scene<'_>) {
    let Some((name, number)) = scene.job.kind.port() else {
        return;
    };
    for pod in &scene.pods {
        let list = pod.trainer_at().key("ports");
        for (index, port) in pod.trainer.ports.iter().flatten().enumerate() {
            let found = port.name.as_deref().unwrap_or_default();
            let meant = found != name && nearest(found, [name]).is_some();
            if meant {
                list.index(index).key("name").report_with(
                    rule,
                    format!("no port is named `{name}`, so the rendezvous port is {number} and not `{found}`"),
                    format!("write `name: {name}`"),
                );
            }
        }
    }
}

fn overwritten(rule: &Rule, scene: &Scene<'_>) {
    let names: &[&str] = match scene.job.kind {
        Kind::PyTorch if scene.job.roles.contains_key(&Role::Master) => &RANK_VARIABLES,
        Kind::Tf => &["TF_CONFIG"],
        Kind::XgBoost => &RANK_VARIABLES,
        Kind::Jax => &[
            "COORDINATOR_ADDRESS",
            "COORDINATOR_PORT",
            "NUM_PROCESSES",
            "PROCESS_ID",
        ],
        Kind::Paddle => &["PADDLE_JOB_ID", "PADDLE_MASTER", "PADDLE_NNODES"],
        _ => return,
    };
    for pod in &scene.pods {
        for (name, value, place) in pod.variables().filter(|(name, _, _)| names.contains(name)) {
            place.report_with(
                rule,
                format!("`{name}` is set by the operator in every pod, the value `{value}` is never seen"),
                "remove the variable",
            );
        }
    }
}

fn mounts(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let volumes = || {
            let stated = pod.spec.volumes.iter().flatten();
            let given = given_volumes(scene.job.kind, pod.role).iter().copied();
            stated.map(|volume| volume.name.as_str()).chain(given)
        };
        for (container, place) in pod.containers() {
            for (index, name) in missing_volumes(container, &volumes().collect::<Vec<_>>()) {
                let message = format!("the pod has no volume `{name}`");
                let place = place.key("volumeMounts").index(index).key("name");
                match nearest(name, volumes()) {
                    Some(meant) => {
                        place.report_with(rule, message, format!("did you mean `{meant}`?"));
                    }
                    None => place.report_with(rule, message, "add it to `volumes` of the pod"),
                }
            }
        }
    }
}

fn missing_volumes<'a>(container: &'a Container, volumes: &[&str]) -> Vec<(usize, &'a str)> {
    let mounts = container.volume_mounts.iter().flatten().enumerate();
    mounts
        .map(|(index, mount)| (index, mount.name.as_str()))
        .filter(|(_, name)| !volumes.contains(name))
        .collect()
}
