//! What only one kind of job has.

use std::collections::BTreeMap;

use super::{elastic, number32, word};
use crate::{
    finding::{Rule, catalogue},
    spec::{
        Framework, LauncherCreation, MpiImplementation, MpiV1, MpiV2, PyTorch, Role, RoleSpec, Tf,
        TfSuccess,
        check::{Own, Sheet},
        collector::Place,
        nearest::nearest,
        wire,
    },
};

/// The fields of the kind, with what is wrong in them left out.
pub(super) fn framework(sheet: &Sheet<'_>, roles: &BTreeMap<Role, RoleSpec>) -> Framework {
    let place = sheet.spec();
    match &sheet.own {
        Own::PyTorch {
            nproc_per_node,
            elastic,
        } => Framework::PyTorch(pytorch(
            nproc_per_node.as_deref(),
            elastic.as_ref(),
            roles,
            &place,
        )),
        Own::Tf {
            success_policy,
            dynamic_worker,
        } => Framework::Tf(Tf {
            success: success(success_policy.as_deref(), &place.key("successPolicy")),
            dynamic_worker: *dynamic_worker,
        }),
        Own::MpiV1 {
            slots_per_worker,
            main_container,
            ..
        } => Framework::MpiV1(MpiV1 {
            slots_per_worker: slots(*slots_per_worker, &place),
            main_container: remote_exec_container(main_container.as_deref(), roles, &place),
        }),
        Own::MpiV2 {
            slots_per_worker,
            run_launcher_as_worker,
            ssh_auth_mount_path,
            launcher_creation_policy,
            mpi_implementation,
        } => Framework::MpiV2(MpiV2 {
            slots_per_worker: slots(*slots_per_worker, &place),
            run_launcher_as_worker: *run_launcher_as_worker,
            ssh_auth_mount_path: ssh_path(ssh_auth_mount_path.as_deref(), &place),
            launcher_creation: creation(
                launcher_creation_policy.as_deref(),
                &place.key("launcherCreationPolicy"),
            ),
            implementation: implementation(mpi_implementation.as_deref(), &place),
        }),
        Own::XgBoost => Framework::XgBoost,
        Own::Paddle { elastic } => Framework::Paddle(
            elastic
                .as_ref()
                .map(|policy| elastic::paddle(policy, roles, &place.key("elasticPolicy"))),
        ),
        Own::Jax => Framework::Jax,
    }
}

fn pytorch(
    nproc_per_node: Option<&str>,
    policy: Option<&wire::ElasticPolicy>,
    roles: &BTreeMap<Role, RoleSpec>,
    place: &Place<'_>,
) -> PyTorch {
    let elastic_place = place.key("elasticPolicy");
    if policy.is_some() && !roles.is_empty() && !roles.contains_key(&Role::Worker) {
        elastic_place.report_with(
            &catalogue::ELASTIC_WITHOUT_WORKER,
            "`elasticPolicy` needs the role `Worker`, which is missing",
            "add the role, or remove `elasticPolicy`",
        );
    }
    let stated_below = policy.is_some_and(|policy| policy.n_proc_per_node.is_some());
    if stated_below {
        let place = elastic_place.key("nProcPerNode");
        if nproc_per_node.is_some() {
            place.report_with(
                &catalogue::TWO_NPROC_PER_NODE,
                "`elasticPolicy.nProcPerNode` and `nprocPerNode` are both set",
                "remove `elasticPolicy.nProcPerNode`",
            );
        } else {
            place.report_with(
                &catalogue::DEPRECATED_NPROC_PER_NODE,
                "`elasticPolicy.nProcPerNode` is deprecated",
                "use `spec.nprocPerNode`, which takes a string",
            );
        }
    }
    PyTorch {
        nproc_per_node: match nproc_per_node {
            Some(text) => processes(text, &place.key("nprocPerNode")),
            None if stated_below => None,
            None => Some("auto".to_owned()),
        },
        elastic: policy.map(|policy| elastic::pytorch(policy, roles, &elastic_place)),
    }
}

fn processes(text: &str, place: &Place<'_>) -> Option<String> {
    let number = || text.parse::<i32>().is_ok_and(|count| count >= 1) && !text.starts_with('+');
    if matches!(text, "auto" | "cpu" | "gpu") || number() {
        return Some(text.to_owned());
    }
    let message =
        format!("`nprocPerNode` must be `auto`, `cpu`, `gpu` or a number from 1, found `{text}`");
    match nearest(text, ["auto", "cpu", "gpu"]) {
        Some(meant) => place.report_with(
            &catalogue::BAD_NPROC_PER_NODE,
            message,
            format!("did you mean `{meant}`?"),
        ),
        None => place.report(&catalogue::BAD_NPROC_PER_NODE, message),
    }
    None
}

fn success(text: Option<&str>, place: &Place<'_>) -> TfSuccess {
    match text {
        None | Some("") => TfSuccess::Default,
        Some("AllWorkers") => TfSuccess::AllWorkers,
        Some(other) => {
            let message =
                format!("`successPolicy` is `AllWorkers` or unset, `{other}` leaves the default");
            report_near(
                place,
                &catalogue::SUCCESS_POLICY,
                message,
                other,
                &["AllWorkers"],
            );
            TfSuccess::Default
        }
    }
}

fn slots(stated: Option<i64>, place: &Place<'_>) -> u32 {
    number32(
        &place.key("slotsPerWorker"),
        &catalogue::BAD_SLOTS,
        stated,
        0,
    )
    .map_or(1, i32::unsigned_abs)
}

/// The container that remote exec enters, which every worker should have.
fn remote_exec_container(
    name: Option<&str>,
    roles: &BTreeMap<Role, RoleSpec>,
    place: &Place<'_>,
) -> Option<String> {
    let name = name.filter(|name| !name.is_empty())?;
    let worker = roles
        .get(&Role::Worker)
        .and_then(|spec| spec.template.spec.as_ref());
    if let Some(spec) = worker
        && spec
            .containers
            .iter()
            .all(|container| container.name != name)
    {
        place.key("mainContainer").report(
            &catalogue::MAIN_CONTAINER,
            format!("no container of Worker is named `{name}`"),
        );
    }
    Some(name.to_owned())
}

fn ssh_path(stated: Option<&str>, place: &Place<'_>) -> String {
    if stated == Some("") {
        place.key("sshAuthMountPath").report_with(
            &catalogue::BAD_SSH_PATH,
            "`sshAuthMountPath` must not be empty",
            "remove it to use `/root/.ssh`",
        );
    }
    stated.unwrap_or("/root/.ssh").to_owned()
}

/// Any word but `AtStartup` waits, as it did with the old operator.
fn creation(text: Option<&str>, place: &Place<'_>) -> LauncherCreation {
    const WORDS: [&str; 2] = ["AtStartup", "WaitForWorkersReady"];
    match text {
        None | Some("" | "AtStartup") => LauncherCreation::AtStartup,
        Some("WaitForWorkersReady") => LauncherCreation::WaitForWorkersReady,
        Some(other) => {
            let message = format!(
                "`launcherCreationPolicy` is `AtStartup` or `WaitForWorkersReady`, `{other}` is taken for the latter"
            );
            report_near(place, &catalogue::LAUNCHER_CREATION, message, other, &WORDS);
            LauncherCreation::WaitForWorkersReady
        }
    }
}

fn implementation(text: Option<&str>, place: &Place<'_>) -> MpiImplementation {
    const WORDS: [(&str, MpiImplementation); 3] = [
        ("OpenMPI", MpiImplementation::OpenMpi),
        ("Intel", MpiImplementation::Intel),
        ("MPICH", MpiImplementation::Mpich),
    ];
    let place = place.key("mpiImplementation");
    text.and_then(|text| word(&place, &catalogue::BAD_MPI_IMPLEMENTATION, text, &WORDS))
        .unwrap_or_default()
}

fn report_near(place: &Place<'_>, rule: &Rule, message: String, word: &str, known: &[&str]) {
    match nearest(word, known.iter().copied()) {
        Some(meant) => place.report_with(rule, message, format!("did you mean `{meant}`?")),
        None => place.report(rule, message),
    }
}
