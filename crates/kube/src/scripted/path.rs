//! Paths and queries of the API.

use std::collections::BTreeMap;

/// What a path of the API names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where the resource is served, without a namespace: `/api/v1/pods`.
    pub(crate) resource: String,
    /// Empty for all, and for what has none.
    pub(crate) namespace: String,
    /// Empty for a list.
    pub(crate) name: String,
    /// `status`, `log` and the like.
    pub(crate) subresource: String,
}

impl Place {
    /// What `path` names; nothing where it is no resource.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/').map(decoded);
        let group = match parts.next()?.as_str() {
            "api" => format!("/api/{}", parts.next()?),
            "apis" => format!("/apis/{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let rest: Vec<String> = parts.collect();
        let text = |at: usize| rest.get(at).cloned().unwrap_or_default();
        if rest.is_empty() {
            return None;
        }
        let (namespace, at) = if rest.len() > 2 && text(0) == "namespaces" {
            (text(1), 2)
        } else {
            (String::new(), 0)
        };
        Some(Self {
            resource: format!("{group}/{}", text(at)),
            namespace,
            name: text(at + 1),
            subresource: text(at + 2),
        })
    }
}

/// The parameters of a query.
pub(crate) fn query(text: &str) -> BTreeMap<String, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key), decoded(value))
        })
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = [rest.next(), rest.next()].map(|digit| digit.unwrap_or(b'0'));
                let digits = String::from_utf8_lossy(&digits).into_owned();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        let cases = [
            ("/api/v1/pods", ["/api/v1/pods", "", "", ""]),
            (
                "/api/v1/namespaces/n/pods/p/log",
                ["/api/v1/pods", "n", "p", "log"],
            ),
            ("/api/v1/nodes/a", ["/api/v1/nodes", "", "a", ""]),
            (
                "/apis/kubeflow.org/v1/namespaces/n/tfjobs/j/status",
                ["/apis/kubeflow.org/v1/tfjobs", "n", "j", "status"],
            ),
            ("/api/v1/namespaces/n", ["/api/v1/namespaces", "", "n", ""]),
        ];
        for (path, [resource, namespace, name, subresource]) in cases {
            let found = Place::of(path).unwrap();
            assert_eq!(found.resource, resource);
            assert_eq!(found.namespace, namespace);
            assert_eq!(found.name, name);
            assert_eq!(found.subresource, subresource);
        }
        assert_eq!(Place::of("/apis/kubeflow.org/v1"), None);
        let found = query("labelSelector=a%3Db%2C%21c&watch=true");
        assert_eq!(found["labelSelector"], "a=b,!c");
    }
}
