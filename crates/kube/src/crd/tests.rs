use std::collections::BTreeSet;

use super::{
    fields, kubernetes as api,
    reflect::{Field, Struct},
    *,
};

/// Calls `seen` with every struct in `shape`.
fn structs(shape: &Shape, seen: &mut impl FnMut(&Struct)) {
    match shape {
        Shape::List(inner) | Shape::Map(inner) => structs(inner, seen),
        Shape::Struct(own) => {
            seen(own);
            for field in &own.fields {
                structs(&field.shape, seen);
            }
        }
        _ => {}
    }
}

fn every_field() -> Vec<(&'static str, Field)> {
    let mut all = Vec::new();
    let shapes = Kind::ALL.into_iter().map(spec_shape);
    for shape in shapes.chain([fabric::shape()]) {
        structs(&shape, &mut |own| {
            all.extend(own.fields.iter().map(|field| (own.name, field.clone())));
        });
    }
    all
}

#[test]
fn every_row_names_a_field_of_the_right_type() {
    let all = every_field();
    let find = |owner: &str, name: &str| {
        let found = all
            .iter()
            .find(|(known, field)| *known == owner && field.name == name);
        &found
            .unwrap_or_else(|| unreachable!("no field {owner}.{name}"))
            .1
    };
    for (owner, name, keys) in api::MAP_LISTS {
        let Shape::List(item) = &find(owner, name).shape else {
            unreachable!("{owner}.{name} is not a list");
        };
        let Shape::Struct(item) = &**item else {
            unreachable!("{owner}.{name} has no structs");
        };
        for key in *keys {
            let field = item.fields.iter().find(|field| field.name == *key);
            let field = field.unwrap_or_else(|| unreachable!("{owner}.{name} has no {key}"));
            let filled = api::TEXT_DEFAULTS
                .iter()
                .any(|(owner, name, _)| (*owner, *name) == (item.name, *key));
            assert!(
                field.required || filled,
                "{owner}.{name}: key {key} may be absent"
            );
        }
    }
    for (owner, name) in api::SET_LISTS.iter().chain(api::PLAIN_LISTS) {
        assert!(
            matches!(find(owner, name).shape, Shape::List(_)),
            "{owner}.{name}"
        );
    }
    for (owner, name) in api::WHOLE_MAPS {
        assert!(
            matches!(find(owner, name).shape, Shape::Map(_)),
            "{owner}.{name}"
        );
    }
    for (owner, name, _) in api::TEXT_DEFAULTS {
        assert_eq!(find(owner, name).shape, Shape::Text, "{owner}.{name}");
    }
    for (owner, name) in api::OFF_BY_DEFAULT {
        assert_eq!(find(owner, name).shape, Shape::Bool, "{owner}.{name}");
    }
    for name in api::TEMPLATE_METADATA {
        find("ObjectMeta", name);
    }
    let known: BTreeSet<&str> = all.iter().map(|(owner, _)| *owner).collect();
    for name in api::WHOLE_STRUCTS {
        assert!(known.contains(name), "{name}");
    }
}

#[test]
fn every_field_of_ours_has_its_sentence() {
    for (owner, field) in every_field() {
        if fields::is_own(owner) {
            assert!(
                fields::find(owner, field.name).is_some(),
                "{owner}.{}",
                field.name
            );
        }
    }
}

/// The schema at `path` of one version.
fn at(entry: &Value, path: &str) -> Value {
    let schema = entry.pointer(&format!("/schema/openAPIV3Schema/properties{path}"));
    schema.cloned().unwrap_or_else(|| unreachable!("no {path}"))
}

#[test]
fn the_contract_holds() {
    for kind in Kind::ALL {
        let entry = one_version(kind);
        let spec = |path: &str| at(&entry, &format!("/spec/{path}"));
        assert_eq!(spec("required"), json!([kind.replica_map()]));
        let suspend = spec("properties/runPolicy/properties/suspend");
        assert_eq!(suspend.get("default"), Some(&json!(false)), "{kind:?}");
        let deadline = spec("properties/runPolicy/properties/activeDeadlineSeconds/format");
        assert_eq!(deadline, json!("int64"), "{kind:?}");
        let queue = spec("properties/runPolicy/properties/schedulingPolicy/properties/queue");
        let fixed = queue.get("x-kubernetes-validations").is_some();
        assert_eq!(fixed, kind != Kind::MpiV2, "{kind:?}");
        // The API server says what the linter says.
        let map = format!("properties/{}/x-kubernetes-validations", kind.replica_map());
        let mut rules = spec(&map).as_array().cloned().unwrap_or_default();
        rules.extend(
            spec("x-kubernetes-validations")
                .as_array()
                .cloned()
                .unwrap_or_default(),
        );
        assert!(rules.len() >= 2, "{kind:?}");
        for rule in rules {
            let code = rule["message"]
                .as_str()
                .and_then(|text| text.split(':').next());
            let known = code.and_then(trainyard_core::lint::rule);
            assert!(
                known.is_some_and(trainyard_core::lint::Rule::is_contract),
                "{rule}"
            );
        }
        let role = spec(&format!(
            "properties/{}/additionalProperties",
            kind.replica_map()
        ));
        let inside = |path: &str| role.pointer(&format!("/properties/{path}")).cloned();
        assert_eq!(inside("replicas/format"), Some(json!("int32")), "{kind:?}");
        let metadata = inside("template/properties/metadata/properties");
        let names: Vec<&String> = metadata
            .as_ref()
            .and_then(Value::as_object)
            .map(|entries| entries.keys().collect())
            .unwrap_or_default();
        assert_eq!(names, api::TEMPLATE_METADATA);
        let required = inside("template/properties/spec/required");
        assert_eq!(required, Some(json!(["containers"])), "{kind:?}");
        let containers = inside("template/properties/spec/properties/containers");
        let keys = containers.and_then(|list| list.get("x-kubernetes-list-map-keys").cloned());
        assert_eq!(keys, Some(json!(["name"])), "{kind:?}");
    }
}

#[test]
fn columns_of_the_contract_come_before_ours() {
    for kind in Kind::ALL {
        let columns = columns(kind);
        let columns = columns.as_array().unwrap();
        let names: Vec<&str> = columns
            .iter()
            .filter_map(|column| column["name"].as_str())
            .collect();
        let (contract, ours) = names.split_at(names.len() - 5);
        let want = ["Step", "Loss", "Last-Step", "Checkpoint", "Last-Save"];
        assert_eq!(ours, want, "{kind:?}");
        let want: &[&str] = match kind {
            // What `kubectl` shows without columns.
            Kind::MpiV2 => &["Age"],
            Kind::MpiV1 => &["Age", "State"],
            _ => &["State", "Age"],
        };
        assert_eq!(contract, want, "{kind:?}");
    }
    // They are where the status has them.
    let mut status = trainyard_core::job::JobStatus::default();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let mut progress = trainyard_core::job::Progress::new(1, 7, at);
    progress.loss = Some(trainyard_core::progress::Figure(f64::NAN));
    status.trainyard.progress = Some((&progress).into());
    let newest = trainyard_core::checkpoint::CompleteStep {
        step: 7,
        attempt: 1,
        bytes: 1,
        snapshot_ms: None,
        write_ms: None,
        saved_at: Some(at),
    };
    status.trainyard.checkpoint = Some(trainyard_core::job::CheckpointRecord {
        newest: Some(newest),
        ..Default::default()
    });
    let status = json!({ "status": status });
    for column in columns(Kind::PyTorch).as_array().unwrap().iter().skip(2) {
        let path = column["jsonPath"].as_str().unwrap().replace('.', "/");
        let value = status.pointer(&path).unwrap();
        assert_eq!(value.is_u64(), column["type"] == "integer", "{path}");
    }
}

#[test]
fn only_v2beta1_fills_in_what_is_absent() {
    let (first, second) = (one_version(Kind::MpiV1), one_version(Kind::MpiV2));
    let field = |name: &str| at(&second, &format!("/spec/properties/{name}"));
    let words = json!(["OpenMPI", "Intel", "MPICH"]);
    assert_eq!(field("mpiImplementation").get("enum"), Some(&words));
    let cases = [
        ("slotsPerWorker", json!(1)),
        ("runLauncherAsWorker", json!(false)),
        ("sshAuthMountPath", json!("/root/.ssh")),
        ("launcherCreationPolicy", json!("AtStartup")),
        ("mpiImplementation", json!("OpenMPI")),
    ];
    for (name, want) in cases {
        assert_eq!(field(name).get("default"), Some(&want), "{name}");
    }
    let slots = at(&first, "/spec/properties/slotsPerWorker");
    assert_eq!(slots.get("default"), None);
}

#[test]
fn crd_stores_one_version_and_converts_two() {
    for (file, definition) in definitions() {
        let versions = definition
            .pointer("/spec/versions")
            .and_then(Value::as_array);
        let versions = versions.map(Vec::as_slice).unwrap_or_default();
        let stored = versions
            .iter()
            .filter(|entry| entry.get("storage") == Some(&json!(true)));
        assert_eq!(stored.count(), 1, "{file}");
        let converted = definition.pointer("/spec/conversion").is_some();
        assert_eq!(converted, versions.len() > 1, "{file}");
    }
}

/// `kubectl apply` keeps the whole object in an annotation, of which there may be 256 KiB.
#[test]
fn a_definition_fits_client_side_apply() {
    for (file, definition) in definitions() {
        let size = definition.to_string().len();
        assert!(size < 200 * 1024, "{file} has {size} bytes");
    }
}
