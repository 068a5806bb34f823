//! Processes that cannot be read, and the errors that say so.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Stdio},
};

use nix::unistd::Uid;

use trainyard_stacks::{Error, Stacks, process::Process};

#[test]
fn a_program_that_is_not_python() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let error = loop {
        match Stacks::of(child.id()) {
            // Before `exec` it is this test, and it has no memory for a moment.
            Err(Error::Gone { .. } | Error::Runtime { .. }) => {}
            other => break other,
        }
    };
    assert!(matches!(error, Err(Error::NotPython { .. })), "{error:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_pid_that_nobody_has() {
    // The kernel's bound for pids is 2^22.
    let error = Stacks::of(1 << 30).unwrap_err();
    assert_eq!(
        error.to_string(),
        "process 1073741824 does not exist: it has ended"
    );
}

/// As root, runs itself as another user; as another user, reads the first process of the machine, which is root's.
#[test]
fn a_process_of_another_user() {
    const NOBODY: u32 = 65534;
    const NAME: &str = "refused::a_process_of_another_user";
    if Uid::effective().is_root() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.path().join("tests");
        fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let output = Command::new(&copy)
            .args(["--exact", NAME])
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
        return;
    }
    let error = Stacks::of(1).unwrap_err();
    assert!(matches!(error, Error::Refused { pid: 1, .. }), "{error:?}");
    let process = Process::read(1).unwrap();
    assert_eq!(
        (process.io, process.rank),
        (None, None),
        "what needs the right is absent"
    );
    assert_eq!(process.parent, 0);
}
