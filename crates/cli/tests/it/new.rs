//! `new`: every template through the binary, flags, files that are there already, and a terminal.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    process::Stdio,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    call::{Call, Outcome},
    golden,
};

/// Names of all templates, as the list has them.
fn templates() -> Vec<String> {
    let list = Call::new(&["new", "--list", "--format", "json"]).run();
    let list: Value = serde_json::from_str(&list.stdout).expect("the list is JSON");
    let templates = list["templates"].as_array().into_iter().flatten();
    templates
        .map(|template| template["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn lists_and_refusals_read_well() {
    let call = |words: &[&str]| Call::new(words).file("taken.yaml", "mine\n").run();
    let long = "a".repeat(64);
    golden::check(
        "new",
        &[
            call(&["new", "--list"]),
            call(&["new", "--list", "--format", "json"]),
            call(&["new", "--help"]),
            call(&["new"]),
            call(&["new", "pytorch"]),
            call(&["new", "jax@7"]),
            call(&["new", "jax", "--name", &long]),
            call(&["new", "jax", "--name", "a: b"]),
            call(&["new", "jax", "--image", "x y"]),
            call(&["new", "jax", "--workers", "none"]),
            call(&["new", "jax", "--storage", "1Ti"]),
            call(&["new", "jax", "--profile", "production", "--image", "x"]),
            call(&["new", "jax", "--output", "taken.yaml"]),
            call(&["new", "jax", "--output", "none/job.yaml"]),
            call(&["new", "jax", "--format", "json"]),
        ],
    );
}

#[test]
fn every_template_is_free_of_findings_and_renders() {
    let names = templates();
    assert_eq!(names.len(), 12);
    for name in names {
        for profile in ["demo", "production"] {
            let file = format!("{name}.yaml");
            let call = Call::new(&["new", &name, "--profile", profile]);
            let outcome = call.run();
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            assert_eq!(outcome.stdout, "");
            let next = format!("\n  trainyard lint {file}\n  trainyard run {file}");
            assert!(outcome.stderr.contains(&next), "{}", outcome.stderr);

            let lint = call.again(&["lint", &file, "--profile", profile]).run();
            let want = (Some(0), "", "no findings in 1 file\n");
            assert_eq!(
                (lint.code, lint.stdout.as_str(), lint.stderr.as_str()),
                want,
                "{name} {profile}"
            );
            let render = call.again(&["render", &file]).run();
            assert_eq!(
                (render.code, render.stderr.as_str()),
                (Some(0), ""),
                "{name} {profile}"
            );
        }
    }
}

/// By flag as by position, and the file trains without a framework.
#[test]
fn quickstart_trains_as_it_is() {
    let call = Call::new(&["new", "--template", "quickstart", "-o", "job.yaml"]);
    let written = call.run();
    assert_eq!(written.code, Some(0), "{written:?}");
    let run = call.again(&["run", "job.yaml", "--cpu"]).run();
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("done: test accuracy"), "{}", run.stdout);
    let both = call.again(&["new", "jax", "--template", "jax"]).run();
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn a_file_that_is_there_is_replaced_only_by_force() {
    let call = Call::new(&["new", "jax", "-o", "job.yaml"]).file("job.yaml", "mine\n");
    let read = || fs::read_to_string(call.folder().join("job.yaml")).unwrap();
    assert_eq!(call.run().code, Some(2));
    assert_eq!(read(), "mine\n");
    let forced = call
        .again(&["new", "jax", "-o", "job.yaml", "--force"])
        .run();
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(read().contains("\nkind: JAXJob\n"));
}

#[test]
fn stdout_takes_the_file_and_nothing_else() {
    let call = Call::new(&["new", "jax@1", "-o", "-", "--name", "fold"]);
    let outcome = call.run();
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    assert!(outcome.stdout.contains("\n  name: fold\n"));
    assert_eq!(fs::read_dir(call.folder()).unwrap().count(), 0);
}

/// The demos of every kind but MPI, whose launcher needs Open MPI, trained for an epoch by the trainer that
/// is built in. Where the kind gives ranks the variables of `PyTorch` they train together, else each alone.
#[test]
fn demos_train() {
    let names = templates();
    let trained = names
        .iter()
        .filter(|name| !["deepspeed-mpi", "horovod"].contains(&name.as_str()));
    for name in trained {
        let line = "trainyard smoke-trainer --epochs=1 --target-accuracy=0";
        // The trainer is one process for each pod, so a pod may have one GPU at most.
        let mut words = vec!["new", name, "--command", line, "-o", "job.yaml"];
        if name != "quickstart" {
            words.extend(["--gpus", "1"]);
        }
        let call = Call::new(&words);
        let written = call.run();
        assert_eq!(written.code, Some(0), "{written:?}");
        let run = call.again(&["run", "job.yaml", "--cpu"]).run();
        assert_eq!(run.code, Some(0), "{name}: {run:?}");
        assert!(
            run.stderr.contains(" succeeded after "),
            "{name}: {}",
            run.stderr
        );
    }
}

/// A call whose stdin and stderr are a terminal.
///
/// Every answer is typed once its question is there; `None` is Ctrl-D.
fn on_a_terminal(call: &Call, answers: &[(&str, Option<&str>)]) -> Outcome {
    const PATIENCE: Duration = Duration::from_mins(1);
    let pair = nix::pty::openpty(None, None).expect("a terminal can be made");
    let (mut keyboard, mut screen) = {
        let keyboard = File::from(pair.master);
        let screen = keyboard.try_clone().expect("a descriptor is left");
        (keyboard, screen)
    };
    let slave = File::from(pair.slave);
    let mut child = call
        .command()
        .stdin(slave.try_clone().expect("a descriptor is left"))
        .stdout(Stdio::piped())
        .stderr(slave)
        .spawn()
        .expect("sh can be started");
    let (sender, pieces) = mpsc::channel();
    // Ends with an error once the child, which has the other end, is gone.
    let reader = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut buffer) {
            let piece = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if sender.send(piece).is_err() {
                break;
            }
        }
    });
    let mut shown = String::new();
    let mut seen = 0;
    for (question, answer) in answers {
        let end = Instant::now() + PATIENCE;
        loop {
            let rest = shown.get(seen..).unwrap_or_default();
            if let Some(at) = rest.find(question) {
                seen += at + question.len();
                break;
            }
            let left = end.saturating_duration_since(Instant::now());
            let piece = pieces.recv_timeout(left);
            assert!(piece.is_ok(), "waited for {question:?}: {shown}");
            shown.extend(piece);
        }
        let typed = answer.map_or("\u{4}".to_owned(), |answer| format!("{answer}\n"));
        keyboard
            .write_all(typed.as_bytes())
            .expect("a terminal takes what is typed");
    }
    let status = child.wait().expect("the call ends");
    let mut stdout = String::new();
    let output = child.stdout.as_mut().expect("stdout is piped");
    output.read_to_string(&mut stdout).expect("stdout is UTF-8");
    reader.join().expect("the reader does not panic");
    shown.extend(pieces);
    Outcome {
        line: String::new(),
        code: status.code(),
        stdout,
        stderr: shown,
    }
}

#[test]
fn terminal_asks_again_after_bad_answer() {
    let call = Call::new(&["new", "--gpus", "4"]);
    let outcome = on_a_terminal(
        &call,
        &[
            ("template [pytorch-ddp]: ", Some("pytorch-fspd")),
            ("template [pytorch-ddp]: ", Some("pytorch-fsdp")),
            ("demo or production [demo]: ", Some("prod")),
            ("demo or production [demo]: ", Some("production")),
            ("name of the job [pytorch-fsdp]: ", Some("My Job")),
            ("name of the job [pytorch-fsdp]: ", Some("llm")),
            (
                "image, with a version [registry",
                Some("registry.test/llm:1"),
            ),
            ("command of every rank [torchrun /app/train.py]: ", Some("")),
            ("pods that train [4]: ", Some("2")),
        ],
    );
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    assert!(
        !outcome.stderr.contains("GPUs of each pod"),
        "{}",
        outcome.stderr
    );
    let text = fs::read_to_string(call.folder().join("llm.yaml")).unwrap();
    for part in [
        "\n  name: llm\n",
        "image: registry.test/llm:1\n",
        "nvidia.com/gpu: 4\n",
        "replicas: 1\n",
        "trainyard.dev/profile: production\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn ctrl_d_writes_nothing() {
    let call = Call::new(&["new", "jax"]).variable("NO_COLOR", "1");
    let outcome = on_a_terminal(
        &call,
        &[
            ("demo or production [demo]: ", Some("")),
            ("name of the job [jax]: ", None),
        ],
    );
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let want = "error: not all questions were answered; no file was written";
    assert!(outcome.stderr.contains(want), "{}", outcome.stderr);
    assert_eq!(fs::read_dir(call.folder()).unwrap().count(), 0);
}

#[test]
fn yes_asks_nothing_on_a_terminal_either() {
    let call = Call::new(&["new", "jax", "--yes"]);
    let outcome = on_a_terminal(&call, &[]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(call.folder().join("jax.yaml").exists());
}
