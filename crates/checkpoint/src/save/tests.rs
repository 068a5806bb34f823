use std::{thread, time::Duration};

use trainyard_core::checkpoint::{Claimant, Selection, Wanted};

use super::*;
use crate::{
    clock::ManualClock,
    faulty::{Fault, Faulty, FaultyDisk},
    load::{LoadError, Loader, Sink},
    storage::Storage as _,
    store::Store,
};

/// A state whose bytes follow from step and rank.
fn state(step: u64, rank: u32, bytes: usize) -> State {
    let seed = usize::try_from(step).unwrap() * 31 + rank as usize;
    let image: Vec<u8> = (0..bytes)
        .map(|at| u8::try_from((seed + at * 7) % 251).unwrap())
        .collect();
    State {
        images: vec![Image {
            source: Arc::new(image),
            data: 8,
        }],
        ..State::default()
    }
}

fn session(client: &Faulty, attempt: u32, rank: u32, world: u32) -> Result<Session, StoreError> {
    let seed = u64::from(attempt) * 1000 + u64::from(rank);
    let store = Store::create(
        Arc::new(client.clone()),
        ManualClock::start(),
        Some("run"),
        seed,
    )?;
    let holder = format!("holder-{attempt}");
    let id = store.fence(Some(attempt), &holder, |view| {
        let history = trainyard_core::checkpoint::lineage("run", &view.records, &view.commits());
        history.newest().map(|seen| seen.folder.clone())
    })?;
    Ok(Session {
        store: Arc::new(store),
        clock: ManualClock::start(),
        id,
        rank,
        world,
        limits: Limits {
            chunk_bytes: 512,
            deadline: Duration::from_mins(1),
            ..Limits::default()
        },
        keep: Policy {
            last: 2,
            ..Policy::default()
        },
    })
}

#[derive(Default)]
struct Memory(BTreeMap<(u32, u32), Vec<u8>>);

impl Sink for Memory {
    fn begin(&mut self, _: &Commit) -> io::Result<()> {
        self.0.clear();
        Ok(())
    }

    fn put(&mut self, rank: u32, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let image = self.0.entry((rank, file)).or_default();
        let end = usize::try_from(offset).unwrap() + bytes.len();
        image.resize(end.max(image.len()), 0);
        image[end - bytes.len()..end].copy_from_slice(bytes);
        Ok(())
    }
}

fn wanted(world: u32) -> Wanted {
    Wanted {
        world,
        ..Wanted::default()
    }
}

fn loader(disk: &FaultyDisk) -> Loader {
    let store = Store::existing(Arc::new(disk.client()), ManualClock::start(), 1).unwrap();
    Loader::of(Arc::new(store))
}

fn load(disk: &FaultyDisk, world: u32) -> Option<(u64, Memory, Vec<String>)> {
    let mut memory = Memory::default();
    let ranks: Vec<u32> = (0..world).collect();
    let loaded = loader(disk)
        .load(&wanted(world), &ranks, &mut memory)
        .unwrap()?;
    let mut said = loaded.failures;
    said.extend(loaded.passed.iter().map(ToString::to_string));
    Some((loaded.step, memory, said))
}

fn image_of(state: &State) -> Vec<u8> {
    let source = &state.images[0].source;
    let mut bytes = vec![0; usize::try_from(source.size().unwrap()).unwrap()];
    source.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn two_ranks_commit_together() {
    let disk = FaultyDisk::new(1);
    disk.lag(true);
    let (one, two) = (disk.client(), disk.client());
    let zero = session(&one, 1, 0, 2).unwrap();
    let other = session(&two, 1, 1, 2).unwrap();
    let folder = zero.folder(7);
    assert_eq!(folder, other.folder(7), "ranks agree without a word");
    let deadline = Duration::from_mins(1);
    let states = [state(7, 0, 1300), state(7, 1, 10)];
    other
        .write_piece(&folder, &states[1], deadline, &mut Progress::default())
        .unwrap();
    let saved = zero.save(7, &states[0]).unwrap();
    let (seen, is_mine) = other.finish(&folder, deadline).unwrap();
    assert_eq!(seen, saved.commit);
    assert!(!is_mine);
    disk.lag(false);
    let (step, memory, _) = load(&disk, 2).unwrap();
    assert_eq!(step, 7);
    assert_eq!(memory.0[&(0, 0)], image_of(&states[0]));
    assert_eq!(memory.0[&(1, 0)], image_of(&states[1]));
}

#[test]
fn parts_are_seen_only_with_their_commit() {
    let disk = FaultyDisk::new(1);
    let first = session(&disk.client(), 1, 0, 2).unwrap();
    let second = session(&disk.client(), 1, 1, 2).unwrap();
    assert_eq!(first.write_part(5, &state(5, 0, 700)).unwrap(), 700);
    let early = second.commit_parts(5).unwrap_err();
    assert!(early.to_string().contains("rank"), "{early}");
    second.write_part(5, &state(5, 1, 300)).unwrap();
    assert!(load(&disk, 2).is_none());
    // Any rank commits, at once.
    let saved = second.commit_parts(5).unwrap();
    assert_eq!(saved.commit.folder.step, 5);
    let (step, memory, _) = load(&disk, 2).unwrap();
    assert_eq!((step, memory.0.len()), (5, 2));
    assert_eq!(memory.0[&(1, 0)], image_of(&state(5, 1, 300)));
    assert_eq!(first.commit_parts(5).unwrap().commit, saved.commit);
    // A later attempt fences both calls.
    let later = session(&disk.client(), 2, 0, 2).unwrap();
    for result in [
        first.write_part(6, &state(6, 0, 10)).map(|_| ()),
        first.commit_parts(6).map(|_| ()),
    ] {
        let error = result.unwrap_err();
        assert!(error.to_string().starts_with("fenced"), "{error}");
    }
    drop(later);
}

#[test]
fn another_rank_commits_when_rank_0_is_gone() {
    let disk = FaultyDisk::new(1);
    let zero = session(&disk.client(), 1, 0, 2).unwrap();
    let other = session(&disk.client(), 1, 1, 2).unwrap();
    let folder = zero.folder(7);
    let deadline = Duration::from_mins(1);
    zero.write_piece(&folder, &state(7, 0, 9), deadline, &mut Progress::default())
        .unwrap();
    let saved = other.save(7, &state(7, 1, 9)).unwrap();
    assert_eq!(saved.commit.folder, folder);
    assert!(other.clock.now() >= other.limits.takeover);
}

#[test]
fn missing_ranks_are_named() {
    let disk = FaultyDisk::new(1);
    let zero = session(&disk.client(), 1, 0, 4).unwrap();
    let error = zero.save(7, &state(7, 0, 9)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "step 7 was abandoned after 60 s: no piece of 3 of 4 ranks: ranks 1, 2, 3"
    );
    disk.flip(&within(&zero.folder(7).path(), "00000.piece.json"), 40)
        .unwrap();
    let other = session(&disk.client(), 1, 1, 2).unwrap();
    let error = other.save(7, &state(7, 1, 9)).unwrap_err().to_string();
    assert!(error.contains("ranks: rank 0; `"), "{error}");
    assert!(error.contains("00000.piece.json`: "), "{error}");
    assert!(load(&disk, 4).is_none());
}

#[test]
fn zombie_is_fenced_and_invisible() {
    let disk = FaultyDisk::new(1);
    let old = session(&disk.client(), 1, 0, 1).unwrap();
    old.save(10, &state(10, 0, 9)).unwrap();
    let folder = old.folder(20);
    let deadline = Duration::from_mins(1);
    old.write_piece(
        &folder,
        &state(20, 0, 9),
        deadline,
        &mut Progress::default(),
    )
    .unwrap();
    let new = session(&disk.client(), 2, 0, 1).unwrap();
    assert!(old.finish(&folder, deadline).unwrap_err().is_fenced());
    assert!(old.save(30, &state(30, 0, 9)).unwrap_err().is_fenced());
    assert_eq!(load(&disk, 1).unwrap().0, 10);
    new.save(11, &state(11, 0, 9)).unwrap();
    assert_eq!(load(&disk, 1).unwrap().0, 11);
}

#[test]
fn second_start_of_an_attempt_takes_the_next_number() {
    let disk = FaultyDisk::new(1);
    let store =
        |seed| Store::create(Arc::new(disk.client()), ManualClock::start(), None, seed).unwrap();
    let (one, two) = (store(1), store(2));
    assert_eq!(one.run(), two.run());
    let first = one.fence(Some(7), "pod-a", |_| None).unwrap();
    let again = one.fence(Some(7), "pod-a", |_| None).unwrap();
    let second = two.fence(Some(7), "pod-b", |_| None).unwrap();
    assert_eq!(first, again);
    assert_eq!(second.to_string(), "7.1");
    assert!(one.check_fence(first).is_err());
    assert!(one.fence(Some(6), "pod-c", |_| None).is_err());
}

#[test]
fn full_disk_prunes_and_retries_once() {
    let disk = FaultyDisk::new(1);
    let rank = session(&disk.client(), 1, 0, 1).unwrap();
    let mut keeping = rank.clone();
    keeping.keep = Policy {
        last: 9,
        ..Policy::default()
    };
    for step in 1..=4 {
        keeping.save(step, &state(step, 0, 4000)).unwrap();
    }
    // Four images and their JSON files fit, and some of a fifth.
    disk.limit(Some(5 * 4000));
    let saved = rank.save(5, &state(5, 0, 4000)).unwrap();
    assert_eq!(saved.commit.folder.step, 5);
    assert_eq!(load(&disk, 1).unwrap().0, 5);
    disk.limit(Some(1));
    let error = rank.save(6, &state(6, 0, 4000)).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("no room for step 6: 4000 bytes needed, 0 free: "),
        "{error}"
    );
    disk.limit(None);
    assert_eq!(
        load(&disk, 1).unwrap().0,
        5,
        "the last good one is untouched"
    );
    rank.save(7, &state(7, 0, 4000)).unwrap();
}

#[test]
fn damaged_step_is_passed_over() {
    let disk = FaultyDisk::new(1);
    let rank = session(&disk.client(), 1, 0, 1).unwrap();
    rank.save(1, &state(1, 0, 2000)).unwrap();
    rank.save(2, &state(2, 0, 2000)).unwrap();
    let path = rank.folder(2).path();
    for (file, says) in [
        (
            "00000.safetensors",
            "is damaged in chunk 1 (bytes 512 to 1023)",
        ),
        ("00000.piece.json", "in full"),
    ] {
        let copy = disk.copy(1);
        let at = if file.ends_with("json") { 40 } else { 600 };
        copy.flip(&within(&path, file), at).unwrap();
        let (step, memory, said) = load(&copy, 1).unwrap();
        assert_eq!(step, 1, "{file}");
        assert_eq!(memory.0[&(0, 0)], image_of(&state(1, 0, 2000)));
        assert!(
            said.iter().any(|line| line.contains(says)),
            "{file}: {said:?}"
        );
    }
    let copy = disk.copy(1);
    copy.flip(&within(&path, "COMMIT.json"), 40).unwrap();
    assert_eq!(load(&copy, 1).unwrap().0, 1);
    let copy = disk.copy(1);
    copy.flip("latest", 3).unwrap();
    assert_eq!(load(&copy, 1).unwrap().0, 2, "`latest` is only a hint");
}

#[test]
fn hanging_storage_never_blocks_close() {
    let disk = FaultyDisk::new(1);
    let quick = session(&disk.client(), 1, 0, 1).unwrap();
    let operations = {
        let copy = disk.copy(1);
        let client = copy.client();
        session(&client, 1, 0, 1).unwrap();
        client.operations()
    };
    let client = disk.client_with(&[(operations + 3, Fault::Hang)]);
    let hanging = session(&client, 1, 0, 1).unwrap();
    assert_eq!(quick.id, hanging.id);
    let saver = Saver::new(hanging);
    let Started::Save(save) = saver.save(1, state(1, 0, 2000)) else {
        unreachable!("nothing is in flight");
    };
    assert!(matches!(
        saver.save(2, state(2, 0, 2000)),
        Started::Skipped { busy: 1 }
    ));
    assert_eq!(
        saver.close(Duration::from_millis(20)),
        Closed::Unfinished { step: 1 }
    );
    assert!(save.committed(Duration::ZERO).is_none());
    disk.release();
    assert_eq!(saver.close(Duration::from_mins(1)), Closed::Finished);
    assert!(save.committed(Duration::ZERO).unwrap().is_err());
    let Started::Save(next) = saver.save(3, state(3, 0, 2000)) else {
        unreachable!("the slot is free again");
    };
    next.committed(Duration::from_mins(1)).unwrap().unwrap();
    let counts = saver.counts();
    assert_eq!((counts.committed, counts.failed, counts.skipped), (1, 1, 1));
}

#[test]
fn publish_that_answers_an_error_although_done() {
    let mut tried = 0;
    let operations = {
        let disk = FaultyDisk::new(1);
        let client = disk.client();
        let rank = session(&client, 1, 0, 1).unwrap();
        let before = client.operations();
        rank.save(1, &state(1, 0, 2000)).unwrap();
        before..client.operations()
    };
    for at in operations {
        for fault in [Fault::DoneButFailed, Fault::DoneButExists, Fault::Io] {
            let disk = FaultyDisk::new(1);
            let client = disk.client_with(&[(at, fault)]);
            let rank = session(&client, 1, 0, 1).unwrap();
            let saved = rank.save(1, &state(1, 0, 2000));
            tried += 1;
            if let Ok(saved) = saved {
                assert_eq!(saved.commit.folder.step, 1);
                let (step, memory, _) = load(&disk, 1).unwrap();
                assert_eq!(step, 1, "{at} {fault:?}");
                assert_eq!(memory.0[&(0, 0)], image_of(&state(1, 0, 2000)));
            }
            rank.save(2, &state(2, 0, 700)).unwrap();
            assert_eq!(load(&disk, 1).unwrap().0, 2, "{at} {fault:?}");
        }
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn selection_without_commits() {
    let disk = FaultyDisk::new(1);
    session(&disk.client(), 1, 0, 1).unwrap();
    let store = Store::existing(Arc::new(disk.client()), ManualClock::start(), 1).unwrap();
    let selection = Loader::of(Arc::new(store)).choose(&wanted(1)).unwrap();
    assert!(matches!(selection, Selection::None { reasons } if reasons.is_empty()));
}

#[test]
fn second_save_of_a_step_returns_its_commit() {
    let disk = FaultyDisk::new(1);
    let mut rank = session(&disk.client(), 1, 0, 1).unwrap();
    let first = rank.save(7, &state(7, 0, 2000)).unwrap();
    // A clock that moved on: another time would be in a second piece.
    rank.clock.wait(Duration::from_secs(9));
    let again = rank.save(7, &state(7, 0, 2000)).unwrap();
    assert_eq!(again.commit, first.commit);
    assert_eq!(load(&disk, 1).unwrap().0, 7);
    rank.limits.deadline = Duration::MAX;
    rank.save(8, &state(8, 0, 2000)).unwrap();
}

#[test]
fn abandoned_save_continues_with_its_piece() {
    let disk = FaultyDisk::new(1);
    let zero = session(&disk.client(), 1, 0, 2).unwrap();
    let other = session(&disk.client(), 1, 1, 2).unwrap();
    let missing = zero.save(7, &state(7, 0, 2000)).unwrap_err();
    assert!(matches!(missing, SaveError::Missing { .. }), "{missing}");
    let deadline = Duration::from_mins(1);
    let folder = other.folder(7);
    other
        .write_piece(&folder, &state(7, 1, 9), deadline, &mut Progress::default())
        .unwrap();
    zero.save(7, &state(7, 0, 2000)).unwrap();
    let (_, memory, _) = load(&disk, 2).unwrap();
    assert_eq!(memory.0[&(0, 0)], image_of(&state(7, 0, 2000)));
    // Data without a piece, as a save that was late leaves it.
    let name = within(&zero.folder(8).path(), "00000.safetensors");
    let client = disk.client();
    client.make_folder(&zero.folder(8).path()).unwrap();
    let file = client.create(&name).unwrap();
    file.write_at(0, &image_of(&state(8, 0, 700))).unwrap();
    let alone = session(&disk.client(), 1, 0, 1).unwrap();
    alone.save(8, &state(8, 0, 700)).unwrap();
}

#[test]
fn record_has_the_commit_that_was_chosen() {
    let disk = FaultyDisk::new(1);
    let old = session(&disk.client(), 1, 0, 1).unwrap();
    let store = Store::create(Arc::new(disk.client()), ManualClock::start(), None, 9).unwrap();
    // A commit that becomes visible between the look at the store and the choice.
    let mut saved = None;
    let id = store
        .fence(Some(2), "late", |_| {
            let folder = || old.save(5, &state(5, 0, 9)).unwrap().commit.folder;
            Some(saved.get_or_insert_with(folder).clone())
        })
        .unwrap();
    let from = store.resumes_from(id).unwrap().unwrap();
    assert_eq!(from.folder, old.folder(5));
    assert_eq!(load(&disk, 1).unwrap().0, 5);
    let never = store.fence(Some(3), "other", |_| Some(old.folder(6)));
    assert!(
        matches!(never, Err(StoreError::NotInHistory(_))),
        "{never:?}"
    );
    store.check_fence(id).unwrap();
}

#[test]
fn all_ranks_restore_one_commit() {
    let disk = FaultyDisk::new(1);
    let ranks = [0, 1].map(|rank| session(&disk.client(), 1, rank, 2).unwrap());
    let deadline = Duration::from_mins(1);
    for step in [1, 2] {
        let folder = ranks[1].folder(step);
        let piece = state(step, 1, 2000);
        ranks[1]
            .write_piece(&folder, &piece, deadline, &mut Progress::default())
            .unwrap();
        ranks[0].save(step, &state(step, 0, 2000)).unwrap();
    }
    let next = session(&disk.client(), 2, 0, 2).unwrap();
    let chosen = next.store.resumes_from(next.id).unwrap().unwrap();
    assert_eq!(chosen.folder.step, 2);
    let data = within(&chosen.folder.path(), "00001.safetensors");
    disk.flip(&data, 600).unwrap();

    let mut memory = Memory::default();
    let loaded = loader(&disk)
        .load_commit(&wanted(2), &chosen, &[0], &mut memory)
        .unwrap();
    assert_eq!(loaded.step, 2);
    assert_eq!(memory.0[&(0, 0)], image_of(&state(2, 0, 2000)));
    let mut damaged = loader(&disk);
    let error = damaged
        .load_commit(&wanted(2), &chosen, &[1], &mut memory)
        .unwrap_err();
    let sentence = error.to_string();
    assert!(
        sentence.starts_with("step 2 (`000000000002-a1-"),
        "{sentence}"
    );
    assert!(sentence.contains("damaged in chunk 1"), "{sentence}");
    let Selection::Choice(choice) = damaged.choose(&wanted(2)).unwrap() else {
        panic!("step 1 is left");
    };
    assert_eq!(choice.commit.folder.step, 1);
    let gone = CommitRef {
        crc32c: Crc32c(1),
        ..chosen
    };
    let other = loader(&disk).load_commit(&wanted(2), &gone, &[0], &mut memory);
    assert!(matches!(other, Err(LoadError::Unreadable { .. })));
    let beyond = loader(&disk).load(&wanted(2), &[0, 2], &mut memory);
    assert_eq!(
        beyond.unwrap_err().to_string(),
        "step 2 has no rank 2: 2 ranks saved it"
    );
}

#[test]
fn record_that_was_not_synced_is_made_durable() {
    let operations = {
        let client = FaultyDisk::new(1).client();
        session(&client, 1, 0, 1).unwrap();
        client.operations()
    };
    for at in 0..operations {
        let disk = FaultyDisk::new(1);
        drop(session(&disk.client_with(&[(at, Fault::Io)]), 1, 0, 1));
        session(&disk.client(), 1, 0, 1).unwrap();
        disk.power_loss(crate::faulty::Loss::All);
        let store = Store::existing(Arc::new(disk.client()), ManualClock::start(), 1).unwrap();
        assert_eq!(store.view().unwrap().records.len(), 1, "{at}");
    }
}

#[test]
fn full_disk_does_not_stop_the_next_attempt() {
    let disk = FaultyDisk::new(1);
    let mut old = session(&disk.client(), 1, 0, 1).unwrap();
    old.keep.last = 9;
    for step in 1..=4 {
        old.save(step, &state(step, 0, 4000)).unwrap();
    }
    disk.limit(Some(1));
    let store = Store::create(Arc::new(disk.client()), ManualClock::start(), None, 9).unwrap();
    let choose = |view: &crate::store::View| {
        let newest = view.folders.last()?;
        newest.name()
    };
    let full = store.fence(Some(2), "next", choose).unwrap_err();
    assert!(full.is_full(), "{full}");
    // Room for what the removal of two steps gives back.
    disk.limit(Some(4 * 4000));
    let keep = Policy {
        last: 2,
        ..Policy::default()
    };
    let id = store
        .fence_keeping(&Claimant::new(Some(2), "next"), &keep, |view| {
            Ok::<_, StoreError>(choose(view))
        })
        .unwrap();
    assert_eq!(store.resumes_from(id).unwrap().unwrap().folder.step, 4);
    assert_eq!(store.view().unwrap().folders.len(), 2);
}

#[test]
fn abandoned_save_reports_real_times() {
    let disk = FaultyDisk::new(1);
    let mut zero = session(&disk.client(), 1, 0, 2).unwrap();
    let (clock, abandon) = crate::abandon::abandonable(Arc::clone(&zero.clock));
    zero.clock = clock;
    abandon.now();
    let error = zero.save(7, &State::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "step 7 was abandoned after 0 s: no piece of 1 of 2 ranks: rank 1"
    );
    // All pieces are there, so it is committed although it was abandoned.
    let other = session(&disk.client(), 1, 1, 2).unwrap();
    let deadline = Duration::from_mins(1);
    other
        .write_piece(
            &other.folder(7),
            &state(7, 1, 9),
            deadline,
            &mut Progress::default(),
        )
        .unwrap();
    let saved = zero.save(7, &State::default()).unwrap();
    let name = within(&saved.commit.folder.path(), COMMIT_FILE);
    let commit = zero.store.read::<Commit>(&name).unwrap().unwrap();
    assert!(commit.document.seconds.write < 60.0);
    assert!(saved.write < 60.0 && saved.wait < 60.0, "{saved:?}");
}

/// Waits until retention has begun the operation at which it hangs, so that no operation of the next save is the one that hangs.
fn wait_until_it_hangs(client: &Faulty, at: u64) {
    while client.operations() <= at {
        thread::yield_now();
    }
}

#[test]
fn retention_that_hangs_is_one_thread() {
    let disk = FaultyDisk::new(1);
    let before = session(&disk.client(), 1, 0, 1).unwrap();
    before.save(1, &state(1, 0, 2000)).unwrap();
    let client = disk.copy(1).client();
    let commit_ends = {
        let rank = session(&client, 1, 0, 1).unwrap();
        rank.commit_step(2, &state(2, 0, 2000)).unwrap();
        client.operations()
    };
    let client = disk.client_with(&[(commit_ends, Fault::Hang)]);
    let rank = session(&client, 1, 0, 1).unwrap();
    let saver = Saver::new(rank.clone());
    for step in 2..=6 {
        // Each save has a clock of its own, as one that can be abandoned.
        let (clock, _) = crate::abandon::abandonable(Arc::clone(&rank.clock));
        let own = Arc::new(Session {
            clock,
            ..rank.clone()
        });
        let Started::Save(save) = saver.save_by(own, step, state(step, 0, 2000)) else {
            panic!("nothing is in flight");
        };
        save.committed(Duration::MAX).unwrap().unwrap();
        wait_until_it_hangs(&client, commit_ends);
    }
    assert!(!saver.settle(Duration::ZERO), "the first one still hangs");
    assert_eq!(rank.store.view().unwrap().folders.len(), 6);
    disk.release();
    assert!(saver.settle(Duration::from_mins(1)));
    let Started::Save(save) = saver.save(7, state(7, 0, 2000)) else {
        panic!("nothing is in flight");
    };
    save.committed(Duration::MAX).unwrap().unwrap();
    assert!(saver.settle(Duration::from_mins(1)));
    assert_eq!(saver.counts().removed, 5);
}

#[test]
fn save_ends_before_retention() {
    let disk = FaultyDisk::new(1);
    let before = session(&disk.client(), 1, 0, 1).unwrap();
    before.save(1, &state(1, 0, 2000)).unwrap();
    let client = disk.copy(1).client();
    let commit_ends = {
        let rank = session(&client, 1, 0, 1).unwrap();
        rank.commit_step(2, &state(2, 0, 2000)).unwrap();
        client.operations()
    };
    let client = disk.client_with(&[(commit_ends, Fault::Hang)]);
    let saver = Saver::new(session(&client, 1, 0, 1).unwrap());
    for step in [2, 3] {
        let Started::Save(save) = saver.save(step, state(step, 0, 2000)) else {
            panic!("retention of the step before holds the slot");
        };
        save.committed(Duration::MAX).unwrap().unwrap();
        assert_eq!(saver.close(Duration::MAX), Closed::Finished);
        wait_until_it_hangs(&client, commit_ends);
    }
    assert_eq!(saver.counts().removed, 0);
    disk.release();
    assert_eq!(load(&disk, 1).unwrap().0, 3);
}

#[test]
fn layout_and_objects_survive_every_fault() {
    let whole = State {
        layout: Some(cuts::layout()),
        objects: Some(Map::from_iter([("seed".to_owned(), 7.into())])),
        ..state(1, 0, 2000)
    };
    let operations = {
        let client = FaultyDisk::new(1).client();
        let rank = session(&client, 1, 0, 1).unwrap();
        let before = client.operations();
        rank.save(1, &whole).unwrap();
        before..client.operations()
    };
    for at in operations {
        for (fault, is_exclusive) in [
            (Fault::DoneButFailed, false),
            (Fault::DoneButExists, false),
            (Fault::Io, true),
            (Fault::NoSpace, true),
        ] {
            let disk = FaultyDisk::new(1);
            let client = disk.client_with(&[(at, fault)]);
            let rank = session(&client, 1, 0, 1).unwrap();
            disk.exclusive(is_exclusive);
            // A save that failed is tried again, as the final save of a job is.
            let saved = rank.save(1, &whole).or_else(|_| rank.save(1, &whole));
            saved.unwrap_or_else(|error| panic!("{at} {fault:?}: {error}"));
            let mut memory = Memory::default();
            let loaded = loader(&disk)
                .load(&wanted(1), &[0], &mut memory)
                .unwrap()
                .unwrap();
            assert_eq!(loaded.objects[&0].values["seed"], 7, "{at} {fault:?}");
            assert_eq!(memory.0[&(0, 0)], image_of(&whole), "{at} {fault:?}");
            let folder = rank.folder(1);
            let commit = rank
                .store
                .read::<Commit>(&within(&folder.path(), COMMIT_FILE));
            let commit = commit.unwrap().unwrap().document;
            let verified = crate::verify::verify(&rank.store, &folder, &commit, true);
            assert_eq!(verified.problems, [], "{at} {fault:?}");
        }
    }
}
