//! After the last fault: nothing is left, in the cluster and in the memory of any operator.

use std::time::{Duration, Instant};

use crate::{
    cluster::{self, JOBS, POD, Resource},
    drive,
    operators::Operator,
    plan::{NAMESPACES, Plan},
    world::World,
};

const LOOK: Duration = Duration::from_secs(1);
/// The cluster's garbage collector may be behind after an outage.
const EMPTY: Duration = Duration::from_mins(2);
/// Operators are ready, and have an empty cache, by then.
const CALM: Duration = Duration::from_mins(2);
/// A gang of the whole cluster has run by then.
const WHOLE: Duration = Duration::from_mins(2);

const RBAC: &str = "rbac.authorization.k8s.io";
/// What an operator makes for a job.
const MADE: [Resource; 9] = [
    POD,
    ["", "v1", "Service", "services"],
    ["", "v1", "Secret", "secrets"],
    ["", "v1", "ConfigMap", "configmaps"],
    ["", "v1", "ServiceAccount", "serviceaccounts"],
    ["batch", "v1", "Job", "jobs"],
    [
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
    ],
    [RBAC, "v1", "Role", "roles"],
    [RBAC, "v1", "RoleBinding", "rolebindings"],
];
/// What every namespace has.
const OF_THE_CLUSTER: [&str; 2] = ["kube-root-ca.crt", "default"];

/// Checks it all; the error is the first that does not hold.
pub(crate) async fn check(world: &World) -> Result<(), String> {
    until_empty(world).await?;
    let nodes = u32::try_from(world.nodes.len()).unwrap_or(0);
    let gang = Plan::whole_cluster(nodes);
    match tokio::time::timeout(WHOLE, drive::drive(world, &gang)).await {
        Ok(Ok(())) => {}
        Ok(Err(broken)) => return Err(broken),
        Err(_) => {
            return Err(format!(
                "a gang that needs all {nodes} nodes has not run after {WHOLE:?}: something still holds nodes"
            ));
        }
    }
    until_empty(world).await?;
    until_calm(world).await?;
    let panicked = world.operators.iter().find_map(Operator::panicked);
    panicked.map_or(Ok(()), Err)
}

async fn until_empty(world: &World) -> Result<(), String> {
    let end = Instant::now() + EMPTY;
    loop {
        let left = left(world).await;
        if left.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        if Instant::now() > end {
            let left = left.unwrap_or_default();
            return Err(format!(
                "left {EMPTY:?} after the last job: {}",
                left.join(", ")
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn left(world: &World) -> Option<Vec<String>> {
    let mut left = Vec::new();
    for namespace in NAMESPACES {
        for resource in MADE.iter().chain(&JOBS) {
            for object in cluster::list(&world.client, resource, Some(namespace), "").await? {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                if !OF_THE_CLUSTER.contains(&name) {
                    left.push(format!("{} `{namespace}/{name}`", resource[2]));
                }
            }
        }
    }
    Some(left)
}

/// Every operator is ready and knows that nothing is there.
async fn until_calm(world: &World) -> Result<(), String> {
    let end = Instant::now() + CALM;
    loop {
        let mut wrong = Vec::new();
        for operator in &world.operators {
            let name = operator.name;
            if let Some(why) = operator.unready().await {
                wrong.push(format!("operator {name} is not ready: {why}"));
            }
            for metric in [
                "trainyard_jobs",
                "trainyard_pods",
                "trainyard_gangs_waiting",
            ] {
                let value = operator.metric(metric).await;
                if value != Some(0.0) {
                    wrong.push(format!(
                        "operator {name}: `{metric}` is {value:?}, expected 0"
                    ));
                }
            }
        }
        let mut leaders = 0;
        for operator in &world.operators {
            leaders += u32::from(operator.leads().await);
        }
        if leaders != 1 {
            wrong.push(format!("{leaders} operators lead"));
        }
        if wrong.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("{CALM:?} after the last job: {}", wrong.join("; ")));
        }
        tokio::time::sleep(LOOK).await;
    }
}
