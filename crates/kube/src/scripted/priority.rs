//! The admission of priorities: a pod gets its number from its class, and from nothing else.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Server,
    world::{Refused, World, text},
};

const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

impl World {
    /// Gives a new pod the priority and the policy of its class, as the admission plugin `Priority` does.
    pub(super) fn admit_priority(&self, pod: &mut Value) -> Result<(), Refused> {
        let name = text(pod, "/spec/priorityClassName").to_owned();
        let is_meant = |class: &&Arc<Value>| {
            if name.is_empty() {
                class["globalDefault"] == true
            } else {
                text(class, "/metadata/name") == name
            }
        };
        let class = self.all(CLASSES).find(is_meant);
        if class.is_none() && !name.is_empty() {
            let message = format!("no PriorityClass with name {name} was found");
            return Err(Refused::new(403, "Forbidden", message));
        }
        let value = class.map_or(json!(0), |class| class["value"].clone());
        let stated = pod.pointer("/spec/priority");
        if stated.is_some_and(|stated| *stated != value) {
            let message = "the integer value of priority must not be provided in pod spec";
            return Err(Refused::new(403, "Forbidden", message));
        }
        let policy = class.and_then(|class| class.get("preemptionPolicy").cloned());
        if pod.get("spec").is_some_and(Value::is_object) {
            pod["spec"]["priority"] = value;
            pod["spec"]["preemptionPolicy"] = policy.unwrap_or(json!("PreemptLowerPriority"));
        }
        Ok(())
    }
}

impl Server {
    /// Stores a priority class.
    pub(crate) fn add_class(&self, name: &str, value: i32) {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value});
        self.add(CLASSES, class);
    }

    /// The same with `preemptionPolicy: Never`.
    pub(crate) fn add_class_that_never_preempts(&self, name: &str, value: i32) {
        let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"});
        self.add(CLASSES, class);
    }
}
