//! What a container sees: names, files, environment.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::harness::{Harness, container};

fn pod(script: &str, mounts: Value, volumes: Value) -> Value {
    let mut container = container(script);
    container["volumeMounts"] = mounts;
    json!({"spec": {"containers": [container], "volumes": volumes}})
}

#[test]
fn contract_names_resolve_to_pod_address() {
    let script = "for name in j-worker-1 j-worker-1.default j-worker-1.default.svc \
                  j-worker-1.default.svc.cluster.local j-worker-1.j.default.svc; do \
                  getent hosts $name | cut -d' ' -f1; done; hostname";
    let before = std::fs::read("/etc/hosts").unwrap();
    let ended = Harness::new(2, crate::harness::sh(script)).run();
    let output = &ended.output(1)["Worker 0"];
    let lines: Vec<&str> = output.lines().collect();
    let (host, addresses) = lines.split_last().unwrap();
    assert_eq!(*host, "j-worker-0");
    assert_eq!(addresses.len(), 5);
    assert!(
        addresses.iter().all(|address| address == &addresses[0]),
        "{addresses:?}"
    );
    assert!(
        addresses[0].starts_with("127.") && addresses[0].ends_with(".0.2"),
        "{addresses:?}"
    );
    assert_eq!(
        std::fs::read("/etc/hosts").unwrap(),
        before,
        "the machine's file is untouched"
    );
}

/// The address that `pod` of `attempt` found last for `name`.
fn address(ended: &crate::harness::Ended, attempt: u32, pod: &str, name: &str) -> String {
    let output = &ended.output(attempt)[pod];
    let found = output.lines().rev().find_map(|line| {
        let (known, address) = line.split_once(' ')?;
        (known == name).then(|| address.to_owned())
    });
    found.unwrap_or_else(|| panic!("no {name} in {output}"))
}

#[test]
fn next_attempt_has_new_consistent_addresses() {
    // A server that was killed leaves its port at its address behind for a minute.
    let script = "for pod in j-worker-0 j-worker-1; do \
                  echo $pod $(getent hosts $pod | cut -d' ' -f1); done; echo ip $POD_IP; \
                  [ $ATTEMPT = 2 ] || { touch up-$HOSTNAME; \
                  until [ -e up-j-worker-0 ] && [ -e up-j-worker-1 ]; do sleep 0.02; done; \
                  [ $HOSTNAME = j-worker-0 ] || exit 1; exec sleep 100; }";
    let mut template = crate::harness::sh(script);
    template["spec"]["containers"][0]["env"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}));
    let ended = Harness::new(2, template).run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let mut seen = Vec::new();
    for attempt in [1, 2] {
        for (at, name) in ["j-worker-0", "j-worker-1"].into_iter().enumerate() {
            let own = address(&ended, attempt, &format!("Worker {at}"), "ip");
            for pod in ["Worker 0", "Worker 1"] {
                assert_eq!(address(&ended, attempt, pod, name), own);
            }
            assert!(!seen.contains(&own), "{own} is used again");
            seen.push(own);
        }
    }
}

#[test]
fn restarted_pod_gets_new_address() {
    let look = "getent hosts j-worker-1 | cut -d' ' -f1";
    let script = format!(
        "[ $HOSTNAME = j-worker-1 ] && {{ [ -e again ] && {{ {look} > second; exit 0; }}; touch again; \
         {look} > first; exit 130; }}; until [ -s second ] && [ \"$({look})\" = \"$(cat second)\" ]; \
         do sleep 0.02; done"
    );
    let harness = Harness::new(2, crate::harness::sh(&script)).set("kind", json!("TFJob"));
    let harness = harness.policy("ExitCode");
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    assert_eq!(ended.report()["attempts"], 1);
    assert_ne!(harness.read("first"), harness.read("second"));
}

#[test]
fn volumes_appear_at_their_paths_and_nowhere_else() {
    for ordinary in [false, true] {
        let script = "cat /trainyard-test/config/a /etc/trainyard-test/deep/b /etc/motd-of-job; \
            stat -c %a /trainyard-test/config/a; \
            echo kept >> /trainyard-test/claim/log; cat /trainyard-test/claim/log; \
            touch /trainyard-test/scratch/x && ls /trainyard-test/scratch; \
            df --output=size -B1 /dev/shm | tail -1 | tr -d ' '; \
            touch /trainyard-test/readonly/x 2>/dev/null || echo read-only; \
            ls inside; test -e /bin/sh && test -d /usr/lib && echo machine";
        let mounts = json!([
            {"name": "config", "mountPath": "/trainyard-test/config"},
            {"name": "config", "mountPath": "/etc/trainyard-test/deep"},
            {"name": "config", "mountPath": "/etc/motd-of-job", "subPath": "motd"},
            {"name": "claim", "mountPath": "/trainyard-test/claim"},
            {"name": "claim", "mountPath": "/trainyard-test/readonly", "readOnly": true},
            {"name": "scratch", "mountPath": "/trainyard-test/scratch"},
            {"name": "memory", "mountPath": "/dev/shm"},
        ]);
        let volumes = json!([
            {"name": "config", "configMap": {"name": "cm", "items": [
                {"key": "a", "path": "a", "mode": 0o440}, {"key": "b", "path": "b"}, {"key": "motd", "path": "motd"}]}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        ]);
        let harness = Harness::new(1, pod(script, mounts, volumes)).set(
            "companions",
            json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"},
                    "data": {"a": "one\n", "b": "two\n", "motd": "three\n"}}]),
        );
        std::fs::create_dir(harness.path().join("inside")).unwrap();
        std::fs::write(harness.path().join("inside/file"), "").unwrap();
        let harness = if ordinary {
            harness.for_ordinary_user()
        } else {
            harness
        };
        for kept in ["kept\n", "kept\nkept\n"] {
            let ended = harness.run();
            let want =
                format!("one\ntwo\nthree\n440\n{kept}x\n8388608\nread-only\nfile\nmachine\n");
            assert_eq!(ended.output(1)["Worker 0"], want, "{:#?}", ended.seen);
            assert_eq!(ended.code, Some(0));
        }
        for path in ["/trainyard-test", "/etc/trainyard-test", "/etc/motd-of-job"] {
            assert!(
                !std::path::Path::new(path).exists(),
                "{path} is on the machine"
            );
        }
        let run = harness.path().join(".trainyard/runs/j");
        let left: Vec<_> = std::fs::read_dir(run)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        for folder in left.iter().filter(|path| path.is_dir()) {
            for name in ["scratch", "mnt", "hosts", "bin", "engine.sock"] {
                assert!(!folder.join(name).exists(), "{name} is left in {folder:?}");
            }
        }
    }
}

#[test]
fn an_ordinary_user_stays_who_it_is() {
    let harness = Harness::new(1, crate::harness::sh("id -u; touch mine")).for_ordinary_user();
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    let owner = std::os::unix::fs::MetadataExt::uid(
        &std::fs::metadata(harness.path().join("mine")).unwrap(),
    );
    assert_eq!(ended.output(1)["Worker 0"], format!("{owner}\n"));
}

#[test]
fn a_missing_folder_inside_the_users_own_is_made_there() {
    let mounts = json!([{"name": "claim", "mountPath": "PLACE/data"}]);
    let volumes = json!([{"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mut harness = Harness::new(1, pod("echo 1 > data/x; echo 2 > y", mounts, volumes));
    let place = harness.path().join("data");
    harness.file["roles"]["Worker"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] =
        json!(place);
    let ended = harness.run();
    assert_eq!(ended.code, Some(0), "{:#?}", ended.seen);
    assert_eq!(
        harness.read("y"),
        "2\n",
        "the user's own folder is written through"
    );
    assert_eq!(harness.read(".trainyard/volumes/data/x"), "1\n");
}

#[test]
fn gpus_are_given_out_once() {
    let mut template = crate::harness::sh("echo gpus=$CUDA_VISIBLE_DEVICES");
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": 2}});
    let harness = Harness::new(2, template).set("gpus", json!(["4", "5", "6", "7"]));
    let ended = harness.run();
    let output = ended.output(1);
    assert_eq!(output["Worker 0"], "gpus=4,5\n");
    assert_eq!(output["Worker 1"], "gpus=6,7\n");

    let harness = harness.set("gpus", json!(["0"]));
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.error(), "job `j` needs 4 GPUs, this machine has 1");

    let ended = harness.set("cpu", json!(true)).run();
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.output(1)["Worker 0"], "gpus=\n");
}

#[test]
fn ranks_of_a_tfjob_have_ports_of_their_own() {
    let mut template = crate::harness::sh("echo $TF_CONFIG");
    template["spec"]["containers"][0]["name"] = json!("tensorflow");
    template["spec"]["containers"][0]["ports"] =
        json!([{"name": "tfjob-port", "containerPort": 2222}]);
    let ended = Harness::new(2, template).set("kind", json!("TFJob")).run();
    let config: Value = serde_json::from_str(&ended.output(1)["Worker 0"]).unwrap();
    let ports: Vec<&str> = config["cluster"]["worker"]
        .as_array()
        .unwrap()
        .iter()
        .map(|address| address.as_str().unwrap().rsplit(':').next().unwrap())
        .collect();
    assert_eq!(ports.len(), 2);
    assert_ne!(ports[0], ports[1]);
}

#[test]
fn a_port_in_use_is_replaced_and_said() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut template = crate::harness::sh("echo port $MASTER_PORT");
    template["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(port);
    let role = json!({"replicas": 1, "restartPolicy": "Never", "template": template});
    let harness = Harness::new(1, json!({})).set("roles", json!({"Master": role}));
    let ended = harness.run();
    let said = &ended.output(1)["Master 0"];
    let given: u16 = said.trim().strip_prefix("port ").unwrap().parse().unwrap();
    assert_ne!(given, port);
    let want =
        format!("port {port} is in use; `pytorchjob-port` of role `Master` is {given} in this run");
    assert!(
        ended.notes().contains(&want.as_str()),
        "{:?}",
        ended.notes()
    );
}

#[test]
fn unused_port_of_role_gives_no_note() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let role = |port: u16| {
        let mut template = crate::harness::sh("true");
        template["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(port);
        json!({"replicas": 1, "restartPolicy": "Never", "template": template})
    };
    let roles = json!({"Master": role(29_871), "Worker": role(port)});
    let ended = Harness::new(1, json!({})).set("roles", roles).run();
    assert_eq!(ended.code, Some(0));
    let about = format!("port {port} is in use");
    assert!(!ended.notes().iter().any(|note| note.contains(&about)));
}

#[test]
fn workers_with_one_port_give_warning() {
    let mut template = crate::harness::sh("echo port $WORKER_PORT");
    template["spec"]["containers"][0]["ports"][0]["name"] = json!("xgboostjob-port");
    let role =
        |count: u32| json!({"replicas": count, "restartPolicy": "Never", "template": template});
    for (workers, warned) in [(1, false), (2, true)] {
        let harness = Harness::new(1, json!({})).set("kind", json!("XGBoostJob"));
        let roles = json!({"Master": role(1), "Worker": role(workers)});
        let ended = harness.set("roles", roles).run();
        let port = ended.output(1)["Master 0"].replace("port ", "");
        let want = format!(
            "the 2 workers get the same port (`WORKER_PORT` is {}); a program that listens there at \
             every address, as LightGBM does, can run in only one of them",
            port.trim()
        );
        assert_eq!(
            ended.notes().contains(&want.as_str()),
            warned,
            "{:?}",
            ended.notes()
        );
    }
}

#[test]
fn an_image_may_stand_for_a_virtual_environment() {
    let mut template = crate::harness::sh("only-here; echo $VIRTUAL_ENV");
    template["spec"]["containers"][0]["image"] = json!("example/torch:1");
    let harness = Harness::new(1, template);
    let tool = harness.path().join("venv/bin/only-here");
    std::fs::create_dir_all(tool.parent().unwrap()).unwrap();
    std::fs::write(&tool, "#!/bin/sh\necho found\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let venv = harness.path().join("venv");
    let harness = harness.set("imageEnv", json!([["example/torch", venv]]));
    let ended = harness.run();
    assert_eq!(
        ended.output(1)["Worker 0"],
        format!("found\n{}\n", venv.display())
    );
    assert!(!ended.notes().iter().any(|note| note.contains("images")));
}

#[test]
fn ignored_fields_noted_once() {
    let mut template = crate::harness::sh("true");
    template["spec"]["securityContext"] = json!({"runAsUser": 1000});
    template["spec"]["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["false"]}});
    let ended = Harness::new(3, template).run();
    assert_eq!(ended.code, Some(0));
    let want = "these pod template fields are ignored: `readinessProbe`, \
                `securityContext`";
    // Other tests may hold the port meanwhile, which is a note, too.
    let about_fields = |ended: &crate::harness::Ended| -> Vec<String> {
        let notes = ended
            .notes()
            .into_iter()
            .filter(|note| note.contains("fields"));
        notes.map(str::to_owned).collect()
    };
    assert_eq!(about_fields(&ended), [want]);
    let plain = Harness::new(1, crate::harness::sh("true")).run();
    assert!(about_fields(&plain).is_empty());
}

#[test]
fn container_over_memory_limit_is_killed() {
    let take = "x=$(head -c 100000000 /dev/zero | tr '\\0' x); echo $x | wc -c";
    let cases = [
        (take.to_owned(), 137, true),
        // A parent that outlives the process which was ended says another code.
        ("sh -c \"$TAKE\" || exit 3".to_owned(), 3, true),
        ("kill -9 $$$$".to_owned(), 137, false),
    ];
    for (script, code, out_of_memory) in cases {
        let mut template = crate::harness::sh(&script);
        let container = &mut template["spec"]["containers"][0];
        container["env"] = json!([{"name": "TAKE", "value": take.replace('$', "$$")}]);
        container["resources"] = json!({"limits": {"memory": "32Mi", "cpu": "1"}});
        let harness = Harness::new(1, template).policy("Never");
        let mut run = harness.start();
        let first = run.wait_for("a note or a pod", |line| {
            let note = line["note"].as_str().unwrap_or_default();
            note.starts_with("limits on") || !line["started"].is_null()
        });
        if !first["note"].is_null() {
            println!(
                "SKIPPED: this user may not make cgroups here: {}",
                first["note"]
            );
            return;
        }
        let ended = run.finish();
        assert_eq!(ended.code, Some(1));
        let failure = &ended.report()["failures"][0];
        assert_eq!(failure["code"], code, "{script}: {:#?}", ended.seen);
        assert_eq!(failure["outOfMemory"], out_of_memory, "{script}");
    }
}
