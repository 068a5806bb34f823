//! The drain on disks that fail, cut at every operation.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use trainyard_core::checkpoint::DrainPolicy;

use super::*;
use crate::{
    clock::SystemClock,
    faulty::{Fault, Faulty, FaultyDisk, Loss},
    save::Progress,
    storage::Storage as _,
    tiers::{
        TierOptions,
        tests::{MINUTE, Process, drain_two, load, save_two, start, start_beside, start_two},
    },
    verify,
};

fn begin(local: &Faulty, shared: &Faulty, attempt: u32) -> Process {
    start(local, shared, attempt, TierOptions::default()).unwrap()
}

/// The files of a step, with their bytes.
fn files(store: &Store, folder: &StepName) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for inner in ["", "/objects"] {
        let path = format!("{}{inner}", folder.path());
        for entry in store.storage.list(&path).unwrap() {
            let name = within(&path, &entry.name);
            if let Ok(bytes) = read_small(&*store.storage, &name, 1 << 20)
                && entry.kind == crate::storage::Kind::File
            {
                files.insert(name, bytes);
            }
        }
    }
    files
}

/// Whether all bytes of a step on the shared tier are right.
fn verified(process: &Process, folder: &StepName) -> bool {
    let name = within(&folder.path(), COMMIT_FILE);
    let commit = process.tiers.shared.read::<Commit>(&name).unwrap().unwrap();
    let checked = verify::verify(&process.tiers.shared, folder, &commit.document, true);
    checked.problems.is_empty()
}

#[test]
fn same_files_byte_for_byte() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    one.save(5);
    let folder = one.session.folder(5);
    assert_eq!(
        one.drain.turn(None).unwrap(),
        Turn::Committed(folder.clone())
    );
    let copied = files(&one.tiers.shared, &folder);
    assert_eq!(copied, files(&one.tiers.local, &folder));
    assert_eq!(copied.len(), 5);
    assert!(verified(&one, &folder));
    assert_eq!(
        one.drain.turn(None).unwrap(),
        Turn::Nothing("nothing to copy".to_owned())
    );
}

#[test]
fn every_cut_of_a_drain_keeps_what_there_is() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    one.save(1);
    one.drain.turn(None).unwrap();
    one.save(2);
    let whole = {
        let copy = shared.copy(1);
        let client = copy.client();
        let second = begin(&local.copy(1).client(), &client, 2);
        let before = client.operations();
        second.drain.turn(None).unwrap();
        before..client.operations()
    };
    let mut cuts = 0;
    for at in whole {
        for (seed, loss) in [
            None,
            Some(Loss::All),
            Some(Loss::Bytes),
            Some(Loss::Entries),
        ]
        .into_iter()
        .chain([Some(Loss::Some); 4])
        .enumerate()
        {
            let context = format!("operation {at}, {loss:?}");
            let (near, far) = (local.copy(seed as u64), shared.copy(seed as u64));
            let client = far.client_with(&[(at, Fault::Kill)]);
            let cut = begin(&near.client(), &client, 2);
            let ended = cut.drain.turn(None);
            assert!(client.is_dead(), "{context}: {ended:?}");
            if let Some(loss) = loss {
                far.power_loss(loss);
                near.power_loss(loss);
            }
            // Without the local tier: what the shared one had, or the step that was being copied, in full.
            let alone = far.copy(1);
            let lost = begin(&FaultyDisk::new(9).client(), &alone.client(), 3);
            let (step, failures) = load(vec![lost.tiers.stores().remove(1)], 1).unwrap();
            assert!((1..=2).contains(&step), "{context}");
            assert!(ended.is_err() || step == 2, "{context}");
            assert_eq!(failures, Vec::<String>::new(), "{context}");
            // With it: nothing is lost, and the next drain continues without help.
            let next = begin(&near.client(), &far.client(), 3);
            assert!(next.from.as_ref().unwrap().contains("step 2"), "{context}");
            next.drain.turn(None).unwrap();
            let folder = one.session.folder(2);
            assert!(verified(&next, &folder), "{context}");
            next.save(3);
            next.drain.turn(None).unwrap();
            assert!(verified(&next, &next.session.folder(3)), "{context}");
            cuts += 1;
        }
    }
    println!("{cuts} cuts of a drain");
    assert!(cuts > 150, "{cuts}");
}

#[test]
fn pieces_that_are_there_are_not_copied_again() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    begin(&local.client(), &shared.client(), 1).save(1);
    let cost = |far: &FaultyDisk, attempt| {
        let client = far.client();
        let process = begin(&local.copy(1).client(), &client, attempt);
        let before = client.operations();
        process.drain.turn(None).unwrap();
        client.operations() - before
    };
    let full = cost(&shared.copy(1), 2);
    // Cut at the commit, which is the last file.
    let far = shared.copy(7);
    let opening = {
        let client = shared.copy(1).client();
        begin(&local.copy(1).client(), &client, 2);
        client.operations()
    };
    // The commit and retention take fewer than ten operations.
    let killed = far.client_with(&[(opening + full - 10, Fault::Kill)]);
    let process = begin(&local.copy(1).client(), &killed, 2);
    assert!(process.drain.turn(None).is_err());
    let rest = cost(&far, 3);
    assert!(rest + 8 <= full, "{rest} of {full}");
}

#[test]
fn full_tier_fails_the_drain_alone() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    one.save(1);
    one.drain.turn(None).unwrap();
    let most = 1 << 20;
    shared.limit(Some(most));
    let used = most - shared.client().free().unwrap();
    shared.limit(Some(used + 600));
    one.save(2);
    let error = one.drain.turn(None).unwrap_err().to_string();
    assert!(
        error.starts_with("no room on the shared tier for step 2: 1300 bytes needed: "),
        "{error}"
    );
    assert_eq!(one.drain.failures().len(), 1);
    // Training and the local tier continue, and so does the drain once there is room.
    one.save(3);
    assert!(one.drain.turn(None).is_err());
    assert_eq!(load(one.tiers.stores(), 1).unwrap().0, 3);
    shared.limit(None);
    one.save(4);
    assert_eq!(
        one.drain.turn(None).unwrap(),
        Turn::Committed(one.session.folder(4))
    );
    // A full local tier fails the save, and what is there stays.
    local.limit(Some(100));
    let state = crate::tiers::tests::state(1, 5, 0);
    let error = one.session.save(5, &state).unwrap_err().to_string();
    assert!(error.starts_with("no room for step 5"), "{error}");
    assert_eq!(load(one.tiers.stores(), 1).unwrap().0, 4);
}

#[test]
fn damage_on_the_local_tier_is_not_copied() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    one.save(1);
    let folder = one.session.folder(1);
    let data = within(&folder.path(), "00000.safetensors");
    local.flip(&data, 600).unwrap();
    let error = one.drain.turn(None).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "step 1 is damaged on the local tier: `{data}` is damaged in chunk 1 (bytes 512 to 1023)"
        )
    );
    assert!(!one.tiers.is_shared(&folder).unwrap());
    one.save(2);
    one.drain.turn(None).unwrap();
    assert!(verified(&one, &one.session.folder(2)));
}

#[test]
fn slow_tier_skips_and_the_local_one_stays_small() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    for round in 0..5 {
        for step in 1..=4 {
            one.save(round * 4 + step);
        }
        let held = one.tiers.local_history().unwrap().commits.len();
        assert!(held <= 4, "{held}");
        let newest = one.session.folder(round * 4 + 4);
        assert_eq!(one.drain.turn(None).unwrap(), Turn::Committed(newest));
    }
    // Only every tenth, but the newest when the end comes.
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let options = TierOptions {
        drain: DrainPolicy { every: Some(10) },
        ..TierOptions::default()
    };
    let one = start(&local.client(), &shared.client(), 1, options).unwrap();
    for step in [10, 11, 12] {
        one.save(step);
    }
    let tenth = Turn::Committed(one.session.folder(10));
    assert_eq!(one.drain.turn(None).unwrap(), tenth);
    assert!(matches!(one.drain.turn(None).unwrap(), Turn::Nothing(_)));
    let newest = Turn::Committed(one.session.folder(12));
    assert_eq!(one.drain.turn(Some(MINUTE)).unwrap(), newest);
}

#[test]
fn bandwidth_is_limited_and_a_deadline_respected() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    let drain = Drain {
        pace: Arc::new(Pace::new(Some(100))),
        ..one.drain.clone()
    };
    one.save(1);
    let start = drain.clock.now();
    drain.turn(None).unwrap();
    let took = drain.clock.now().saturating_sub(start);
    // Three chunks of 512 bytes at most; the last need not be waited for.
    assert!(
        took >= Duration::from_secs(10) && took < Duration::from_secs(16),
        "{took:?}"
    );
    one.save(2);
    let short = drain.turn(Some(Duration::from_secs(5))).unwrap();
    let Turn::Nothing(why) = short else {
        panic!("{short:?}");
    };
    assert!(
        why.starts_with("step 2 is not copied: it takes 1") && why.ends_with(" s, 5 s are left"),
        "{why}"
    );
    // Nothing was measured: the limit is known all the same.
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let other = begin(&local.client(), &shared.client(), 1);
    other.save(1);
    let drain = Drain {
        pace: Arc::new(Pace::new(Some(100))),
        limits: DrainLimits {
            deadline: Duration::from_secs(5),
            ..other.drain.limits
        },
        ..other.drain.clone()
    };
    let short = drain.turn(Some(Duration::from_secs(5))).unwrap();
    assert!(matches!(short, Turn::Nothing(_)), "{short:?}");
    // Without an end in sight it is tried, and ends with its time.
    let late = drain.turn(None).unwrap_err();
    assert!(matches!(late, DrainError::Late { step: 1 }), "{late}");
    other.drain.turn(Some(MINUTE)).unwrap();
}

#[test]
fn end_names_what_does_not_fit() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    let drainer = Drainer::start(Drain {
        clock: SystemClock::start(),
        pace: Arc::new(Pace::new(Some(1))),
        ..one.drain.clone()
    });
    // As after SIGTERM: nothing begins before the end, which knows the time that is left.
    drainer.hold(true);
    one.save(1);
    let Ended::Behind(why) = drainer.close(MINUTE) else {
        panic!("it cannot be copied in time");
    };
    assert!(why.starts_with("step 1 is not copied: it takes "), "{why}");
    assert!(!one.tiers.is_shared(&one.session.folder(1)).unwrap());
    // The next attempt copies it without a save of its own.
    let two = begin(&local.client(), &shared.client(), 2);
    let drainer = Drainer::start(Drain {
        clock: SystemClock::start(),
        ..two.drain.clone()
    });
    assert_eq!(drainer.close(MINUTE), Ended::Finished);
    assert!(verified(&two, &one.session.folder(1)));
}

#[test]
fn rank_that_cannot_copy_ends_the_wait() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 5);
    let data = within(&folder.path(), "00001.safetensors");
    b.flip(&data, 700).unwrap();
    let given_up = drain_two(&ranks).unwrap_err();
    assert!(
        matches!(given_up, DrainError::GivenUp { step: 5 }),
        "{given_up}"
    );
    // Another rank is not waited for at the end, either: rank 0 has nothing that fits.
    let [zero, one] = ranks.map(|rank| Drain {
        clock: SystemClock::start(),
        ..rank.drain
    });
    let one = Drainer::start(one);
    let zero = Drainer::start(Drain {
        pace: Arc::new(Pace::new(Some(1))),
        ..zero
    });
    assert!(matches!(zero.close(MINUTE), Ended::Behind(_)));
    let ended = one.close(60 * MINUTE);
    assert_eq!(
        ended,
        Ended::Behind("rank 0 has shown no step to copy".to_owned())
    );
}

#[test]
fn offer_fails_before_another_rank_waits() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let folder = save_two(&start_two([&a, &b], &shared, 1), 5);
    let again = start_two([&a, &b], &shared, 2);
    let name = crate::load::data_name(&folder, 1, 0);
    again[1].tiers.local.storage.remove(&name).unwrap();
    // Rank 0 has not shown the step yet, so there is nothing that could be given up.
    again[1].drain.offer(&folder, MINUTE).unwrap_err();
    again[0].drain.offer(&folder, MINUTE).unwrap();
    assert!(!again[0].tiers.is_shared(&folder).unwrap());
}

#[test]
fn full_tier_keeps_what_other_ranks_have_copied() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    save_two(&ranks, 5);
    // The piece of rank 0 stays on the shared tier: something that may go.
    assert!(ranks[0].drain.turn(None).is_err());
    let folder = save_two(&ranks, 9);
    let again = start_two([&a, &b], &shared, 2);
    assert!(again[1].drain.bring(&folder, MINUTE).is_err());
    let most = 1 << 20;
    shared.limit(Some(most));
    let used = most - shared.client().free().unwrap();
    shared.limit(Some(used + 1_200));
    again[0].drain.bring(&folder, MINUTE).unwrap();
    assert!(verified(&again[0], &folder));
}

#[test]
fn end_tries_again_what_failed_on_any_rank() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 5);
    let data = within(&folder.path(), "00001.safetensors");
    b.flip(&data, 700).unwrap();
    assert!(drain_two(&ranks).is_err());
    b.flip(&data, 700).unwrap();
    let [zero, one] = ranks.map(|rank| {
        Drainer::start(Drain {
            clock: SystemClock::start(),
            ..rank.drain
        })
    });
    std::thread::scope(|scope| {
        let one = scope.spawn(|| one.close(MINUTE));
        assert_eq!(zero.close(MINUTE), Ended::Finished);
        assert_eq!(one.join().unwrap(), Ended::Finished);
    });
}

#[test]
fn wait_for_other_ranks_ends_with_the_process() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    save_two(&ranks, 5);
    let zero = &ranks[0];
    let start = zero.drain.clock.now();
    let grace = Duration::from_secs(7);
    zero.tiers.behind.board.lock().ends_at = Some(start + grace);
    let missing = zero.drain.turn(None).unwrap_err();
    assert!(
        matches!(missing, DrainError::Missing { step: 5, .. }),
        "{missing}"
    );
    assert_eq!(zero.drain.clock.now().saturating_sub(start), grace);
}

#[test]
fn memory_is_not_locked_while_sizes_are_read() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    one.save(1);
    let behind = &one.tiers.behind;
    let history = one.tiers.local_history().unwrap();
    let held = behind.held(&history, &|_| u64::from(behind.board.is_free()));
    assert_eq!(held[0].bytes, 1);
}

/// Shows a step as rank 0 does.
fn show(zero: &Process, folder: &StepName) {
    let history = zero.tiers.local_history().unwrap();
    let seen = history.commits.iter().find(|seen| seen.folder == *folder);
    let commit = zero.drain.commit_bytes(seen.unwrap()).unwrap();
    let name = within(&folder.path(), DRAIN_FILE);
    (zero.tiers.shared.storage)
        .make_folder(&folder.path())
        .unwrap();
    same(&zero.tiers.shared, &name, &commit).unwrap();
}

/// The steps that a process leaves on its local tier after retention.
fn after_prune(process: &Process) -> Vec<u64> {
    let session = &process.session;
    remove::prune(&session.store, Some(session.id), &session.keep, false).unwrap();
    let history = process.tiers.local_history().unwrap();
    let steps = history.commits.iter().map(|seen| seen.folder.step);
    steps.collect()
}

#[test]
fn step_that_others_of_the_node_copy_is_not_removed() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let ranks = start_beside(&local, &shared);
    let folder = save_two(&ranks, 1);
    show(&ranks[0], &folder);
    let one = &ranks[1];
    assert_eq!(one.drain.turn(None).unwrap(), Turn::Copied(folder.clone()));
    assert!(matches!(one.drain.turn(None).unwrap(), Turn::Nothing(_)));
    // Rank 1 removes older steps because it committed in place of rank 0, which still copies step 1.
    for step in 2..=4 {
        let state = crate::tiers::tests::state(1, step, 0);
        let session = &ranks[0].session;
        let deadline = session.clock.now() + MINUTE;
        let folder = session.folder(step);
        (session.write_piece(&folder, &state, deadline, &mut Progress::default())).unwrap();
        one.save(step);
    }
    assert_eq!(after_prune(one), [1, 3, 4]);
    // It may go once the shared tier has it.
    ranks[0].drain.bring(&folder, MINUTE).unwrap();
    one.drain.turn(None).unwrap();
    assert_eq!(after_prune(one), [3, 4]);
}

#[test]
fn step_that_rank_0_has_just_chosen_is_not_removed() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 1);
    show(&ranks[0], &folder);
    // Two commits come before rank 1 looks what is shown.
    save_two(&ranks, 2);
    save_two(&ranks, 3);
    assert_eq!(after_prune(&ranks[1]), [1, 2, 3]);
    let copied = ranks[1].drain.turn(None).unwrap();
    assert_eq!(copied, Turn::Copied(folder));
}

#[test]
fn pieces_are_read_once_while_others_are_waited_for() {
    let (a, b, shared) = (FaultyDisk::new(1), FaultyDisk::new(2), FaultyDisk::new(3));
    let ranks = start_two([&a, &b], &shared, 1);
    let folder = save_two(&ranks, 1);
    let opens = |work: &dyn Fn()| {
        let before = shared.opens();
        work();
        shared.opens() - before
    };
    let by_zero = opens(&|| drop(ranks[0].drain.turn(None).unwrap_err()));
    assert!(by_zero < 20, "{by_zero} files read in a wait of a minute");
    let look = || drop(ranks[1].drain.turn(None).unwrap());
    let idle = opens(&look);
    show(&ranks[0], &folder);
    // The first copies, the second reads back what was copied.
    look();
    look();
    assert_eq!(opens(&look), idle);
}

#[test]
fn end_without_time_knows_what_is_there() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let one = begin(&local.client(), &shared.client(), 1);
    one.save(1);
    one.drain.turn(None).unwrap();
    let drainer = Drainer::start(one.drain);
    assert_eq!(drainer.close(Duration::ZERO), Ended::Finished);
}

#[test]
fn zombie_stops_when_its_drain_sees_the_fence() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let old = begin(&local.client(), &shared.client(), 1);
    old.save(1);
    // The next attempt runs on another node.
    begin(&FaultyDisk::new(3).client(), &shared.client(), 2);
    old.save(2);
    let fenced = "fenced: attempt 2.0 has begun, and this is attempt 1.0";
    assert_eq!(old.drain.turn(None).unwrap_err().to_string(), fenced);
    let state = crate::tiers::tests::state(1, 3, 0);
    assert_eq!(old.session.save(3, &state).unwrap_err().to_string(), fenced);
}

#[test]
fn tier_that_hangs_blocks_neither_saves_nor_the_end() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let probe = shared.copy(1).client();
    begin(&local.copy(1).client(), &probe, 1);
    let client = shared.client_with(&[(probe.operations() + 2, Fault::Hang)]);
    let one = begin(&local.client(), &client, 1);
    let drainer = Drainer::start(Drain {
        clock: SystemClock::start(),
        ..one.drain.clone()
    });
    for step in 1..=6 {
        one.save(step);
    }
    assert!(one.tiers.local_history().unwrap().commits.len() <= 4);
    let start = Instant::now();
    assert_eq!(drainer.close(Duration::from_millis(100)), Ended::Unfinished);
    assert!(start.elapsed() < Duration::from_secs(20));
    let alone = vec![one.tiers.stores().remove(0)];
    assert_eq!(load(alone, 1).unwrap().0, 6);
    shared.release();
}

#[test]
fn background_drains_and_the_end_takes_the_newest() {
    let (local, shared) = (FaultyDisk::new(1), FaultyDisk::new(2));
    let options = TierOptions {
        drain: DrainPolicy { every: Some(10) },
        ..TierOptions::default()
    };
    let one = start(&local.client(), &shared.client(), 1, options).unwrap();
    let drainer = Drainer::start(Drain {
        clock: SystemClock::start(),
        ..one.drain.clone()
    });
    one.save(10);
    one.save(11);
    assert_eq!(drainer.close(MINUTE), Ended::Finished);
    let newest = one.session.folder(11);
    assert!(one.tiers.is_shared(&newest).unwrap());
    assert!(verified(&one, &newest));
    assert_eq!(drainer.drain().failures(), BTreeMap::new());
}
