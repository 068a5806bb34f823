//! From a `TrainJob` and its runtime to the job: first the patches, then counts, resources, processes, programs.

mod container;
mod ignored;
mod jobset;
mod names;
mod program;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};

use super::{
    PORT, Policy, Success, Train,
    fields::{JobSetSpec, JobSetTemplate, ReplicatedJob, RuntimeSpec, TrainJobSpec, Trainer},
    initializer, patch, policy, runtime,
};
use crate::{
    finding::{Rule, catalogue},
    spec::{
        Collector, DEFAULT_NAMESPACE, Document, Framework, Job, JobName, Kind, Namespace, Node,
        Place, RestartPolicy, Role, RoleSpec, RunPolicy, Value, decode,
        nearest::one_of,
        validate::{self, annotations, metadata},
        wire::Object,
    },
};

use self::container::{add_port, container_of};
pub(super) use self::{
    container::{container_mut, variable},
    program::check_count,
};

const MISMATCH: &Rule = &catalogue::TRAIN_MISMATCH;
const NO_EFFECT: &Rule = &catalogue::TRAIN_NO_EFFECT;
const ANCESTOR: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// Most variables that the API takes in `trainer` and in an initializer.
const MOST_VARIABLES: usize = 128;

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
    // Nothing is reported at places of the runtime: they only know where in it something is.
    let unheard = Collector::default();
    let nothing = Node::unplaced(Value::Null);
    let tree = runtime.written.map_or(&nothing, |written| &*written.tree);
    let here = runtime
        .written
        .is_some_and(|written| Arc::ptr_eq(&written.source, &document.source));
    Resolution {
        job: &mut job,
        place: &place,
        at: &at,
        in_runtime: Place::root(tree, &unheard).key("spec"),
        here,
        runtime: runtime.name.clone(),
        command: Vec::new(),
        places: BTreeMap::new(),
    }
    .run(runtime.spec, spec);
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
        groups: BTreeMap::new(),
        retries: BTreeMap::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
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
    /// `spec` of the runtime, where its text is known.
    in_runtime: Place<'a>,
    /// Whether the runtime is in the file of the job.
    here: bool,
    runtime: String,
    /// The command of the trainer in the runtime.
    command: Vec<String>,
    /// Which item of the runtime's list each job is.
    places: BTreeMap<Role, usize>,
}

impl<'a> Resolution<'a, '_> {
    /// `spec` of the `JobSet` in the runtime.
    fn set(&self) -> Place<'a> {
        self.in_runtime.key("template").key("spec")
    }

    /// Where `place` of the runtime is, in words.
    fn spot(&self, place: &Place<'_>) -> String {
        runtime::spot(place.span(), self.here)
    }

    /// Reports what is wrong at `place` of the runtime.
    fn fault(&self, place: &Place<'_>, message: &str) {
        self.fault_as(MISMATCH, place, message);
    }

    fn fault_as(&self, rule: &Rule, place: &Place<'_>, message: &str) {
        let at = self.spot(place);
        let message = format!("runtime `{}`{at}: {message}", self.runtime);
        self.at.key("name").report(rule, message);
    }

    fn run(&mut self, runtime: &RuntimeSpec, spec: TrainJobSpec) {
        let ml_policy = runtime.ml_policy.clone().unwrap_or_default();
        let mut template = runtime.template.clone().unwrap_or_default();
        let patches = spec.runtime_patches.unwrap_or_default();
        patch::apply(&mut template, patches, &self.place.key("runtimePatches"));
        if runtime.pod_group_policy.is_some() {
            self.no_effect(
                &self.in_runtime.key("podGroupPolicy"),
                "podGroupPolicy",
                "nodes are assigned to the whole gang without it",
            );
        }
        let JobSetTemplate {
            metadata: common,
            spec: set,
        } = template;
        let set = set.unwrap_or_default();
        let only = self.only_policy(&ml_policy);
        let mut own = empty();
        own.runtime.clone_from(&self.runtime);
        let trainer = self.roles(&set, &mut own);
        self.ignored_of_set(common.as_ref(), &set);
        let Some(trainer) = trainer else {
            return;
        };
        let common = common.unwrap_or_default();
        own.labels = common.labels.clone().unwrap_or_default();
        own.annotations = common.annotations.clone().unwrap_or_default();
        for spec in self.job.roles.values_mut() {
            let metadata = spec.template.metadata.get_or_insert_default();
            let common = common.clone();
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
        self.jobs_beside_pods(&set, &mut own, trainer);
        let at = self.in_runtime.key("mlPolicy");
        match only {
            Some("mpi") if !self.job.roles.contains_key(&Role::Launcher) => {
                self.fault(&at.key("mpi"), "the policy `mpi` needs a job `launcher`");
            }
            Some(policy @ ("torch" | "jax" | "xgboost")) if trainer != Role::Node => {
                let message = format!(
                    "the policy `{policy}` is supported where the trainer is the job `node`, found `{}`",
                    trainer.lower()
                );
                self.fault(&at.key(policy), &message);
            }
            _ => {}
        }
        own.wired = spec.trainer.is_some();
        let stated = spec.trainer.unwrap_or_default();
        let mpi = ml_policy.mpi.as_ref().filter(|_| only == Some("mpi"));
        own.launcher_is_node = mpi.is_some_and(|mpi| mpi.run_launcher_as_node == Some(true));
        self.counts(&stated, ml_policy.num_nodes, trainer, own.launcher_is_node);
        self.stated_counts(&set, &own, trainer);
        self.claims(set, &mut own);
        initializer::apply(
            &mut self.job.roles,
            spec.initializer,
            &self.runtime,
            &self.place.key("initializer"),
        );
        self.trainer(&stated, trainer, only, &mut own);
        self.images();
        self.names();
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
                self.mpi(mpi.mpi_implementation.as_deref());
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
        let place = self.set().key("replicatedJobs");
        for (index, written) in set.replicated_jobs.iter().flatten().enumerate() {
            let place = place.index(index);
            let name = written.name.as_deref().unwrap_or_default();
            let known = Kind::Train.roles().iter().find(|role| role.lower() == name);
            let Some(role) = known.copied() else {
                let names = Kind::Train.roles().iter().map(|role| role.lower());
                let names: Vec<String> = names.map(str::to_owned).collect();
                let message = format!(
                    "the job `{name}` is not supported; supported are {}",
                    patch::list(&names)
                );
                self.fault(&place.key("name"), &message);
                continue;
            };
            if own.order.contains(&role) {
                self.fault(&place.key("name"), &format!("there are two jobs `{name}`"));
                continue;
            }
            own.order.push(role);
            self.places.insert(role, index);
            let ancestor = written
                .template
                .as_ref()
                .and_then(|it| it.metadata.as_ref()?.labels.as_ref()?.get(ANCESTOR));
            if ancestor.is_some_and(|step| step == "trainer") {
                trainers.push((name.to_owned(), role));
            }
            let spec = self.role(role, written, &place);
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
                let message = format!(
                    "no job is the trainer: none of {} has the label `{ANCESTOR}: trainer` in the metadata of its template",
                    patch::list(&has)
                );
                self.fault(&place, &message);
                None
            }
            several => {
                let names: Vec<String> = several.iter().map(|(name, _)| name.clone()).collect();
                let message = format!(
                    "it has {} trainers, {}, and may have one",
                    names.len(),
                    patch::list(&names)
                );
                self.fault(&place, &message);
                None
            }
        }
    }

    fn role(&self, role: Role, written: &ReplicatedJob, place: &Place<'_>) -> RoleSpec {
        let name = role.lower();
        if let Some(count) = written.replicas.filter(|count| *count != 1) {
            let message = format!(
                "`replicas` of job `{name}` must be 1, found {count}; `parallelism` is the number of pods"
            );
            self.fault(&place.key("replicas"), &message);
        }
        let batch = written
            .template
            .clone()
            .unwrap_or_default()
            .spec
            .unwrap_or_default();
        let place = place.key("template").key("spec");
        if let Some(mode) = batch
            .completion_mode
            .as_deref()
            .filter(|it| *it != "Indexed")
        {
            let message =
                format!("`completionMode` of job `{name}` must be `Indexed`, found `{mode}`");
            self.fault(&place.key("completionMode"), &message);
        }
        let mut template: PodTemplateSpec = batch.template;
        let containers = template
            .spec
            .as_ref()
            .map_or(&[][..], |spec| &spec.containers);
        let wanted = if role == Role::Launcher { "node" } else { name };
        let pod = place.key("template").key("spec");
        if !containers.iter().any(|container| container.name == wanted) {
            let names: Vec<String> = containers.iter().map(|it| it.name.clone()).collect();
            let message = format!(
                "job `{name}` needs a container `{wanted}`, it has {}",
                patch::list(&names)
            );
            self.fault(&pod.key("containers"), &message);
        }
        let policy = template
            .spec
            .as_mut()
            .and_then(|spec| spec.restart_policy.take());
        let restart_policy = match policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            None | Some("" | "OnFailure") => RestartPolicy::OnFailure,
            Some(other) => {
                let message = format!(
                    "`restartPolicy` of the pods of job `{name}` must be {}, found `{other}`",
                    one_of(["Never", "OnFailure"])
                );
                self.fault(&pod.key("restartPolicy"), &message);
                RestartPolicy::OnFailure
            }
        };
        let count = i64::from(batch.parallelism.unwrap_or(1));
        let replicas = in_range(count).unwrap_or_else(|| {
            let message = out_of_range(&format!("`parallelism` of job `{name}`"), count);
            self.fault_as(
                &catalogue::BAD_REPLICAS,
                &place.key("parallelism"),
                &message,
            );
            1
        });
        RoleSpec {
            replicas,
            restart_policy,
            template,
        }
    }

    /// How many nodes the job has: what it states, else what its runtime says, else one.
    fn nodes(&self, stated: &Trainer, of_runtime: Option<i64>, trainer: Role) -> u32 {
        let place = self.place.key("trainer").key("numNodes");
        let own = self.in_runtime.key("mlPolicy").key("numNodes");
        let count = stated.num_nodes.or(of_runtime).unwrap_or(1);
        let Some(nodes) = in_range(count) else {
            match stated.num_nodes {
                Some(_) => place.report_with(
                    &catalogue::BAD_REPLICAS,
                    out_of_range("`numNodes`", count),
                    "state how many nodes train, such as 2",
                ),
                None => self.fault_as(
                    &catalogue::BAD_REPLICAS,
                    &own,
                    &out_of_range("`mlPolicy.numNodes`", count),
                ),
            }
            return 1;
        };
        if nodes == 0 {
            let then = if trainer == Role::Launcher {
                "the launcher runs without nodes"
            } else {
                "no node runs, and the job is complete at once"
            };
            let rule = &catalogue::NOTHING_TO_RUN;
            match stated.num_nodes {
                Some(_) => place.report_with(
                    rule,
                    format!("`numNodes` is 0: {then}"),
                    "state 1 or more, or remove the field to take the number of the runtime",
                ),
                None => self.fault_as(
                    rule,
                    &own,
                    &format!("`mlPolicy.numNodes` is 0, and the job states no `numNodes`: {then}"),
                ),
            }
        }
        nodes
    }

    fn counts(
        &mut self,
        stated: &Trainer,
        of_runtime: Option<i64>,
        trainer: Role,
        launcher_is_node: bool,
    ) {
        let nodes = self.nodes(stated, of_runtime, trainer);
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
            let message = format!("it has no job `{}`, which {nodes} nodes need", role.lower());
            self.fault(&self.set().key("replicatedJobs"), &message);
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

/// A number of pods, where a job can have it.
fn in_range(count: i64) -> Option<u32> {
    let count = u32::try_from(count).ok()?;
    (count <= validate::MAX_REPLICAS).then_some(count)
}

fn out_of_range(what: &str, count: i64) -> String {
    let most = validate::MAX_REPLICAS;
    format!("{what} must be a number from 0 to {most}, found {count}")
}
