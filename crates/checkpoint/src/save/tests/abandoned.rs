//! Saves whose deadline passed: continued, and with the times that they took.

use super::*;

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
