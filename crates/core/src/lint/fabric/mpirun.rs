//! What `mpirun` hands on to the ranks, and how its arguments are written.

use super::super::{Rule, command::Word, scene::Scene};
use crate::{
    finding::Fix,
    spec::{Framework, MpiImplementation, Role},
};

/// Beginnings of names of variables that matter to ranks.
const FOR_RANKS: [&str; 5] = ["NCCL_", "UCX_", "GLOO_", "HOROVOD_", "TORCH_"];

pub(in crate::lint) fn not_forwarded(rule: &Rule, scene: &Scene<'_>) {
    let is_open = match &scene.job.framework {
        Framework::MpiV1(_) => true,
        Framework::MpiV2(mpi) => mpi.implementation == MpiImplementation::OpenMpi,
        _ => false,
    };
    let Some(launcher) = scene.role(Role::Launcher) else {
        return;
    };
    let command = launcher.command();
    if !is_open || !scene.forwards_nothing() || command.mpirun().is_none() {
        return;
    }
    let passed = |name: &str| {
        let named = |pair: &[Word<'_>]| matches!(pair, [x, value] if x.text == "-x" && value.text.split('=').next() == Some(name));
        command.words.windows(2).any(named)
            || command
                .words
                .iter()
                .any(|word| word.text.contains("mca_base_env_list"))
    };
    for (name, _, place) in launcher.variables() {
        if FOR_RANKS.iter().any(|start| name.starts_with(start)) && !passed(name) {
            place.report_with(
                rule,
                format!(
                    "`{name}` is set in the launcher, but `mpirun` does not pass it on to the ranks"
                ),
                format!("add `-x` and `{name}` as two items to the command of `mpirun`"),
            );
        }
    }
}

/// Options of the launchers that take a value.
const WITH_VALUE: [&str; 14] = [
    "-H",
    "-hostfile",
    "-map-by",
    "-mca",
    "-n",
    "-np",
    "-x",
    "--bind-to",
    "--hostfile",
    "--map-by",
    "--mca",
    "--nnodes",
    "--nproc_per_node",
    "--rdzv_endpoint",
];

/// The option and the value that were written as one argument.
fn split_packed(argument: &str) -> Option<(&str, &str)> {
    let (option, value) = argument.split_once(' ')?;
    let value = value.trim();
    (WITH_VALUE.contains(&option) && !value.is_empty()).then_some((option, value))
}

pub(in crate::lint) fn option_with_value(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        let command = pod.command();
        if command.is_shell || command.mpirun().or_else(|| command.torchrun()).is_none() {
            continue;
        }
        for word in &command.words {
            if let Some((option, value)) = split_packed(word.text) {
                let fix = Fix::Split(option.to_owned(), value.to_owned());
                pod.command_at(word.item).report_fix(
                    rule,
                    format!("`{}` is one argument, the launcher needs two", word.text),
                    format!("write `{option}` and `{value}` as two items"),
                    // `-mca name value` takes two values, which only its writer can distinguish.
                    (!value.contains(' ')).then_some(fix),
                );
            }
        }
    }
}
