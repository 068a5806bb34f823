//! Two tiers on disks that fail: saves of one and of several nodes, and what is restored after a loss.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use trainyard_core::checkpoint::{
    Claimant, Dtype, Entry, LOCAL_COMMIT_FILE, Layout, Policy, Region, StepName, Wanted,
    WantedRegion, suspects,
};

use super::*;
use crate::{
    begin::BeginError,
    clock::{ManualClock, SystemClock},
    drain::{Drain, DrainError, DrainLimits, Turn},
    faulty::{Faulty, FaultyDisk},
    load::{Loader, Sink},
    regions::Opened,
    save::{Image, Limits, Progress, Session, State},
    storage::Storage as _,
};

pub(crate) const MINUTE: Duration = Duration::from_mins(1);

/// What a rank saves: the bytes follow from attempt, step and rank.
pub(crate) fn image(attempt: u32, step: u64, rank: u32) -> Vec<u8> {
    let seed = u64::from(attempt) * 7 + step * 31 + u64::from(rank) * 3;
    (0..1_300_u64)
        .map(|at| u8::try_from((seed + at * 5) % 251).unwrap())
        .collect()
}

pub(crate) fn state(attempt: u32, step: u64, rank: u32) -> State {
    let layout = Layout {
        version: 1,
        mesh: Vec::new(),
        tensors: vec![Entry::whole(&format!("w{rank}"), Dtype::U8, vec![1_000], 0)],
        other: serde_json::Map::new(),
    };
    State {
        images: vec![Image {
            source: Arc::new(image(attempt, step, rank)),
            data: 8,
        }],
        layout: Some(layout),
        objects: Some(serde_json::Map::from_iter([(
            "step".to_owned(),
            step.into(),
        )])),
        ..State::default()
    }
}

/// A process with its tiers.
pub(crate) struct Process {
    pub(crate) tiers: Tiers,
    pub(crate) session: Session,
    pub(crate) drain: Drain,
    pub(crate) from: Option<String>,
}

impl Process {
    pub(crate) fn save(&self, step: u64) {
        let state = state(self.session.id.attempt, step, self.session.rank);
        self.session.save(step, &state).unwrap();
    }
}

pub(crate) fn wanted(world: u32) -> Wanted {
    Wanted {
        world,
        reshard: true,
        ..Wanted::default()
    }
}

fn tiers(
    local: &Faulty,
    shared: &Faulty,
    seed: u64,
    options: TierOptions,
) -> Result<Tiers, StoreError> {
    let shared = Store::create(
        Arc::new(shared.clone()),
        ManualClock::start(),
        Some("run"),
        seed,
    )?;
    let local = Arc::new(local.clone());
    Tiers::open(
        Arc::new(shared),
        local,
        ManualClock::start(),
        seed + 1,
        options,
    )
}

fn process(tiers: Tiers, id: AttemptId, rank: u32, world: u32, from: Option<String>) -> Process {
    let clock = ManualClock::start();
    let keep = Policy {
        last: 2,
        ..Policy::default()
    };
    let session = Session {
        store: Arc::clone(&tiers.local),
        clock: Arc::clone(&clock),
        id,
        rank,
        world,
        limits: Limits {
            chunk_bytes: 512,
            deadline: MINUTE,
            ..Limits::default()
        },
        keep,
    };
    let drain = Drain {
        tiers: tiers.clone(),
        clock,
        id,
        rank,
        world,
        seat: (0, 1),
        keep,
        pace: Arc::default(),
        limits: DrainLimits {
            deadline: MINUTE,
            ..DrainLimits::default()
        },
    };
    Process {
        tiers,
        session,
        drain,
        from,
    }
}

/// Begins an attempt of one process.
pub(crate) fn start(
    local: &Faulty,
    shared: &Faulty,
    attempt: u32,
    options: TierOptions,
) -> Result<Process, BeginError> {
    let tiers = tiers(local, shared, u64::from(attempt) << 8, options)?;
    let holder = format!("h{attempt}");
    let begun = tiers.begin(
        &Claimant::new(Some(attempt), &holder),
        &wanted(1),
        &BTreeMap::new(),
        &Policy::default(),
        &BTreeMap::new(),
    )?;
    if let Some(from) = &begun.begun.resumes_from {
        tiers.shared.restored(begun.begun.id, &from.folder)?;
    }
    Ok(process(tiers, begun.begun.id, 0, 1, begun.from))
}

/// Begins an attempt of two processes on two nodes.
pub(crate) fn start_two(
    locals: [&FaultyDisk; 2],
    shared: &FaultyDisk,
    attempt: u32,
) -> [Process; 2] {
    let options = TierOptions {
        several_nodes: true,
        ..TierOptions::default()
    };
    let seed = u64::from(attempt) << 8;
    let one = tiers(&locals[0].client(), &shared.client(), seed, options).unwrap();
    let two = tiers(&locals[1].client(), &shared.client(), seed + 2, options).unwrap();
    let nodes = BTreeMap::from([("b".to_owned(), two.holds().unwrap())]);
    let begun = one
        .begin(
            &Claimant::new(Some(attempt), &format!("h{attempt}")),
            &wanted(2),
            &BTreeMap::new(),
            &Policy::default(),
            &nodes,
        )
        .unwrap();
    let id = begun.begun.id;
    two.adopt(id).unwrap();
    [
        process(one, id, 0, 2, begun.from.clone()),
        process(two, id, 1, 2, begun.from),
    ]
}

/// Begins an attempt of two processes on one node.
pub(crate) fn start_beside(local: &FaultyDisk, shared: &FaultyDisk) -> [Process; 2] {
    let options = TierOptions::default();
    let one = tiers(&local.client(), &shared.client(), 1, options).unwrap();
    let two = tiers(&local.client(), &shared.client(), 3, options).unwrap();
    let begun = one.begin(
        &Claimant::new(Some(1), "h1"),
        &wanted(2),
        &BTreeMap::new(),
        &Policy::default(),
        &BTreeMap::new(),
    );
    let id = begun.unwrap().begun.id;
    two.adopt(id).unwrap();
    [process(one, id, 0, 2, None), process(two, id, 1, 2, None)]
}

#[derive(Default)]
pub(crate) struct Memory(pub(crate) BTreeMap<u32, Vec<u8>>, pub(crate) u32);

impl Sink for Memory {
    fn begin(&mut self, commit: &Commit) -> io::Result<()> {
        self.0.clear();
        self.1 = commit.attempt;
        Ok(())
    }

    fn put(&mut self, rank: u32, _: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = self.0.entry(rank).or_default();
        let start = usize::try_from(offset).unwrap();
        file.resize((start + bytes.len()).max(file.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// Restores from tiers; the step and what was said on the way. The bytes must be those of its save.
pub(crate) fn load(tiers: Vec<TierStore>, world: u32) -> Option<(u64, Vec<String>)> {
    let mut memory = Memory::default();
    let ranks: Vec<u32> = (0..world).collect();
    let loaded = Loader::new(tiers)
        .unwrap()
        .load(&wanted(world), &ranks, &mut memory)
        .unwrap()?;
    for rank in ranks {
        let saved = image(memory.1, loaded.step, rank);
        assert!(memory.0[&rank] == saved, "rank {rank} of {}", loaded.step);
    }
    Some((loaded.step, loaded.failures))
}

/// All ranks save a step on their nodes.
pub(crate) fn save_two(ranks: &[Process; 2], step: u64) -> StepName {
    let [zero, one] = ranks;
    let folder = zero.session.folder(step);
    let attempt = zero.session.id.attempt;
    let mut progress = Progress::default();
    let piece = state(attempt, step, 1);
    let deadline = one.session.clock.now() + MINUTE;
    one.session
        .write_piece(&folder, &piece, deadline, &mut progress)
        .unwrap();
    zero.save(step);
    one.session.finish(&folder, deadline).unwrap();
    folder
}

/// One turn of rank 0, while rank 1 does what it is shown.
pub(crate) fn drain_two(ranks: &[Process; 2]) -> Result<Turn, DrainError> {
    let [zero, one] = ranks;
    let zero = Drain {
        clock: SystemClock::start(),
        ..zero.drain.clone()
    };
    std::thread::scope(|scope| {
        let zero = scope.spawn(move || zero.turn(None));
        while !zero.is_finished() && matches!(one.drain.turn(None), Ok(Turn::Nothing(_))) {
            std::thread::yield_now();
        }
        zero.join().unwrap()
    })
}

#[test]
fn save_commits_locally_and_says_where_it_restores_from() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let options = TierOptions::default();
    let first = start(&local.client(), &shared.client(), 1, options).unwrap();
    assert_eq!(first.from, None);
    first.save(1100);
    first.drain.turn(None).unwrap();
    first.save(1200);
    let second = start(&local.client(), &shared.client(), 2, options).unwrap();
    assert_eq!(
        second.from.as_deref(),
        Some("from local, step 1200; shared has 1100")
    );
    assert_eq!(load(second.tiers.stores(), 1), Some((1200, Vec::new())));
    // The local tier is lost with its node: what the shared one has counts, and only that.
    let empty = FaultyDisk::new(3);
    let third = start(&empty.client(), &shared.client(), 3, options).unwrap();
    assert_eq!(
        third.from.as_deref(),
        Some("from shared, step 1100; local has none")
    );
    third.save(1150);
    // The node comes back: its step belongs to another history.
    let fourth = start(&local.client(), &shared.client(), 4, options).unwrap();
    assert_eq!(
        fourth.from.as_deref(),
        Some("from local, step 1100; shared has 1100")
    );
}

#[test]
fn local_tier_of_another_run_is_refused() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let client: Shared = Arc::new(local.client());
    Store::create(client, ManualClock::start(), Some("other"), 1).unwrap();
    let refused = tiers(&local.client(), &shared.client(), 5, TierOptions::default());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the checkpoints are of run `other`, and this is run `run`"
    );
}

#[test]
fn flipped_byte_is_read_from_the_next_tier() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = start(&local.client(), &shared.client(), 1, TierOptions::default()).unwrap();
    one.save(10);
    one.drain.turn(None).unwrap();
    let folder = one.session.folder(10);
    let data = within(&folder.path(), "00000.safetensors");
    local.flip(&data, 700).unwrap();
    let (step, said) = load(one.tiers.stores(), 1).unwrap();
    assert_eq!(step, 10);
    assert!(said[0].contains("damaged in chunk 1"), "{said:?}");
    local
        .flip(&within(&folder.path(), "objects/00000.json"), 5)
        .unwrap();
    let seen = one.tiers.local_history().unwrap().commits.remove(0);
    let opened = Opened::open_tiers(
        one.tiers.stores(),
        &*ManualClock::start(),
        seen.reference(),
        Duration::ZERO,
    )
    .unwrap();
    let region = WantedRegion {
        tensor: "w0".to_owned(),
        region: Region {
            offsets: vec![600],
            sizes: vec![300],
        },
    };
    let got = Mutex::new(vec![0; 300]);
    opened
        .read(&[region], None, &|_, offset, bytes| {
            let start = usize::try_from(offset).unwrap();
            got.lock().unwrap()[start..start + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
        .unwrap();
    assert_eq!(got.into_inner().unwrap(), image(1, 10, 0)[608..908]);
    assert!(opened.objects(0).unwrap().is_some());
    let notes = opened.notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[0].ends_with(" on local; read from shared"),
        "{notes:?}"
    );
    assert_eq!(opened.notes(), Vec::<String>::new());
    // Damage on both is the end of the step, not of the reader.
    shared.flip(&data, 700).unwrap();
    assert_eq!(load(one.tiers.stores(), 1), None);
}

#[test]
fn nodes_commit_together_and_one_may_be_lost() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let first = save_two(&ranks, 1100);
    for rank in &ranks {
        let name = within(&first.path(), COMMIT_FILE);
        assert!(rank.tiers.local.storage.stat(&name).is_ok());
        assert!(!rank.tiers.is_shared(&first).unwrap());
    }
    // Rank 0 shows the step, rank 1 copies, rank 0 commits.
    assert_eq!(drain_two(&ranks).unwrap(), Turn::Committed(first));
    assert_eq!(load(ranks[1].tiers.stores(), 2), Some((1100, Vec::new())));
    let second = save_two(&ranks, 1200);
    // Both nodes are there: the newest step, which goes through the shared tier for the pieces of the other node.
    let again = start_two([&a, &b], &shared, 2);
    assert_eq!(
        again[0].from.as_deref(),
        Some("from local and peer, step 1200; shared has 1100")
    );
    let late = again[0].drain.bring(&second, MINUTE).unwrap_err();
    assert!(late.to_string().contains("no piece of rank 1"), "{late}");
    let late = again[1].drain.bring(&second, MINUTE).unwrap_err();
    assert!(late.to_string().contains("in time"), "{late}");
    again[0].drain.bring(&second, MINUTE).unwrap();
    assert_eq!(load(again[1].tiers.stores(), 2), Some((1200, Vec::new())));
    // Node b is lost with a step that only local tiers had.
    save_two(&again, 1300);
    let empty = FaultyDisk::new(4);
    let third = start_two([&a, &empty], &shared, 3);
    let said = third[0].from.clone().unwrap();
    assert!(
        said.starts_with("from local and shared, step 1200; 100 steps are lost: step 1300"),
        "{said}"
    );
    assert_eq!(
        load(third[1].tiers.stores(), 2).map(|(step, _)| step),
        Some(1200)
    );
}

#[test]
fn survivor_knows_the_commit_of_a_rank_that_was_killed() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 7);
    // As if rank 0 had been killed before its node had the commit.
    let name = within(&folder.path(), COMMIT_FILE);
    ranks[0].tiers.local.storage.remove(&name).unwrap();
    let local_commit = within(&folder.path(), LOCAL_COMMIT_FILE);
    assert!(ranks[0].tiers.shared.storage.stat(&local_commit).is_ok());
    let (view, failure) = ranks[0].tiers.view().unwrap();
    assert_eq!(failure, None);
    let commits = view.commits();
    assert_eq!(commits.len(), 1);
    assert_eq!(commits[0].folder, folder);
}

#[test]
fn rank_0_commits_a_step_whose_commit_its_node_lacks() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 7);
    // As if rank 0 had been killed before its node had the commit.
    let name = within(&folder.path(), COMMIT_FILE);
    ranks[0].tiers.local.storage.remove(&name).unwrap();
    let again = start_two([&a, &b], &shared, 2);
    let late = again[1].drain.bring(&folder, MINUTE).unwrap_err();
    assert!(late.to_string().contains("in time"), "{late}");
    again[0].drain.bring(&folder, MINUTE).unwrap();
    assert_eq!(load(again[1].tiers.stores(), 2), Some((7, Vec::new())));
}

#[test]
fn pieces_of_a_node_without_the_commit_count() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 7);
    // As if rank 1 had been killed after rank 0 committed, and before its node had the commit.
    let name = within(&folder.path(), COMMIT_FILE);
    ranks[1].tiers.local.storage.remove(&name).unwrap();
    let again = start_two([&a, &b], &shared, 2);
    let from = again[0].from.clone();
    assert!(from.is_some_and(|from| from.contains("step 7")));
    assert!(again[1].drain.bring(&folder, MINUTE).is_err());
    again[0].drain.bring(&folder, MINUTE).unwrap();
    assert_eq!(load(again[1].tiers.stores(), 2), Some((7, Vec::new())));
}

#[test]
fn full_shared_tier_does_not_fail_a_local_save() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let [zero, one] = start_two([&a, &b], &shared, 1);
    let most = 1 << 20;
    shared.limit(Some(most));
    let used = most - shared.client().free().unwrap();
    shared.limit(Some(used));
    let folder = zero.session.folder(7);
    for rank in [&zero, &one] {
        let state = state(1, 7, rank.session.rank);
        let deadline = rank.session.clock.now() + MINUTE;
        let mut progress = Progress::default();
        rank.session
            .write_piece(&folder, &state, deadline, &mut progress)
            .unwrap();
    }
    let late = one.session.clock.now() + Duration::from_secs(5);
    let error = one.session.finish(&folder, late).unwrap_err().to_string();
    assert!(
        error.starts_with("step 7 was abandoned: no room on the shared tier"),
        "{error}"
    );
    // The drain made room: the records are sent again, and rank 1 commits because rank 0 does not.
    shared.limit(None);
    let start = zero.session.clock.now();
    assert!(zero.session.finish(&folder, start).is_err());
    one.session.finish(&folder, late + MINUTE).unwrap();
    zero.session.finish(&folder, start + MINUTE).unwrap();
    for rank in [&zero, &one] {
        assert_eq!(rank.tiers.local_history().unwrap().commits.len(), 1);
    }
}

#[test]
fn local_tier_learns_that_attempts_have_restored() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let options = TierOptions::default();
    let begin = |attempt| start(&local.client(), &shared.client(), attempt, options).unwrap();
    begin(1).save(7);
    // Each restores step 7 and ends before it saves.
    let mut all: Vec<_> = (2..6).map(begin).collect();
    let last = all.pop().unwrap();
    let view = last.tiers.local.view().unwrap();
    assert_eq!(suspects(&view.records, &view.commits()), BTreeMap::new());
}
