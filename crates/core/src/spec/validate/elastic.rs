//! `spec.elasticPolicy`: bounds and rendezvous of elastic jobs.

use std::collections::BTreeMap;

use super::{MAX_REPLICAS, number, number32};
use crate::{
    finding::catalogue,
    spec::{Elastic, Role, RoleSpec, collector::Place, nearest::nearest, wire},
};

/// The rendezvous backends that torchrun brings with it.
const BACKENDS: [&str; 4] = ["c10d", "etcd", "etcd-v2", "static"];
const DEFAULT_BACKEND: &str = "c10d";

/// The policy of a `PyTorchJob`.
pub(super) fn pytorch(
    written: &wire::ElasticPolicy,
    roles: &BTreeMap<Role, RoleSpec>,
    place: &Place<'_>,
) -> Elastic {
    let rule = &catalogue::BAD_ELASTIC;
    let (min_replicas, max_replicas) =
        bounds(written.min_replicas, written.max_replicas, roles, place);
    let backend = written
        .rdzv_backend
        .as_deref()
        .filter(|name| !name.is_empty());
    if let Some(name) = backend.filter(|name| !BACKENDS.contains(name)) {
        let message = format!("torchrun has no rendezvous backend `{name}` of its own");
        let place = place.key("rdzvBackend");
        match nearest(name, BACKENDS) {
            Some(meant) => place.report_with(
                &catalogue::RDZV_BACKEND,
                message,
                format!("did you mean `{meant}`?"),
            ),
            None => place.report(&catalogue::RDZV_BACKEND, message),
        }
    }
    let port = number(&place.key("rdzvPort"), rule, written.rdzv_port, 1, 65535);
    Elastic {
        min_replicas,
        max_replicas,
        rdzv_backend: backend.unwrap_or(DEFAULT_BACKEND).to_owned(),
        rdzv_port: port.and_then(|port| i32::try_from(port).ok()),
        rdzv_host: written.rdzv_host.clone(),
        rdzv_id: written.rdzv_id.clone(),
        rdzv_conf: settings(written.rdzv_conf.as_deref().unwrap_or_default(), place),
        standalone: written.standalone.unwrap_or(false),
        nproc_per_node: number32(
            &place.key("nProcPerNode"),
            &catalogue::BAD_NPROC_PER_NODE,
            written.n_proc_per_node,
            1,
        ),
        max_restarts: number32(&place.key("maxRestarts"), rule, written.max_restarts, 0),
        metrics: written.metrics.clone().unwrap_or_default(),
    }
}

/// The policy of a `PaddleJob`.
pub(super) fn paddle(
    written: &wire::PaddleElasticPolicy,
    roles: &BTreeMap<Role, RoleSpec>,
    place: &Place<'_>,
) -> Elastic {
    place.report_with(
        &catalogue::INERT_ELASTIC,
        "the `elasticPolicy` of a PaddleJob changes nothing",
        "set the number of workers by `replicas`",
    );
    let (min_replicas, max_replicas) =
        bounds(written.min_replicas, written.max_replicas, roles, place);
    Elastic {
        min_replicas,
        max_replicas,
        max_restarts: number32(
            &place.key("maxRestarts"),
            &catalogue::BAD_ELASTIC,
            written.max_restarts,
            0,
        ),
        metrics: written.metrics.clone().unwrap_or_default(),
        ..Elastic::default()
    }
}

/// Each bound is the other one where it is not stated, and the number of workers where neither is.
fn bounds(
    min: Option<i64>,
    max: Option<i64>,
    roles: &BTreeMap<Role, RoleSpec>,
    place: &Place<'_>,
) -> (u32, u32) {
    let workers = roles.get(&Role::Worker).map(|spec| spec.replicas);
    let bound = |key: &str, value: Option<i64>| {
        let most = i64::from(MAX_REPLICAS);
        number(&place.key(key), &catalogue::BAD_ELASTIC, value, 1, most)
            .and_then(|value| u32::try_from(value).ok())
    };
    let (min, max) = (bound("minReplicas", min), bound("maxReplicas", max));
    let least = min.or(max).or(workers).unwrap_or(1);
    let most = max.or(min).or(workers).unwrap_or(1);
    if least > most {
        place.key("minReplicas").report(
            &catalogue::BAD_ELASTIC,
            format!("`minReplicas` must not be above `maxReplicas`, found {least} and {most}"),
        );
    } else if let Some(workers) = workers.filter(|count| !(least..=most).contains(count))
        && !place.has_failed()
    {
        // With an error before, the numbers compared here may not be the ones written.
        place
            .key(if workers < least {
                "minReplicas"
            } else {
                "maxReplicas"
            })
            .report(
                &catalogue::OUTSIDE_ELASTIC,
                format!(
                    "Worker has {workers} replicas, outside of the elastic bounds {least} to {most}"
                ),
            );
    }
    (least, most)
}

fn settings(written: &[wire::RdzvConf], place: &Place<'_>) -> Vec<(String, String)> {
    let list = place.key("rdzvConf");
    let mut settings = Vec::with_capacity(written.len());
    for (index, setting) in written.iter().enumerate() {
        let key = setting.key.clone().unwrap_or_default();
        if key.is_empty() {
            let message = "a rendezvous setting needs a `key`";
            list.index(index).report(&catalogue::BAD_ELASTIC, message);
        }
        settings.push((key, setting.value.clone().unwrap_or_default()));
    }
    settings
}
