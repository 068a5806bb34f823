//! `stacks`, `exec`, `debug` and heartbeats of runs on this machine.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    call::{Call, Outcome},
    control::until,
    golden,
    run::{interrupted, job, run},
    stored,
};

fn json_of(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_default()
}

/// The ranks of each group, in the order in which they are printed.
fn groups(outcome: &Outcome) -> Value {
    let document = json_of(outcome);
    let groups = document["groups"].as_array().cloned().unwrap_or_default();
    groups.iter().map(|group| group["ranks"].clone()).collect()
}

/// Whether these ranks run `sleep`: a shell that has not become it yet waits elsewhere.
fn sleep(outcome: &Outcome, ranks: &[usize]) -> bool {
    let document = json_of(outcome);
    let mut all = ranks.iter().map(|rank| &document["ranks"][*rank]);
    all.all(|rank| rank["program"] == "sleep" && rank["state"] == "sleeping")
}

fn end(call: &Call) {
    let stopped = call.again(&["stop", "j", "--now"]).run();
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
}

/// Whether this machine has Python; the quick tests do not need it.
fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    found.is_ok_and(|output| output.status.success())
}

#[test]
fn a_stopped_rank_is_shown_first() {
    let script = "echo ready; test $RANK = 2 && kill -STOP $$$$; exec sleep 100";
    let call = run(&[], &job(3, script));
    let (_, _, stderr) = interrupted(&call, |_| {
        let words = ["stacks", "j", "--format", "json"];
        let seen = until(&call, &words, |outcome| {
            groups(outcome) == json!([[2], [0, 1]])
                && sleep(outcome, &[0, 1])
                && json_of(outcome)["ranks"][2]["state"] == "stopped"
        });
        let document = json_of(&seen);
        assert_eq!(document["version"], 1, "{document}");
        assert_eq!(document["rankCount"], 3, "{document}");
        let stopped = &document["ranks"][2];
        assert_eq!(stopped["state"], "stopped", "{document}");
        assert_eq!(stopped["pod"], "j-worker-1", "{document}");
        assert_eq!(stopped["reason"], "not a Python process", "{document}");
        let text = call.again(&["stacks", "j", "--native"]).run();
        for part in [
            "j: attempt 1, 3 of 3 ranks read\n\nrank 2 (1 of 3)",
            "ranks 0-1 (2 of 3): wait for a timer\n",
            "(sleep)   sleeping in ",
            "    no Python stack: not a Python process\n",
            "rank 0: 1 thread of process ",
            " CPU seconds\n",
        ] {
            assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
        }
        let one = call.again(&["stacks", "j", "--rank", "1", "--format", "json"]);
        assert_eq!(groups(&one.run()), json!([[1]]));
        let refused = call.again(&["stacks", "j", "--rank", "7"]).run();
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert_eq!(
            refused.stderr,
            "error: job `j` has no rank 7; its ranks are 0 to 2\n"
        );
        // It was only looked at.
        let again = call.again(&words).run();
        assert_eq!(groups(&again), json!([[2], [0, 1]]), "{again:?}");
        end(&call);
    });
    assert!(stderr.contains("j was stopped"), "{stderr}");
}

#[test]
fn python_stacks_name_the_line() {
    if !has_python() {
        return;
    }
    let program = "\
import os, time
def wait_for_others():
    time.sleep(600)
def load_batch():
    time.sleep(600)
print('ready', flush=True)
(load_batch if os.environ['RANK'] == '1' else wait_for_others)()
";
    let call = run(&[], &job(3, "exec python3 train.py")).file("train.py", program);
    let (_, _, stderr) = interrupted(&call, |_| {
        let words = ["stacks", "j", "--format", "json"];
        let seen = until(&call, &words, |outcome| {
            let first = &json_of(outcome)["groups"][0]["frames"][0];
            groups(outcome) == json!([[1], [0, 2]]) && first["function"] == "load_batch"
        });
        let frame = &json_of(&seen)["groups"][0]["frames"][0];
        assert_eq!(frame["line"], 5, "{frame}");
        let text = call.again(&["stacks", "j"]).run();
        let apart = text.stdout.find("    load_batch (");
        let others = text.stdout.find("    wait_for_others (");
        assert!(apart.is_some() && apart < others, "{}", text.stdout);
        end(&call);
    });
    assert!(stderr.contains("j was stopped"), "{stderr}");
}

#[test]
fn commands_run_in_pods() {
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let call = run(&[], &job(2, script));
    interrupted(&call, |_| {
        let exec = |words: &[&str]| {
            let words = [&["exec", "j"], words].concat();
            call.again(&words)
        };
        let all = [
            "--rank",
            "1",
            "--",
            "sh",
            "-c",
            "echo rank $RANK on $(hostname); exit 7",
        ];
        // The pod of the rank may start a moment after the first has printed.
        let ran = until(&call, &[&["exec", "j"], &all[..]].concat(), |outcome| {
            outcome.code == Some(7)
        });
        assert_eq!(ran.stdout, "rank 1 on j-worker-0\n", "{ran:?}");
        let shell = exec(&["--rank", "0"]).stdin("echo in $PWD as $RANK\nexit 3\n");
        let shell = shell.run();
        assert_eq!(shell.code, Some(3), "{shell:?}");
        assert!(shell.stdout.ends_with(" as 0\n"), "{shell:?}");
        for (words, code, want) in [
            (
                &["--rank", "0", "--", "no-such-program"][..],
                127,
                "No such file",
            ),
            (
                &["--rank", "5", "--", "true"],
                2,
                "error: job `j` has no rank 5; its ranks are 0 to 1\n",
            ),
            (
                &["--rank", "0", "-c", "side", "--", "true"],
                2,
                "error: pod `j-master-0` has no container `side`; expected one of `pytorch`\n",
            ),
        ] {
            let outcome = exec(words).run();
            assert_eq!(outcome.code, Some(code), "{outcome:?}");
            assert!(outcome.stderr.contains(want), "{outcome:?}");
        }
        end(&call);
    });
}

#[test]
fn heartbeats_report_steps() {
    let script = "n=0; while test $n -lt 40; do n=$((n + 1)); \
                  echo step=$n loss=0.25 phase=train > $TRAINYARD_BEAT; done";
    let outcome = run(&["--format", "json"], &job(2, script)).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = json_of(&outcome);
    assert_eq!(report["lastStep"], 40, "{report}");
    assert_eq!(report["lastLoss"], 0.25, "{report}");
}

#[test]
fn ranks_of_one_pod_have_files_of_their_own() {
    let script = "echo step=99 > $TRAINYARD_BEAT.9; echo step=7 > $TRAINYARD_BEAT.1";
    let file = job(1, script).replace(
        "spec:\n  runPolicy",
        "spec:\n  nprocPerNode: '2'\n  runPolicy",
    );
    let outcome = run(&["--format", "json"], &file).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = json_of(&outcome);
    assert_eq!(report["lastStep"], 7, "rank 9 is not of this pod: {report}");
}

#[test]
fn what_lies_in_place_of_a_heartbeat_is_left_alone() {
    let script = "mkfifo $TRAINYARD_BEAT.0 || exit 1; ln -s /etc/passwd $TRAINYARD_BEAT; \
                  head -c 3000000 /dev/zero > ${TRAINYARD_BEAT%/*}/other; \
                  rm $TRAINYARD_BEAT; mkdir $TRAINYARD_BEAT; touch $TRAINYARD_BEAT/step=5";
    let call = run(&["--format", "json"], &job(2, script));
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = json_of(&outcome);
    assert_eq!(report["lastStep"], Value::Null, "{report}");
    let folder = report["folder"].as_str().expect("a path");
    assert!(!fs::exists(format!("{folder}/beats")).expect("it can be looked for"));
}

#[test]
fn the_snippet_of_the_guide_works() {
    if !has_python() {
        return;
    }
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/hangs.md");
    let guide = fs::read_to_string(guide).expect("the guide can be read");
    let (_, snippet) = guide.split_once("```python\n").expect("it has a snippet");
    let (snippet, _) = snippet.split_once("```").expect("the snippet ends");
    assert!(snippet.lines().count() <= 10, "{snippet}");
    let program = format!(
        "{snippet}\nbeat(phase='load')\nfor step in range(1, 31):\n    beat(step=step, loss=0.5, phase='train')\n"
    );
    let call = run(&["--format", "json"], &job(2, "exec python3 train.py"));
    let outcome = call.file("train.py", &program).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let report = json_of(&outcome);
    assert_eq!(report["lastStep"], 30, "{report}");
    // Outside of a run it does nothing.
    let alone = Command::new("python3")
        .args(["-c", &program])
        .env_remove("TRAINYARD_BEAT")
        .output();
    assert!(alone.expect("python3 starts").status.success());
}

/// Unpacks an archive; the files below its folder, in order, with their content.
pub(crate) fn unpacked(call: &Call, name: &str, folder: &str) -> Vec<(String, String)> {
    let tar = Command::new("tar")
        .args(["-xzf", name])
        .current_dir(call.folder())
        .status();
    assert!(tar.expect("tar can be started").success());
    let root = call.folder().join(folder);
    let mut files = Vec::new();
    let mut next = vec![root.clone()];
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(&folder).expect("it can be listed") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                next.push(path);
                continue;
            }
            let name = path
                .strip_prefix(&root)
                .expect("it is below")
                .display()
                .to_string();
            files.push((name, fs::read_to_string(&path).expect("it is text")));
        }
    }
    files.sort();
    files
}

#[test]
fn an_archive_of_a_run() {
    let call = stored::call(&["debug", "mnist", "-o", "mnist.tar.gz"])
        .clean()
        .variable("SECRET_OF_THE_SHELL", "tiptoe-through");
    let run = call.folder().join(".trainyard/runs/mnist/20250101T000000Z");
    let record = run.join("job.json");
    let text = fs::read_to_string(&record).expect("it can be read");
    let mut document: Value = serde_json::from_str(&text).expect("it is JSON");
    document["job"] = json!({
        "kind": "PyTorchJob",
        "spec": {"containers": [{"name": "pytorch", "args": ["--api-key", "opensesame"], "env": [
            {"name": "HF_TOKEN", "value": "hunter2-hunter2"},
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "DATA", "value": "/mnt/data"},
        ]}]},
    });
    fs::write(&record, document.to_string()).expect("it can be written");
    let log = run.join("attempts/2/mnist-master-0/pytorch.log");
    fs::write(&log, "login with hunter2-hunter2\nand tiptoe-through\n").expect("it can be written");
    let outcome = call.run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stderr.starts_with("wrote 14 files, "),
        "{outcome:?}"
    );
    let files = unpacked(&call, "mnist.tar.gz", "mnist-20250101T000000Z");
    let mut page = String::new();
    for (name, content) in &files {
        for secret in ["hunter2", "opensesame", "/mnt/data", "tiptoe"] {
            assert!(!content.contains(secret), "{secret} in {name}: {content}");
        }
        // What differs from machine to machine is only named.
        let shown = !matches!(
            name.as_str(),
            "machine.txt"
                | "doctor.txt"
                | "status.txt"
                | "status.json"
                | "report.json"
                | "failures.json"
        );
        let content = if shown {
            content.as_str()
        } else {
            "(not compared)\n"
        };
        page.extend(["== ", name, "\n", content]);
        if !content.ends_with('\n') {
            page.push('\n');
        }
    }
    let version = concat!("trainyard ", env!("CARGO_PKG_VERSION"));
    // When it was collected, and how often something of this shell's environment was found.
    for (start, end, shown) in [
        ("collected at ", " by trainyard", "collected at TIME"),
        ("`[redacted]` in ", " places", "`[redacted]` in SOME"),
    ] {
        let at = page.find(start).expect("it is there");
        let rest = page.get(at..).unwrap_or_default();
        let to = at + rest.find(end).expect("it ends");
        page.replace_range(at..to, shown);
    }
    let page = page.replace(version, "trainyard VERSION");
    let outcome = Outcome {
        stdout: page.replace('\u{1b}', "ESC"),
        stderr: String::new(),
        ..outcome
    };
    golden::check("debug", &[outcome]);
}

/// A report over some of the logs says so, and one over none is not written.
#[test]
fn an_archive_names_what_was_not_read() {
    let call = stored::call(&["debug", "mnist", "-o", "mnist.tar.gz"]).clean();
    let run = call.folder().join(".trainyard/runs/mnist/20250101T000000Z");
    let spoil = |log: &str| {
        // Where the end of a long log is kept.
        let tail = run.join(format!("attempts/2/mnist-{log}.log.tail"));
        fs::create_dir(tail).expect("it can be made");
    };
    let collect = || {
        let outcome = call.run();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        unpacked(&call, "mnist.tar.gz", "mnist-20250101T000000Z")
    };
    let content = |files: &[(String, String)], name: &str| {
        let found = files.iter().find(|(known, _)| known == name);
        found.map(|(_, content)| content.clone())
    };
    let lines: Vec<String> = (0..300_000).map(|line| format!("line {line}\n")).collect();
    let log = run.join("attempts/2/mnist-master-0/pytorch.log");
    fs::write(&log, lines.concat()).expect("it can be written");
    spoil("worker-2/pytorch");
    let files = collect();
    let readme = content(&files, "README.txt").unwrap_or_default();
    for part in [
        "doctor.txt does not take into account: ",
        "logs/attempt-2/mnist-worker-2/pytorch.log: ",
    ] {
        assert!(readme.contains(part), "{readme}");
    }
    let doctor = content(&files, "doctor.txt").unwrap_or_default();
    assert!(doctor.starts_with("not read: cannot parse "), "{doctor}");
    assert!(!doctor.contains("hint: "), "{doctor}");
    let kept = content(&files, "logs/attempt-2/mnist-master-0/pytorch.log").unwrap_or_default();
    assert!(kept.starts_with("line 298000\n"), "{:?}", kept.get(..20));
    assert!(kept.ends_with("\nline 299999\n"));

    for log in ["master-0/pytorch", "worker-2/sidecar", "worker-10/pytorch"] {
        spoil(log);
    }
    let before = call.folder().join("mnist-20250101T000000Z");
    fs::remove_dir_all(before).expect("it was unpacked");
    let files = collect();
    let readme = content(&files, "README.txt").unwrap_or_default();
    assert!(readme.contains("\ndoctor.txt: "), "{readme}");
    assert_eq!(content(&files, "doctor.txt"), None);
}

#[test]
fn an_archive_of_a_job_that_runs() {
    let script = "export MY_TOKEN=tiptoe-through; echo ready; exec sleep 100";
    let call = run(&[], &job(2, script));
    interrupted(&call, |_| {
        let seen = ["stacks", "j", "--format", "json"];
        until(&call, &seen, |outcome| {
            groups(outcome) == json!([[0, 1]]) && sleep(outcome, &[0, 1])
        });
        let archive = call.again(&["debug", "j", "-o", "j.tar.gz"]).run();
        assert_eq!(archive.code, Some(0), "{archive:?}");
        let runs = fs::read_dir(call.folder().join(".trainyard/runs/j")).expect("it ran");
        let id = runs
            .filter_map(|run| run.ok()?.file_name().into_string().ok())
            .find(|name| name.ends_with('Z') || name.contains("Z-"))
            .expect("it has a run");
        let files = unpacked(&call, "j.tar.gz", &format!("j-{id}"));
        let content = |name: &str| {
            let found = files.iter().find(|(known, _)| known == name);
            found
                .map(|(_, content)| content.as_str())
                .unwrap_or_default()
        };
        assert!(
            content("stacks.txt").contains("ranks 0-1 (2 of 2)"),
            "{files:?}"
        );
        let variables = content("environment.txt");
        assert!(
            variables.contains("pod j-worker-0, process "),
            "{variables}"
        );
        assert!(variables.contains("\n  WORLD_SIZE=2\n"), "{variables}");
        assert!(variables.contains("\n  PATH\n"), "{variables}");
        assert!(variables.contains("\n  MY_TOKEN\n"), "{variables}");
        assert!(content("README.txt").contains("report.json: the run has not ended"));
        assert_eq!(content("logs/attempt-1/j-master-0/pytorch.log"), "ready\n");
        end(&call);
    });
}

#[test]
fn runs_that_cannot_be_looked_into() {
    golden::check(
        "inspect",
        &[
            stored::call(&["stacks", "mnist"]).run(),
            stored::call(&["stacks", "nosuch"]).run(),
            stored::call(&["stacks", "mnist", "--kubeconfig", "missing.yaml"]).run(),
            stored::call(&["exec", "mnist", "--rank", "0"]).run(),
            stored::call(&["exec", "mnist"]).run(),
            stored::call(&[
                "exec",
                "mnist",
                "--rank",
                "0",
                "--kubeconfig",
                "missing.yaml",
            ])
            .run(),
            stored::call(&["debug", "nosuch"]).run(),
            stored::call(&["debug", "mnist", "--kubeconfig", "missing.yaml"]).run(),
            stored::call(&["debug", "mnist", "-o", "no/such/folder/x"]).run(),
        ],
    );
}
