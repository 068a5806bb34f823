use std::{fs, os::unix::fs::symlink};

use nix::unistd::mkfifo;

use super::*;

fn beats() -> (tempfile::TempDir, Beats) {
    let folder = tempfile::tempdir().unwrap();
    let (beats, note) = Beats::new(folder.path().join("beats"));
    assert_eq!(note, None);
    (folder, beats)
}

fn step(step: u64) -> Heartbeat {
    Heartbeat {
        step: Some(step),
        ..Heartbeat::default()
    }
}

#[test]
fn names_of_files() {
    let cases = [
        ("j-worker-1-2-7", Some(("j-worker-1-2-7", (7, None)))),
        ("j-worker-1-2-7.3", Some(("j-worker-1-2-7", (7, Some(3))))),
        ("j-worker-1-2-7.03", None),
        ("j-worker-1-2-7.+3", None),
        ("j-worker-1-2-7.tmp", None),
        ("j.1-2-7", Some(("j.1-2-7", (7, None)))),
        ("7", None),
        ("", None),
        ("-", None),
        ("j-99999999999999999999999", None),
    ];
    for (name, want) in cases {
        assert_eq!(parse_name(name), want, "{name}");
    }
}

#[test]
fn writes_are_reported_and_read() {
    let (_folder, mut beats) = beats();
    let folder = beats.folder().unwrap().to_owned();
    assert_eq!(beats.take_written(), Written::default());
    fs::write(folder.join("a-0"), "step=1").unwrap();
    fs::write(folder.join("new"), "step=2").unwrap();
    fs::rename(folder.join("new"), folder.join("a-0.1")).unwrap();
    let written = beats.take_written();
    assert!(written.names.contains("a-0"), "{written:?}");
    assert!(written.names.contains("a-0.1"), "{written:?}");
    assert_eq!(beats.read((0, None), "a-0"), Some((step(1), None)));
    assert_eq!(beats.read((0, Some(1)), "a-0"), Some((step(2), None)));
    fs::write(folder.join("a-0"), "step=3").unwrap();
    assert_eq!(beats.read((0, None), "a-0"), Some((step(3), Some(step(1)))));
    beats.forget(0, "a-0");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    assert!(beats.last.is_empty());
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let (outside, mut beats) = beats();
    let folder = beats.folder().unwrap().to_owned();
    fs::write(outside.path().join("target"), "step=9").unwrap();
    symlink(outside.path().join("target"), folder.join("link-0")).unwrap();
    symlink("loop-0", folder.join("loop-0")).unwrap();
    mkfifo(&folder.join("fifo-0"), Mode::S_IRWXU).unwrap();
    fs::create_dir(folder.join("folder-0")).unwrap();
    fs::write(folder.join("empty-0"), "").unwrap();
    fs::write(folder.join("garbage-0"), [0xff_u8, 0, 27].repeat(1_000)).unwrap();
    for name in [
        "link-0",
        "loop-0",
        "fifo-0",
        "folder-0",
        "empty-0",
        "garbage-0",
        "none-0",
    ] {
        assert_eq!(beats.read((0, None), name), None, "{name}");
    }
    // The path may lead elsewhere by now; the folder that was made is the one that is read.
    fs::write(folder.join("a-0"), "step=1").unwrap();
    fs::rename(&folder, outside.path().join("moved")).unwrap();
    symlink(outside.path(), &folder).unwrap();
    assert_eq!(beats.read((0, None), "a-0"), Some((step(1), None)));
}

#[test]
fn of_a_huge_file_the_end_is_read() {
    let (_folder, mut beats) = beats();
    let path = beats.folder().unwrap().join("a-0");
    let file = File::create(&path).unwrap();
    // Sparse: it takes no room on the disk.
    file.set_len(1 << 40).unwrap();
    assert_eq!(beats.read((0, None), "a-0"), None);
    file.write_all_at(b"\nstep=7\n", (1 << 40) - 8).unwrap();
    assert_eq!(beats.read((0, None), "a-0"), Some((step(7), None)));
}

#[test]
fn a_folder_that_cannot_be_made_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let (beats, note) = Beats::new(folder.path().to_owned());
    assert!(note.unwrap().contains("`TRAINYARD_BEAT`"));
    assert!(beats.folder().is_none() && beats.descriptor().is_none());
    assert_eq!(beats.take_written(), Written::default());
}
