//! What another user of the machine can do to a run, and what his folders can.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use crate::harness::{Harness, engine, sh};

/// Somebody who is neither root nor the one who runs the tests.
const STRANGER: u32 = 65_533;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn nobody_else_reaches_a_run() {
    let harness = Harness::new(1, sh("echo up; exec sleep 100")).without_umask();
    let mut run = harness.start();
    run.wait_for_output("Worker 0", "up");
    let root = harness.path().join(".trainyard");
    let folder = trainyard_host::store::Store::open(&root)
        .unwrap()
        .latest("j")
        .unwrap();
    assert_eq!(mode(&folder.path), 0o700);
    assert_eq!(mode(&folder.path.join("engine.sock")), 0o600);
    assert_eq!(mode(&root.join("runs/j/run.lock")), 0o600);
    for open in [
        root.clone(),
        root.join("runs"),
        root.join("runs/j"),
        root.join("volumes"),
    ] {
        assert_eq!(mode(&open), 0o755, "{}", open.display());
    }
    // The rule itself is tested without a second user, in `remote`.
    if nix::unistd::geteuid().is_root() {
        // As if folder and socket were open: the kernel still says who asks.
        let everybody = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        everybody(harness.path(), 0o755);
        everybody(&folder.path, 0o755);
        everybody(&folder.path.join("engine.sock"), 0o666);
        let program = harness.path().join("engine");
        fs::copy(engine(), &program).unwrap();
        let output = Command::new(program)
            .arg("pod-exec")
            .arg(&folder.path)
            .args(["ssh", "j-worker-0", "id"])
            .uid(STRANGER)
            .gid(STRANGER)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(255), "{said}");
        assert_eq!(output.stdout, b"");
        let refusal =
            format!("this run belongs to user 0, but the request came from user {STRANGER}");
        assert_eq!(said, format!("trainyard: {refusal}\n"));
        let note = run.wait_for("a note", |line| !line["note"].is_null());
        assert_eq!(note["note"], format!("refused a request: {refusal}"));
    }
    folder.request_stop(true).unwrap();
    assert_eq!(run.finish().report()["outcome"], "stopped");
}

#[test]
fn a_store_that_is_a_link_is_refused() {
    let harness = Harness::new(1, sh("true"));
    let elsewhere = harness.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, harness.path().join(".trainyard")).unwrap();
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    let error = ended.error();
    assert!(error.contains(".trainyard` is a symbolic link"), "{error}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn links_in_a_store_lead_nowhere() {
    let harness = Harness::new(1, sh("true"));
    let victim = harness.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let job = harness.path().join(".trainyard/runs/j");
    fs::create_dir_all(&job).unwrap();
    symlink(&victim, job.join("run.lock")).unwrap();
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    let said = format!("{:?}", ended.seen);
    assert!(said.contains("run.lock"), "{said}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");

    fs::remove_file(job.join("run.lock")).unwrap();
    fs::remove_dir(&job).unwrap();
    symlink(harness.path(), &job).unwrap();
    let ended = harness.run();
    assert_eq!(ended.code, Some(2));
    let error = ended.error();
    assert!(error.contains("runs/j` is a symbolic link"), "{error}");
}
