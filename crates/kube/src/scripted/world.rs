//! The objects of the cluster, and every change that was made to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{kubelet::Kubelet, path::Place, rule::Rule};
use crate::clock;

/// Where `TrainJob`s are served.
pub(crate) const TRAIN_JOBS: &str = "/apis/trainer.kubeflow.org/v1alpha1/trainjobs";

/// The name of an object: resource, namespace, name.
pub(crate) type Name = (String, String, String);

/// One change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) name: Name,
    pub(crate) before: Option<Arc<Value>>,
    /// Nothing where it was removed.
    pub(crate) after: Option<Arc<Value>>,
}

/// One request, as it was answered.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Whose request it is.
    pub(crate) who: &'static str,
    /// When it came.
    pub(crate) at: tokio::time::Instant,
    pub(crate) verb: Verb,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) body: Value,
    /// The version of the world when it came.
    pub(crate) version: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    List,
    Watch,
    Get,
    Create,
    Patch,
    Update,
    Delete,
    Log,
}

/// A refusal of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) retry_after: Option<u32>,
}

impl Refused {
    pub(crate) fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            retry_after: None,
        }
    }

    /// The object that the API sends for it.
    pub(crate) fn status(&self) -> Value {
        let details = match (self.retry_after, self.reason.as_str()) {
            (Some(seconds), _) => json!({"retryAfterSeconds": seconds}),
            (None, "ResourceVersionTooLarge") => {
                json!({"causes": [{"reason": self.reason, "message": "Too large resource version"}],
                    "retryAfterSeconds": 1})
            }
            _ => json!({}),
        };
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code, "details": details})
    }
}

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) objects: BTreeMap<Name, Arc<Value>>,
    pub(crate) version: u64,
    pub(crate) changes: Vec<Change>,
    /// Changes up to this version are forgotten: a watch from before it is answered with 410.
    pub(crate) forgotten: u64,
    pub(crate) calls: Vec<Call>,
    pub(crate) rules: Vec<Rule>,
    /// Whether calls need the rights of an operator.
    pub(crate) checks_rights: bool,
    pub(crate) kubelet: Kubelet,
    /// The resources of other schedulers that are served, as `/apis/group/version/resource`.
    pub(crate) served: BTreeSet<String>,
    /// Whether the definition of `TrainJob` is that of Kubeflow Trainer, which has no place for our record.
    pub(crate) prunes_record: bool,
    /// How many watches are open now, by path.
    pub(crate) watching: BTreeMap<String, usize>,
    made: u64,
    /// The identities of what was removed.
    buried: BTreeSet<String>,
    /// What was made for an owner that was gone by then; the garbage collector removes it.
    orphans: Vec<Name>,
}

impl World {
    /// An object.
    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let name = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.objects.get(&name).cloned()
    }

    /// All objects of a resource.
    pub(crate) fn all<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a Arc<Value>> {
        let found = self.objects.iter();
        found
            .filter(move |((of, _, _), _)| of == resource)
            .map(|(_, object)| object)
    }

    /// The pods, by name.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.all("/api/v1/pods")
    }

    /// The calls of one verb on paths that hold `path`.
    pub(crate) fn asked<'a>(
        &'a self,
        verb: Verb,
        path: &'a str,
    ) -> impl Iterator<Item = &'a Call> + 'a {
        let calls = self.calls.iter();
        calls.filter(move |call| call.verb == verb && call.path.contains(path))
    }

    /// Stores an object as it is after a change; removes it where there is none.
    pub(crate) fn put(&mut self, name: &Name, after: Option<Value>) -> Option<Arc<Value>> {
        let before = self.objects.get(name).cloned();
        if before.is_none() && after.is_none() {
            return None;
        }
        self.version += 1;
        let after = if let Some(mut object) = after {
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
            let object = Arc::new(object);
            self.objects.insert(name.clone(), Arc::clone(&object));
            Some(object)
        } else {
            self.objects.remove(name);
            None
        };
        self.changes.push(Change {
            version: self.version,
            name: name.clone(),
            before: before.clone(),
            after: after.clone(),
        });
        if after.is_none()
            && let Some(gone) = before
        {
            self.collect(&gone);
        }
        after
    }

    /// Removes what `gone` owned.
    fn collect(&mut self, gone: &Value) {
        let uid = text(gone, "/metadata/uid").to_owned();
        self.buried.insert(uid.clone());
        let owned = |object: &Value| {
            let owners = object.pointer("/metadata/ownerReferences");
            let owners = owners.and_then(Value::as_array);
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid.as_str()))
        };
        let orphans: Vec<Name> = self
            .objects
            .iter()
            .filter(|(_, object)| owned(object))
            .map(|(name, _)| name.clone())
            .collect();
        for name in orphans {
            drop(self.remove(&name, &json!({})));
        }
    }

    /// Changes an object, if it is there.
    pub(crate) fn change(&mut self, name: &Name, change: impl FnOnce(&mut Value)) {
        if let Some(object) = self.objects.get(name) {
            let mut object = Value::clone(object);
            change(&mut object);
            self.put(name, Some(object));
        }
    }

    /// Creates an object.
    pub(crate) fn create(&mut self, place: &Place, mut object: Value) -> Result<Value, Refused> {
        self.made += 1;
        if !object.get("metadata").is_some_and(Value::is_object) {
            object["metadata"] = Value::Object(Map::new());
        }
        let mut name = text(&object, "/metadata/name").to_owned();
        if name.is_empty() {
            name = format!("{}{}", text(&object, "/metadata/generateName"), self.made);
        }
        let key = (
            place.resource.clone(),
            place.namespace.clone(),
            name.clone(),
        );
        if self.objects.contains_key(&key) {
            let message = format!("{} \"{name}\" already exists", kind(&place.resource));
            return Err(Refused::new(409, "AlreadyExists", message));
        }
        let metadata = &mut object["metadata"];
        metadata["name"] = name.into();
        if !place.namespace.is_empty() {
            metadata["namespace"] = place.namespace.clone().into();
        }
        metadata["uid"] = format!("uid-{}", self.made).into();
        metadata["creationTimestamp"] = stamp(clock::now()).into();
        metadata["generation"] = 1.into();
        if place.resource == "/api/v1/pods" {
            self.admit_priority(&mut object)?;
            if object.get("status").is_none() {
                object["status"] = json!({"phase": "Pending"});
            }
        }
        let owners = object.pointer("/metadata/ownerReferences");
        let mut owners = owners.and_then(Value::as_array).into_iter().flatten();
        if owners.any(|owner| self.buried.contains(text(owner, "/uid"))) {
            self.orphans.push(key.clone());
        }
        let made = self.put(&key, Some(object));
        Ok(made.map(|made| Value::clone(&made)).unwrap_or_default())
    }

    /// Removes what was made for an owner that was gone by then; whether there was anything.
    pub(super) fn collect_orphans(&mut self) -> bool {
        let orphans = std::mem::take(&mut self.orphans);
        for name in &orphans {
            drop(self.remove(name, &json!({})));
        }
        !orphans.is_empty()
    }

    /// Stores `object` over the one that is there, if it is of the version and identity that it states.
    pub(crate) fn replace(&mut self, place: &Place, mut object: Value) -> Result<Value, Refused> {
        let name = (
            place.resource.clone(),
            place.namespace.clone(),
            place.name.clone(),
        );
        let there = self.objects.get(&name).ok_or_else(|| missing(place))?;
        for (field, what) in [
            ("/metadata/resourceVersion", "object has been modified"),
            ("/metadata/uid", "uid mismatch"),
        ] {
            let stated = text(&object, field);
            if !stated.is_empty() && stated != text(there, field) {
                let (kind, name) = (kind(&place.resource), &place.name);
                let message =
                    format!("Operation cannot be fulfilled on {kind} \"{name}\": the {what}");
                return Err(Refused::new(409, "Conflict", message));
            }
        }
        let is_train = place.resource == TRAIN_JOBS;
        let has_status = is_train || place.resource.starts_with("/apis/kubeflow.org/");
        if place.subresource == "status" {
            let mut status = object.get("status").cloned().unwrap_or_default();
            if is_train && self.prunes_record {
                let fields = status.as_object_mut();
                fields.map(|fields| fields.remove("trainyard"));
            }
            object = Value::clone(there);
            object["status"] = status;
        } else if has_status {
            if object.get("spec") != there.get("spec") {
                let generation = there.pointer("/metadata/generation");
                let generation = generation.and_then(Value::as_u64).unwrap_or(1);
                object["metadata"]["generation"] = (generation + 1).into();
            }
            match there.get("status") {
                Some(status) => object["status"] = status.clone(),
                None => drop(object.as_object_mut().map(|it| it.remove("status"))),
            }
        }
        for kept in ["uid", "creationTimestamp", "deletionTimestamp"] {
            if let Some(value) = there["metadata"].get(kept) {
                object["metadata"][kept] = value.clone();
            }
        }
        let finalized = !text(&object, "/metadata/deletionTimestamp").is_empty()
            && place.resource != "/api/v1/pods"
            && !has_finalizers(&object);
        if finalized {
            self.put(&name, None);
            return Ok(object);
        }
        let made = self.put(&name, Some(object));
        Ok(made.map(|made| Value::clone(&made)).unwrap_or_default())
    }

    /// Removes an object, as `options` say.
    pub(crate) fn remove(&mut self, name: &Name, options: &Value) -> Result<(), Refused> {
        let place = Place {
            resource: name.0.clone(),
            namespace: name.1.clone(),
            name: name.2.clone(),
            subresource: String::new(),
        };
        let there = self.objects.get(name).ok_or_else(|| missing(&place))?;
        for field in ["uid", "resourceVersion"] {
            let meant = text(options, &format!("/preconditions/{field}"));
            let found = text(there, &format!("/metadata/{field}"));
            if !meant.is_empty() && meant != found {
                let message = format!(
                    "Precondition failed: {field} in precondition: {meant}, in object meta: {found}"
                );
                return Err(Refused::new(409, "Conflict", message));
            }
        }
        let mut object = Value::clone(there);
        let pod = name.0 == "/api/v1/pods";
        let grace = options.get("gracePeriodSeconds").and_then(Value::as_i64);
        let grace = grace.unwrap_or(30);
        let leaves = pod
            && grace > 0
            && !text(&object, "/spec/nodeName").is_empty()
            && !matches!(text(&object, "/status/phase"), "Succeeded" | "Failed");
        if leaves || has_finalizers(&object) {
            if object["metadata"].get("deletionTimestamp").is_none() {
                let at = clock::now() + SignedDuration::from_secs(grace);
                object["metadata"]["deletionTimestamp"] = stamp(at).into();
                object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
                self.put(name, Some(object));
            }
            return Ok(());
        }
        self.put(name, None);
        Ok(())
    }
}

fn has_finalizers(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers");
    finalizers
        .and_then(Value::as_array)
        .is_some_and(|all| !all.is_empty())
}

/// The answer for what is not there.
pub(crate) fn missing(place: &Place) -> Refused {
    let message = format!("{} \"{}\" not found", kind(&place.resource), place.name);
    Refused::new(404, "NotFound", message)
}

fn kind(resource: &str) -> &str {
    resource.rsplit('/').next().unwrap_or_default()
}

/// The text at a place of an object, empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A time as the API writes it.
pub(crate) fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
