//! Ranks that never meet: pods that train each by itself, workers and launchers that do not find each other.

use super::super::{
    Rule,
    advice::{Advice, Look, RISKY, WRONG, rule},
    command::{Command, base_name},
    scene::{Pod, Scene, counted},
};
use crate::spec::{Framework, Kind, MpiTransport, Role, is_within};

/// The rules.
pub(in crate::lint) static RULES: &[Advice] = &[
    Advice {
        rule: rule(
            "TY171",
            WRONG,
            "pods that train apart",
            "With `--standalone`, or with a rendezvous on `localhost`, every pod finds only itself: each trains alone, \
             or waits for the others. With one `--node_rank` for all pods of a role they claim the same ranks. The \
             operator gives every pod the variables that torchrun reads, so none of these options is needed.",
        ),
        look: Look::Job(apart),
    },
    Advice {
        rule: rule(
            "TY172",
            RISKY,
            "MPI worker that does not wait for its ranks",
            "`mpirun` starts the ranks inside of the workers. Where `trainyard.dev/mpi-transport` is `ssh`, the worker must \
             run an ssh server, which the operator starts in a container without a command. A worker that runs the program \
             itself trains once more, alone.",
        ),
        look: Look::Job(workers),
    },
    Advice {
        rule: rule(
            "TY173",
            RISKY,
            "launcher that does not find the workers",
            "The operator lists the workers in `/etc/mpi/hostfile` and points `mpirun` there. `deepspeed` looks for \
             `/job/hostfile` unless it is given another one, and where the file is not there it starts its processes \
             on the launcher alone.",
        ),
        look: Look::Job(hostfile),
    },
    Advice {
        rule: rule(
            "TY174",
            RISKY,
            "rendezvous without a server",
            "The backends `etcd` and `etcd-v2` need a server of etcd. Without `rdzvHost` the address is that of worker 0, \
             which runs none, so no worker ever joins.",
        ),
        look: Look::Job(no_server),
    },
];

/// Whether `host` is the pod itself.
fn is_local(host: &str) -> bool {
    let host = host.trim_matches(['"', '\'']);
    host == "localhost" || host == "0.0.0.0" || host == "::1" || host.starts_with("127.")
}

/// Whether a word is a script of Python.
fn is_python(text: &str) -> bool {
    matches!(text.rsplit_once('.'), Some((_, "py")))
}

fn apart(rule: &Rule, scene: &Scene<'_>) {
    let pods = scene
        .ranks()
        .map(|pod| u64::from(pod.replicas))
        .sum::<u64>();
    if pods < 2 || !scene.is_job() || scene.job.kind.is_mpi() {
        return;
    }
    let elastic = scene.job.elastic();
    if elastic.is_some_and(|elastic| elastic.standalone) {
        let place = scene.spec().key("elasticPolicy").key("standalone");
        place.report_with(
            rule,
            format!("`standalone` makes each of the {pods} pods train alone"),
            "remove `standalone`",
        );
    }
    for pod in scene.ranks() {
        let command = pod.command();
        let by_torch = command.torchrun();
        let by_accelerate = command.call(&["accelerate"]);
        let Some(start) = by_torch.or(by_accelerate) else {
            continue;
        };
        // A script may start one pod otherwise than several.
        let decides = |text: &str| matches!(text, "if" | "case" | "[" | "[[");
        if command.is_shell && command.words.iter().any(|word| decides(word.text)) {
            continue;
        }
        // Behind the script come options of its own.
        let words = command.words.iter().skip(start);
        let own = Command {
            words: words
                .take_while(|word| !is_python(word.text))
                .copied()
                .collect(),
            is_shell: command.is_shell,
        };
        let alone = own.words.iter().find(|word| word.text == "--standalone");
        if let (Some(word), true) = (alone, by_torch.is_some()) {
            pod.command_at(word.item).report_with(
                rule,
                format!("`--standalone` makes each of the {pods} pods train alone"),
                "leave the option out: torchrun reads its rendezvous from variables that are set in every pod",
            );
            continue;
        }
        addresses(rule, &own, pod, pods);
        let of_operator = elastic
            .filter(|_| by_torch.is_some())
            .map(|elastic| elastic.rdzv_backend.as_str());
        let backend = own
            .option(&["--rdzv_backend"])
            .map(|word| word.text)
            .or(of_operator)
            .or_else(|| pod.variable("PET_RDZV_BACKEND").map(|(value, _)| value));
        // Only a rendezvous of fixed ranks reads the option.
        let is_fixed = backend.is_none_or(|backend| backend == "static");
        let rank = own.option(&["--node_rank", "--machine_rank"]);
        let fixed = rank.filter(|word| word.text.parse::<u32>().is_ok() && is_fixed);
        if let (Some(word), true) = (fixed, pod.replicas > 1) {
            pod.command_at(word.item).report_with(
                rule,
                format!("all {} of {} claim the node rank {}", counted(pod.replicas.into(), "pod"), pod.role, word.text),
                "leave the option out, or write `$PET_NODE_RANK` in a script of a shell: it is set in every pod",
            );
        }
    }
}

/// Reports an address on which no other pod can be met.
fn addresses(rule: &Rule, command: &Command<'_>, pod: &Pod<'_>, pods: u64) {
    let endpoint = command.option(&["--rdzv_endpoint"]);
    let host = command.option(&["--master_addr", "--main_process_ip"]);
    let port = command.option(&["--master_port", "--main_process_port"]);
    // The one master is where the others meet, so it may call itself by any name.
    let is_met = pod.role == Role::Master && pod.replicas == 1;
    let places = [endpoint, host].into_iter().flatten();
    for word in places.filter(|_| !is_met) {
        let host = word
            .text
            .rsplit_once(':')
            .map_or(word.text, |(host, _)| host);
        let local = [word.text, host].into_iter().find(|host| is_local(host));
        if let Some(host) = local {
            pod.command_at(word.item).report_with(
                rule,
                format!("the {pods} pods are to meet at `{host}`, which is a different place in each of them"),
                "leave the option out: the operator sets the address in every pod",
            );
        }
    }
    let of_endpoint = endpoint.and_then(|word| Some((word.text.rsplit_once(':')?.1, word.item)));
    let stated = port.map(|word| (word.text, word.item));
    for (text, item) in of_endpoint.into_iter().chain(stated) {
        let is_port = text.parse::<u16>().is_ok_and(|port| port > 0);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // torchrun chooses a free port for 0, which only one process can know.
        if digits && !is_port {
            pod.command_at(item).report_with(
                rule,
                format!("the port of the rendezvous is {text}, it must be from 1 to 65535"),
                "write such a port, or leave the option out",
            );
        }
    }
}

fn workers(rule: &Rule, scene: &Scene<'_>) {
    if !scene.job.kind.is_mpi() || scene.job.settings.mpi_transport == Some(MpiTransport::Agent) {
        return;
    }
    let Some(worker) = scene.role(Role::Worker) else {
        return;
    };
    let command = worker.command();
    let Some(first) = command.words.first().filter(|_| !command.is_shell) else {
        return;
    };
    let program = base_name(first.text);
    let trains = [
        "accelerate",
        "deepspeed",
        "horovodrun",
        "mpiexec",
        "mpirun",
        "python",
        "python3",
        "torchrun",
    ];
    let waits = ["sleep", "tail"];
    // The agent, which operators use as a rule, runs beside such a command.
    let by_ssh = scene.job.settings.mpi_transport == Some(MpiTransport::Ssh);
    let (what, hint) = if trains.contains(&program) {
        (
            "runs the program itself",
            "remove `command` and `args` of the worker: the launcher starts the program in it",
        )
    } else if waits.contains(&program) && scene.job.kind == Kind::MpiV2 && by_ssh {
        (
            "runs no ssh server",
            "remove `command` and `args` of the worker: the operator starts `sshd`",
        )
    } else {
        return;
    };
    worker.command_at(first.item).report_with(
        rule,
        format!("the worker runs `{program}`: it {what}"),
        hint,
    );
}

fn hostfile(rule: &Rule, scene: &Scene<'_>) {
    const FOLDER: &str = "/etc/mpi";
    const HINT: &str = "write `--hostfile=/etc/mpi/hostfile`, where the operator lists the workers";
    let workers = scene.job.role_replicas(Role::Worker);
    let Some(launcher) = scene.role(Role::Launcher).filter(|_| workers > 0) else {
        return;
    };
    let command = launcher.command();
    if command.mpirun().is_some() || command.call(&["horovodrun"]).is_some() {
        return;
    }
    let Some(start) = command.call(&["deepspeed"]) else {
        return;
    };
    // The launcher, not the value of an option such as `--strategy deepspeed`, nor what pip installs.
    let text = |at: usize| command.words.get(at).map_or("", |word| word.text);
    let before = start.checked_sub(1).map_or("", text);
    let behind = text(start.saturating_add(1));
    let is_program = behind.starts_with('-') || is_python(behind);
    if !is_program || before.starts_with("--") || before == "install" {
        return;
    }
    // A script may make the file, or name the pods.
    let names_file = |text: &str| text.contains("hostfile");
    if command
        .words
        .iter()
        .any(|word| word.text.contains("no_ssh"))
        || command
            .words
            .iter()
            .take(start)
            .any(|word| names_file(word.text))
    {
        return;
    }
    match command.option(&["--hostfile", "-H"]) {
        // A volume may bring the file that it looks for.
        None if launcher.mount_of("/job/hostfile").is_some() => {}
        None => {
            let item = command.words.get(start).map_or(0, |word| word.item);
            launcher.command_at(item).report_with(
                rule,
                "`deepspeed` has no `--hostfile`, so it starts its processes on the launcher alone",
                HINT,
            );
        }
        Some(word) => {
            let path = word.text;
            let known = path.contains('$') || !path.starts_with('/') || is_within(path, FOLDER);
            if !known && launcher.mount_of(path).is_none() {
                launcher.command_at(word.item).report_with(
                    rule,
                    format!("the hostfile `{path}` is on no volume of the launcher"),
                    HINT,
                );
            }
        }
    }
}

fn no_server(rule: &Rule, scene: &Scene<'_>) {
    let Framework::PyTorch(pytorch) = &scene.job.framework else {
        return;
    };
    let Some(elastic) = &pytorch.elastic else {
        return;
    };
    let by_etcd = matches!(elastic.rdzv_backend.as_str(), "etcd" | "etcd-v2");
    let stated = |pod: &Pod<'_>| {
        let command = pod.command();
        let containers = &pod.spec.containers;
        let is_etcd =
            |image: &Option<String>| image.as_deref().is_some_and(|it| it.contains("etcd"));
        command
            .option(&["--rdzv_endpoint", "--rdzv_backend"])
            .is_some()
            || containers.iter().any(|container| is_etcd(&container.image))
    };
    if by_etcd && elastic.rdzv_host.is_none() && !scene.pods.iter().any(stated) {
        let place = scene.spec().key("elasticPolicy").key("rdzvBackend");
        place.report_with(
            rule,
            format!(
                "`{}` needs a server, and `rdzvHost` names none",
                elastic.rdzv_backend
            ),
            "write `rdzvBackend: c10d`, which needs no server, or add `rdzvHost` and `rdzvPort`",
        );
    }
}
