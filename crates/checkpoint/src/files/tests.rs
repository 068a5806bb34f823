use std::{fs, io, os::unix::fs::symlink};

use super::*;
use crate::buffer::{Aligned, BLOCK};

#[test]
fn publish_ways() {
    for publish in [Publish::Link, Publish::RenameNoReplace, Publish::Exclusive] {
        let folder = tempfile::tempdir().unwrap();
        let profile = Profile {
            publish,
            direct: false,
        };
        let files = Files::with_profile(folder.path(), profile);
        for name in ["one.tmp", "two.tmp"] {
            let file = files.create(name).unwrap();
            file.write_at(0, name.as_bytes()).unwrap();
            file.sync().unwrap();
        }
        files.publish("one.tmp", "final").unwrap();
        let refused = files.publish("two.tmp", "final").unwrap_err();
        assert_eq!(
            refused.kind(),
            io::ErrorKind::AlreadyExists,
            "{publish:?}: {refused}"
        );
        assert_eq!(fs::read(folder.path().join("final")).unwrap(), b"one.tmp");
        assert!(!folder.path().join("one.tmp").exists(), "{publish:?}");
    }
}

#[test]
fn failed_copy_frees_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let profile = Profile {
        publish: Publish::Exclusive,
        direct: false,
    };
    let files = Files::with_profile(folder.path(), profile);
    // The copy fails after the final name was taken.
    files.publish("missing.tmp", "final").unwrap_err();
    assert!(!folder.path().join("final").exists());
}

#[test]
fn links_to_folders_are_not_folders() {
    let folder = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (folder.path().join("root"), folder.path().join("elsewhere"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "x").unwrap();
    symlink(&elsewhere, root.join("steps")).unwrap();
    let files = Files::existing(&root).unwrap();
    for refused in [
        files.make_folder("steps").unwrap_err(),
        files.list("steps").unwrap_err(),
    ] {
        assert_eq!(refused.kind(), io::ErrorKind::NotADirectory, "{refused}");
    }
    // The root itself may be a link.
    let link = folder.path().join("link");
    symlink(&root, &link).unwrap();
    assert_eq!(Files::existing(&link).unwrap().list("").unwrap().len(), 1);
}

#[test]
fn writes_of_any_size_and_alignment() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::open(folder.path()).unwrap();
    let length = 5 * BLOCK + 123;
    let mut data = Aligned::new(length);
    for (at, byte) in data.iter_mut().enumerate() {
        *byte = u8::try_from(at % 251).unwrap();
    }
    for (at, (name, piece)) in [("whole", length), ("blocks", 2 * BLOCK), ("odd", 1000)]
        .into_iter()
        .enumerate()
    {
        let file = files.create(name).unwrap();
        file.reserve(length as u64).unwrap();
        for start in (0..length).step_by(piece) {
            let end = (start + piece).min(length);
            file.write_at(start as u64, &data[start..end]).unwrap();
        }
        file.sync().unwrap();
        assert_eq!(fs::read(folder.path().join(name)).unwrap(), *data, "{at}");
    }
}

#[test]
fn probe_of_a_usable_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("deep/root");
    let files = Files::open(&root).unwrap();
    assert_eq!(files.profile().name(), "posix");
    assert_eq!(files.list("").unwrap(), [], "the probe leaves nothing");
    assert!(files.free().unwrap() > 0);
}

#[test]
fn probe_names_owner_and_mode() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let refused = Files::open(&folder.path().join("file/root")).unwrap_err();
    let sentence = refused.to_string();
    assert!(
        sentence.starts_with("cannot create the folder in `"),
        "{sentence}"
    );
    assert!(sentence.contains("mode 0"), "{sentence}");
    assert!(sentence.contains("this process has uid"), "{sentence}");
}

#[test]
fn names_stay_below_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files::existing(folder.path()).unwrap();
    for name in ["../x", "a/../../x", "/etc/passwd", "a//b", ".", "a\0b"] {
        let refused = files.create(name).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{name:?}");
    }
}

#[test]
fn links_and_pipes_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("target"), "x").unwrap();
    symlink("target", folder.path().join("link")).unwrap();
    rustix::fs::mknodat(
        CWD,
        folder.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let files = Files::existing(folder.path()).unwrap();
    assert!(files.open("target").is_ok());
    assert!(files.open("link").is_err());
    assert!(files.open("pipe").is_err());
    assert_eq!(files.stat("link").unwrap().kind, Kind::Other);
}
