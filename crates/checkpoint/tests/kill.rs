//! Real processes that are killed (`SIGKILL`) at random moments while they save into a real folder.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use trainyard_checkpoint_engine::{
    Files, Loader, Session, Store,
    clock::SystemClock,
    load::Sink,
    save::{Image, Limits, State},
    token::{self, Random},
};
use trainyard_core::checkpoint::{Commit, Policy, Selection, Wanted};

const ROUNDS: u64 = 30;
const BYTES: usize = 3 << 20;
/// The program below saves only into a folder that has this file.
const MARKER: &str = "kill-loop";

fn image(step: u64) -> Vec<u8> {
    let mut random = Random::new(step);
    let words = (0..BYTES / 8).flat_map(|_| random.draw().to_le_bytes());
    words.chain(*b"tail!").collect()
}

fn wanted() -> Wanted {
    Wanted {
        world: 1,
        ..Wanted::default()
    }
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
    let loader = Loader::of(Arc::clone(&store));
    let mut newest = 0;
    let id = store
        .fence(None, &format!("process-{seed:x}"), |_| {
            match loader.choose(&wanted()).unwrap() {
                Selection::Choice(choice) => {
                    newest = choice.commit.folder.step;
                    Some(choice.commit.folder)
                }
                Selection::None { .. } => None,
            }
        })
        .unwrap();
    let session = Session {
        store,
        clock: SystemClock::start(),
        id,
        rank: 0,
        world: 1,
        limits: Limits {
            chunk_bytes: 1 << 20,
            ..Limits::default()
        },
        keep: Policy {
            last: 2,
            ..Policy::default()
        },
    };
    for step in newest + 1.. {
        let state = State {
            images: vec![Image {
                source: Arc::new(image(step)),
                data: 8,
            }],
            ..State::default()
        };
        session.save(step, &state).unwrap();
        println!("committed {step}");
        io::stdout().flush().unwrap();
    }
}

#[derive(Default)]
struct Memory(Vec<u8>);

impl Sink for Memory {
    fn begin(&mut self, _: &Commit) -> io::Result<()> {
        self.0.clear();
        Ok(())
    }

    fn put(&mut self, _: u32, _: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[start..end].copy_from_slice(bytes);
        Ok(())
    }
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

        let files = Files::existing(&folder.path().join("store")).unwrap();
        let store = Store::existing(Arc::new(files), SystemClock::start(), 1).unwrap();
        let mut memory = Memory::default();
        let loaded = Loader::of(Arc::new(store))
            .load(&wanted(), &[0], &mut memory)
            .unwrap()
            .unwrap();
        assert!(loaded.step >= acknowledged, "round {round}: {loaded:?}");
        assert!(memory.0 == image(loaded.step), "round {round}: other bytes");
        assert_eq!(loaded.failures, Vec::<String>::new());
        acknowledged = loaded.step;
    }
    let steps = std::fs::read_dir(folder.path().join("store/steps")).unwrap();
    assert!(steps.count() <= 5, "retention removes what was left behind");
}
