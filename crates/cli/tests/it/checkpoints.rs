//! `checkpoints ls|show|verify|prune|diff|convert` on real folders: intact, truncated, flipped, foreign, of another run, of a newer version.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use trainyard_checkpoint_engine::{
    Files, Session, Store,
    clock::SystemClock,
    save::{Image, Limits, State},
};
use trainyard_core::checkpoint::{Dtype, Entry, Layout, Policy, seal};

use crate::call::{Call, Outcome};

/// A store with a few steps, and where it is.
struct Fixture {
    call: Call,
    session: Session,
}

const HEADER: u64 = 4096;

/// Two tensors in chunks of 4,096 bytes: `w` is in chunk 1, `b` in chunk 2.
fn state(step: u64) -> State {
    let fill = u8::try_from(step).unwrap();
    State {
        images: vec![Image {
            source: Arc::new(vec![fill; 4096 * 2 + 100]),
            data: HEADER,
        }],
        layout: Some(Layout {
            version: 1,
            mesh: Vec::new(),
            tensors: vec![
                Entry::whole("w", Dtype::F32, vec![1024], 0),
                Entry::whole("b", Dtype::F32, vec![25], 4096),
            ],
            other: serde_json::Map::new(),
        }),
        objects: Some(serde_json::Map::from_iter([("seed".to_owned(), 7.into())])),
        ..State::default()
    }
}

impl Fixture {
    /// A store with these steps.
    fn new(steps: &[u64]) -> Self {
        let call = Call::new(&[]);
        let files = Files::open(&call.folder().join("root")).unwrap();
        let clock = SystemClock::start();
        let store = Store::create(Arc::new(files), Arc::clone(&clock), Some("run-1"), 1).unwrap();
        let id = store.fence(Some(1), "test", |_| None).unwrap();
        let session = Session {
            store: Arc::new(store),
            clock,
            id,
            rank: 0,
            world: 1,
            limits: Limits {
                chunk_bytes: 4096,
                ..Limits::default()
            },
            keep: Policy {
                last: 9,
                ..Policy::default()
            },
        };
        for step in steps {
            session.save(*step, &state(*step)).unwrap();
        }
        Self { call, session }
    }

    fn folder(&self, step: u64) -> PathBuf {
        let path = self.session.folder(step).path();
        self.call.folder().join("root").join(path)
    }

    fn run(&self, words: &[&str]) -> Outcome {
        let words: Vec<&str> = ["checkpoints"]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        self.call.again(&words).run()
    }

    fn json(&self, words: &[&str], code: i32) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--format", "json"]).collect();
        let outcome = self.run(&words);
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        let document: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(document["version"], 1);
        document
    }

    /// The states that `ls` lists, by step.
    fn states(&self) -> Vec<(u64, String)> {
        let list = self.json(&["ls", "root"], 0);
        let steps = list["steps"].as_array().unwrap().iter();
        steps
            .map(|line| {
                let state = line["state"].as_str().unwrap().to_owned();
                (line["step"].as_u64().unwrap(), state)
            })
            .collect()
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn intact_store() {
    let store = Fixture::new(&[10, 20]);
    let listed = store.run(&["ls", "root"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert!(lines[0].starts_with("STEP   ATTEMPT   STATE"), "{lines:?}");
    assert!(
        lines[1].starts_with("10     1         complete"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 3);
    assert_eq!(store.json(&["ls", "root"], 0)["run"], "run-1");

    let shown = store.json(&["show", "root", "20"], 0);
    assert_eq!(shown["tensors"][1]["name"], "w");
    assert_eq!(shown["ranks"][0]["bytes"], 4096 * 2 + 100);
    let tensor = store.json(&["show", "root", "20", "--tensor", "b"], 0);
    assert_eq!(tensor["parts"][0]["start"], HEADER + 4096);
    assert_eq!(tensor["parts"][0]["region"], "[0:25]");
    let text = store.run(&["show", "root", "20"]);
    assert!(text.stdout.contains("w        F32     [1024]"), "{text:?}");
    assert_eq!(
        store.run(&["show", "root", "20", "--tensor", "x"]).code,
        Some(2)
    );
    assert_eq!(store.run(&["show", "root", "21"]).code, Some(2));

    let verified = store.json(&["verify", "root", "--deep"], 0);
    assert_eq!(verified["steps"][1]["intact"], true);
    assert_eq!(verified["steps"][1]["bytesRead"], 4096 * 2 + 100);
}

#[test]
fn flipped_byte_is_named() {
    let store = Fixture::new(&[10, 20]);
    flip(&store.folder(20).join("00000.safetensors"), 4096 * 2 + 50);
    assert_eq!(
        store.run(&["verify", "root"]).code,
        Some(0),
        "sizes are right"
    );
    let verified = store.json(&["verify", "root", "20", "--deep"], 1);
    let problem = &verified["steps"][0]["problems"][0];
    assert_eq!(problem["chunk"], 2);
    assert_eq!(problem["tensors"][0], "b");
    let text = store.run(&["verify", "root", "--deep"]);
    assert_eq!(text.code, Some(1));
    assert!(
        text.stdout
            .contains("00000.safetensors` is damaged in chunk 2 (bytes 8192 to 8291); tensors `b`"),
        "{text:?}"
    );
    assert!(
        text.stdout.contains("step 10 (`000000000010-a1-"),
        "{text:?}"
    );
}

#[test]
fn damaged_small_files() {
    for (file, state) in [
        ("COMMIT.json", "suspect"),
        ("00000.piece.json", "suspect"),
        ("objects/00000.json", "complete"),
    ] {
        let store = Fixture::new(&[10, 20]);
        flip(&store.folder(20).join(file), 30);
        assert_eq!(store.states()[1], (20, state.into()), "{file}");
        let verified = store.json(&["verify", "root"], 1);
        let problem = &verified["steps"][1]["problems"][0]["file"];
        assert!(problem.as_str().unwrap().ends_with(file), "{verified}");
    }
}

#[test]
fn truncated_and_empty_files() {
    for bytes in [0, 100] {
        let store = Fixture::new(&[10, 20]);
        let path = store.folder(20).join("00000.safetensors");
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(bytes).unwrap();
        assert_eq!(store.states()[1], (20, "suspect".into()));
        let text = store.run(&["verify", "root", "20"]);
        assert_eq!(text.code, Some(1));
        let says = format!("has {bytes} bytes, 8292 were written");
        assert!(text.stdout.contains(&says), "{text:?}");
        assert_eq!(store.run(&["show", "root", "20"]).code, Some(1));
    }
}

#[test]
fn foreign_files_are_reported_and_stay() {
    let store = Fixture::new(&[10, 20, 30, 40]);
    let root = store.call.folder().join("root");
    fs::write(root.join("steps/notes.txt"), "mine").unwrap();
    fs::create_dir(root.join("steps/backup")).unwrap();
    fs::write(store.folder(10).join("mine.txt"), "mine").unwrap();
    fs::write(store.folder(40).join("extra.txt"), "mine").unwrap();
    let notes = store.json(&["ls", "root"], 0)["notes"].to_string();
    assert!(
        notes.contains("steps/notes.txt") && notes.contains("steps/backup"),
        "{notes}"
    );
    let verified = store.json(&["verify", "root", "40"], 0);
    assert!(
        verified["steps"][0]["surplus"]
            .to_string()
            .contains("extra.txt")
    );
    let pruned = store.json(&["prune", "root", "--keep", "2"], 1);
    assert!(
        pruned["failures"][0].as_str().unwrap().contains("mine.txt"),
        "{pruned}"
    );
    assert!(store.folder(10).join("mine.txt").exists());
    assert!(root.join("steps/notes.txt").exists());
    assert!(!store.folder(20).exists());
    assert_eq!(store.run(&["verify", "root", "--deep"]).code, Some(0));
}

#[test]
fn prune_keeps_the_newest() {
    let store = Fixture::new(&[9, 10, 100]);
    let dry = store.run(&["prune", "root", "--keep", "1", "--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(
        dry.stdout.starts_with("would remove `000000000009-a1-"),
        "{dry:?}"
    );
    assert_eq!(store.states().len(), 3, "a dry run removes nothing");
    let pruned = store.json(&["prune", "root", "--keep", "1"], 0);
    assert_eq!(pruned["removed"][0]["step"], 9, "{pruned}");
    assert_eq!(
        store.states(),
        [(10, "complete".to_owned()), (100, "complete".to_owned())],
        "two stay, because the newest was not verified"
    );
}

#[test]
fn commit_of_another_run() {
    let store = Fixture::new(&[10, 20]);
    let path = store.folder(20).join("COMMIT.json");
    rewrite(&path, "\"run\":\"run-1\"", "\"run\":\"run-2\"");
    let list = store.json(&["ls", "root"], 0);
    assert!(
        list["notes"]
            .to_string()
            .contains("of another run, `run-2`"),
        "{list}"
    );
    assert!(list["newest"].as_str().unwrap().starts_with("000000000010"));
    store.json(&["prune", "root", "--keep", "1"], 0);
    assert!(path.exists(), "what is not ours is not removed");
}

#[test]
fn shared_tensor_is_in_its_own_file() {
    let hash = "ab".repeat(32);
    let store = Fixture::new(&[]);
    let mut with_shared = state(10);
    with_shared.layout.as_mut().unwrap().tensors.push(Entry {
        shared: Some(hash.clone()),
        ..Entry::whole("s", Dtype::F32, vec![8], 64)
    });
    store.session.save(10, &with_shared).unwrap();
    let entry = format!("\"shared\":[{{\"blake3\":\"{hash}\",\"bytes\":8192,\"data\":16}}],");
    let commit = store.folder(10).join("COMMIT.json");
    rewrite(&commit, "\"seconds\":", &format!("{entry}\"seconds\":"));

    let shown = store.json(&["show", "root", "10", "--tensor", "s"], 0);
    assert_eq!(
        shown["parts"][0]["file"],
        format!("shared/{hash}.safetensors")
    );
    assert_eq!(shown["parts"][0]["start"], 16 + 64);
    let verified = store.json(&["verify", "root"], 1);
    let problems = &verified["steps"][0]["problems"];
    assert_eq!(problems[0]["file"], format!("shared/{hash}.safetensors"));
    let shared = store.call.folder().join("root/shared");
    fs::create_dir(&shared).unwrap();
    fs::write(shared.join(format!("{hash}.safetensors")), [0; 8192]).unwrap();
    store.json(&["verify", "root"], 0);
}

#[test]
fn newer_version_is_refused() {
    let store = Fixture::new(&[10]);
    let root = store.call.folder().join("root/trainyard.json");
    rewrite(&root, "\"version\":1", "\"version\":2");
    for command in ["ls", "verify", "prune"] {
        let outcome = store.run(&[command, "root"]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("format version 2"), "{outcome:?}");
    }
    assert!(store.folder(10).join("COMMIT.json").exists());
}

#[test]
fn not_a_store() {
    let call = Call::new(&["checkpoints", "ls", "."]);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("it has no `trainyard.json`"),
        "{outcome:?}"
    );
    let missing = call.again(&["checkpoints", "ls", "nowhere"]).run();
    assert_eq!(missing.code, Some(2));
    assert!(
        missing.stderr.contains("no such file or folder"),
        "{missing:?}"
    );
}

/// Replaces text in a sealed file and seals it again.
fn rewrite(path: &Path, from: &str, to: &str) {
    let bytes = fs::read(path).unwrap();
    let (object, _) = trainyard_core::checkpoint::open(&bytes).unwrap();
    let text = String::from_utf8(object).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, seal(text.replace(from, to).into_bytes()).unwrap()).unwrap();
}

#[test]
fn compared_steps() {
    let store = Fixture::new(&[10, 20]);
    let same = store.json(&["diff", "--root", "root", "10", "10"], 0);
    assert_eq!(same["same"], true);
    assert_eq!(same["equalByChecksum"], 2);
    let found = store.json(&["diff", "--root", "root", "10", "20"], 1);
    assert_eq!(found["differing"][0]["name"], "b");
    assert_eq!(found["differing"][0]["differing"], 25);
    assert_eq!(found["stateCompared"], true);
    let text = store.run(&["diff", "--root", "root", "10", "20"]);
    let last = text.stdout.lines().last();
    assert_eq!(
        last,
        Some("0 tensors equal, 2 different, 0 only in one; small state is equal"),
        "{text:?}"
    );
    let missing = store.run(&["diff", "10", "20"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("--root ROOT"), "{missing:?}");
    flip(&store.folder(20).join("00000.safetensors"), 4096);
    let damaged = store.run(&["diff", "--root", "root", "10", "20"]);
    assert_eq!(damaged.code, Some(2));
    assert!(
        damaged.stderr.contains("it is damaged in chunk 1"),
        "{damaged:?}"
    );
}

#[test]
fn converted_through_all_formats() {
    let store = Fixture::new(&[10, 20]);
    for (source, target, format) in [
        ("root", "dcp", "dcp"),
        ("dcp", "hf", "hf"),
        ("hf", "one.safetensors", "safetensors"),
        ("dcp", "ours", "trainyard"),
    ] {
        let found = store.json(&["convert", source, target, "--to", format], 0);
        assert_eq!(found["tensors"], 2, "{found}");
        // What one rank alone has, such as its seed, has no place in the others, which are then compared without it.
        let code = i32::from(format == "trainyard");
        let same = store.json(&["diff", "root", target], code);
        assert_eq!(same["equal"], 2, "{same}");
        assert_eq!(
            same["state"].as_array().map(Vec::len),
            Some(usize::from(code == 1)),
            "{same}"
        );
    }
    let again = store.run(&["convert", "root", "dcp", "--to", "dcp"]);
    assert_eq!(again.code, Some(2));
    assert!(again.stderr.contains("it exists already"), "{again:?}");
    let older = store.run(&[
        "convert", "root", "dcp", "--to", "dcp", "--step", "10", "--force",
    ]);
    assert_eq!(older.code, Some(0), "{older:?}");
    assert_eq!(store.json(&["diff", "root", "dcp"], 1)["same"], false);
    let none = store.run(&["convert", "root", "x", "--to", "hf", "--only", "model."]);
    assert_eq!(none.code, Some(2));
    let step = store.run(&["convert", "dcp", "x", "--to", "hf", "--step", "10"]);
    assert_eq!(step.code, Some(2));
    let size = store.run(&[
        "convert",
        "dcp",
        "x",
        "--to",
        "hf",
        "--max-shard-size",
        "5 XB",
    ]);
    assert_eq!(size.code, Some(2));
    assert!(!store.call.folder().join("x").exists());
}

#[test]
fn addresses_that_cannot_be_compared_or_converted() {
    let store = Fixture::new(&[10]);
    let address = "s3://my-bucket/run1";
    for (command, words) in [
        ("diff", vec!["diff", "root", address]),
        ("diff", vec!["diff", "--root", address, "10", "20"]),
        ("convert", vec!["convert", address, "x", "--to", "dcp"]),
        ("convert", vec!["convert", "root", address, "--to", "dcp"]),
    ] {
        let outcome = store.run(&words);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        let wanted =
            format!("`checkpoints {command}` does not support `s3://` addresses: `{address}`");
        assert!(outcome.stderr.contains(&wanted), "{outcome:?}");
    }
    assert!(!store.call.folder().join("s3:").exists());
}

#[test]
fn pruned_uploads_have_a_name() {
    let store = Fixture::new(&[10]);
    let pruned = store.json(&["prune", "root"], 0);
    assert_eq!(pruned["abortedUploads"], 0);
    assert_eq!(pruned["uploads"], Value::Null);
}

#[test]
fn force_deletes_no_other_files() {
    let store = Fixture::new(&[10, 20]);
    let source = store.run(&["convert", "root", "hf", "--to", "hf"]);
    assert_eq!(source.code, Some(0), "{source:?}");
    store.json(&["convert", "root", "one", "--to", "safetensors"], 0);
    let config = store.call.folder().join("hf/config.json");
    fs::write(&config, "{}").unwrap();
    for (target, wanted) in [("hf", "(first: `config.json`)"), ("root", "it has 2 steps")] {
        let words = ["convert", "one", target, "--to", "dcp", "--force"];
        let outcome = store.run(&words);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(wanted), "{outcome:?}");
    }
    assert!(config.exists() && store.folder(10).join("COMMIT.json").exists());
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn tiers_are_listed_together() {
    let store = Fixture::new(&[10, 20, 30]);
    let local = store.call.folder().join("local");
    copy_folder(&store.call.folder().join("root"), &local);
    fs::remove_dir_all(store.folder(30)).unwrap();
    fs::remove_dir_all(local.join(store.session.folder(10).path())).unwrap();

    let tiers = |listed: &Value| -> Vec<(u64, String, Vec<String>)> {
        let steps = listed["steps"].as_array().unwrap().iter();
        let names = |line: &Value| {
            let tiers = line["tiers"].as_array().unwrap().iter();
            let name = |on: &Value| format!("{}:{}", on["tier"].as_str().unwrap(), on["pieces"]);
            tiers.map(name).collect()
        };
        let state = |line: &Value| line["state"].as_str().unwrap().to_owned();
        steps
            .map(|line| (line["step"].as_u64().unwrap(), state(line), names(line)))
            .collect()
    };
    let complete = |step: u64, tiers: &[&str]| {
        let tiers = tiers.iter().map(|&tier| tier.to_owned()).collect();
        (step, "complete".to_owned(), tiers)
    };
    let both = ["ls", "root", "--local", "local"];
    let listed = store.json(&both, 0);
    assert_eq!(
        tiers(&listed),
        [
            complete(10, &["shared:1"]),
            complete(20, &["local:1", "shared:1"]),
            complete(30, &["local:1"]),
        ]
    );
    assert_eq!(listed["newest"], store.session.folder(30).to_string());
    assert_eq!(listed["steps"][2]["tiers"][0]["root"], "local");
    let alone = store.json(&["ls", "root"], 0);
    assert_eq!(
        tiers(&alone),
        [complete(10, &["shared:1"]), complete(20, &["shared:1"])]
    );
    assert!(!store.run(&["ls", "root"]).stdout.contains("TIERS"));

    // A damaged copy does not make the step suspect: the other tier has it.
    let data = local.join(store.session.folder(20).path());
    fs::write(data.join("00000.safetensors"), b"cut").unwrap();
    let text = store.run(&both).stdout;
    let line = |step: &str| text.lines().find(|line| line.starts_with(step)).unwrap();
    assert!(line("STEP").contains("TIERS"), "{text}");
    assert!(line("20").contains("complete"), "{text}");
    assert!(
        line("20").contains("local (0 of 1 pieces), shared"),
        "{text}"
    );

    let shown = store.json(&["show", "root", "30", "--local", "local"], 0);
    assert_eq!(shown["tiers"][0]["tier"], "local");
    assert_eq!(shown["tensors"][1]["name"], "w");
    let text = store
        .run(&["show", "root", "30", "--local", "local"])
        .stdout;
    assert!(text.contains("  tiers    local\n"), "{text}");
    assert_eq!(store.run(&["show", "root", "30"]).code, Some(2));
}

#[test]
fn piece_of_a_node_that_is_not_given() {
    let store = Fixture::new(&[10]);
    let local = store.call.folder().join("local");
    copy_folder(&store.call.folder().join("root"), &local);
    let (folder, step) = (store.folder(10), store.session.folder(10).path());
    // The local tier has the commit of all and, as another node saved it, no piece; the root shows that local tiers have the step.
    fs::remove_file(local.join(&step).join("00000.piece.json")).unwrap();
    fs::remove_file(folder.join("00000.piece.json")).unwrap();
    fs::rename(folder.join("COMMIT.json"), folder.join("LOCAL.json")).unwrap();
    let line = store.json(&["ls", "root"], 0)["steps"][0].clone();
    assert_eq!(line["state"], "partial");
    assert_eq!(line["why"], "not copied from the local tiers yet");
    let line = store.json(&["ls", "root", "--local", "local"], 0)["steps"][0].clone();
    assert_eq!(line["state"], "partial");
    let why = line["why"].as_str().unwrap();
    assert!(why.starts_with("these tiers have 0 of 1 pieces"), "{why}");
}

#[test]
fn local_tier_of_another_run() {
    let store = Fixture::new(&[10]);
    let files = Files::open(&store.call.folder().join("other")).unwrap();
    Store::create(Arc::new(files), SystemClock::start(), Some("run-2"), 1).unwrap();
    let refused = store.run(&["ls", "root", "--local", "other"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(
        refused.stderr.contains("it has run `run-2`, not `run-1`"),
        "{refused:?}"
    );
}
