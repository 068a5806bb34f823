//! The rules of files that cannot be read and of jobs that are not valid, with their stable codes.
//!
//! `TY001` to `TY013` are files that cannot be read, `TY101` to `TY149` is the contract of a job. Such a
//! rule has one severity whatever the profile: the operator accepts the job or it does not.
//!
//! Invariant: codes are only ever added; a code that is no longer used is not given out again.

use super::Rule;
use crate::finding::Severity;

macro_rules! catalogue {
    ($($name:ident $code:literal $severity:ident $title:literal $explanation:literal)*) => {
        $(
            #[doc = $title]
            pub(crate) const $name: Rule = Rule {
                code: $code,
                demo: Some(Severity::$severity),
                production: Severity::$severity,
                title: $title,
                explanation: $explanation,
            };
        )*
        /// Every rule of files and of jobs that are not valid.
        pub(super) static RULES: &[Rule] = &[$($name),*];
    };
}

catalogue! {
    EMPTY_FILE "TY001" Error "empty file"
        "The file holds no document: it is empty, or has only comments and document markers."
    BINARY_FILE "TY002" Error "binary file"
        "The file holds a NUL byte or is UTF-16. Manifests are UTF-8 text."
    INVALID_UTF8 "TY003" Error "invalid UTF-8"
        "The bytes at the position are not UTF-8. Kubernetes accepts no other encoding."
    FILE_TOO_LARGE "TY004" Error "file too large"
        "A job object may have about 1.5 MiB in a cluster; a far larger file is not a manifest."
    TOO_DEEP "TY005" Error "nested too deep"
        "Maps and lists are nested deeper than any manifest needs."
    TOO_MANY_VALUES "TY006" Error "too many values"
        "The file has, or its aliases expand to, more values or text than any manifest needs."
    SYNTAX "TY007" Error "syntax error"
        "The text is neither YAML nor JSON."
    BAD_ALIAS "TY008" Error "alias without value"
        "An alias names an anchor that is not defined before it, or that contains the alias itself."
    NOT_A_MAP "TY009" Error "document is not an object"
        "Every document of a manifest is a map with `apiVersion`, `kind` and `metadata`."
    DUPLICATE_KEY "TY010" Error "duplicate key"
        "A map has the same key twice. Tools disagree about which value counts, so neither does."
    UNSUPPORTED_TAG "TY011" Error "unsupported YAML tag or value"
        "The tag or value has no counterpart in JSON, which is what the cluster stores."
    TOO_MANY_DOCUMENTS "TY012" Error "too many documents"
        "The file has more documents than any set of manifests needs."
    BAD_KEY "TY013" Error "key is not text"
        "A key of a map must be text; YAML would allow maps and lists, JSON does not."

    NOT_A_JOB "TY101" Error "not a job"
        "The document is neither one of the job kinds that are read nor an object that goes with one."
    LIST_OBJECT "TY102" Error "list of objects"
        "A `List` wraps several objects in one. Positions and names are clearer as documents."
    WRONG_API_VERSION "TY103" Error "wrong apiVersion"
        "The kind is known, but not in this API version."
    WRONG_TYPE "TY104" Error "wrong type"
        "The field needs another type of value. The cluster refuses such an object."
    OUT_OF_RANGE "TY105" Error "number out of range"
        "The number does not fit the field."
    UNKNOWN_FIELD "TY106" Warning "unknown field"
        "No such field exists at this place. The cluster drops it, so it changes nothing."
    BAD_NAME "TY107" Error "invalid job name"
        "`metadata.name` becomes the name of Services and must be a DNS-1035 label."
    BAD_NAMESPACE "TY108" Error "invalid namespace"
        "`metadata.namespace` must be a DNS-1123 label."
    POD_NAME_TOO_LONG "TY109" Error "pod name too long"
        "Pods and Services are named `<job>-<role>-<index>`, which must fit a DNS label of 63 characters."
    NO_ROLES "TY110" Error "job without roles"
        "A job needs at least one role with a pod template."
    UNKNOWN_ROLE "TY111" Error "unknown role"
        "The kind of job has no such role, so its pods would belong to nothing."
    ROLE_CASE "TY112" Warning "role in the wrong case"
        "Roles are written with capitals, such as `Worker`. Other tools refuse or ignore other forms."
    MISSING_ROLE "TY113" Error "required role missing"
        "Jobs of this kind do not work without the role."
    EXCLUSIVE_ROLES "TY114" Error "roles exclude each other"
        "`Master` is an old name of `Chief`; a TFJob has one or the other."
    BAD_REPLICAS "TY115" Error "invalid number of replicas"
        "The number of pods is outside of what the role allows."
    TOO_MANY_PODS "TY116" Error "too many pods"
        "The roles together want more pods than a job may have."
    NOTHING_TO_RUN "TY117" Warning "job without pods"
        "Every role wants 0 pods, so nothing runs until one is scaled up."
    BAD_RESTART_POLICY "TY118" Error "invalid restartPolicy"
        "The restart policy of a role is one of a few words."
    BAD_CLEAN_POD_POLICY "TY119" Error "invalid cleanPodPolicy"
        "The policy decides which pods are deleted at the end; an unknown word would delete all."
    NEGATIVE_LIMIT "TY120" Error "limit out of range"
        "Limits of the run policy are whole numbers from 0."
    BAD_MANAGED_BY "TY121" Error "invalid managedBy"
        "`managedBy` names the controller that owns the job; only two are known."
    NO_CONTAINERS "TY122" Error "no containers"
        "A pod template needs at least one container."
    NO_IMAGE "TY123" Error "container without image"
        "A pod with such a container is refused."
    BAD_CONTAINER_NAME "TY124" Error "container name missing or taken"
        "Every container of a pod has a name of its own."
    NO_DEFAULT_CONTAINER "TY125" Error "training container missing"
        "The container that trains is found by its name, which is fixed for the kind of job."
    TEMPLATE_RESTART_POLICY "TY126" Warning "restartPolicy in the template"
        "The restart policy of the role decides; the one in the pod template is overwritten."
    BAD_NPROC_PER_NODE "TY127" Error "invalid nprocPerNode"
        "The processes of a pod are `auto`, `cpu`, `gpu` or a number, as torchrun knows them."
    TWO_NPROC_PER_NODE "TY128" Error "processes per pod stated twice"
        "The deprecated `elasticPolicy.nProcPerNode` and `nprocPerNode` exclude each other."
    DEPRECATED_NPROC_PER_NODE "TY129" Warning "deprecated nProcPerNode"
        "`spec.nprocPerNode` has replaced `spec.elasticPolicy.nProcPerNode`."
    BAD_ELASTIC "TY130" Error "invalid elasticPolicy"
        "The bounds of an elastic job are at least 1, the lower one is not above the upper one, and its other numbers are in range."
    ELASTIC_WITHOUT_WORKER "TY131" Error "elastic job without workers"
        "The bounds of an elastic job are those of its Worker role, which must be there."
    INERT_ELASTIC "TY132" Warning "elasticPolicy without effect"
        "The launcher of a PaddleJob never learns of these fields."
    RDZV_BACKEND "TY133" Warning "unknown rendezvous backend"
        "torchrun knows a few rendezvous backends by name; another one must be installed in the image."
    BAD_MPI_IMPLEMENTATION "TY134" Error "invalid mpiImplementation"
        "The hostfile and variables depend on whose `mpirun` the image has."
    BAD_SSH_PATH "TY135" Error "empty sshAuthMountPath"
        "The ssh keys of the job must be mounted somewhere."
    LAUNCHER_CREATION "TY136" Warning "unknown launcherCreationPolicy"
        "Any word but `AtStartup` makes the launcher wait for its workers."
    BAD_SLOTS "TY137" Error "invalid slotsPerWorker"
        "The ranks of a worker are a whole number from 0."
    BAD_ANNOTATION "TY138" Error "invalid annotation value"
        "The value of a `trainyard.dev/` annotation does not have the form it needs."
    UNKNOWN_ANNOTATION "TY139" Warning "unknown annotation"
        "No such `trainyard.dev/` annotation exists, so it changes nothing."
    SAME_JOB_TWICE "TY140" Error "same job twice"
        "Two documents of a file name the same object; the second would replace the first."
    SUCCESS_POLICY "TY141" Warning "unknown successPolicy"
        "Any word but `AllWorkers` leaves the default rule."
    MORE_FINDINGS "TY142" Warning "more findings than shown"
        "The document has so many findings that the rest is counted only."
    MAIN_CONTAINER "TY143" Warning "mainContainer names no container"
        "Ranks are started inside this container of every worker, so it must exist there."
    OUTSIDE_ELASTIC "TY144" Warning "replicas outside of the elastic bounds"
        "Training starts with at least the lower bound of workers and uses at most the upper one."
    NO_JOB "TY145" Error "file without a job"
        "The file has objects that go with a job, but no job."
    NO_IMAGE_YET "TY146" Warning "container without image"
        "A pod with such a container is refused unless an admission webhook adds the image."
    IMMUTABLE "TY147" Error "field cannot be changed"
        "The field is decided when the job is created; make another job to have another value."
    BAD_FABRIC "TY149" Error "invalid fabric"
        "A fabric is what the platform says of a network. Where it cannot hold, no job can be put on it."
}
