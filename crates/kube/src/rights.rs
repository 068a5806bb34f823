//! What the operator may do on a cluster, and what the dashboard may that is installed beside it: one table each, with the reason of each row.
//!
//! Owns the rules of every Role and `ClusterRole` in `deploy/`, for these two and for people.
//! `cargo xtask gen` writes them out.
//!
//! Invariant: no rule reads a Secret outside the operator's own namespace, and none names all
//! verbs, all resources or all groups.

use serde_json::{Value, json};
use trainyard_core::spec::Kind;

use crate::crd::{GROUP, plural};

mod people;
#[cfg(test)]
mod tests;

pub use people::user_roles;

/// The Lease that the leader holds.
pub const LEASE: &str = "trainyard";
/// The Secret with the webhook's certificate.
pub const CERTIFICATE: &str = "trainyard-webhook";
/// The configuration of the webhooks that say whether a job may be written.
pub const VALIDATOR: &str = "validator.trainyard.dev";
/// The configuration of the webhook that writes out what a job leaves out.
pub const DEFAULTER: &str = "defaulter.trainyard.dev";

/// Where a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Wherever jobs are: the cluster, or the one namespace that is watched.
    Jobs,
    /// Like [`Place::Jobs`], and only where launchers of `MPIJob` v1 get rights of their own.
    Launchers,
    /// Like [`Place::Jobs`], and only where the ports of ours in pods of jobs are closed to others.
    NetworkPolicies,
    /// Like [`Place::Jobs`], and only where `TrainJob`s are managed.
    TrainJobs,
    /// The cluster, likewise.
    TrainRuntimes,
    /// The cluster, and only where the whole cluster is watched.
    Nodes,
    /// The namespace of the nodes' Leases, likewise.
    NodeLeases,
    /// The cluster, and only where what preflights find is kept on nodes.
    Marks,
    /// The cluster, and only where webhooks are served.
    Webhooks,
    /// The cluster, and only where training programs may send their progress, or gangs restart in place: where pods show tokens.
    Pushes,
    /// The operator's own namespace.
    Own,
    /// Of the account of the dashboard: wherever jobs are, like [`Place::Jobs`].
    Dashboard,
    /// Likewise: the cluster, and only where the whole cluster is shown.
    DashboardNodes,
    /// Likewise: the cluster, and only where tokens of users are reviewed.
    DashboardReviews,
    /// Likewise: wherever jobs are, and only where logs are not read with the user's own token.
    DashboardLogs,
}

impl Place {
    /// Every place with the name of its rules in the chart.
    pub const ALL: [(Self, &str); 15] = [
        (Self::Jobs, "jobs"),
        (Self::Launchers, "launchers"),
        (Self::NetworkPolicies, "networkPolicies"),
        (Self::TrainJobs, "trainJobs"),
        (Self::TrainRuntimes, "trainRuntimes"),
        (Self::Nodes, "nodes"),
        (Self::NodeLeases, "nodeLeases"),
        (Self::Marks, "marks"),
        (Self::Webhooks, "webhooks"),
        (Self::Pushes, "pushes"),
        (Self::Own, "own"),
        (Self::Dashboard, "dashboard"),
        (Self::DashboardNodes, "dashboardNodes"),
        (Self::DashboardReviews, "dashboardReviews"),
        (Self::DashboardLogs, "dashboardLogs"),
    ];

    /// Whether its rights are those of the dashboard, and not of the operator.
    pub fn is_dashboard(self) -> bool {
        matches!(
            self,
            Self::Dashboard | Self::DashboardNodes | Self::DashboardReviews | Self::DashboardLogs
        )
    }

    /// The place in words, as the heading of its rights.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Jobs => "Wherever jobs are: the cluster, or the watched namespace",
            Self::Launchers => {
                "Wherever jobs are, only with `mpi.launcherRights`: launchers of MPIJob v1"
            }
            Self::NetworkPolicies => "Wherever jobs are, only with `--network-policy`",
            Self::TrainJobs => "Wherever jobs are, only with `--trainjobs`",
            Self::TrainRuntimes => "The cluster, only with `--trainjobs`",
            Self::Nodes => "The cluster, unless only one namespace is watched: nodes",
            Self::NodeLeases => "The namespace `kube-node-lease`, likewise",
            Self::Marks => "The cluster, only with `preflight.markNodes`: marks on nodes",
            Self::Webhooks => "The cluster, only where webhooks are served",
            Self::Pushes => "The cluster, only with `--progress-bind` or `--gang-bind`",
            Self::Own => "The operator's own namespace",
            Self::Dashboard => {
                "The dashboard, with `dashboard.enabled`: wherever jobs are, by an account of its own"
            }
            Self::DashboardNodes => {
                "The dashboard: the cluster, unless only one namespace is shown"
            }
            Self::DashboardReviews => {
                "The dashboard: the cluster, only with `dashboard.auth: token`"
            }
            Self::DashboardLogs => {
                "The dashboard: wherever jobs are, only with `dashboard.auth: port-forward`"
            }
        }
    }
}

/// One right, and why it is needed.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Where.
    pub place: Place,
    /// API groups; the empty one is the core.
    pub groups: &'static [&'static str],
    /// Resources; none means the job kinds, with `suffix`.
    pub resources: &'static [&'static str],
    /// Subresource of the job kinds, with its slash.
    pub suffix: &'static str,
    /// Names to which it is limited; none means all.
    pub names: &'static [&'static str],
    /// Verbs.
    pub verbs: &'static [&'static str],
    /// Why it is needed.
    pub reason: &'static str,
}

const fn right(
    place: Place,
    groups: &'static [&'static str],
    resources: &'static [&'static str],
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Right {
    Right {
        place,
        groups,
        resources,
        suffix: "",
        names: &[],
        verbs,
        reason,
    }
}

const fn named(right: Right, names: &'static [&'static str]) -> Right {
    Right { names, ..right }
}

const fn of_kinds(
    suffix: &'static str,
    verbs: &'static [&'static str],
    reason: &'static str,
) -> Right {
    Right {
        suffix,
        ..right(Place::Jobs, &[GROUP], &[], verbs, reason)
    }
}

const CORE: &[&str] = &[""];
const RBAC: &[&str] = &["rbac.authorization.k8s.io"];
const TRAINER: &[&str] = &["trainer.kubeflow.org"];
const LEASES: &[&str] = &["coordination.k8s.io"];

/// Every right of the operator.
pub const OPERATOR: &[Right] = &[
    of_kinds(
        "",
        &["get", "list", "watch", "delete"],
        "watches jobs, and deletes those whose `ttlSecondsAfterFinished` is over",
    ),
    of_kinds(
        "/status",
        &["get", "patch", "update"],
        "writes the status of jobs",
    ),
    of_kinds(
        "/finalizers",
        &["update"],
        "sets owner references if the API server requires this right",
    ),
    right(
        Place::Jobs,
        CORE,
        &["pods"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "creates, watches and deletes the pods of jobs, and labels those of a gang that restarts in place",
    ),
    right(
        Place::Jobs,
        CORE,
        &["pods/log"],
        &["get"],
        "reads the end of the log of a pod that failed, to report why, and of one pod of each running job, to read its step",
    ),
    right(
        Place::Jobs,
        CORE,
        &["services"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "gives each pod its DNS name",
    ),
    right(
        Place::Jobs,
        CORE,
        &["configmaps"],
        &["create", "get", "patch"],
        "keeps the hostfile of an MPIJob, and the last lines of what failed; ConfigMaps of others are never listed",
    ),
    right(
        Place::Jobs,
        CORE,
        &["secrets"],
        &["create"],
        "creates the keys of an MPIJob and of supervisors; it can read no Secret, not even this one",
    ),
    right(
        Place::Jobs,
        &["batch"],
        &["jobs"],
        &["create", "delete", "get", "list", "patch", "watch"],
        "runs the launcher of an MPIJob v2beta1",
    ),
    right(
        Place::Jobs,
        &["autoscaling"],
        &["horizontalpodautoscalers"],
        &["create", "delete", "get", "patch"],
        "scales an elastic PyTorchJob between its bounds",
    ),
    right(
        Place::Jobs,
        &["scheduling.volcano.sh", "scheduling.x-k8s.io"],
        &["podgroups"],
        &["create", "delete", "list", "patch", "watch"],
        "creates PodGroups for gangs that Volcano or the coscheduling plugin starts",
    ),
    right(
        Place::Jobs,
        &["scheduling.k8s.io"],
        &["workloads", "podgroups"],
        &["create", "delete", "list", "patch", "watch"],
        "creates Workloads and PodGroups for gangs that the cluster's own scheduler starts",
    ),
    right(
        Place::Jobs,
        &["", "events.k8s.io"],
        &["events"],
        &["create", "patch"],
        "emits events on the job",
    ),
    right(
        Place::Launchers,
        CORE,
        &["serviceaccounts"],
        &["create", "get"],
        "creates the ServiceAccount of the launcher of an MPIJob v1",
    ),
    right(
        Place::Launchers,
        RBAC,
        &["roles", "rolebindings"],
        &["create", "get", "patch"],
        "lets that ServiceAccount start ranks in the job's own workers",
    ),
    right(
        Place::Launchers,
        CORE,
        &["pods/exec"],
        &["create"],
        "only to be allowed to grant it; the operator itself never executes in a pod",
    ),
    right(
        Place::NetworkPolicies,
        &["networking.k8s.io"],
        &["networkpolicies"],
        &["create", "get", "patch"],
        "closes the ports of the agent, of supervisors and of the preflight to pods of other jobs",
    ),
    right(
        Place::TrainJobs,
        TRAINER,
        &["trainjobs"],
        &["get", "list", "watch"],
        "watches TrainJobs",
    ),
    right(
        Place::TrainJobs,
        TRAINER,
        &["trainjobs/status"],
        &["get", "patch", "update"],
        "writes the status of TrainJobs",
    ),
    right(
        Place::TrainJobs,
        TRAINER,
        &["trainjobs/finalizers"],
        &["update"],
        "sets owner references if the API server requires this right",
    ),
    right(
        Place::TrainJobs,
        TRAINER,
        &["trainingruntimes"],
        &["list", "watch"],
        "reads the runtimes that TrainJobs of the same namespace name",
    ),
    right(
        Place::TrainJobs,
        CORE,
        &["persistentvolumeclaims"],
        &["create", "get"],
        "creates the claims that a runtime states; it changes and deletes none",
    ),
    right(
        Place::TrainRuntimes,
        TRAINER,
        &["clustertrainingruntimes"],
        &["list", "watch"],
        "reads the runtimes that TrainJobs name; without this right those that are built in",
    ),
    right(
        Place::Nodes,
        CORE,
        &["pods"],
        &["list", "watch"],
        "sees the resources that other pods use on the nodes",
    ),
    right(
        Place::Nodes,
        &["scheduling.k8s.io"],
        &["priorityclasses"],
        &["list", "watch"],
        "reads the priority of gangs",
    ),
    right(
        Place::Nodes,
        &["trainyard.dev"],
        &["fabrics"],
        &["list", "watch"],
        "reads the fabrics that jobs name",
    ),
    right(
        Place::Nodes,
        CORE,
        &["nodes"],
        &["get", "list", "watch"],
        "distinguishes a pod on a dead node from a slow one",
    ),
    right(
        Place::Marks,
        CORE,
        &["nodes"],
        &["get", "patch"],
        "writes the result of a preflight to its node, and taints a node that failed until it passes",
    ),
    right(
        Place::NodeLeases,
        LEASES,
        &["leases"],
        &["get", "list", "watch"],
        "sees how long a node has not responded",
    ),
    named(
        right(
            Place::Webhooks,
            &["apiextensions.k8s.io"],
            &["customresourcedefinitions"],
            &["get", "patch"],
            "writes its CA bundle to the conversion webhook of MPIJob",
        ),
        &["mpijobs.kubeflow.org"],
    ),
    named(
        right(
            Place::Webhooks,
            &["admissionregistration.k8s.io"],
            &["validatingwebhookconfigurations"],
            &["get", "patch"],
            "writes its CA bundle to the validating webhook",
        ),
        &[VALIDATOR],
    ),
    named(
        right(
            Place::Webhooks,
            &["admissionregistration.k8s.io"],
            &["mutatingwebhookconfigurations"],
            &["get", "patch"],
            "writes its CA bundle to the mutating webhook",
        ),
        &[DEFAULTER],
    ),
    right(
        Place::Pushes,
        &["authentication.k8s.io"],
        &["tokenreviews"],
        &["create"],
        "reviews the pod tokens of progress reports and of leaders of gangs",
    ),
    right(
        Place::Own,
        CORE,
        &["secrets"],
        &["create"],
        "creates the Secret with its certificate; a name cannot limit this verb",
    ),
    named(
        right(
            Place::Own,
            CORE,
            &["secrets"],
            &["get", "update"],
            "shares its certificate between replicas, and renews it",
        ),
        &[CERTIFICATE],
    ),
    right(
        Place::Own,
        LEASES,
        &["leases"],
        &["create"],
        "creates the Lease of the leader; a name cannot limit this verb",
    ),
    named(
        right(
            Place::Own,
            LEASES,
            &["leases"],
            &["get", "patch", "update"],
            "elects one leader among its replicas",
        ),
        &[LEASE],
    ),
];

/// Every right of the dashboard that is installed in the cluster: it changes nothing, and acts in nobody's name.
pub const DASHBOARD: &[Right] = &[
    Right {
        place: Place::Dashboard,
        ..of_kinds("", &["get", "list", "watch"], "shows jobs")
    },
    right(
        Place::Dashboard,
        CORE,
        &["pods"],
        &["get", "list", "watch"],
        "shows the pods of jobs, and what other pods use on the nodes",
    ),
    right(
        Place::Dashboard,
        CORE,
        &["events"],
        &["get", "list", "watch"],
        "shows the events of a job and of its pods",
    ),
    right(
        Place::Dashboard,
        CORE,
        &["configmaps"],
        &["get"],
        "shows the ends of logs that the operator kept, to whoever may read logs; ConfigMaps of others are neither listed nor read",
    ),
    right(
        Place::DashboardNodes,
        CORE,
        &["nodes"],
        &["get", "list", "watch"],
        "shows nodes, to whoever may list them",
    ),
    right(
        Place::DashboardReviews,
        &["authentication.k8s.io"],
        &["tokenreviews"],
        &["create"],
        "finds out whose a token is",
    ),
    right(
        Place::DashboardReviews,
        &["authorization.k8s.io"],
        &["subjectaccessreviews"],
        &["create"],
        "finds out what that user may see",
    ),
    right(
        Place::DashboardLogs,
        CORE,
        &["pods/log"],
        &["get"],
        "reads logs; with `auth: token` they are read with the user's own token, and this right is not given",
    ),
];

/// The plurals of the job kinds, each once.
pub fn plurals() -> Vec<String> {
    let mut names: Vec<String> = Kind::ALL.into_iter().map(plural).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The rights of one place.
pub fn of(place: Place) -> impl Iterator<Item = &'static Right> {
    let all = OPERATOR.iter().chain(DASHBOARD);
    all.filter(move |right| right.place == place)
}

/// Verbs that change nothing.
const READING: &[&str] = &["get", "list", "watch"];

impl Right {
    /// The right as a rule of a Role.
    pub fn rule(&self) -> Value {
        self.with_verbs(self.verbs)
    }

    /// The part of the right that changes nothing, as a rule of a Role: all that an operator in
    /// shadow has.
    pub fn reading_rule(&self) -> Option<Value> {
        let verbs: Vec<&str> = self
            .verbs
            .iter()
            .filter(|verb| READING.contains(verb))
            .copied()
            .collect();
        // The other operator reports why its pod failed.
        let needed = !verbs.is_empty() && self.resources != ["pods/log"];
        needed.then(|| self.with_verbs(&verbs))
    }

    fn with_verbs(&self, verbs: &[&str]) -> Value {
        let resources: Vec<String> = if self.resources.is_empty() {
            let suffix = self.suffix;
            plurals()
                .iter()
                .map(|name| format!("{name}{suffix}"))
                .collect()
        } else {
            self.resources
                .iter()
                .map(|name| (*name).to_owned())
                .collect()
        };
        if self.names.is_empty() {
            json!({ "apiGroups": self.groups, "resources": resources, "verbs": verbs })
        } else {
            json!({
                "apiGroups": self.groups,
                "resources": resources,
                "resourceNames": self.names,
                "verbs": verbs,
            })
        }
    }
}
