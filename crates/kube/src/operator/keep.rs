//! Writes what is kept of failures, in tasks of its own: no pass waits for it, and none fails for it.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use tracing::{debug, warn};
use trainyard_core::spec::Kind;

use super::Operator;
use crate::{
    keep::{Kept, KeptView, name_of},
    key::{JOB_LABEL, JobKey},
    metrics::cause,
    path::{object_path, stored_as},
};

impl Operator {
    /// Keeps the end of a log, in a task of its own.
    pub(crate) fn keep(&self, key: &JobKey, uid: &str, kept: Kept) {
        let (this, key, uid) = (self.clone(), key.clone(), uid.to_owned());
        tokio::spawn(async move { this.put_kept_or_log(&key, &uid, &kept).await });
    }

    pub(crate) async fn put_kept_or_log(&self, key: &JobKey, uid: &str, kept: &Kept) {
        if let Err(error) = self.put_kept(key, uid, kept).await {
            debug!(job = %key, attempt = kept.attempt, %error, "Cannot keep logs of a failure");
        }
    }

    async fn put_kept(
        &self,
        key: &JobKey,
        uid: &str,
        kept: &Kept,
    ) -> Result<(), crate::api::CallError> {
        let path = object_path(&key.namespace, "configmaps");
        let name = name_of(&key.name, uid);
        let data = Value::Object(kept.data());
        // Created first: nobody knows whose an object is that is only changed by its name.
        let mut own = self.state.made(key, "configmaps", &name);
        if own.is_none() {
            let object = object(key, uid, &name, &data);
            match self.caller.create::<KeptView>(&path, &object).await {
                Ok(made) => {
                    self.remember_kept(key, &name, &made.metadata.uid);
                    return Ok(());
                }
                // The first failure and the others are kept by tasks of their own, and an earlier operator may have
                // kept some.
                Err(error) if error.is_taken() => {
                    let there = self.caller.get::<KeptView>(&path, &name).await?;
                    if !there.is_of(uid) {
                        self.caller.metrics.refused(cause::NAME_TAKEN);
                        warn!(
                            job = %key, name,
                            "A ConfigMap of that name does not belong to the job; logs of its failures are not kept"
                        );
                        return Ok(());
                    }
                    own = Some(there.metadata.uid);
                }
                Err(error) => return Err(error),
            }
        }
        let own = own.unwrap_or_default();
        let change = json!({ "metadata": { "uid": own }, "data": data });
        let there = match self.caller.merge::<KeptView>(&path, &name, &change).await {
            Ok(there) => there,
            Err(error) => {
                // Gone, or another by now: the next failure finds out.
                self.state.remember(key, |memory| {
                    memory.made.remove(&("configmaps", name.as_str().into()));
                });
                return Err(error);
            }
        };
        self.remember_kept(key, &name, &own);
        let surplus = there.surplus().into_iter();
        let gone: Map<String, Value> = surplus.map(|key| (key, Value::Null)).collect();
        if !gone.is_empty() {
            let change = json!({ "metadata": { "uid": own }, "data": gone });
            self.caller
                .merge::<IgnoredAny>(&path, &name, &change)
                .await?;
        }
        Ok(())
    }

    fn remember_kept(&self, key: &JobKey, name: &str, uid: &str) {
        // A job that is gone meanwhile is not remembered again.
        if self.state.store().job(key).is_some() {
            self.state.remember(key, |memory| {
                memory.made.insert(("configmaps", name.into()), uid.into());
            });
        }
    }
}

fn object(key: &JobKey, uid: &str, name: &str, data: &Value) -> Value {
    let kind: Kind = stored_as(key.kind);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": &*key.namespace,
            "labels": {JOB_LABEL: &*key.name},
            "ownerReferences": [{
                "apiVersion": kind.api_version(),
                "kind": key.kind.name(),
                "name": &*key.name,
                "uid": uid,
            }],
        },
        "data": data,
    })
}
