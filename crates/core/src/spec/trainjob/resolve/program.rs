//! What the trainer's containers run: program, variables, resources, images, and the variables of `torchrun`.

use k8s_openapi::api::core::v1::EnvVar;

use super::{
    MISMATCH, MOST_VARIABLES, Resolution,
    container::{container_of, merge_resources},
};
use crate::{
    finding::catalogue,
    spec::{
        Place, Role,
        nearest::one_of,
        trainjob::{
            Policy, Train, Tune,
            fields::{MlPolicy, Trainer},
            merge,
            policy::{self, Processes},
            tune,
        },
    },
};

impl Resolution<'_, '_> {
    /// The one policy that is set; two of them, and one that is not supported, are reported.
    pub(super) fn only_policy(&self, policy: &MlPolicy) -> Option<&'static str> {
        let set = policy::set(policy);
        let place = self.in_runtime.key("mlPolicy");
        if set.len() > 1 {
            let names: Vec<String> = set.iter().map(|name| format!("`{name}`")).collect();
            let message = format!(
                "it has {} policies, {}; `mlPolicy` takes at most one",
                set.len(),
                names.join(" and ")
            );
            self.fault_as(&catalogue::TRAIN_RUNTIME, &place, &message);
        }
        if set == ["flux"] {
            self.fault_as(
                &catalogue::TRAIN_RUNTIME,
                &place.key("flux"),
                "the policy `flux` is not supported; `mpi` and `torch` are",
            );
        }
        set.first().copied()
    }

    /// Whether the implementation of MPI is the one that is known.
    pub(super) fn mpi(&self, implementation: Option<&str>) {
        if let Some(other) = implementation.filter(|word| *word != "OpenMPI") {
            let place = self.in_runtime.key("mlPolicy").key("mpi");
            let message = format!(
                "`mpiImplementation` must be {}, found `{other}`",
                one_of(["OpenMPI"])
            );
            let place = place.key("mpiImplementation");
            self.fault_as(&catalogue::TRAIN_RUNTIME, &place, &message);
        }
    }

    /// Program, variables and resources of the trainer.
    pub(super) fn trainer(
        &mut self,
        stated: &Trainer,
        trainer: Role,
        policy: Option<&str>,
        own: &mut Train,
    ) {
        let place = self.place.key("trainer");
        check_count(stated.env.as_deref(), "trainer.env", &place.key("env"));
        let is_tune = tune::is_tune(stated.command.as_deref().unwrap_or_default());
        let reserved = policy::reserved(policy, is_tune);
        for (index, variable) in stated
            .env
            .iter()
            .flatten()
            .enumerate()
            .filter(|(_, it)| reserved.contains(&it.name.as_str()))
        {
            place.key("env").index(index).report_with(
                &catalogue::TRAIN_RESERVED,
                format!(
                    "`trainer.env` sets `{}`, which the policy `{}` of runtime `{}` sets",
                    variable.name,
                    policy.unwrap_or_default(),
                    self.runtime
                ),
                "remove it; it follows from `numNodes` and `numProcPerNode`",
            );
        }
        let is_mpi = policy == Some("mpi");
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
            if let Some(env) = stated.env.as_deref().filter(|env| !env.is_empty()) {
                let own = container.env.get_or_insert_default();
                merge::upsert_all(own, env.iter().cloned());
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
        &self,
        policy: &MlPolicy,
        stated: &Trainer,
        trainer: Role,
        processes: &Processes,
        own: &Train,
    ) -> Policy {
        let torch = policy.torch.clone().unwrap_or_default();
        let at = self.in_runtime.key("mlPolicy").key("torch");
        for (field, is_there, instead) in [
            (
                "numProcPerNode",
                torch.num_proc_per_node.is_some(),
                "Kubeflow Trainer 2.3 removed it; `trainer.numProcPerNode` of the job is used, else its GPUs",
            ),
            (
                "elasticPolicy",
                torch.elastic_policy.is_some(),
                "Kubeflow Trainer 2.3 removed it; `numNodes` is the number of nodes",
            ),
        ] {
            if is_there {
                self.no_effect(&at.key(field), &format!("torch.{field}"), instead);
            }
        }
        let mut also = Vec::new();
        let at = at.key("envInjection").key("targets");
        for (index, target) in torch
            .env_injection
            .and_then(|it| it.targets)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let at = at.index(index);
            let name = target.job_name.unwrap_or_default();
            let Some(role) = self.named(&name, own, "torch.envInjection", &at) else {
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
                    let message = format!(
                        "`torch.envInjection` names the container `{wanted}` of job `{name}`, which is {}",
                        if has {
                            "the trainer's own"
                        } else {
                            "not there"
                        }
                    );
                    self.fault(&at.key("containerNames"), &message);
                }
            }
            also.push((role, containers));
        }
        Policy::Torch {
            also,
            tune: self.tune(stated, trainer, processes, own),
        }
    }

    /// What the command line of `tune run` is completed with, where that is the program.
    fn tune(
        &self,
        stated: &Trainer,
        trainer: Role,
        processes: &Processes,
        own: &Train,
    ) -> Option<Box<Tune>> {
        if !tune::is_tune(stated.command.as_deref()?) {
            return None;
        }
        let args = stated.args.as_deref().unwrap_or_default();
        let Some(model) = tune::model(&self.runtime) else {
            let message = format!(
                "`tune run` takes its model from the name of the runtime, and `{}` names none",
                self.runtime
            );
            let hint = format!(
                "name the runtime `torchtune-<model>-<size>`; the models are {}",
                tune::models()
            );
            self.at.key("name").report_with(MISMATCH, message, hint);
            return None;
        };
        let place = self.place.key("trainer");
        for (index, arg) in args.iter().enumerate() {
            if let Some(key) = tune::kept(arg) {
                place.key("args").index(index).report_with(
                    MISMATCH,
                    format!(
                        "`trainer.args` sets `{key}`, which runtime `{}` sets",
                        self.runtime
                    ),
                    "remove it: the volumes of the runtime are where its paths are",
                );
            }
        }
        let tune = Tune::new(model, processes, own.gpus, &self.command, args);
        if let Some((key, message, hint)) = tune.fault(self.job.role_replicas(trainer)) {
            place.key(key).report_with(MISMATCH, message, hint);
        }
        Some(Box::new(tune))
    }
}

/// The API takes so many variables and no more.
pub(in crate::spec::trainjob) fn check_count(
    env: Option<&[EnvVar]>,
    field: &str,
    place: &Place<'_>,
) {
    let count = env.map_or(0, <[EnvVar]>::len);
    if count > MOST_VARIABLES {
        let message =
            format!("`{field}` has {count} variables, at most {MOST_VARIABLES} are allowed");
        let hint = "put them in a ConfigMap and a runtime that has it in `envFrom`";
        place.report_with(MISMATCH, message, hint);
    }
}
