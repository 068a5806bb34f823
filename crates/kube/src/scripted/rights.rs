//! What an operator may ask for: the rights of `deploy/`, and nothing else.
//!
//! Names are not checked: which of several Leases or Secrets a right is for is the cluster suite's matter.

use super::{
    path::Place,
    world::{Refused, Verb},
};
use crate::rights::{OPERATOR, Right, plurals};

/// Every authenticated user may ask who he is.
const ANYBODY: &[&str] = &["/apis/authentication.k8s.io/v1/selfsubjectreviews"];

/// The refusal of a call that the operator has no right to.
pub(crate) fn refusal(verb: Verb, place: &Place) -> Option<Refused> {
    let (group, resource) = parts(place);
    let verb = match verb {
        Verb::List => "list",
        Verb::Watch => "watch",
        Verb::Get | Verb::Log => "get",
        Verb::Create => "create",
        Verb::Patch => "patch",
        Verb::Update => "update",
        Verb::Delete => "delete",
    };
    let allows = |right: &Right| {
        let named = if right.resources.is_empty() {
            let own = plurals();
            own.iter()
                .any(|plural| format!("{plural}{}", right.suffix) == resource)
        } else {
            right.resources.contains(&resource.as_str())
        };
        named && right.groups.contains(&group.as_str()) && right.verbs.contains(&verb)
    };
    if ANYBODY.contains(&place.resource.as_str()) || OPERATOR.iter().any(allows) {
        return None;
    }
    let message = format!(
        "User \"trainyard\" cannot {verb} resource \"{resource}\" in API group \"{group}\""
    );
    Some(Refused::new(403, "Forbidden", message))
}

/// The API group, and the resource with its subresource.
fn parts(place: &Place) -> (String, String) {
    let parts: Vec<&str> = place.resource.trim_matches('/').split('/').collect();
    let (group, name) = match parts.as_slice() {
        ["apis", group, _, name] => (*group, *name),
        [.., name] => ("", *name),
        [] => ("", ""),
    };
    let resource = if place.subresource.is_empty() {
        name.to_owned()
    } else {
        format!("{name}/{}", place.subresource)
    };
    (group.to_owned(), resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_those_of_the_roles() {
        let cases = [
            (Verb::Create, "/api/v1/namespaces/n/pods", true),
            (Verb::Log, "/api/v1/namespaces/n/pods/a/log", true),
            (Verb::Create, "/api/v1/namespaces/n/secrets", true),
            (Verb::Patch, "/api/v1/namespaces/n/secrets/a", false),
            (Verb::Update, "/api/v1/namespaces/n/pods/a", false),
            (Verb::Delete, "/api/v1/nodes/a", false),
            (
                Verb::Patch,
                "/apis/kubeflow.org/v1/namespaces/n/tfjobs/a/status",
                true,
            ),
            (
                Verb::Patch,
                "/apis/kubeflow.org/v1/namespaces/n/tfjobs/a",
                false,
            ),
            (Verb::List, "/apis/apps/v1/namespaces/n/deployments", false),
        ];
        for (verb, path, allowed) in cases {
            let place = Place::of(path).unwrap();
            assert_eq!(refusal(verb, &place).is_none(), allowed, "{verb:?} {path}");
        }
    }
}
