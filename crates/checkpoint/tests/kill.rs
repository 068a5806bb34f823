//! Real processes that are killed (`SIGKILL`) at random moments while they save into a real folder.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use trainyard_checkpoint_engine::{
    Files, Session, Store,
    begin::{Begun, begin},
    clock::SystemClock,
    regions::Opened,
    save::{Image, Limits, State},
    token::{self, Random},
};
use trainyard_core::checkpoint::{
    Claimant, Dtype, Entry, Layout, Policy, Region, Wanted, WantedRegion,
};

const ROUNDS: u64 = 30;
const BYTES: usize = 3 << 20;
/// The program below saves only into a folder that has this file.
const MARKER: &str = "kill-loop";

fn image(step: u64) -> Vec<u8> {
    let mut random = Random::new(step);
    let words = (0..BYTES / 8).flat_map(|_| random.draw().to_le_bytes());
    words.chain(*b"tail!").collect()
}

/// Where the one tensor of an image begins.
const DATA: usize = 8;

fn layout() -> Layout {
    let bytes = image(0).len() - DATA;
    Layout {
        version: 1,
        mesh: Vec::new(),
        tensors: vec![Entry::whole("w", Dtype::U8, vec![bytes as u64], 0)],
        other: serde_json::Map::new(),
    }
}

fn keep() -> Policy {
    Policy {
        last: 2,
        ..Policy::default()
    }
}

/// Begins an attempt as a program does that uses the Python package.
fn begun(store: &Store, holder: &str) -> Begun {
    let wanted = Wanted {
        world: 1,
        reshard: true,
        ..Wanted::default()
    };
    begin(
        store,
        &Claimant::new(None, holder),
        &wanted,
        &BTreeMap::new(),
        &keep(),
    )
    .unwrap()
}

/// The program that is killed. It runs only as a child of the test below, in the folder of the store.
#[test]
#[ignore = "the program that `killed_savers_lose_nothing` starts and kills"]
fn saver_program() {
    if !Path::new(MARKER).exists() {
        return;
    }
    let files = Files::open(Path::new("store")).unwrap();
    let seed = token::seed().unwrap();
    let store = Arc::new(Store::create(Arc::new(files), SystemClock::start(), None, seed).unwrap());
    let begun = begun(&store, &format!("process-{seed:x}"));
    let newest = begun.resumes_from.map_or(0, |from| from.folder.step);
    let session = Session {
        store,
        clock: SystemClock::start(),
        id: begun.id,
        rank: 0,
        world: 1,
        limits: Limits {
            chunk_bytes: 1 << 20,
            ..Limits::default()
        },
        keep: keep(),
    };
    for step in newest + 1.. {
        let state = State {
            images: vec![Image {
                source: Arc::new(image(step)),
                data: DATA as u64,
            }],
            layout: Some(layout()),
            ..State::default()
        };
        session.save(step, &state).unwrap();
        println!("committed {step}");
        io::stdout().flush().unwrap();
    }
}

/// The step that an attempt restores which begins now, and its tensor.
fn restored(root: &Path, holder: &str) -> (u64, Vec<u8>) {
    let files = Files::existing(root).unwrap();
    let clock = SystemClock::start();
    let seed = token::seed().unwrap();
    let store = Arc::new(Store::existing(Arc::new(files), Arc::clone(&clock), seed).unwrap());
    let begun = begun(&store, holder);
    assert_eq!(begun.passed, []);
    let from = begun.resumes_from.unwrap();
    let folder = from.folder.clone();
    let opened = Opened::open(Arc::clone(&store), &*clock, from, Duration::ZERO).unwrap();
    let region = Region::whole(&[(image(0).len() - DATA) as u64]);
    let bytes = Mutex::new(vec![0; image(0).len() - DATA]);
    let wanted = WantedRegion {
        tensor: "w".to_owned(),
        region,
    };
    let put = |_: usize, offset: u64, part: &[u8]| {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        bytes.lock().unwrap()[start..start + part.len()].copy_from_slice(part);
        Ok(())
    };
    opened.read(&[wanted], Some(0), &put).unwrap();
    store.restored(begun.id, &folder).unwrap();
    (folder.step, bytes.into_inner().unwrap())
}

#[test]
fn killed_savers_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(MARKER), "").unwrap();
    let mut random = Random::new(7);
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["saver_program", "--exact", "--ignored", "--nocapture"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (send, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        let reader = thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let step = line.strip_prefix("committed ").map(str::parse::<u64>);
                if let Some(Ok(step)) = step {
                    send.send(step).unwrap();
                }
            }
        });
        // The kill comes after some commits and then at any moment of the next save.
        let mut left = 1 + random.below(3);
        let moment = Duration::from_micros(random.below(30_000));
        while left > 0 {
            let step = lines.recv_timeout(Duration::from_mins(2));
            acknowledged = step.unwrap_or_else(|_| panic!("round {round}: no commit"));
            left -= 1;
        }
        if let Ok(step) = lines.recv_timeout(moment) {
            acknowledged = step;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        acknowledged = lines.try_iter().last().unwrap_or(acknowledged);

        let (step, bytes) = restored(&folder.path().join("store"), &format!("reader-{round}"));
        assert!(step >= acknowledged, "round {round}: step {step}");
        assert!(bytes == image(step)[DATA..], "round {round}: other bytes");
        acknowledged = step;
    }
    let steps = std::fs::read_dir(folder.path().join("store/steps")).unwrap();
    assert!(steps.count() <= 5, "retention removes what was left behind");
}
