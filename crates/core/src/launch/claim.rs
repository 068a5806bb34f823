//! Whose an object is that already has a name which a job needs.
//!
//! Names of a job's objects follow from the name of the job (`bert` needs a `ConfigMap` `bert-config`), and
//! other objects may have these names. An object is this job's only where the job is its controlling owner, by uid.
//!
//! Guarantees: everything else is left as it is, and the sentence says whose it is and what to do.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::spec::Kind;

/// The job that needs the name.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: &'a str,
    /// Its identity.
    pub uid: &'a str,
}

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This job's.
    Ours,
    /// Any owner's: it is being deleted, and its name will be free.
    Leaving,
    /// That of an earlier job of the same kind and name, with which the cluster deletes it.
    Earlier(String),
    /// Another owner's, or without an owner.
    Other(String),
}

impl Claim {
    /// Whose the object is that has `owners`.
    pub fn of(claimant: Claimant<'_>, owners: &[OwnerReference], being_deleted: bool) -> Self {
        if being_deleted {
            return Self::Leaving;
        }
        let controller = owners.iter().find(|owner| owner.controller == Some(true));
        match controller {
            Some(owner) if owner.uid == claimant.uid && !owner.uid.is_empty() => Self::Ours,
            Some(owner) if is_namesake(claimant, owner) => Self::Earlier(title(owner)),
            Some(owner) => Self::Other(title(owner)),
            None => Self::Other("no job".to_owned()),
        }
    }

    /// Whose the object is, where the job has to have another name.
    pub fn owner(&self) -> Option<&str> {
        match self {
            Self::Other(owner) => Some(owner),
            _ => None,
        }
    }

    /// Why `kind` cannot be created, and what to do; nothing where the object is this job's.
    pub fn refusal(&self, kind: &str) -> Option<String> {
        match self {
            Self::Ours => None,
            Self::Leaving => Some(format!(
                "the {kind} of that name is being deleted; the job continues once it is gone"
            )),
            Self::Earlier(owner) => Some(format!(
                "it belongs to an earlier {owner}, which was deleted; the job continues once the cluster has \
                 deleted this {kind} too"
            )),
            Self::Other(owner) => Some(format!(
                "it exists and belongs to {owner}; rename the job, or delete this {kind} if it is not needed"
            )),
        }
    }
}

fn is_namesake(claimant: Claimant<'_>, owner: &OwnerReference) -> bool {
    let group = |version: &str| version.split_once('/').map(|(group, _)| group.to_owned());
    owner.kind == claimant.kind.name()
        && owner.name == claimant.name
        && group(&owner.api_version) == group(claimant.kind.api_version())
}

fn title(owner: &OwnerReference) -> String {
    format!("{} `{}`", owner.kind, owner.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    #[test]
    fn only_the_controlling_owner_by_uid_is_ours() {
        let claimant = Claimant {
            kind: Kind::MpiV1,
            name: "bert",
            uid: "u1",
        };
        let ours = owner("kubeflow.org/v1", "MPIJob", "bert", "u1");
        let beside = OwnerReference {
            controller: None,
            ..ours.clone()
        };
        let deployment = owner("apps/v1", "Deployment", "web", "u9");
        let other = |name: &str| Claim::Other(name.to_owned());
        let earlier = Claim::Earlier("MPIJob `bert`".to_owned());
        let cases = [
            ("ours", vec![ours.clone()], Claim::Ours),
            (
                "in the other version",
                vec![owner("kubeflow.org/v2beta1", "MPIJob", "bert", "u1")],
                Claim::Ours,
            ),
            (
                "ours, with another beside",
                vec![beside.clone(), ours],
                Claim::Ours,
            ),
            ("named, not controlling", vec![beside], other("no job")),
            ("without an owner", vec![], other("no job")),
            (
                "a Deployment's",
                vec![deployment],
                other("Deployment `web`"),
            ),
            (
                "an earlier job's",
                vec![owner("kubeflow.org/v2beta1", "MPIJob", "bert", "u0")],
                earlier,
            ),
            (
                "another job's",
                vec![owner("kubeflow.org/v1", "MPIJob", "gpt", "u2")],
                other("MPIJob `gpt`"),
            ),
            (
                "another kind's",
                vec![owner("kubeflow.org/v1", "TFJob", "bert", "u3")],
                other("TFJob `bert`"),
            ),
            (
                "another group's",
                vec![owner("example.com/v1", "MPIJob", "bert", "u4")],
                other("MPIJob `bert`"),
            ),
        ];
        for (what, owners, want) in cases {
            assert_eq!(Claim::of(claimant, &owners, false), want, "{what}");
            assert_eq!(Claim::of(claimant, &owners, true), Claim::Leaving, "{what}");
        }
        let nameless = Claimant {
            uid: "",
            ..claimant
        };
        let empty = owner("apps/v1", "Deployment", "web", "");
        assert_eq!(
            Claim::of(nameless, &[empty], false),
            other("Deployment `web`")
        );
    }

    #[test]
    fn refusals_say_whose_it_is_and_what_to_do() {
        assert_eq!(Claim::Ours.refusal("ConfigMap"), None);
        let text = |claim: Claim| claim.refusal("ConfigMap").unwrap();
        assert_eq!(
            text(Claim::Other("Deployment `web`".to_owned())),
            "it exists and belongs to Deployment `web`; rename the job, or delete this ConfigMap if it is not needed"
        );
        assert_eq!(
            text(Claim::Earlier("MPIJob `bert`".to_owned())),
            "it belongs to an earlier MPIJob `bert`, which was deleted; the job continues once the cluster has \
             deleted this ConfigMap too"
        );
        assert!(text(Claim::Leaving).contains("is being deleted"));
    }
}
