use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use trainyard_core::launch::{Group, GroupApi, NativeApi, Object};

use super::*;
use crate::path::resource;

#[test]
fn no_right_is_wider_than_its_place() {
    for right in OPERATOR.iter().chain(DASHBOARD) {
        let words = [right.groups, right.resources, right.verbs].concat();
        assert!(!words.contains(&"*"), "{right:?}");
        let bad = ["escalate", "bind", "impersonate", "deletecollection"];
        assert!(!words.iter().any(|word| bad.contains(word)), "{right:?}");
        if right.resources.contains(&"secrets") && right.place != Place::Own {
            assert_eq!(
                right.verbs,
                ["create"],
                "reads Secrets of others: {right:?}"
            );
        }
        if right.place == Place::Webhooks {
            assert!(!right.names.is_empty(), "{right:?}");
        }
    }
}

#[test]
fn every_right_has_a_place_in_the_chart_and_a_reason() {
    for right in OPERATOR.iter().chain(DASHBOARD) {
        assert!(Place::ALL.iter().any(|(place, _)| *place == right.place));
        assert!(!right.reason.is_empty());
    }
}

#[test]
fn the_dashboard_changes_nothing() {
    for right in DASHBOARD {
        assert!(right.place.is_dashboard(), "{right:?}");
        let reviews = ["tokenreviews", "subjectaccessreviews"];
        let is_review = right.resources.iter().all(|it| reviews.contains(it));
        let is_review = is_review && !right.resources.is_empty();
        let reads = right.verbs.iter().all(|verb| READING.contains(verb));
        assert!(reads || is_review && right.verbs == ["create"], "{right:?}");
        assert!(!right.resources.contains(&"secrets"), "{right:?}");
        let is_log = right.resources.contains(&"pods/log");
        assert_eq!(is_log, right.place == Place::DashboardLogs, "{right:?}");
    }
    assert!(!OPERATOR.iter().any(|right| right.place.is_dashboard()));
}

/// What a launcher is given must be held by the one who gives it, or the API server refuses.
#[test]
fn what_is_granted_is_held() {
    let text = include_str!("../../../../testdata/launch/mpi-v1.json");
    let objects: Vec<Value> = serde_json::from_str(text).expect("the golden file is JSON");
    let role = objects.iter().find(|object| object["kind"] == "Role");
    let rules = role
        .and_then(|role| role["rules"].as_array())
        .expect("it has a Role");
    for rule in rules {
        let words = |key: &str| -> BTreeSet<&str> {
            rule[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect()
        };
        for resource in words("resources") {
            for verb in words("verbs") {
                let held = OPERATOR.iter().any(|right| {
                    matches!(right.place, Place::Jobs | Place::Launchers)
                        && right
                            .groups
                            .iter()
                            .any(|group| words("apiGroups").contains(group))
                        && right.resources.contains(&resource)
                        && right.verbs.contains(&verb)
                        && right.names.is_empty()
                });
                assert!(held, "cannot grant `{verb}` of `{resource}`");
            }
        }
    }
}

fn group(api: GroupApi) -> Object {
    Object::Group(Box::new(Group {
        api,
        metadata: ObjectMeta::default(),
        spec: Value::Null,
    }))
}

#[test]
fn every_object_of_a_job_can_be_created() {
    let objects = [
        Object::Pod(Box::default()),
        Object::Job(Box::default()),
        Object::Service(Box::default()),
        Object::ConfigMap(Box::default()),
        Object::Secret(Box::default()),
        Object::Claim(Box::default()),
        Object::ServiceAccount(Box::default()),
        Object::Role(Box::default()),
        Object::RoleBinding(Box::default()),
        Object::Autoscaler(Box::default()),
        Object::NetworkPolicy(Box::default()),
        group(GroupApi::Volcano),
        group(GroupApi::Coscheduling),
        group(GroupApi::Native(NativeApi::Workload)),
        group(GroupApi::Native(NativeApi::PodGroupAlpha3)),
    ];
    for object in &objects {
        let resource = resource(object);
        let api_group = match object {
            Object::Group(group) => Some(group.api.group()),
            _ => None,
        };
        let held = OPERATOR.iter().any(|right| {
            matches!(
                right.place,
                Place::Jobs | Place::Launchers | Place::NetworkPolicies | Place::TrainJobs
            ) && right.resources.contains(&resource)
                && right.verbs.contains(&"create")
                && api_group.is_none_or(|group| right.groups.contains(&group))
        });
        assert!(held, "cannot create `{resource}`");
    }
}

#[test]
fn a_shadow_changes_nothing() {
    for rule in OPERATOR.iter().filter_map(Right::reading_rule) {
        let verbs = rule["verbs"].as_array().into_iter().flatten();
        assert!(
            verbs
                .into_iter()
                .all(|verb| READING.iter().any(|word| verb == word))
        );
    }
    let secrets = of(Place::Jobs).find(|right| right.resources.contains(&"secrets"));
    assert_eq!(secrets.and_then(Right::reading_rule), None);
}
