//! Each gets one clear sentence, and nothing is left behind.

use serde_json::json;

use crate::harness::{Harness, container, sh};

/// Whether a run left a folder.
fn runs(harness: &Harness) -> usize {
    let folder = harness.path().join(".trainyard/runs/j");
    std::fs::read_dir(folder).map_or(0, |entries| {
        entries
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir()))
            .count()
    })
}

#[test]
fn bad_job_refused_before_start() {
    let mut nameless = sh("true");
    nameless["spec"]["containers"][0]["command"] = json!([]);
    let mut unknown = sh("true");
    unknown["spec"]["containers"][0]["command"] = json!(["no-such-trainer", "--fast"]);
    let mut absent = sh("true");
    absent["spec"]["containers"][0]["command"] = json!(["/opt/no/such/trainer"]);
    let mut nowhere = sh("true");
    nowhere["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "gone"}}]);
    let cases = [
        (
            nameless,
            "container `pytorch` of pod `j-worker-0` has no `command`, and local runs do not use the entrypoint of an image",
        ),
        (
            unknown,
            "container `pytorch` of pod `j-worker-0` runs `no-such-trainer`, which is not on its `PATH`",
        ),
        (
            absent,
            "container `pytorch` of pod `j-worker-0` runs `/opt/no/such/trainer`, which is not on its `PATH`",
        ),
        (
            nowhere,
            "pod `j-worker-0` needs ConfigMap `gone`, which none of the files contains",
        ),
    ];
    for (template, want) in cases {
        let harness = Harness::new(2, template);
        let ended = harness.run();
        assert_eq!(ended.code, Some(2));
        assert_eq!(ended.error(), want);
        assert_eq!(runs(&harness), 0, "{want}");
        assert!(ended.seen.iter().all(|line| line["started"].is_null()));
    }
}

#[test]
fn missing_working_folder_ends_run() {
    let mut template = sh("true");
    template["spec"]["containers"][0]["workingDir"] = json!("/no/such/folder");
    let ended = Harness::new(2, template).run();
    assert_eq!(ended.code, Some(2));
    let error = ended.error();
    let want = "cannot enter the working folder `/no/such/folder` of container `pytorch`: No such file or directory";
    assert!(
        error.starts_with("cannot set up pod `j-worker-") && error.contains(want),
        "{error}"
    );
}

#[test]
fn a_job_runs_once_at_a_time_but_others_beside_it() {
    let harness = Harness::new(1, sh("echo up; until [ -e done ]; do sleep 0.02; done"));
    let mut run = harness.start();
    run.wait_for_output("Worker 0", "up");
    let again = harness.run();
    assert_eq!(again.code, Some(2));
    let want = format!("job `j` is already running, in process {}", run.child.id());
    assert_eq!(again.error(), want);

    let mut other = Harness::new(1, sh("true")).set("name", json!("other"));
    other.file["stateDir"] = harness.file["stateDir"].clone();
    assert_eq!(other.run().code, Some(0));

    std::fs::write(harness.path().join("done"), "").unwrap();
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn unusable_folder_reported_and_kept() {
    let harness = Harness::new(1, sh("true"));
    let state = harness.path().join(".trainyard");
    std::fs::write(&state, "mine").unwrap();
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.error().ends_with("is not a folder"),
        "{}",
        ended.error()
    );
    assert_eq!(std::fs::read_to_string(&state).unwrap(), "mine");

    std::fs::remove_file(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("version"), "99").unwrap();
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.error().contains("has version 99"),
        "{}",
        ended.error()
    );
}

#[test]
fn a_read_only_folder_is_said() {
    let harness = Harness::new(1, sh("true")).set("stateDir", json!("/proc/trainyard"));
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    assert!(
        ended
            .error()
            .starts_with("cannot write to `/proc/trainyard`"),
        "{}",
        ended.error()
    );
}

#[test]
fn a_line_of_a_hundred_megabytes_passes() {
    let script = "head -c 104857600 /dev/zero | tr '\\0' x; echo; echo after";
    let harness = Harness::new(1, sh(script)).set("quiet", json!(true));
    let ended = harness.run();
    assert_eq!(ended.code, Some(0));
    let store = trainyard_host::store::Store::open(harness.path().join(".trainyard")).unwrap();
    let log = store.latest("j").unwrap().logs(1).unwrap().remove(0);
    assert_eq!(log.last_lines(1).unwrap(), ["after"]);
    let folder = log.path.parent().unwrap();
    let size: u64 = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(size <= 48 << 20, "{size} bytes on disk");
}

#[test]
fn a_full_disk_ends_the_logs_and_not_the_job() {
    // The state lies on a disk in memory that holds 2 MiB; only a mount namespace can have one.
    let harness = Harness::new(
        1,
        sh("head -c 8388608 /dev/zero | tr '\\0' '\\n'; echo end > end"),
    );
    let harness = harness.set("quiet", json!(true));
    let small = harness.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let harness = harness.set("stateDir", json!(small.join(".trainyard")));
    let request = harness.path().join("request.json");
    std::fs::write(&request, harness.file.to_string()).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=2m tmpfs {} && exec {} run {}",
        small.display(),
        crate::harness::engine().display(),
        request.display()
    );
    let done = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(
        done.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert_eq!(harness.read("end"), "end\n");
    let notes = said
        .lines()
        .filter(|line| line.contains("the job continues without logs"));
    assert_eq!(notes.count(), 1, "{said}");
}

#[test]
fn program_missing_in_volume_fails_like_in_shell() {
    let mut container = container("true");
    container["command"] = json!(["/trainyard-tools/train"]);
    container["volumeMounts"] = json!([{"name": "tools", "mountPath": "/trainyard-tools"}]);
    let template = json!({"spec": {"containers": [container], "volumes": [{"name": "tools", "emptyDir": {}}]}});
    let ended = Harness::new(1, template).policy("Never").run();
    assert_eq!(ended.code, Some(1));
    let failure = &ended.report()["failures"][0];
    assert_eq!(failure["code"], 127);
    let line = failure["lastLines"][0].as_str().unwrap();
    assert!(
        line.starts_with("trainyard: cannot run `/trainyard-tools/train`: No such file"),
        "{line}"
    );
}

#[test]
fn roles_that_the_job_lacks_cannot_be_resized() {
    let harness = Harness::new(4, sh("echo of $PET_NNODES")).set("replicas", json!({"Worker": 1}));
    let ended = harness.run();
    assert_eq!(ended.output(1).len(), 1);
    assert_eq!(ended.output(1)["Worker 0"], "of 1\n");
    let ended = harness.set("replicas", json!({"PS": 1})).run();
    assert_eq!(ended.code, Some(2));
    assert_eq!(
        ended.error(),
        "job `j` has no role `PS` to resize; it has Worker"
    );
}

#[test]
fn run_without_namespaces_refused_with_hint() {
    let harness = Harness::new(1, sh("true"));
    let request = harness.path().join("request.json");
    std::fs::write(&request, harness.file.to_string()).unwrap();
    // In a user namespace of its own a test may forbid further ones, and give up its rights.
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all {} run {}",
        crate::harness::engine().display(),
        request.display()
    );
    let done = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", &script])
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let want = "this machine does not allow this user to create namespaces (clone: No space left on device";
    assert!(
        said.contains(want),
        "{said}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let hint =
        "ask the machine's administrator for `sudo sysctl -w user.max_user_namespaces=15000`";
    assert!(said.contains(hint), "{said}");
    assert_eq!(done.status.code(), Some(2));
    assert!(
        !harness.path().join(".trainyard").exists(),
        "nothing was written"
    );
}
