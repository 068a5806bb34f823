//! A planned job as the object that a user would create.

use serde_json::{Value, json};

use crate::plan::{Outcome, Plan, Shape};

/// Failures that are not the program's own never end a job here, and a node is given up soon.
const BUDGET: &str = "platform=unlimited,infrastructure=unlimited,preemption=unlimited";
const DEADLINE_SECONDS: u64 = 8;
/// One below 128 is not retried under `ExitCode`.
const PERMANENT: u32 = 3;

impl Plan {
    /// The job as the API server stores it.
    pub(crate) fn manifest(&self) -> Result<Value, trainyard_kube::convert::ConvertError> {
        let mut run_policy = json!({"cleanPodPolicy": self.clean_pod_policy});
        match self.outcome {
            Outcome::Exhausts(limit) => run_policy["backoffLimit"] = json!(limit),
            // A failure that is counted twice ends the job.
            Outcome::Recovers(failures) => run_policy["backoffLimit"] = json!(failures + 1),
            Outcome::Expires => run_policy["activeDeadlineSeconds"] = json!(DEADLINE_SECONDS),
            _ => run_policy["backoffLimit"] = json!(1),
        }
        let mut spec = json!({"runPolicy": run_policy});
        spec[self.roles_field()] = self.roles();
        if self.shape == Shape::PyTorchElastic {
            spec["elasticPolicy"] =
                json!({"minReplicas": 1, "maxReplicas": self.workers, "rdzvBackend": "c10d"});
        }
        let version = match self.shape {
            Shape::MpiV2 => "kubeflow.org/v2beta1",
            _ => "kubeflow.org/v1",
        };
        let job = json!({
            "apiVersion": version,
            "kind": self.shape.kind(),
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": {
                "trainyard.dev/budget": BUDGET,
                "trainyard.dev/lost-after": "2s",
                "trainyard.dev/start-within": "60s",
                "trainyard.dev/gang": if self.placed { "on" } else { "off" },
            }},
            "spec": spec,
        });
        // No webhook converts here.
        match self.shape {
            Shape::MpiV2 => trainyard_kube::convert::convert(&job, "kubeflow.org/v1"),
            _ => Ok(job),
        }
    }

    fn roles_field(&self) -> &'static str {
        match self.shape {
            Shape::PyTorch | Shape::PyTorchWorkers | Shape::PyTorchElastic => "pytorchReplicaSpecs",
            Shape::Tf => "tfReplicaSpecs",
            Shape::MpiV1 | Shape::MpiV2 => "mpiReplicaSpecs",
            Shape::XgBoost => "xgbReplicaSpecs",
            Shape::Paddle | Shape::PaddleMaster => "paddleReplicaSpecs",
            Shape::Jax => "jaxReplicaSpecs",
        }
    }

    /// Each role with its number of pods, and whether its pods end by themselves.
    fn sizes(&self) -> Vec<(&'static str, u32, bool)> {
        let workers = self.workers;
        match self.shape {
            Shape::PyTorch | Shape::XgBoost | Shape::PaddleMaster => {
                vec![("Master", 1, true), ("Worker", workers, true)]
            }
            Shape::PyTorchWorkers | Shape::PyTorchElastic | Shape::Paddle | Shape::Jax => {
                vec![("Worker", workers, true)]
            }
            Shape::Tf => vec![
                ("Chief", 1, true),
                ("PS", 1, false),
                ("Worker", workers, true),
            ],
            Shape::MpiV1 | Shape::MpiV2 => {
                vec![("Launcher", 1, true), ("Worker", workers, false)]
            }
        }
    }

    /// How many pods the job has while all of it runs.
    pub(crate) fn pods(&self) -> usize {
        let sizes = self.sizes();
        let pods: u32 = sizes.iter().map(|(_, count, _)| count).sum();
        pods as usize
    }

    fn roles(&self) -> Value {
        let mut roles = json!({});
        for (role, count, ends) in self.sizes() {
            roles[role] = self.role(role, count, ends);
        }
        roles
    }

    fn role(&self, role: &str, count: u32, ends: bool) -> Value {
        let container = match self.shape {
            Shape::PyTorch | Shape::PyTorchWorkers | Shape::PyTorchElastic => "pytorch",
            Shape::Tf => "tensorflow",
            Shape::MpiV1 | Shape::MpiV2 => "mpi",
            Shape::XgBoost => "xgboost",
            Shape::Paddle | Shape::PaddleMaster => "paddle",
            Shape::Jax => "jax",
        };
        let code = match self.outcome {
            Outcome::Succeeds => Some(0),
            Outcome::Exhausts(_) => Some(1),
            Outcome::Permanent => Some(PERMANENT),
            _ => None,
        };
        let mut annotations = json!({});
        if let Some(code) = code.filter(|_| ends) {
            annotations = json!({
                "test.trainyard.dev/exit-code": code.to_string(),
                "test.trainyard.dev/exit-after": format!("{}s", self.runs_for),
            });
        }
        let policy = match self.outcome {
            Outcome::Permanent => "ExitCode",
            _ => "OnFailure",
        };
        let mut resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
        if self.gpus > 0 && role != "Launcher" {
            resources["limits"] = json!({"nvidia.com/gpu": self.gpus});
        }
        json!({
            "replicas": count,
            "restartPolicy": policy,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "nodeSelector": {"test.trainyard.dev/node": "simulated"},
                    "containers": [{"name": container, "image": "soak", "command": ["train"],
                        "resources": resources}],
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::{Kind, check, read};

    use super::*;

    #[test]
    fn planned_jobs_are_valid_and_restart_as_planned() {
        for number in 0..400 {
            let plan = Plan::new(11, number);
            let manifest = plan.manifest().unwrap();
            let created = trainyard_kube::convert::as_created(&manifest).unwrap_or(manifest);
            let bytes = created.to_string().into_bytes();
            let file = read(&bytes).unwrap();
            let checked = check(&file.documents[0]);
            let job = checked.job.expect("the job is valid");
            let as_gang = job.restart_scope() == trainyard_core::spec::RestartScope::Gang;
            assert_eq!(as_gang, plan.shape.restarts_as_gang(), "{plan:?}");
            assert_eq!(job.kind == Kind::MpiV2, plan.shape == Shape::MpiV2);
            assert_eq!(job.slots().count(), plan.pods(), "{plan:?}");
        }
    }
}
