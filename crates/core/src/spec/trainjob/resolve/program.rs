//! What the trainer's containers run: program, variables, resources, images, and the variables of `torchrun`.

use super::{
    Resolution,
    container::{container_of, merge_resources, upsert},
};
use crate::{
    finding::catalogue,
    spec::{
        Role,
        trainjob::{
            PORT, Policy, Train,
            fields::{MlPolicy, Trainer},
            policy::Processes,
            tune,
        },
    },
};

/// Variables that a policy sets, which a job may not.
const RESERVED: [&str; 13] = [
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "DMLC_TRACKER_URI",
    "DMLC_TRACKER_PORT",
    "DMLC_TASK_ID",
    "DMLC_NUM_WORKER",
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
];

impl Resolution<'_, '_> {
    /// Program, variables and resources of the trainer.
    pub(super) fn trainer(
        &mut self,
        stated: &Trainer,
        trainer: Role,
        is_mpi: bool,
        own: &mut Train,
    ) {
        let place = self.place.key("trainer");
        let reserved = |name: &str| RESERVED.contains(&name);
        for (index, variable) in stated
            .env
            .iter()
            .flatten()
            .enumerate()
            .filter(|(_, it)| reserved(&it.name))
        {
            place.key("env").index(index).report_with(
                &catalogue::TRAIN_RESERVED,
                format!(
                    "`trainer.env` sets `{}`, which the runtime sets",
                    variable.name
                ),
                "remove it; `numNodes` and `numProcPerNode` are what it follows from",
            );
        }
        // The nodes of MPI run the same image and variables as their launcher.
        let others = is_mpi.then_some(Role::Node).filter(|role| *role != trainer);
        for role in [Some(trainer), others].into_iter().flatten() {
            let Some(container) = container_of(&mut self.job.roles, role) else {
                continue;
            };
            if let Some(image) = stated.image.clone().filter(|image| !image.is_empty()) {
                container.image = Some(image);
            }
            if role == trainer || own.launcher_is_node {
                merge_resources(container, stated.resources_per_node.as_ref());
            }
            if role == trainer {
                own.variables_at = container.env.as_ref().map_or(0, Vec::len);
                self.command = container.command.clone().unwrap_or_default();
                if stated.command.is_some() {
                    container.command.clone_from(&stated.command);
                }
                if stated.args.is_some() {
                    container.args.clone_from(&stated.args);
                }
            }
            for variable in stated.env.iter().flatten() {
                upsert(container.env.get_or_insert_default(), variable.clone());
            }
        }
    }

    /// Every container needs an image.
    pub(super) fn images(&self) {
        for (role, spec) in &self.job.roles {
            for container in spec.template.spec.iter().flat_map(|spec| &spec.containers) {
                if container.image.as_deref().is_none_or(str::is_empty) {
                    let message = format!(
                        "container `{}` of job `{}` has no image, neither in runtime `{}` nor in the job",
                        container.name,
                        role.lower(),
                        self.runtime
                    );
                    let hint = "state `spec.trainer.image`, or the image in the runtime";
                    self.place
                        .key("trainer")
                        .report_with(&catalogue::NO_IMAGE, message, hint);
                }
            }
        }
    }

    pub(super) fn torch(
        &mut self,
        policy: &MlPolicy,
        stated: &Trainer,
        trainer: Role,
        processes: &Processes,
        own: &Train,
    ) -> Policy {
        let torch = policy.torch.clone().unwrap_or_default();
        for (field, is_there) in [
            ("torch.numProcPerNode", torch.num_proc_per_node.is_some()),
            ("torch.elasticPolicy", torch.elastic_policy.is_some()),
        ] {
            if is_there {
                self.no_effect(field, ": Kubeflow Trainer 2.3 removed it");
            }
        }
        let mut also = Vec::new();
        for target in torch
            .env_injection
            .and_then(|it| it.targets)
            .into_iter()
            .flatten()
        {
            let name = target.job_name.unwrap_or_default();
            let Some(role) = self.named(&name, own, "torch.envInjection") else {
                continue;
            };
            let containers = target.container_names.unwrap_or_default();
            let spec = self
                .job
                .roles
                .get(&role)
                .and_then(|it| it.template.spec.as_ref());
            for wanted in &containers {
                let has =
                    spec.is_some_and(|spec| spec.containers.iter().any(|it| it.name == *wanted));
                if !has || wanted == "node" {
                    self.fault(&format!(
                        "`torch.envInjection` names the container `{wanted}` of job `{name}`, which is {}",
                        if has { "the trainer's own" } else { "not there" }
                    ));
                }
            }
            also.push((role, containers));
        }
        let command = stated.command.clone().unwrap_or_default();
        let is_tune = tune::is_tune(&command);
        if is_tune {
            let nodes = self.job.role_replicas(trainer);
            let address = format!("{}-node-0-0.{}:{PORT}", self.job.name, own.subdomain);
            let args = stated.args.clone().unwrap_or_default();
            let rest = tune::rest(
                &self.runtime,
                &address,
                nodes,
                processes,
                &self.command,
                &args,
            );
            if let Some(container) = container_of(&mut self.job.roles, trainer) {
                container.command.get_or_insert_default().extend(rest);
            }
        }
        Policy::Torch {
            also,
            tune: is_tune,
        }
    }
}
