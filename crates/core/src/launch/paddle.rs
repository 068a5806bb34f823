//! `PaddleJob`: `PADDLE_MASTER` and friends, in every container.
//!
//! Without a Master the job is collective and worker 0 is the meeting point; with one it is a
//! parameter-server job. The meeting point itself listens on its own address.

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, PodSpec};

use super::env::{append, variable};
use crate::spec::{Job, Kind, Role, Slot};

/// How the ranks of a `PaddleJob` find each other.
#[derive(Debug)]
pub(super) struct Wiring {
    /// Variables that every pod has.
    every: Vec<EnvVar>,
    /// The pod where all meet.
    meeting_point: Slot,
    /// Its name, as the others call it.
    host: String,
    port: i32,
}

impl Wiring {
    pub(super) fn new(job: &Job) -> Self {
        let role = if job.roles.contains_key(&Role::Master) {
            Role::Master
        } else {
            Role::Worker
        };
        let meeting_point = Slot::new(role, 0);
        let fallback = Kind::Paddle.port().map_or(0, |(_, number)| number);
        Self {
            every: vec![
                variable("PYTHONUNBUFFERED", "1"),
                variable("PADDLE_JOB_ID", job.name.as_str()),
                variable("PADDLE_NNODES", job.total_replicas().to_string()),
            ],
            meeting_point,
            host: job.pod_name(meeting_point),
            port: job.rendezvous_port(role).unwrap_or(fallback),
        }
    }

    /// Adds the variables of `slot`.
    pub(super) fn finish(&self, slot: Slot, spec: &mut PodSpec) {
        let port = self.port;
        let master = |host: &str| variable("PADDLE_MASTER", format!("{host}:{port}"));
        let count = match (self.meeting_point.role, slot.role) {
            (Role::Master, Role::Master) => Some("PADDLE_SERVER_NUM"),
            (Role::Master, _) => Some("PADDLE_TRAINER_NUM"),
            _ => None,
        };
        for container in &mut spec.containers {
            append(container, self.every.iter().cloned());
            if slot == self.meeting_point {
                append(container, [own_address(), master("$(POD_IP_DUMMY)")]);
            } else {
                append(container, [master(&self.host)]);
            }
            append(container, count.map(|name| variable(name, "1")));
        }
    }
}

/// The pod's own address, which only the kubelet knows.
fn own_address() -> EnvVar {
    EnvVar {
        name: "POD_IP_DUMMY".to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: "status.podIP".to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
}
