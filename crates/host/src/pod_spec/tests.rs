use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::wire::{VolumeFile, VolumeSource};

fn objects() -> Objects {
    Objects::read(&[
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
               "data": {"RATE": "0.1", "train.py": "print(1)"}, "binaryData": {"raw": "AP8="}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
               "data": {"TOKEN": "aHVzaA=="}, "stringData": {"USER": "ada"}}),
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}),
    ])
    .unwrap()
}

fn surroundings(root: &Path) -> Surroundings {
    let environment = [
        ("PATH", "/bin"),
        ("HOME", "/home/ada"),
        ("RATE", "9"),
        ("TRAINYARD_BEAT", "/other/run"),
        ("TRAINYARD_NOTICE", "/other/run/notice.json"),
    ];
    Surroundings {
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        image_env: vec![("torch".to_owned(), "/venvs/torch".into())],
        working_dir: "/home/ada/project".into(),
        own_volumes: BTreeMap::new(),
        volumes: root.join("volumes"),
        hosts: "/hosts".into(),
        stage: "/stage".into(),
        beats: Some("/beats".into()),
        notice: "/run/notice.json".into(),
        flight: Some("/flight".into()),
        kineto: None,
        ras: None,
        open_files: 1024,
    }
}

fn translated(spec: &Value) -> Result<PodSpec, HostError> {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "j-worker-1", "namespace": "n", "labels": {"team": "a"},
                     "annotations": {"note": "b"}},
        "spec": spec,
    }))
    .unwrap();
    let facts = Facts {
        uid: "uid-1",
        node: "here",
        address: Ipv4Addr::new(127, 9, 0, 3),
        cpus: 2,
        memory_bytes: 1 << 30,
    };
    let root = tempfile::tempdir().unwrap();
    let scratch = root.path().join("scratch");
    translate(
        &pod,
        &facts,
        &objects(),
        &surroundings(root.path()),
        &scratch,
    )
}

#[test]
fn environment_in_the_order_of_the_kubelet() {
    let pod = translated(&json!({"containers": [{
        "name": "c",
        "command": ["$(SHELL_NAME)", "-c", "echo $(RATE) $$(RATE) $(HOME)"],
        "args": ["$(JOINED)"],
        "envFrom": [
            {"configMapRef": {"name": "settings"}},
            {"prefix": "KEY_", "secretRef": {"name": "keys"}},
            {"configMapRef": {"name": "absent", "optional": true}},
        ],
        "env": [
            {"name": "SHELL_NAME", "value": "sh"},
            {"name": "EARLY", "value": "$(LATE)"},
            {"name": "LATE", "value": "late"},
            {"name": "JOINED", "value": "$(KEY_USER):$(LATE):$$(LATE):$(NONE)"},
            {"name": "LATE", "value": "later"},
            {"name": "EMPTY"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "TEAM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['team']"}}},
            {"name": "NOTE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['note']"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "TOKEN"}}},
            {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "no", "optional": true}}},
        ],
        "resources": {"limits": {"cpu": "1500m"}},
    }]}))
    .unwrap();
    let container = &pod.containers[0];
    assert_eq!(
        container.command,
        [
            "sh",
            "-c",
            "echo 0.1 $(RATE) $(HOME)",
            "ada:late:$(LATE):$(NONE)"
        ],
        "the user's own environment here is not referred to"
    );
    let cases = [
        ("RATE", Some("0.1")),
        ("HOME", Some("/home/ada")),
        ("TRAINYARD_BEAT", Some("/beats/uid-1")),
        ("TORCH_FR_DUMP_TEMP_FILE", Some("/flight/uid-1.trace_")),
        (
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
            Some("/flight/uid-1.pipe_"),
        ),
        ("KEY_TOKEN", Some("hush")),
        ("EARLY", Some("$(LATE)")),
        ("LATE", Some("later")),
        ("EMPTY", Some("")),
        ("POD", Some("j-worker-1")),
        ("TEAM", Some("a")),
        ("NOTE", Some("b")),
        ("IP", Some("127.9.0.3")),
        ("NODE", Some("here")),
        ("CPUS", Some("2")),
        ("MEMORY", Some("1024")),
        ("SECRET", Some("hush")),
        ("GONE", None),
        ("HOSTNAME", Some("j-worker-1")),
    ];
    for (name, want) in cases {
        let found = container
            .environment
            .iter()
            .find(|(known, _)| known == name);
        assert_eq!(found.map(|(_, value)| value.as_str()), want, "{name}");
    }
    assert_eq!(container.working_dir, Path::new("/home/ada/project"));
}

#[test]
fn an_image_may_stand_for_a_virtual_environment() {
    for (image, stands) in [
        ("torch", true),
        ("torch:2.9", true),
        ("torch@sha256:ab", true),
        ("torch:2.9@sha256:ab", true),
        ("registry:5000/torch:2", false),
        ("torchvision", false),
    ] {
        let container = json!({"name": "c", "image": image, "command": ["python"]});
        let pod = translated(&json!({"containers": [container]})).unwrap();
        let environment: BTreeMap<_, _> = pod.containers[0].environment.iter().cloned().collect();
        let want = if stands {
            "/venvs/torch/bin:/bin"
        } else {
            "/bin"
        };
        assert_eq!(environment["PATH"], want, "{image}");
    }
}

#[test]
fn volumes_become_files_folders_and_memory() {
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/mnt/{name}")});
    let pod = translated(&json!({
        "containers": [{"name": "c", "command": ["sh"], "volumeMounts": [
            mount("config"), mount("chosen"), mount("secret"), mount("claim"), mount("scratch"),
            mount("memory"), mount("about"), mount("all"),
        ]}],
        "volumes": [
            {"name": "config", "configMap": {"name": "settings", "defaultMode": 0o400}},
            {"name": "chosen", "configMap": {"name": "settings", "items": [
                {"key": "train.py", "path": "code/train.py", "mode": 0o555}]}},
            {"name": "secret", "secret": {"secretName": "keys"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            {"name": "about", "downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "all", "projected": {"sources": [
                {"configMap": {"name": "settings", "items": [{"key": "RATE", "path": "rate"}]}},
                {"secret": {"name": "keys", "items": [{"key": "USER", "path": "user"}]}}]}},
            {"name": "unused", "nfs": {"server": "s", "path": "/"}},
        ],
    }))
    .unwrap();
    let file = |path: &str, mode, bytes: &[u8]| VolumeFile {
        path: path.to_owned(),
        mode,
        bytes: bytes.to_vec(),
    };
    let got: BTreeMap<&str, &VolumeSource> = pod
        .volumes
        .iter()
        .map(|volume| (volume.name.as_str(), &volume.source))
        .collect();
    let files = |name: &str| match got[name] {
        VolumeSource::Files(files) => files.clone(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(got.len(), 8, "what no container mounts is not made");
    let config = [
        file("RATE", 0o400, b"0.1"),
        file("raw", 0o400, &[0, 255]),
        file("train.py", 0o400, b"print(1)"),
    ];
    assert_eq!(files("config"), config);
    assert_eq!(files("chosen"), [file("code/train.py", 0o555, b"print(1)")]);
    assert_eq!(files("secret").len(), 2);
    assert_eq!(files("about"), [file("labels", 0o644, b"team=\"a\"")]);
    assert_eq!(
        files("all"),
        [file("rate", 0o644, b"0.1"), file("user", 0o644, b"ada")]
    );
    assert!(matches!(
        got["memory"],
        VolumeSource::Memory(Some(67_108_864))
    ));
    assert!(matches!(got["claim"], VolumeSource::Path(path) if path.ends_with("volumes/data")));
    assert!(
        matches!(got["scratch"], VolumeSource::Path(path) if path.ends_with("scratch/scratch"))
    );
}

#[test]
fn what_cannot_be_had_is_said() {
    let with = |container: Value, volume: Value| {
        let mut all = json!({"name": "c", "command": ["sh"]});
        all.as_object_mut()
            .unwrap()
            .extend(container.as_object().unwrap().clone());
        json!({"containers": [all], "volumes": [volume]})
    };
    let mounted = json!({"volumeMounts": [{"name": "v", "mountPath": "/m"}]});
    let cases = [
        (
            with(json!({"command": []}), json!({"name": "v"})),
            "container `c` of pod `j-worker-1` has no `command`, and local runs do not use the entrypoint of an image",
        ),
        (
            with(
                json!({"envFrom": [{"secretRef": {"name": "x"}}]}),
                json!({"name": "v"}),
            ),
            "pod `j-worker-1` needs Secret `x`, which none of the files contains",
        ),
        (
            with(
                json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "x"}}}]}),
                json!({"name": "v"}),
            ),
            "pod `j-worker-1` needs key `x` of ConfigMap `settings`, which none of the files contains",
        ),
        (
            with(
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]}),
                json!({"name": "v"}),
            ),
            "pod `j-worker-1` needs field `status.phase`, which a single machine cannot provide",
        ),
        (
            with(
                mounted.clone(),
                json!({"name": "v", "nfs": {"server": "s", "path": "/"}}),
            ),
            "pod `j-worker-1` needs volume `v` of its kind, which a single machine cannot provide",
        ),
        (
            with(mounted.clone(), json!({"name": "w", "emptyDir": {}})),
            "pod `j-worker-1`: volume `v` is mounted but not declared",
        ),
        (
            with(
                mounted.clone(),
                json!({"name": "v", "persistentVolumeClaim": {"claimName": "../x"}}),
            ),
            "pod `j-worker-1`: `../x` is not a valid volume name",
        ),
        (
            with(
                mounted.clone(),
                json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "RATE", "path": "../x"}]}}),
            ),
            "pod `j-worker-1`: `../x` points outside of its volume",
        ),
        (
            with(
                mounted.clone(),
                json!({"name": "v", "hostPath": {"path": "/no/such/folder"}}),
            ),
            "pod `j-worker-1`: volume `v` is `hostPath: /no/such/folder`, which does not exist on this machine",
        ),
        (
            with(
                mounted,
                json!({"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "lots"}}),
            ),
            "pod `j-worker-1`: `sizeLimit: lots` of volume `v` is not a quantity",
        ),
    ];
    for (spec, want) in cases {
        let got = translated(&spec).unwrap_err().to_string();
        assert_eq!(got, want);
    }
}
