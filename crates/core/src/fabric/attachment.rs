//! The networks that an annotation attaches a pod to, as Multus reads it.

use serde_json::{Value as Json, json};

use crate::spec::count::is_small;

/// The annotation of a pod that lists its networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// A network that a pod is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The namespace, where it is stated.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The interface that it becomes, where that is stated.
    pub interface: Option<String>,
}

impl Attachment {
    /// `[namespace/]name[@interface]`.
    pub(super) fn parse(text: &str) -> Self {
        let (text, interface) = text
            .split_once('@')
            .map_or((text, None), |(text, name)| (text, Some(name.to_owned())));
        let (namespace, name) = text
            .split_once('/')
            .map_or((None, text), |(space, name)| (Some(space.to_owned()), name));
        Self {
            namespace,
            name: name.to_owned(),
            interface,
        }
    }

    /// As [`Attachment::parse`] reads it.
    fn text(&self) -> String {
        let namespace = self.namespace.as_ref();
        let interface = self.interface.as_ref();
        format!(
            "{}{}{}",
            namespace.map_or_else(String::new, |space| format!("{space}/")),
            self.name,
            interface.map_or_else(String::new, |name| format!("@{name}"))
        )
    }

    fn json(&self) -> Json {
        let mut item = json!({"name": self.name});
        if let Some(namespace) = &self.namespace {
            item["namespace"] = json!(namespace);
        }
        if let Some(interface) = &self.interface {
            item["interface"] = json!(interface);
        }
        item
    }

    /// Whether both are the same network for a pod of `namespace`.
    pub(super) fn is(&self, other: &Self, namespace: &str) -> bool {
        let space = |one: &Self| {
            one.namespace
                .clone()
                .unwrap_or_else(|| namespace.to_owned())
        };
        self.name == other.name && space(self) == space(other)
    }

    /// The interface of the network that is attached as number `index`, from 0.
    pub(crate) fn interface_at(&self, index: usize) -> String {
        let stated = self.interface.clone();
        stated.unwrap_or_else(|| format!("net{}", index + 1))
    }
}

/// The networks that the annotation `text` lists, in the order in which they are attached.
pub(crate) fn attachments(text: &str) -> Vec<Attachment> {
    let text = text.trim();
    if text.starts_with('[') {
        let list: Vec<Json> = parsed(text).unwrap_or_default();
        let field =
            |item: &Json, key: &str| item.get(key).and_then(Json::as_str).map(str::to_owned);
        let items = list.iter().filter_map(|item| {
            Some(Attachment {
                namespace: field(item, "namespace"),
                name: field(item, "name")?,
                interface: field(item, "interface"),
            })
        });
        return items.collect();
    }
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(Attachment::parse)
        .collect()
}

/// The list that `text` is, where it is one and of a size that a list of networks may have.
fn parsed(text: &str) -> Option<Vec<Json>> {
    let small = is_small(text);
    small.then(|| serde_json::from_str(text).ok()).flatten()
}

/// The annotation `text` with `more` after what it lists; `None` where it is JSON that cannot be read.
pub(super) fn extend(text: &str, more: &[Attachment]) -> Option<String> {
    let text = text.trim();
    if text.starts_with('[') {
        let mut list: Vec<Json> = parsed(text)?;
        list.extend(more.iter().map(Attachment::json));
        return serde_json::to_string(&list).ok();
    }
    let own = (!text.is_empty()).then(|| text.trim_end_matches(',').to_owned());
    let items: Vec<String> = own
        .into_iter()
        .chain(more.iter().map(Attachment::text))
        .collect();
    Some(items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_a_million_values_is_not_parsed() {
        let one = r#"{"name":"a"}"#;
        assert_eq!(attachments(&format!("[{one}]")).len(), 1);
        let hostile = format!("[{one},{}0]", "[],".repeat(100_000));
        assert_eq!(attachments(&hostile), []);
        assert_eq!(extend(&hostile, &[]), None);
    }
}
