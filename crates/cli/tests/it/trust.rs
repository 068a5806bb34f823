//! What files, their names and other users of the machine can do to whoever runs a command.

use std::{
    fs::{self, File},
    io::Read as _,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{call::Call, findings::RISKY};

/// Clears the screen, in seven bits and in eight; sets the title; turns text around; deletes.
const HOSTILE: &str = "x\u{9b}2J\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}\u{2066}\u{7f}";

/// A job without a mistake, with hostile text in it and a field that nobody knows.
fn job(field: &str) -> String {
    let container = json!({
        "name": "pytorch", "image": "example.com/train:1",
        "env": [{"name": "A", "value": HOSTILE}],
    });
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "j", "annotations": {"example.com/a": HOSTILE}},
        "spec": {"pytorchReplicaSpecs": {"Worker": {
            "replicas": 1, field: 1, "template": {"spec": {"containers": [container]}},
        }}},
    })
    .to_string()
}

/// What a call shows on a terminal that is its stdout and its stderr.
fn on_a_terminal(call: &Call) -> String {
    let pair = nix::pty::openpty(None, None).expect("a terminal can be made");
    let mut screen = File::from(pair.master);
    let slave = File::from(pair.slave);
    let mut child = call
        .command()
        .env("TERM", "xterm-256color")
        .stdin(Stdio::null())
        .stdout(slave.try_clone().expect("a descriptor is left"))
        .stderr(slave)
        .spawn()
        .expect("sh can be started");
    let mut shown = Vec::new();
    // Ends with an error once the child, which has the other end, is gone.
    drop(screen.read_to_end(&mut shown));
    child.wait().expect("the call ends");
    String::from_utf8(shown).expect("what is shown is UTF-8")
}

/// What in `shown` makes a terminal do more than show text in colours.
fn obeyed(shown: &str) -> Option<String> {
    // The live line of `run` erases itself, and is written over once more if the run lasts that long; no hostile text here
    // does that.
    let text = shown
        .replace("\r\n", "\n")
        .replace("\r\u{1b}[1mj · pods ", "")
        .replace("\r\u{1b}[K", "")
        .replace("\u{1b}[K", "");
    let mut rest = text.as_str();
    while let Some(at) = rest.find(|found: char| {
        let turns = matches!(found, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        turns || (found.is_control() && !matches!(found, '\n' | '\t'))
    }) {
        rest = rest.get(at..).unwrap_or_default();
        let colour = rest.strip_prefix("\u{1b}[").and_then(|rest| {
            let end = rest.find(|found: char| !matches!(found, '0'..='9' | ';'))?;
            rest.get(end..)?.strip_prefix('m')
        });
        match colour {
            Some(after) => rest = after,
            None => return Some(rest.chars().take(20).collect()),
        }
    }
    None
}

/// A store with one run whose files are full of hostile text.
fn hostile_store(folder: &Path) {
    let run = folder.join(".trainyard/runs/j/20250101T000000Z");
    fs::create_dir_all(&run).expect("folders can be made");
    let record = json!({
        "version": 1, "apiVersion": "kubeflow.org/v1", "kind": HOSTILE, "name": format!("j{HOSTILE}"),
        "namespace": HOSTILE, "runId": "20250101T000000Z", "startedAt": "2025-01-01T00:00:00Z",
        "pid": 1, "replicas": {"Worker": 1},
    });
    fs::write(run.join("job.json"), record.to_string()).expect("files can be written");
    let damaged = folder
        .join(".trainyard/runs")
        .join(format!("k{HOSTILE}"))
        .join("1");
    fs::create_dir_all(&damaged).expect("folders can be made");
    fs::write(damaged.join("job.json"), "{").expect("files can be written");
    let log = run.join("attempts/1/j-worker-0/pytorch.log");
    fs::create_dir_all(log.parent().expect("a folder")).expect("folders can be made");
    fs::write(log, format!("{HOSTILE} CUDA out of memory {HOSTILE}\n")).expect("a file");
}

#[test]
fn nothing_that_is_read_makes_a_terminal_obey() {
    let hostile_name = format!("{HOSTILE}.yaml");
    let missing = format!("missing{HOSTILE}");
    let commands: &[&[&str]] = &[
        &["lint", "bad.yaml"],
        &["lint", "bad.yaml", "--format", "json"],
        &["lint", "bad.yaml", "--format", "github"],
        &["lint", &hostile_name, "-v"],
        &["lint", "."],
        &["lint", &missing],
        &["render", "good.yaml"],
        &["render", "good.yaml", "--format", "json"],
        &["render", "bad.yaml"],
        &["render", &missing],
        &["run", &missing],
        &["run", "bad.yaml"],
        &["ps"],
        &["ps", "--all"],
        &["ps", "--format", "json"],
        &["status", "j"],
        &["status", "j", "--format", "json"],
        &["status", &missing],
        &["logs", "j"],
        &["logs", "j", "--format", "json"],
        &["explain", "j"],
        &["doctor", "--job", "j"],
        &["doctor", &missing],
        &["doctor", "log", "--format", "json"],
        &["place", &missing],
        &["new", "pytorch", "--output", "-", "--name", HOSTILE],
        &[&missing],
    ];
    let call = Call::new(&[])
        .file("bad.yaml", job(&format!("repl{HOSTILE}")))
        .file(&hostile_name, job("replicaz"))
        .file(
            "good.yaml",
            job("restartPolicy").replace("\"restartPolicy\":1,", ""),
        )
        .file("log", format!("{HOSTILE} CUDA out of memory {HOSTILE}\n"));
    hostile_store(call.folder());
    for words in commands {
        let call = call.again(words);
        let shown = on_a_terminal(&call);
        assert!(!shown.is_empty(), "{words:?}");
        assert_eq!(obeyed(&shown), None, "{words:?}: {shown:?}");
        // Messages are for people wherever they go; so are findings.
        let outcome = call.run();
        assert_eq!(obeyed(&outcome.stderr), None, "{words:?}: {outcome:?}");
        if words.starts_with(&["lint"]) && !words.contains(&"--format") {
            assert_eq!(obeyed(&outcome.stdout), None, "{words:?}: {outcome:?}");
        }
        if words.contains(&"json") && words.first() != Some(&"logs") {
            let piped: Value = serde_json::from_str(&outcome.stdout).expect("stdout is JSON");
            let json = shown
                .get(shown.find('{').unwrap_or_default()..)
                .unwrap_or_default();
            let mut shown = serde_json::Deserializer::from_str(json).into_iter::<Value>();
            let shown = shown.next().expect("a document").expect("it stays JSON");
            assert_eq!(shown, piped, "{words:?}");
        }
    }
}

#[test]
fn fixes_follow_no_link_that_was_laid() {
    let call = Call::new(&["lint", "link.yaml", "--fix"])
        .file("real.yaml", RISKY)
        .file("victim", "precious");
    let at = |name: &str| call.folder().join(name);
    fs::set_permissions(at("real.yaml"), fs::Permissions::from_mode(0o640)).expect("it is ours");
    symlink("real.yaml", at("link.yaml")).expect("a link can be made");
    // The name that this program once wrote to, laid out for the process that will have it.
    let script = "ln -s victim .trainyard-fix-$$; exec \"$0\" lint link.yaml --fix";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_trainyard")])
        .current_dir(call.folder())
        .output()
        .expect("sh can be started");
    let said = String::from_utf8(output.stderr).expect("stderr is UTF-8");
    assert!(said.contains(" fixed"), "{said}");
    assert_eq!(
        fs::read_to_string(at("victim")).expect("a file"),
        "precious"
    );
    assert!(at("link.yaml").is_symlink(), "the link stays one");
    let real = fs::symlink_metadata(at("real.yaml")).expect("a file");
    assert!(real.is_file(), "the file itself was replaced");
    assert_eq!(real.mode() & 0o777, 0o640);
    assert_ne!(fs::read_to_string(at("real.yaml")).expect("a file"), RISKY);
}

#[test]
fn store_links_are_not_followed() {
    let call = Call::new(&["ps"]);
    let at = |name: &str| call.folder().join(name);
    fs::create_dir(at("elsewhere")).expect("a folder can be made");
    symlink("elsewhere", at(".trainyard")).expect("a link can be made");
    for words in [
        &["ps"][..],
        &["status", "j"],
        &["logs", "j"],
        &["doctor", "--job", "j"],
    ] {
        let outcome = call.again(words).run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(
            outcome.stderr.contains("`.trainyard` is a symbolic link"),
            "{outcome:?}"
        );
        assert!(outcome.stderr.contains("--state-dir"), "{outcome:?}");
    }
    fs::remove_file(at(".trainyard")).expect("it is a link");
    hostile_store(call.folder());
    fs::write(at("secret"), "SECRET\n").expect("a file");
    let log = at(".trainyard/runs/j/20250101T000000Z/attempts/1/j-worker-0/pytorch.log");
    fs::remove_file(&log).expect("a file");
    symlink(at("secret"), &log).expect("a link can be made");
    let outcome = call.again(&["logs", "j"]).run();
    assert!(!outcome.stdout.contains("SECRET"), "{outcome:?}");
}
