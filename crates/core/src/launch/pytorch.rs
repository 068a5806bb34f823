//! `PyTorchJob`: `MASTER_*`, `RANK` and `WORLD_SIZE` for scripts that call
//! `init_process_group`, `PET_*` for `torchrun`, in every container.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, EnvVar, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{
    Cluster, LaunchError,
    env::{append, variable},
    pod::required_port,
};
use crate::spec::{Compat, Elastic, Job, PyTorch, Role, Slot};

/// How the ranks of a `PyTorchJob` find each other.
#[derive(Debug)]
pub(super) struct Wiring {
    /// Variables before the rank, the same for every pod.
    before: Vec<EnvVar>,
    /// Whether a master is declared; without one `torchrun` deals out the ranks.
    has_master: bool,
    /// Variables after the rank, the same for every pod.
    after: Vec<EnvVar>,
    /// What workers run first, where the old way of waiting is asked for.
    init_container: Option<Box<Container>>,
}

impl Wiring {
    pub(super) fn new(
        job: &Job,
        pytorch: &PyTorch,
        cluster: &Cluster,
    ) -> Result<Self, LaunchError> {
        let has_master = job.roles.contains_key(&Role::Master);
        let master = job.pod_name(Slot::new(Role::Master, 0));
        let total = job.total_replicas();

        let mut before = vec![variable("PYTHONUNBUFFERED", "1")];
        if has_master {
            let port = required_port(job, Role::Master)?.to_string();
            before.extend([
                variable("MASTER_PORT", port.clone()),
                variable("PET_MASTER_PORT", port),
                variable("MASTER_ADDR", master.clone()),
                variable("PET_MASTER_ADDR", master.clone()),
                variable("WORLD_SIZE", world_size(total, pytorch).to_string()),
            ]);
        }

        let mut after = Vec::new();
        if let Some(processes) = &pytorch.nproc_per_node {
            after.push(variable("PET_NPROC_PER_NODE", processes.clone()));
        }
        match &pytorch.elastic {
            Some(elastic) => after.extend(elastic_variables(job, elastic)?),
            None => after.push(variable("PET_NNODES", total.to_string())),
        }

        let waits = has_master && job.settings.compat.contains(&Compat::InitContainer);
        Ok(Self {
            before,
            has_master,
            after,
            init_container: waits.then(|| Box::new(init_container(&master, cluster))),
        })
    }

    /// Adds what all pods of `role` share besides variables.
    pub(super) fn shape(&self, role: Role, spec: &mut PodSpec) {
        if let Some(container) = &self.init_container
            && role == Role::Worker
        {
            spec.init_containers
                .get_or_insert_default()
                .push(Container::clone(container));
        }
    }

    /// Adds the variables of `slot`.
    pub(super) fn finish(&self, slot: Slot, spec: &mut PodSpec) {
        let rank = match slot.role {
            Role::Master => slot.index,
            _ => slot.index.saturating_add(1),
        };
        let names: &[&str] = if self.has_master {
            &["RANK", "PET_NODE_RANK"]
        } else {
            &[]
        };
        for container in &mut spec.containers {
            let ranks = names.iter().map(|name| variable(name, rank.to_string()));
            let before = self.before.iter().cloned();
            append(
                container,
                before.chain(ranks).chain(self.after.iter().cloned()),
            );
        }
    }
}

/// Processes of the job, counted in pods where the number per pod is not a number.
///
/// The deprecated `elasticPolicy.nProcPerNode` does not count, as users' files were written
/// against that.
fn world_size(total: u32, pytorch: &PyTorch) -> i64 {
    let per_pod = pytorch
        .nproc_per_node
        .as_deref()
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(1);
    i64::from(total).saturating_mul(per_pod)
}

fn elastic_variables(job: &Job, elastic: &Elastic) -> Result<Vec<EnvVar>, LaunchError> {
    let host = match &elastic.rdzv_host {
        Some(host) => host.clone(),
        None => job.pod_name(Slot::new(Role::Worker, 0)),
    };
    let port = match elastic.rdzv_port {
        Some(port) => port,
        None => required_port(job, Role::Worker)?,
    };
    let mut variables = vec![
        variable("PET_RDZV_ENDPOINT", format!("{host}:{port}")),
        variable("PET_RDZV_BACKEND", elastic.rdzv_backend.clone()),
        variable(
            "PET_NNODES",
            format!("{}:{}", elastic.min_replicas, elastic.max_replicas),
        ),
    ];
    if let Some(restarts) = elastic.max_restarts {
        variables.push(variable("PET_MAX_RESTARTS", restarts.to_string()));
    }
    if let Some(processes) = elastic.nproc_per_node {
        variables.push(variable("PET_NPROC_PER_NODE", processes.to_string()));
    }
    if let Some(id) = &elastic.rdzv_id {
        variables.push(variable("PET_RDZV_ID", id.clone()));
    }
    if !elastic.rdzv_conf.is_empty() {
        let settings: Vec<String> = elastic
            .rdzv_conf
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        variables.push(variable("PET_RDZV_CONF", settings.join(",")));
    }
    if elastic.standalone {
        variables.push(variable("PET_STANDALONE", ""));
    }
    Ok(variables)
}

/// The container that looks up the master's name, 2 s apart, until it is there.
fn init_container(master: &str, cluster: &Cluster) -> Container {
    let script = format!(
        "tries=0; until nslookup {master}; do tries=$((tries+1)); \
         if [ $tries -ge {} ]; then exit 1; fi; sleep 2; done",
        cluster.init_container_tries
    );
    let resources = |cpu: &str, memory: &str| {
        Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity(cpu.to_owned())),
            ("memory".to_owned(), Quantity(memory.to_owned())),
        ]))
    };
    Container {
        name: "init-pytorch".to_owned(),
        image: Some(cluster.init_container_image.clone()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(vec!["sh".to_owned(), "-c".to_owned(), script]),
        resources: Some(ResourceRequirements {
            requests: resources("50m", "10Mi"),
            limits: resources("100m", "20Mi"),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    }
}
