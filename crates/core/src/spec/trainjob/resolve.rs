//! From a `TrainJob` and its runtime to the job: first the patches, then counts, resources, processes, programs.

mod container;
mod jobset;
mod program;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};

use super::{
    PORT, Policy, Success, Train,
    fields::{JobSetSpec, JobSetTemplate, ReplicatedJob, RuntimeSpec, TrainJobSpec, Trainer},
    initializer, patch, policy,
    runtime::{self, Runtime},
};
use crate::{
    finding::{Rule, catalogue},
    spec::{
        Collector, DEFAULT_NAMESPACE, Document, Framework, Job, JobName, Kind, Namespace, Place,
        RestartPolicy, Role, RoleSpec, RunPolicy, decode,
        validate::{self, annotations, metadata},
        wire::Object,
    },
};

use self::container::{add_port, container_of};
pub(super) use self::container::{container_mut, upsert, upsert_by, variable};

const MISMATCH: &Rule = &catalogue::TRAIN_MISMATCH;
const NO_EFFECT: &Rule = &catalogue::TRAIN_NO_EFFECT;
const ANCESTOR: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// The job of `document`. Where an error was reported, something stands in for what is wrong.
pub(in crate::spec) fn job(document: &Document, collector: &Collector) -> Job {
    let object: Object<TrainJobSpec> = decode(&document.tree, &document.source, collector);
    let root = Place::root(&document.tree, collector);
    let mut meta = object.metadata;
    let place = root.key("metadata");
    let written = meta.annotations.take().unwrap_or_default();
    let name = metadata::name(&place, &meta);
    let namespace = metadata::namespace(&place, &meta);
    let settings = annotations::settings(&place.key("annotations"), Kind::Train, &written);
    let has_name = name.is_some();
    let mut job = Job {
        kind: Kind::Train,
        name: name.unwrap_or_else(|| JobName::parse("unnamed").expect("a plain word is a name")),
        namespace: namespace.unwrap_or_else(|| {
            Namespace::parse(DEFAULT_NAMESPACE).expect("a plain word is a namespace")
        }),
        uid: meta.uid.take(),
        annotations: written,
        roles: BTreeMap::new(),
        run_policy: RunPolicy::default(),
        framework: Framework::Train(Box::new(empty())),
        settings,
    };
    let place = root.key("spec");
    let spec = object.spec;
    old_fields(&spec, &place);
    job.run_policy = run_policy(&spec, &place);
    let at = place.key("runtimeRef");
    let Some(runtime) = runtime::find(
        document,
        spec.runtime_ref.clone(),
        meta.namespace.as_deref(),
        &at,
    ) else {
        return job;
    };
    Resolution {
        job: &mut job,
        place: &place,
        at: &at,
        runtime: runtime.name.clone(),
        command: Vec::new(),
    }
    .run(runtime, spec);
    if has_name {
        metadata::pod_names(&root.key("metadata").key("name"), &job);
    }
    job
}

fn empty() -> Train {
    Train {
        runtime: String::new(),
        policy: Policy::Plain,
        wired: false,
        variables_at: 0,
        launcher_is_node: false,
        processes: String::new(),
        gpus: 0,
        port: PORT,
        subdomain: String::new(),
        has_service: true,
        names_unready: true,
        order: Vec::new(),
        after: BTreeMap::new(),
        success: Success::All(Vec::new()),
        coordinator: None,
        claims: Vec::new(),
    }
}

/// Fields that earlier versions had.
fn old_fields(spec: &TrainJobSpec, place: &Place<'_>) {
    for (key, is_there) in [
        ("podSpecOverrides", spec.pod_spec_overrides.is_some()),
        (
            "podTemplateOverrides",
            spec.pod_template_overrides.is_some(),
        ),
    ] {
        if is_there {
            place.key(key).report_with(
                &catalogue::TRAIN_PATCH,
                format!("`{key}` is not read: Kubeflow Trainer 2.2 replaced it by `runtimePatches`"),
                "write each target job as an entry of `runtimePatches[].trainingRuntimeSpec.template.spec.replicatedJobs`",
            );
        }
    }
    for (key, is_there) in [
        ("labels", spec.labels.is_some()),
        ("annotations", spec.annotations.is_some()),
    ] {
        if is_there {
            place.key(key).report_with(
                NO_EFFECT,
                format!("`spec.{key}` has no effect: Kubeflow Trainer 2.2 replaced it by `runtimePatches`"),
                format!("write `runtimePatches[].trainingRuntimeSpec.template.metadata.{key}`"),
            );
        }
    }
}

fn run_policy(spec: &TrainJobSpec, place: &Place<'_>) -> RunPolicy {
    if let Some(manager) = spec.managed_by.as_deref() {
        let known = [(Kind::Train.own_manager(), ()), (MULTIKUEUE, ())];
        validate::word(
            &place.key("managedBy"),
            &catalogue::BAD_MANAGED_BY,
            manager,
            &known,
        );
    }
    let place = place.key("activeDeadlineSeconds");
    let limit = &catalogue::NEGATIVE_LIMIT;
    let deadline = validate::number(&place, limit, spec.active_deadline_seconds, 1, i64::MAX);
    RunPolicy {
        active_deadline_seconds: deadline.map(i64::unsigned_abs),
        suspend: spec.suspend.unwrap_or(false),
        managed_by: spec.managed_by.clone(),
        ..RunPolicy::default()
    }
}

/// One resolution. What is wrong in the runtime is reported at `at`, where the job names it.
struct Resolution<'a, 'p> {
    job: &'a mut Job,
    place: &'a Place<'p>,
    at: &'a Place<'p>,
    runtime: String,
    /// The command of the trainer in the runtime.
    command: Vec<String>,
}

impl Resolution<'_, '_> {
    fn fault(&self, message: &str) {
        self.at
            .key("name")
            .report(MISMATCH, format!("runtime `{}`: {message}", self.runtime));
    }

    fn no_effect(&self, field: &str, why: &str) {
        let message = format!(
            "runtime `{}`: `{field}` has no effect here{why}",
            self.runtime
        );
        self.at.key("name").report(NO_EFFECT, message);
    }

    fn run(&mut self, runtime: Runtime, spec: TrainJobSpec) {
        let RuntimeSpec {
            ml_policy,
            pod_group_policy,
            template,
        } = runtime.spec;
        let ml_policy = ml_policy.unwrap_or_default();
        let mut template = template.unwrap_or_default();
        let patches = spec.runtime_patches.unwrap_or_default();
        patch::apply(&mut template, patches, &self.place.key("runtimePatches"));
        if pod_group_policy.is_some() {
            self.no_effect(
                "podGroupPolicy",
                ": nodes are assigned to the whole gang without it",
            );
        }
        let JobSetTemplate {
            metadata: common,
            spec: set,
        } = template;
        let set = set.unwrap_or_default();
        let only = policy::only(&ml_policy, self.at, &self.runtime);
        let mut own = empty();
        own.runtime.clone_from(&self.runtime);
        let Some(trainer) = self.roles(&set, &mut own) else {
            return;
        };
        for spec in self.job.roles.values_mut() {
            let metadata = spec.template.metadata.get_or_insert_default();
            let common = common.clone().unwrap_or_default();
            for (own, common) in [
                (&mut metadata.labels, common.labels),
                (&mut metadata.annotations, common.annotations),
            ] {
                for (key, value) in common.into_iter().flatten() {
                    own.get_or_insert_default().entry(key).or_insert(value);
                }
            }
        }
        self.set_fields(&set, &mut own, trainer);
        self.claims(set, &mut own);
        match only {
            Some("mpi") if !self.job.roles.contains_key(&Role::Launcher) => {
                self.fault("the policy `mpi` needs a job `launcher`");
            }
            Some(policy @ ("torch" | "jax" | "xgboost")) if trainer != Role::Node => {
                self.fault(&format!(
                    "the policy `{policy}` is supported where the trainer is the job `node`, found `{}`",
                    trainer.lower()
                ));
            }
            _ => {}
        }
        own.wired = spec.trainer.is_some();
        let stated = spec.trainer.unwrap_or_default();
        let mpi = ml_policy.mpi.as_ref().filter(|_| only == Some("mpi"));
        own.launcher_is_node = mpi.is_some_and(|mpi| mpi.run_launcher_as_node == Some(true));
        self.counts(&stated, ml_policy.num_nodes, trainer, own.launcher_is_node);
        initializer::apply(
            &mut self.job.roles,
            spec.initializer,
            &self.runtime,
            &self.place.key("initializer"),
        );
        self.trainer(&stated, trainer, only == Some("mpi"), &mut own);
        self.images();
        let resources = self.container(trainer).and_then(|it| it.resources.as_ref());
        let place = self.place.key("trainer");
        let stated_processes = policy::stated(&stated, &place);
        let processes = policy::processes(stated_processes, resources);
        own.gpus = policy::gpus(resources);
        own.processes = processes.word();
        own.policy = match only {
            Some("torch") => self.torch(&ml_policy, &stated, trainer, &processes, &own),
            Some("jax") => Policy::Jax,
            Some("xgboost") => Policy::XgBoost,
            Some("mpi") => {
                let mpi = ml_policy.mpi.unwrap_or_default();
                policy::check_mpi(mpi.mpi_implementation.as_deref(), self.at, &self.runtime);
                Policy::Mpi {
                    slots: policy::slots(stated_processes, mpi.num_proc_per_node, own.gpus),
                    ssh_path: mpi
                        .ssh_auth_mount_path
                        .unwrap_or_else(|| "/root/.ssh".to_owned()),
                }
            }
            _ => Policy::Plain,
        };
        let meets = matches!(
            own.policy,
            Policy::Torch { .. } | Policy::Jax | Policy::XgBoost
        );
        if own.wired
            && meets
            && let Some(container) = container_of(&mut self.job.roles, trainer)
        {
            add_port(container);
        }
        self.job.framework = Framework::Train(Box::new(own));
    }

    /// The roles of the runtime; the one that trains.
    fn roles(&mut self, set: &JobSetSpec, own: &mut Train) -> Option<Role> {
        let mut trainers: Vec<(String, Role)> = Vec::new();
        for written in set.replicated_jobs.iter().flatten() {
            let name = written.name.as_deref().unwrap_or_default();
            let known = Kind::Train.roles().iter().find(|role| role.lower() == name);
            let Some(role) = known.copied() else {
                let names = Kind::Train.roles().iter().map(|role| role.lower());
                let names: Vec<String> = names.map(str::to_owned).collect();
                self.fault(&format!(
                    "the job `{name}` is not run here; the jobs that are run are {}",
                    patch::list(&names)
                ));
                continue;
            };
            if own.order.contains(&role) {
                self.fault(&format!("there are two jobs `{name}`"));
                continue;
            }
            own.order.push(role);
            let ancestor = written
                .template
                .as_ref()
                .and_then(|it| it.metadata.as_ref()?.labels.as_ref()?.get(ANCESTOR));
            if ancestor.is_some_and(|step| step == "trainer") {
                trainers.push((name.to_owned(), role));
            }
            let spec = self.role(role, written);
            self.job.roles.insert(role, spec);
        }
        match trainers.as_slice() {
            [(_, role)] => Some(*role),
            [] => {
                let has = own
                    .order
                    .iter()
                    .map(|role| role.lower().to_owned())
                    .collect::<Vec<_>>();
                self.fault(&format!(
                    "no job is the trainer: none of {} has the label `{ANCESTOR}: trainer` in the metadata of its template",
                    patch::list(&has)
                ));
                None
            }
            several => {
                let names: Vec<String> = several.iter().map(|(name, _)| name.clone()).collect();
                self.fault(&format!(
                    "it has {} trainers, {}, and may have one",
                    names.len(),
                    patch::list(&names)
                ));
                None
            }
        }
    }

    fn role(&self, role: Role, written: &ReplicatedJob) -> RoleSpec {
        let name = role.lower();
        if let Some(count) = written.replicas.filter(|count| *count != 1) {
            self.fault(&format!("`replicas` of job `{name}` must be 1, found {count}; `parallelism` is the number of pods"));
        }
        let batch = written
            .template
            .clone()
            .unwrap_or_default()
            .spec
            .unwrap_or_default();
        if batch
            .completion_mode
            .as_deref()
            .is_some_and(|mode| mode != "Indexed")
        {
            self.fault(&format!(
                "`completionMode` of job `{name}` must be `Indexed`"
            ));
        }
        for (field, is_there) in [
            ("podFailurePolicy", batch.pod_failure_policy.is_some()),
            (
                "activeDeadlineSeconds",
                batch.active_deadline_seconds.is_some(),
            ),
            ("suspend", batch.suspend.is_some()),
            (
                "ttlSecondsAfterFinished",
                batch.ttl_seconds_after_finished.is_some(),
            ),
            ("selector", batch.selector.is_some()),
        ] {
            if is_there {
                self.no_effect(&format!("{field}` of job `{name}"), "");
            }
        }
        let mut template: PodTemplateSpec = batch.template;
        let containers = template
            .spec
            .as_ref()
            .map_or(&[][..], |spec| &spec.containers);
        let wanted = if role == Role::Launcher { "node" } else { name };
        if !containers.iter().any(|container| container.name == wanted) {
            let names: Vec<String> = containers.iter().map(|it| it.name.clone()).collect();
            self.fault(&format!(
                "job `{name}` needs a container `{wanted}`, it has {}",
                patch::list(&names)
            ));
        }
        let policy = template
            .spec
            .as_mut()
            .and_then(|spec| spec.restart_policy.take());
        let count = batch.parallelism.unwrap_or(1);
        let replicas = bounded(
            i64::from(count),
            &format!("`parallelism` of job `{name}`"),
            self.at,
        );
        RoleSpec {
            replicas,
            restart_policy: match policy.as_deref() {
                Some("Never") => RestartPolicy::Never,
                _ => RestartPolicy::OnFailure,
            },
            template,
        }
    }

    fn counts(
        &mut self,
        stated: &Trainer,
        of_runtime: Option<i64>,
        trainer: Role,
        launcher_is_node: bool,
    ) {
        let place = self.place.key("trainer").key("numNodes");
        let nodes = match stated.num_nodes {
            Some(count) => bounded(count, "`numNodes`", &place),
            None => bounded(of_runtime.unwrap_or(1), "`mlPolicy.numNodes`", self.at),
        };
        if nodes == 0 {
            let place = if place.is_there() { &place } else { self.at };
            place.report(
                &catalogue::NOTHING_TO_RUN,
                "the job wants 0 nodes, so it is complete at once",
            );
        }
        let (role, count) = match trainer {
            Role::Launcher => {
                self.resize(Role::Launcher, 1);
                (
                    Role::Node,
                    nodes.saturating_sub(u32::from(launcher_is_node)),
                )
            }
            role => {
                let is_beside = launcher_is_node && self.job.roles.contains_key(&Role::Launcher);
                (role, nodes.saturating_sub(u32::from(is_beside)))
            }
        };
        if nodes > 1 && !self.job.roles.contains_key(&role) {
            self.fault(&format!(
                "it has no job `{}`, which {nodes} nodes need",
                role.lower()
            ));
        }
        self.resize(role, count);
    }

    fn resize(&mut self, role: Role, count: u32) {
        if let Some(spec) = self.job.roles.get_mut(&role) {
            spec.replicas = count;
        }
    }

    fn container(&self, role: Role) -> Option<&Container> {
        let spec = self.job.roles.get(&role)?.template.spec.as_ref()?;
        spec.containers
            .iter()
            .find(|container| container.name == "node")
    }
}

/// A number of pods; what no job can have is reported.
fn bounded(count: i64, what: &str, place: &Place<'_>) -> u32 {
    let most = i64::from(validate::MAX_REPLICAS);
    if (0..=most).contains(&count) {
        return u32::try_from(count).unwrap_or(0);
    }
    let message = format!("{what} must be from 0 to {most}, found {count}");
    place.report(&catalogue::BAD_REPLICAS, message);
    0
}
