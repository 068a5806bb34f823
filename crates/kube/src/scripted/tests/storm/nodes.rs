//! Nodes that go silent, vanish and come back while gangs are placed on them.

use serde_json::{Value, json};

use super::Storm;
use crate::scripted::{text, world::Name};

fn node_name(index: u32) -> Name {
    let resource = "/api/v1/nodes".to_owned();
    (resource, String::new(), format!("node-{index}"))
}

/// Every container of a role asks for so many GPUs.
pub(super) fn ask_for(role: &mut Value, gpus: &str) {
    let containers = role.pointer_mut("/template/spec/containers");
    let containers = containers.and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        container["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
    }
}

impl Storm {
    /// A node goes silent, or vanishes with its pods, or comes back.
    pub(super) fn trouble_node(&mut self) {
        let index = u32::try_from(self.dice.index(self.nodes as usize)).unwrap();
        let name = node_name(index);
        let is_there = self.server.see(|world| world.objects.contains_key(&name));
        match self.dice.below(3) {
            0 if is_there => {
                self.history.push(format!("{} is silent", name.2));
                self.server.set_node_ready(&name.2, false);
            }
            1 if is_there => {
                self.history.push(format!("{} vanishes", name.2));
                self.server.with(|world| {
                    world.put(&name, None);
                    let on_it =
                        |pod: &&std::sync::Arc<Value>| text(pod, "/spec/nodeName") == name.2;
                    let pods = world.pods().filter(on_it);
                    let pods: Vec<Name> = pods
                        .map(|pod| {
                            let of = |field| text(pod, field).to_owned();
                            let resource = "/api/v1/pods".to_owned();
                            (resource, of("/metadata/namespace"), of("/metadata/name"))
                        })
                        .collect();
                    for pod in pods {
                        world.put(&pod, None);
                    }
                });
            }
            _ => self.bring_back(index),
        }
    }

    /// Every node is there and ready.
    pub(super) fn heal_nodes(&mut self) {
        for index in 0..self.nodes {
            self.bring_back(index);
        }
    }

    fn bring_back(&mut self, index: u32) {
        let name = node_name(index);
        self.history.push(format!("{} is ready", name.2));
        if self.server.see(|world| !world.objects.contains_key(&name)) {
            self.server.add_node(index);
        }
        self.server.set_node_ready(&name.2, true);
    }
}
