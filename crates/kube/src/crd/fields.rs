//! The fields of our own types: the sentence that `kubectl explain` shows, and what the contract
//! adds to the type.
//!
//! Invariant: every field of a job's spec that is not Kubernetes' own has a row here.

mod fabric;

use serde_json::{Map, Value, json};

/// What the contract adds to the type of a field.
#[derive(Clone, Copy)]
pub(super) enum Extra {
    /// Nothing.
    None,
    /// A number that may pass 32 bits.
    Wide,
    /// Off where it is absent.
    Off,
    /// May not change once it is there, in version v1.
    FixedInV1,
    /// The number that stands for an absent one, in version v2beta1.
    OneInV2,
    /// The text that stands for an absent one.
    Default(&'static str),
    /// The words that are allowed.
    OneOf(&'static [&'static str]),
    /// The words that are allowed; the first stands for an absent one.
    Words(&'static [&'static str]),
}

/// One field: struct, field, sentence, extra.
type Row = (&'static str, &'static str, &'static str, Extra);

use Extra::{Default, FixedInV1, None, Off, OneInV2, OneOf, Wide, Words};

/// Sentences that several kinds share.
const RUN_POLICY: &str = "How the job runs and ends.";
const ROLES: &str = "The roles of the job by their name; each becomes its number of pods.";
const ELASTIC: &str = "Bounds between which the number of workers may change.";

const ROWS: &[Row] = &[
    ("PyTorchJobSpec", "runPolicy", RUN_POLICY, None),
    (
        "PyTorchJobSpec",
        "elasticPolicy",
        "Bounds and rendezvous of an elastic job.",
        None,
    ),
    ("PyTorchJobSpec", "pytorchReplicaSpecs", ROLES, None),
    (
        "PyTorchJobSpec",
        "nprocPerNode",
        "Processes in each pod: auto, cpu, gpu or a number.",
        None,
    ),
    ("TfJobSpec", "runPolicy", RUN_POLICY, None),
    (
        "TfJobSpec",
        "successPolicy",
        "AllWorkers, or nothing: the chief or worker 0 decides.",
        None,
    ),
    ("TfJobSpec", "tfReplicaSpecs", ROLES, None),
    (
        "TfJobSpec",
        "enableDynamicWorker",
        "Whether TF_CONFIG names only the pod itself and the parameter servers.",
        None,
    ),
    (
        "MpiJobV1Spec",
        "slotsPerWorker",
        "Ranks in each worker.",
        None,
    ),
    (
        "MpiJobV1Spec",
        "cleanPodPolicy",
        "The older place of runPolicy.cleanPodPolicy, which wins over it.",
        None,
    ),
    ("MpiJobV1Spec", "mpiReplicaSpecs", ROLES, None),
    (
        "MpiJobV1Spec",
        "mainContainer",
        "The container of a worker in which ranks start.",
        None,
    ),
    ("MpiJobV1Spec", "runPolicy", RUN_POLICY, None),
    (
        "MpiJobV2Spec",
        "slotsPerWorker",
        "Ranks in each worker.",
        OneInV2,
    ),
    (
        "MpiJobV2Spec",
        "runLauncherAsWorker",
        "Whether ranks run in the launcher's pod too.",
        Off,
    ),
    ("MpiJobV2Spec", "runPolicy", RUN_POLICY, None),
    ("MpiJobV2Spec", "mpiReplicaSpecs", ROLES, None),
    (
        "MpiJobV2Spec",
        "sshAuthMountPath",
        "Where the ssh keys are mounted.",
        Default("/root/.ssh"),
    ),
    (
        "MpiJobV2Spec",
        "launcherCreationPolicy",
        "AtStartup, or WaitForWorkersReady.",
        Default("AtStartup"),
    ),
    (
        "MpiJobV2Spec",
        "mpiImplementation",
        "The MPI implementation of the launcher.",
        Words(&["OpenMPI", "Intel", "MPICH"]),
    ),
    ("XgBoostJobSpec", "runPolicy", RUN_POLICY, None),
    ("XgBoostJobSpec", "xgbReplicaSpecs", ROLES, None),
    ("PaddleJobSpec", "runPolicy", RUN_POLICY, None),
    ("PaddleJobSpec", "elasticPolicy", ELASTIC, None),
    ("PaddleJobSpec", "paddleReplicaSpecs", ROLES, None),
    ("JaxJobSpec", "runPolicy", RUN_POLICY, None),
    ("JaxJobSpec", "jaxReplicaSpecs", ROLES, None),
    (
        "RunPolicy",
        "cleanPodPolicy",
        "Which pods are deleted when the job has ended: All, Running or None.",
        None,
    ),
    (
        "RunPolicy",
        "ttlSecondsAfterFinished",
        "Seconds after its end until the job is deleted.",
        None,
    ),
    (
        "RunPolicy",
        "activeDeadlineSeconds",
        "Seconds from its start after which the job fails.",
        Wide,
    ),
    (
        "RunPolicy",
        "backoffLimit",
        "Failures of the program at which the job fails.",
        None,
    ),
    (
        "RunPolicy",
        "schedulingPolicy",
        "Settings for gang schedulers.",
        None,
    ),
    (
        "RunPolicy",
        "suspend",
        "Whether the job is suspended: its pods are deleted.",
        Off,
    ),
    (
        "RunPolicy",
        "managedBy",
        "The controller that owns the job.",
        None,
    ),
    (
        "SchedulingPolicy",
        "minAvailable",
        "Pods that must start together.",
        None,
    ),
    (
        "SchedulingPolicy",
        "queue",
        "The queue of the gang scheduler.",
        FixedInV1,
    ),
    (
        "SchedulingPolicy",
        "minResources",
        "Resources that the gang needs.",
        None,
    ),
    (
        "SchedulingPolicy",
        "priorityClass",
        "The priority class of the gang for Volcano. The operator itself uses the priority of the pods.",
        None,
    ),
    (
        "SchedulingPolicy",
        "scheduleTimeoutSeconds",
        "Seconds that the gang may wait for nodes.",
        None,
    ),
    ("ReplicaSpec", "replicas", "The number of pods.", None),
    (
        "ReplicaSpec",
        "template",
        "The pod, as in `kubectl explain pod.spec`.",
        None,
    ),
    (
        "ReplicaSpec",
        "restartPolicy",
        "What a failed pod means: Always, OnFailure, Never or ExitCode.",
        None,
    ),
    (
        "ElasticPolicy",
        "minReplicas",
        "The minimum number of workers.",
        None,
    ),
    (
        "ElasticPolicy",
        "maxReplicas",
        "The maximum number of workers.",
        None,
    ),
    (
        "ElasticPolicy",
        "rdzvBackend",
        "Rendezvous backend: c10d, etcd or etcd-v2.",
        None,
    ),
    ("ElasticPolicy", "rdzvPort", "Rendezvous port.", None),
    ("ElasticPolicy", "rdzvHost", "Rendezvous host.", None),
    ("ElasticPolicy", "rdzvId", "Rendezvous id.", None),
    (
        "ElasticPolicy",
        "rdzvConf",
        "Further rendezvous settings.",
        None,
    ),
    (
        "ElasticPolicy",
        "standalone",
        "Whether torchrun creates its own rendezvous.",
        None,
    ),
    (
        "ElasticPolicy",
        "nProcPerNode",
        "Deprecated: use spec.nprocPerNode.",
        None,
    ),
    (
        "ElasticPolicy",
        "maxRestarts",
        "Restarts that torchrun itself may do.",
        None,
    ),
    (
        "ElasticPolicy",
        "metrics",
        "What the autoscaler watches, as in `kubectl explain hpa.spec.metrics`.",
        None,
    ),
    (
        "PaddleElasticPolicy",
        "minReplicas",
        "The minimum number of workers.",
        None,
    ),
    (
        "PaddleElasticPolicy",
        "maxReplicas",
        "The maximum number of workers.",
        None,
    ),
    (
        "PaddleElasticPolicy",
        "maxRestarts",
        "Restarts that the launcher itself may do.",
        None,
    ),
    (
        "PaddleElasticPolicy",
        "metrics",
        "What an autoscaler watches, as in `kubectl explain hpa.spec.metrics`.",
        None,
    ),
    ("RdzvConf", "key", "Its name.", None),
    ("RdzvConf", "value", "Its value.", None),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(fabric::ROWS)
}

/// Whether `name` is a type of ours.
pub(super) fn is_own(name: &str) -> bool {
    rows().any(|(owner, ..)| *owner == name)
}

/// The row of a field.
pub(super) fn find(owner: &str, field: &str) -> Option<(&'static str, Extra)> {
    rows()
        .find(|(row_owner, row_field, ..)| *row_owner == owner && *row_field == field)
        .map(|(_, _, sentence, extra)| (*sentence, *extra))
}

impl Extra {
    /// Adds what the contract says to the schema of a field; `version` is that of the job.
    pub(super) fn apply(self, version: &str, schema: &mut Map<String, Value>) {
        let (key, value) = match self {
            None | Wide => return,
            OneOf(words) => ("enum", json!(words)),
            FixedInV1 | OneInV2 if (version == "v1") == matches!(self, OneInV2) => return,
            FixedInV1 => (
                "x-kubernetes-validations",
                json!([{
                    "message": "spec.runPolicy.schedulingPolicy.queue is immutable",
                    "rule": "self == oldSelf",
                }]),
            ),
            Off => ("default", json!(false)),
            OneInV2 => ("default", json!(1)),
            Default(text) => ("default", json!(text)),
            Words(words) => {
                schema.insert("enum".into(), json!(words));
                ("default", json!(words.first()))
            }
        };
        schema.insert(key.into(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_has_one_row() {
        let mut rows: Vec<_> = rows().map(|(owner, field, ..)| (owner, field)).collect();
        rows.sort_unstable();
        let all = rows.len();
        rows.dedup();
        assert_eq!(rows.len(), all);
    }
}
