use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use trainyard_core::checkpoint::Commit;

use super::*;
use crate::{
    Files, Session,
    clock::ManualClock,
    faulty::{Fault, Faulty, FaultyDisk},
    save::{Image, Limits, State},
    storage::Shared,
    verify::verify_present,
};

fn session(storage: Shared) -> Session {
    let store = Store::create(storage, ManualClock::start(), Some("run"), 1).unwrap();
    let id = store.fence(Some(1), "test", |_| None).unwrap();
    Session {
        store: Arc::new(store),
        clock: ManualClock::start(),
        id,
        rank: 0,
        world: 1,
        limits: Limits::default(),
        keep: Policy {
            last: 9,
            ..Policy::default()
        },
    }
}

fn state(finite: Option<bool>) -> State {
    State {
        images: vec![Image {
            source: Arc::new(vec![7; 100]),
            data: 8,
        }],
        objects: Some(serde_json::Map::new()),
        finite,
        ..State::default()
    }
}

fn two() -> Policy {
    Policy {
        last: 2,
        ..Policy::default()
    }
}

fn steps(store: &Store) -> Vec<u64> {
    let folders = store.view().unwrap().folders;
    folders
        .iter()
        .filter_map(|folder| Some(folder.name()?.step))
        .collect()
}

/// Moves a folder of a store elsewhere and puts a link in its place.
fn link(root: &Path, name: &str, elsewhere: &Path) {
    fs::rename(root.join(name), elsewhere).unwrap();
    symlink(elsewhere, root.join(name)).unwrap();
}

#[test]
fn nothing_is_removed_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let rank = session(Arc::new(Files::open(&root).unwrap()));
    for step in 1..=4 {
        rank.save(step, &state(None)).unwrap();
    }
    let (objects, step) = (folder.path().join("objects"), folder.path().join("step"));
    link(
        &root,
        &format!("{}/objects", rank.folder(1).path()),
        &objects,
    );
    link(&root, &rank.folder(2).path(), &step);
    fs::write(root.join("latest"), format!("{}\n", rank.folder(2))).unwrap();
    let view = rank.store.view().unwrap();
    assert_eq!(view.foreign, [rank.folder(2).path()]);
    assert_eq!(steps(&rank.store), [1, 3, 4]);

    let pruned = prune(&rank.store, None, &two(), false).unwrap();
    assert_eq!(pruned.removed, []);
    assert!(
        pruned.failures[0].contains("(first: `objects`)"),
        "{pruned:?}"
    );
    assert!(objects.join("00000.json").exists());
    assert!(step.join("COMMIT.json").exists());
    let refused = remove_step(&*rank.store.storage, &rank.folder(2), true).unwrap_err();
    assert_eq!(refused.to_string(), "it is not a folder");
    assert!(step.join("COMMIT.json").exists());
}

#[test]
fn commit_that_was_not_seen_stays() {
    let disk = FaultyDisk::new(1);
    let rank = session(Arc::new(disk.client()));
    rank.save(1, &state(None)).unwrap();
    let (storage, folder) = (&*rank.store.storage, rank.folder(1));
    let kept = remove_step(storage, &folder, false).unwrap();
    assert_eq!(kept, Removal::Committed);
    let view = rank.store.view().unwrap();
    assert_eq!(view.commits().len(), 1, "the commit is there again");
    assert_eq!(remove_step(storage, &folder, true).unwrap(), Removal::Done);
    assert_eq!(
        remove_step(storage, &folder, true).unwrap(),
        Removal::Done,
        "another process was faster"
    );
}

#[test]
fn commit_that_was_not_seen_survives_every_cut() {
    let disk = FaultyDisk::new(1);
    let rank = session(Arc::new(disk.client()));
    rank.save(1, &state(None)).unwrap();
    let folder = rank.folder(1);
    for fault in [Fault::Kill, Fault::Io] {
        for at in 0..4 {
            let copy = disk.copy(1);
            drop(remove_step(
                &copy.client_with(&[(at, fault)]),
                &folder,
                false,
            ));
            let storage = Arc::new(copy.client());
            let store = Store::existing(storage, ManualClock::start(), 1).unwrap();
            let commits = store.view().unwrap().commits();
            assert_eq!(commits.len(), 1, "operation {at}, {fault:?}");
        }
    }
}

#[test]
fn step_that_is_not_finite_does_not_stop_retention() {
    let disk = FaultyDisk::new(1);
    let rank = session(Arc::new(disk.client()));
    for step in 1..=5 {
        rank.save(step, &state(Some(step != 4))).unwrap();
    }
    prune(&rank.store, Some(rank.id), &two(), false).unwrap();
    assert_eq!(steps(&rank.store), [3, 4, 5]);
}

#[test]
fn truncated_step_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    let rank = session(Arc::new(Files::open(&root).unwrap()));
    for step in 1..=4 {
        rank.save(step, &state(None)).unwrap();
    }
    for file in ["00000.safetensors", "objects/00000.json"] {
        let path = root.join(rank.folder(4).path()).join(file);
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(3)
            .unwrap();
        prune(&rank.store, None, &two(), false).unwrap();
        assert_eq!(steps(&rank.store), [2, 3, 4], "{file}");
    }
}

#[test]
fn prune_stops_at_its_deadline() {
    let disk = FaultyDisk::new(1);
    let rank = session(Arc::new(disk.client()));
    for step in 1..=4 {
        rank.save(step, &state(None)).unwrap();
    }
    let bounds = Bounds {
        in_time: &|| false,
        ..Bounds::default()
    };
    let pruned = prune_within(&rank.store, None, &two(), false, &bounds).unwrap();
    assert_eq!(
        pruned.failures,
        ["2 folders are left to remove: the deadline passed"]
    );
    assert_eq!(steps(&rank.store).len(), 4);
}

fn touch(client: &Faulty, name: &str) {
    client.create(name).unwrap();
}

#[test]
fn unfinished_files_of_earlier_attempts_go() {
    let disk = FaultyDisk::new(1);
    let rank = session(Arc::new(disk.client()));
    let client = disk.client();
    let latest = |attempt| unfinished_latest(AttemptId::first(attempt), 7 << 32);
    let record = |attempt| {
        let file = AttemptId::first(attempt).record_file();
        unfinished(&within(ATTEMPTS, &file), 7)
    };
    let old = [latest(0), record(0), unfinished(ROOT_FILE, 7)];
    let stays = [latest(1), record(1), record(2), "notes.tmp-1".to_owned()];
    for name in old.iter().chain(&stays) {
        touch(&client, name);
    }
    touch(&client, "attempts/mine.tmp-0123456789abcdef");
    prune(&rank.store, Some(rank.id), &two(), true).unwrap();
    assert!(client.stat(&old[0]).is_ok(), "a dry run removes nothing");
    prune(&rank.store, Some(rank.id), &two(), false).unwrap();
    for name in &old {
        assert!(client.stat(name).is_err(), "{name}");
    }
    for name in &stays {
        assert!(client.stat(name).is_ok(), "{name}");
    }
    let view = rank.store.view().unwrap();
    assert_eq!(view.foreign, ["attempts/mine.tmp-0123456789abcdef"]);
}

#[test]
fn step_that_is_removed_meanwhile_is_not_damaged() {
    let disk = FaultyDisk::new(1);
    let rank = session(Arc::new(disk.client()));
    rank.save(1, &state(None)).unwrap();
    let folder = rank.folder(1);
    let name = within(&folder.path(), COMMIT_FILE);
    let commit = rank.store.read::<Commit>(&name).unwrap().unwrap().document;
    let verify = || verify_present(&rank.store, &folder, &commit, true);
    assert_eq!(verify().unwrap().bytes_read, 100);
    disk.flip(&within(&folder.path(), "00000.safetensors"), 5)
        .unwrap();
    assert_eq!(verify().unwrap().problems.len(), 1);
    remove_step(&*rank.store.storage, &folder, true).unwrap();
    assert_eq!(verify(), None);
}
