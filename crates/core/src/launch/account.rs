//! The account that the operator itself runs as, which no job may use.
//!
//! In a namespace that the operator shares with jobs, a pod with the operator's `ServiceAccount` has its token, and with
//! it every right of the operator. Kubernetes does not check who may name an account in a template.

use super::Cluster;
use crate::spec::{Job, Role};

/// What a pod runs as that names no account.
const DEFAULT: &str = "default";

/// A `ServiceAccount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// The account of a user as the API server names it, such as `system:serviceaccount:team-a:trainer`.
    pub fn of_user(user: &str) -> Option<Self> {
        let (namespace, name) = user
            .strip_prefix("system:serviceaccount:")?
            .split_once(':')?;
        let is_one = |text: &str| !text.is_empty() && !text.contains(':');
        (is_one(namespace) && is_one(name)).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

/// Why no pod of `job` may be created: one would run as the operator.
pub fn account_refusal(job: &Job, cluster: &Cluster) -> Option<String> {
    let own = cluster.own_account.as_ref()?;
    if own.namespace != job.namespace.as_str() {
        return None;
    }
    let mut roles = job.roles.keys().copied();
    let role = roles.find(|role| account(job, *role) == own.name)?;
    let own = &own.name;
    let namespace = &job.namespace;
    Some(if own == DEFAULT {
        format!(
            "pods of {role} would run as ServiceAccount `{own}`, which is the operator's own in namespace \
             `{namespace}` and would give them its rights; set `serviceAccountName` to another account, or create \
             the job in another namespace"
        )
    } else {
        format!(
            "the template of {role} names ServiceAccount `{own}`, which is the operator's own in namespace \
             `{namespace}` and would give the job its rights; name another account, or create the job in another \
             namespace"
        )
    })
}

/// What the pods of `role` run as.
fn account(job: &Job, role: Role) -> &str {
    let spec = job
        .roles
        .get(&role)
        .and_then(|role| role.template.spec.as_ref());
    let fields = spec.map(|spec| {
        // The second is the old name of the first, which the API server still reads.
        [&spec.service_account_name, &spec.service_account]
    });
    let mut names = fields.into_iter().flatten().flatten().map(String::as_str);
    names.find(|name| !name.is_empty()).unwrap_or(DEFAULT)
}
