//! Saves that are cut at every operation, and the invariants that hold after each cut:
//!
//! 1. what is selected has, byte for byte, what was handed to its save;
//! 2. its step is not older than the newest save that returned, unless that one is suspect because two attempts died restoring it;
//! 3. no commit mixes two attempts or two saves (the bytes of each are its own);
//! 4. the next save succeeds without help.
//!
//! Every restore takes the way of the Python package: the record of an attempt ([`begin`]), then parts of tensors ([`Opened`]).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;
use trainyard_core::checkpoint::{
    AttemptId, Claimant, Dtype, Entry, Layout, Passed, PassedWhy, Policy, Region, Wanted,
    WantedRegion, suspects_at_start,
};

use super::{Image, Limits, Progress, SaveError, Session, State};
use crate::{
    begin::{BeginError, begin},
    clock::ManualClock,
    faulty::{Fault, Faulty, FaultyDisk, Loss},
    regions::Opened,
    store::{Store, StoreError},
    token::Random,
};

/// Cuts by seed in every run of the tests. Each is a kill or a power loss at a random operation, followed by a check of the invariants.
const CUTS: u64 = 5_000;

/// The same in the suite `sim`, which builds this crate for speed.
const MANY_CUTS: u64 = 100_000;

/// Most ranks of a scenario.
const MAX_RANKS: u32 = 2;

const DEADLINE: Duration = Duration::from_mins(1);

/// What a rank hands to a save: the bytes follow from attempt, restart, step and rank, so a mix shows.
fn image(id: AttemptId, step: u64, rank: u32) -> Vec<u8> {
    let text = format!("{id} {step} {rank}");
    let mut random = Random::new(u64::from(
        trainyard_core::checkpoint::Crc32c::of(text.as_bytes()).0,
    ));
    let length = 8 + random.below(1200);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < length {
        bytes.extend(random.draw().to_le_bytes());
    }
    bytes
}

/// A layout with one tensor, which every rank may have.
pub(super) fn layout() -> Layout {
    layout_of("w", 1)
}

fn layout_of(tensor: &str, bytes: u64) -> Layout {
    Layout {
        version: 1,
        mesh: Vec::new(),
        tensors: vec![Entry::whole(tensor, Dtype::U8, vec![bytes], 0)],
        other: serde_json::Map::new(),
    }
}

/// The tensor that only this rank has: all its bytes behind the header.
fn tensor(rank: u32) -> String {
    format!("rank{rank}")
}

/// Where the tensors of an image begin.
const DATA: usize = 8;

/// The small state of a rank, which two of three steps have.
fn objects(id: AttemptId, step: u64, rank: u32) -> Option<serde_json::Map<String, Value>> {
    let text = format!("{id} {step} {rank}").into();
    (!step.is_multiple_of(3)).then(|| serde_json::Map::from_iter([("of".to_owned(), text)]))
}

fn state(id: AttemptId, step: u64, rank: u32) -> State {
    let image = image(id, step, rank);
    let layout = layout_of(&tensor(rank), (image.len() - DATA) as u64);
    State {
        images: vec![Image {
            source: Arc::new(image),
            data: DATA as u64,
        }],
        layout: Some(layout),
        objects: objects(id, step, rank),
        ..State::default()
    }
}

fn wanted(world: u32) -> Wanted {
    Wanted {
        world,
        reshard: true,
        ..Wanted::default()
    }
}

/// Rank 0 opens the store and takes the record of its attempt.
fn start(client: &Faulty, attempt: u32, world: u32) -> Result<Session, BeginError> {
    let seed = u64::from(attempt) << 8;
    let store = Arc::new(Store::create(
        Arc::new(client.clone()),
        ManualClock::start(),
        Some("run"),
        seed,
    )?);
    let keep = Policy {
        last: 2,
        ..Policy::default()
    };
    let none = BTreeMap::new();
    let holder = format!("h{attempt}");
    let begun = begin(
        &store,
        &Claimant::new(Some(attempt), &holder),
        &wanted(world),
        &none,
        &keep,
    )?;
    if let Some(from) = begun.resumes_from {
        store.restored(begun.id, &from.folder)?;
    }
    Ok(Session {
        store,
        clock: ManualClock::start(),
        id: begun.id,
        rank: 0,
        world,
        limits: Limits {
            chunk_bytes: 512,
            deadline: DEADLINE,
            ..Limits::default()
        },
        keep,
    })
}

/// Another rank, which learns the pair from its launcher.
fn join(client: &Faulty, rank: u32, first: &Session) -> Result<Session, StoreError> {
    let seed = u64::from(first.id.attempt) << 8 | u64::from(rank);
    let storage = Arc::new(client.clone());
    let store = Store::create(storage, ManualClock::start(), Some("run"), seed)?;
    Ok(Session {
        store: Arc::new(store),
        clock: ManualClock::start(),
        rank,
        ..first.clone()
    })
}

/// Whether a step was passed over because attempts died while they restored it.
fn died_on(passed: &[Passed], step: Option<u64>) -> bool {
    passed.iter().any(|passed| {
        let died = matches!(&passed.why, PassedWhy::Suspect(why) if why.contains("attempts ended"));
        Some(passed.folder.step) == step && died
    })
}

/// Whether an attempt may have gone back behind a step because two before it died while they restored it.
fn is_given_up(store: &Store, step: Option<u64>) -> bool {
    let Ok(view) = store.view() else {
        return false;
    };
    let suspects = suspects_at_start(&view.records, &view.commits());
    suspects.keys().any(|folder| Some(folder.step) == step)
}

/// Checks invariants 1 to 3 with an attempt on a copy of the disk; the step that it restores.
fn check(disk: &FaultyDisk, acknowledged: Option<u64>, context: &str) -> Option<u64> {
    let storage = Arc::new(disk.copy(0).client());
    let clock = ManualClock::start();
    let store = match Store::existing(storage, Arc::clone(&clock), 0) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            assert_eq!(acknowledged, None, "{context}: {error}");
            return None;
        }
    };
    let (none, keep) = (BTreeMap::new(), Policy::default());
    let begun = match begin(
        &store,
        &Claimant::new(None, "check"),
        &wanted(1),
        &none,
        &keep,
    ) {
        Ok(begun) => begun,
        Err(BeginError::NothingUsable(reasons)) => {
            assert!(
                acknowledged.is_none() || died_on(&reasons, acknowledged),
                "{context}: nothing is selected, {acknowledged:?} was acknowledged, {reasons:?}"
            );
            return None;
        }
        Err(error) => panic!("{context}: {error}"),
    };
    let Some(reference) = begun.resumes_from else {
        assert_eq!(acknowledged, None, "{context}: nothing is selected");
        return None;
    };
    let given_up = is_given_up(&store, acknowledged);
    let opened = Opened::open(store, &*clock, reference, Duration::ZERO)
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    let (id, step) = (opened.commit().id(), opened.commit().step);
    assert!(
        Some(step) >= acknowledged || given_up || died_on(&begun.passed, acknowledged),
        "{context}: step {step} is selected, {acknowledged:?} was acknowledged, {:?}",
        begun.passed
    );
    for rank in 0..opened.commit().world {
        let context = format!("{context}: rank {rank} of step {step}");
        let want = &image(id, step, rank)[DATA..];
        let region = WantedRegion {
            tensor: tensor(rank),
            region: Region::whole(&[want.len() as u64]),
        };
        let found = Mutex::new(vec![0; want.len()]);
        let put = |_: usize, offset: u64, bytes: &[u8]| {
            let start = usize::try_from(offset).unwrap();
            found.lock().unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        };
        let read = opened.read(&[region], Some(rank), &put);
        read.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(*found.lock().unwrap() == want, "{context}: other bytes");
        let small = opened
            .objects(rank)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(
            small.map(|small| small.values),
            objects(id, step, rank),
            "{context}"
        );
    }
    Some(step)
}

/// A life of a job on one disk: attempts that are cut, one after the other.
struct Life {
    disk: FaultyDisk,
    random: Random,
    attempt: u32,
    /// The newest step whose save returned.
    acknowledged: Option<u64>,
    step: u64,
    cuts: u64,
}

impl Life {
    fn new(seed: u64) -> Self {
        Self {
            disk: FaultyDisk::new(seed),
            random: Random::new(seed),
            attempt: 0,
            acknowledged: None,
            step: 0,
            cuts: 0,
        }
    }

    /// One attempt with its saves, of which any process may be killed.
    fn attempt(&mut self, seed: u64) {
        self.attempt += 1;
        let world = 1 + u32::try_from(self.random.below(u64::from(MAX_RANKS))).unwrap();
        self.disk.lag(self.random.one_in(2));
        let clients: Vec<Faulty> = (0..world).map(|_| self.client()).collect();
        let mut sessions = Vec::new();
        if let Ok(first) = start(&clients[0], self.attempt, world) {
            let others = (1..).zip(&clients[1..]);
            sessions.extend(others.filter_map(|(rank, client)| join(client, rank, &first).ok()));
            sessions.insert(0, first);
        }
        for _ in 0..=self.random.below(2) {
            self.step += 1;
            self.save(&sessions);
        }
        self.disk.lag(false);
        self.cuts += self.losses(seed);
        let power = self.random.below(6);
        let loss = match power {
            0 => Some(Loss::All),
            1 => Some(Loss::Bytes),
            2 => Some(Loss::Entries),
            3 => Some(Loss::Some),
            _ => None,
        };
        match loss {
            Some(loss) => self.disk.power_loss(loss),
            None => clients.iter().for_each(Faulty::kill),
        }
        self.cuts += 1;
        let context = format!("seed {seed}, attempt {}, {loss:?}", self.attempt);
        let selected = check(&self.disk, self.acknowledged, &context);
        self.step = self.step.max(selected.unwrap_or(0));
        self.acknowledged = self.acknowledged.min(selected);
    }

    /// What would be left if the power failed now, in many ways, each on a copy.
    fn losses(&mut self, seed: u64) -> u64 {
        let kinds = [Loss::All, Loss::Bytes, Loss::Entries];
        let cases = kinds.into_iter().chain([Loss::Some; 13]);
        let mut cuts = 0;
        for (case, loss) in cases.enumerate() {
            let copy = self.disk.copy(self.random.draw());
            copy.power_loss(loss);
            let context = format!("seed {seed}, attempt {}, loss {case}", self.attempt);
            check(&copy, self.acknowledged, &context);
            cuts += 1;
        }
        cuts
    }

    fn client(&mut self) -> Faulty {
        let fault = match self.random.below(8) {
            0 => None,
            1 => Some(Fault::NoSpace),
            2 => Some(Fault::Io),
            3 => Some(Fault::DoneButFailed),
            _ => Some(Fault::Kill),
        };
        let at = self.random.below(100);
        let faults: Vec<(u64, Fault)> = fault.map(|fault| (at, fault)).into_iter().collect();
        self.disk.client_with(&faults)
    }

    /// All ranks save a step, in an order that the seed decides.
    fn save(&mut self, sessions: &[Session]) {
        let mut alive: Vec<&Session> = sessions.iter().collect();
        if self.random.one_in(2) {
            alive.reverse();
        }
        let step = self.step;
        let has_piece: Vec<&Session> = alive
            .into_iter()
            .filter(|rank| {
                let state = state(rank.id, step, rank.rank);
                let deadline = rank.clock.now() + DEADLINE;
                let written = rank.write_piece(
                    &rank.folder(step),
                    &state,
                    deadline,
                    &mut Progress::default(),
                );
                written.is_ok()
            })
            .collect();
        for rank in has_piece {
            let deadline = rank.clock.now() + DEADLINE;
            if let Ok((_, is_mine)) = rank.finish(&rank.folder(step), deadline) {
                self.acknowledged = Some(step);
                if is_mine {
                    rank.after_commit(&rank.folder(step));
                }
                // The last save before a process ends is often of a step that was just saved.
                if self.random.one_in(4) {
                    let again = rank.save(step, &state(rank.id, step, rank.rank));
                    assert!(!matches!(again, Err(SaveError::Taken(_))), "{again:?}");
                }
            }
        }
    }

    /// Invariant 4, on a copy: the next attempt saves without help.
    fn next_save_works(&self, context: &str) {
        let copy = self.disk.copy(1);
        let next = self.step + 1;
        let rank = match start(&copy.client(), self.attempt + 1, 1) {
            Ok(rank) => rank,
            // Two attempts died on each step that is left: people decide.
            Err(BeginError::NothingUsable(reasons)) => {
                let steps = reasons.iter().map(|passed| Some(passed.folder.step));
                assert!(
                    steps.into_iter().all(|step| died_on(&reasons, step)),
                    "{context}: {reasons:?}"
                );
                return;
            }
            Err(error) => panic!("{context}: {error}"),
        };
        rank.save(next, &state(rank.id, next, 0))
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(check(&copy, Some(next), context), Some(next), "{context}");
    }
}

/// Cuts one life after the other, until there were enough.
fn random_lives(first_seed: u64, stride: usize, cuts: u64) -> u64 {
    let mut done = 0;
    for seed in (first_seed..).step_by(stride) {
        let mut life = Life::new(seed);
        for _ in 0..6 {
            life.attempt(seed);
        }
        life.next_save_works(&format!("seed {seed}"));
        done += life.cuts;
        if done >= cuts {
            return done;
        }
    }
    done
}

/// A disk with two committed steps, so that the next save also removes one.
fn base() -> FaultyDisk {
    let disk = FaultyDisk::new(1);
    let rank = start(&disk.client(), 1, 1).unwrap();
    for step in 1..=2 {
        rank.save(step, &state(rank.id, step, 0)).unwrap();
    }
    disk
}

/// The operations of opening a store, taking a record, one save and retention.
fn one_save(client: &Faulty) -> Option<u64> {
    let rank = start(client, 2, 1).ok()?;
    rank.save(3, &state(rank.id, 3, 0)).ok()?;
    Some(3)
}

/// Every operation, each with every kind of loss and some seeds.
fn all_cuts() -> u64 {
    let base = base();
    let whole = base.copy(1).client();
    one_save(&whole).unwrap();
    let mut cuts = 0;
    for at in 0..whole.operations() {
        let mut cases = vec![
            None,
            Some(Loss::All),
            Some(Loss::Bytes),
            Some(Loss::Entries),
        ];
        cases.extend([Some(Loss::Some); 16]);
        for (seed, loss) in cases.into_iter().enumerate() {
            let context = format!("operation {at}, case {seed}, {loss:?}");
            let disk = base.copy(seed as u64);
            let client = disk.client_with(&[(at, Fault::Kill)]);
            let acknowledged = one_save(&client).or(Some(2));
            assert!(client.is_dead(), "{context}");
            if let Some(loss) = loss {
                disk.power_loss(loss);
            }
            check(&disk, acknowledged, &context);
            let life = Life {
                disk,
                random: Random::new(0),
                attempt: 2,
                acknowledged,
                step: 3,
                cuts: 0,
            };
            life.next_save_works(&context);
            cuts += 1;
        }
    }
    cuts
}

#[test]
fn every_cut_of_a_save_keeps_the_invariants() {
    let cuts = all_cuts();
    println!("{cuts} cuts at every operation");
    assert!(cuts > 800, "{cuts}");
}

fn random_cuts(many: u64) {
    let threads = 2;
    let lives: Vec<_> = (0..threads)
        .map(|first| thread::spawn(move || random_lives(first, 2, many / threads)))
        .collect();
    let cuts: u64 = lives.into_iter().map(|life| life.join().unwrap()).sum();
    println!("{cuts} cuts by seed");
    assert!(cuts >= many);
}

#[test]
fn random_cuts_keep_the_invariants() {
    random_cuts(CUTS);
}

#[test]
#[ignore = "minutes where it is not built for speed; the suite `sim` runs it"]
fn many_random_cuts_keep_the_invariants() {
    random_cuts(MANY_CUTS);
}
