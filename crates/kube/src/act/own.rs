//! Objects under names that somebody else may have taken.
//!
//! Invariant: nothing is changed, owned or deleted here that is not this job's. A new object is created, never applied,
//! so that a name that is taken is an answer of the API server and not a race; a change and a deletion carry the uid of
//! the object that was seen to be this job's.

use kube::core::params::DeleteParams;
use serde_json::{Value, json};
use trainyard_core::{
    job::Refusal,
    launch::{self, Claim, Claimant, Existing, Object},
};

use super::{Actor, Trouble, kind, this, trouble};
use crate::{api::CallError, path::resource, view::Bare};

/// How often one pass tries a name that is free at one call and taken at the next.
const TRIES: usize = 3;

/// An object by its place.
struct Target<'a> {
    resource: &'static str,
    path: String,
    name: &'a str,
    kind: &'a str,
}

impl Target<'_> {
    fn tried(&self, verb: &str) -> String {
        format!("{verb} {} `{}`", self.kind, self.name)
    }
}

/// What came of a change.
enum Updated {
    Done,
    /// The object is gone, or it is another by now.
    Gone,
}

impl Actor<'_> {
    /// Creates an object, or brings this job's own up to date; returns its uid, which is empty where an object is kept
    /// that nobody looked at.
    pub(super) async fn make(&self, object: &Object) -> Result<String, Trouble> {
        let value = object.to_value();
        let target = Target {
            resource: resource(object),
            path: self.path(resource(object)),
            name: object.name(),
            kind: kind(&value),
        };
        let keeps = object.existing() == Existing::Keep;
        let mut known = None;
        if !keeps {
            known = self.state.made(self.key, target.resource, target.name);
            if known.is_none() && self.began {
                // After a restart of the operator it is most likely there.
                known = self.find_own(&target).await?;
            }
        }
        let mut taken = CallError::Late;
        for _ in 0..TRIES {
            if let Some(uid) = known.take()
                && matches!(self.update(&target, &uid, &value).await?, Updated::Done)
            {
                self.remember_made(&target, &uid);
                return Ok(uid);
            }
            match self.caller.create::<Bare>(&target.path, &value).await {
                Ok(made) => {
                    self.remember_made(&target, &made.metadata.uid);
                    return Ok(made.metadata.uid);
                }
                Err(error) if error.is_taken() && self.accepts_foreign_owner(object) => {
                    return Ok(String::new());
                }
                Err(error) if error.is_taken() => {
                    known = self.find_own(&target).await?;
                    if keeps && let Some(uid) = known {
                        return Ok(uid);
                    }
                    taken = error;
                }
                Err(error) => return Err(trouble(target.tried("create"), error)),
            }
        }
        Err(Trouble::Broken(taken))
    }

    /// Whether an object of that name is used whoever created it: keys, which the operator has no right to look at, an
    /// account that the user named, and a claim that no job owns.
    fn accepts_foreign_owner(&self, object: &Object) -> bool {
        match object {
            Object::Secret(_) => true,
            // One that stays when its job is deleted is there for the next job of that name.
            Object::Claim(claim) => claim.metadata.owner_references.is_none(),
            Object::ServiceAccount(_) => launch::names_account(self.job, object.name()),
            _ => false,
        }
    }

    /// Brings the object `uid` up to date, and no other.
    async fn update(
        &self,
        target: &Target<'_>,
        uid: &str,
        value: &Value,
    ) -> Result<Updated, Trouble> {
        let mut value = value.clone();
        if let Some(metadata) = value.get_mut("metadata") {
            metadata["uid"] = json!(uid);
        }
        let Target { path, name, .. } = target;
        let Err(error) = self.caller.apply::<Bare>(path, name, &value).await else {
            return Ok(Updated::Done);
        };
        // Another uid is a conflict for some versions of the API server, and invalid for others.
        let unclear = error.is_conflict() || error.is_not_found() || error.is_refusal();
        if unclear && self.find_own(target).await?.as_deref() != Some(uid) {
            return Ok(Updated::Gone);
        }
        Err(trouble(target.tried("update"), error))
    }

    /// The uid of this job's own object; nothing where there is none of that name. One of somebody else is a refusal.
    async fn find_own(&self, target: &Target<'_>) -> Result<Option<String>, Trouble> {
        match self.caller.get::<Bare>(&target.path, target.name).await {
            Ok(there) => {
                let claim = self.claim(&there);
                let taken = taken(&claim, target.kind, || target.tried("create"));
                taken.map(|()| Some(there.metadata.uid))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(trouble(target.tried("read"), error)),
        }
    }

    /// An object of that name is there: this job's is what was wanted, another's is in the way.
    pub(super) async fn expect_own<T>(
        &self,
        path: &str,
        name: &str,
        kind: &str,
        tried: String,
    ) -> Result<Option<T>, Trouble> {
        match self.caller.get::<Bare>(path, name).await {
            Ok(there) => taken(&self.claim(&there), kind, || tried).map(|()| None),
            // Gone meanwhile: the next pass creates it.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(Trouble::Broken(error)),
        }
    }

    /// Deletes the object `uid`, and no other that has its name by now.
    pub(super) async fn remove_own(
        &self,
        resource: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), Trouble> {
        let params = DeleteParams {
            preconditions: Some(this(uid)),
            ..DeleteParams::default()
        };
        self.remove(resource, name, &params).await.map(drop)
    }

    fn claim(&self, there: &Bare) -> Claim {
        let claimant = Claimant {
            kind: self.key.kind,
            name: &self.key.name,
            uid: self.uid,
        };
        let meta = &there.metadata;
        let leaves = meta.deletion_timestamp.is_some();
        Claim::of(claimant, &meta.owner_references, leaves)
    }

    fn remember_made(&self, target: &Target<'_>, uid: &str) {
        self.state.remember(self.key, |memory| {
            let place = (target.resource, target.name.into());
            memory.made.insert(place, uid.into());
        });
    }
}

/// An error where an object that has the name is not this job's.
fn taken(claim: &Claim, kind: &str, tried: impl FnOnce() -> String) -> Result<(), Trouble> {
    match claim.refusal(kind) {
        None => Ok(()),
        Some(message) => Err(Trouble::Taken(Refusal {
            taken_by: claim.owner().map(str::to_owned),
            ..Refusal::new(tried(), message)
        })),
    }
}
