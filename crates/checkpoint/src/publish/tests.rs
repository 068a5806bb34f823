use std::{fmt, sync::Arc, time::Duration};

use super::*;
use crate::{
    clock::ManualClock,
    faulty::{Fault, FaultyDisk},
};

fn names(storage: &dyn Storage) -> Vec<String> {
    let entries = storage.list("").unwrap();
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn same_bytes_of_many_leave_one_file() {
    let disk = FaultyDisk::new(1);
    let clock = ManualClock::start();
    for token in 0..5 {
        let client = disk.client();
        let published = publish(&client, &*clock, "layout", b"same", token).unwrap();
        assert_eq!(published, Published::Done);
    }
    let other = publish(&disk.client(), &*clock, "layout", b"more", 9).unwrap();
    assert_eq!(other, Published::Other(b"same".to_vec()));
    assert_eq!(names(&disk.client()), ["layout"]);
}

#[test]
fn failed_publish_leaves_no_temporary() {
    // Create, write, sync, link, unlink, sync of the folder.
    for at in 1..4 {
        for fault in [Fault::NoSpace, Fault::Io, Fault::DoneButExists] {
            let disk = FaultyDisk::new(1);
            let client = disk.client_with(&[(at, fault)]);
            let published = publish(&client, &*ManualClock::start(), "x", b"1", 7);
            let left = names(&client);
            let is_clean = left.iter().all(|name| name == "x");
            assert!(is_clean, "{at} {fault:?}: {left:?} {published:?}");
        }
    }
}

/// A clock that does something when somebody waits.
struct Waiting<F>(F);

impl<F> fmt::Debug for Waiting<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Waiting")
    }
}

impl<F: Fn() + Send + Sync> Clock for Waiting<F> {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wait(&self, _: Duration) {
        (self.0)();
    }

    fn date(&self) -> u64 {
        0
    }
}

#[test]
fn half_of_a_copy_is_not_yet_the_file() {
    let body = b"the same bytes";
    for (rest, expected) in [
        (&body[4..], Published::Done),
        (&b"other"[..], Published::Other(b"the other".to_vec())),
    ] {
        let disk = FaultyDisk::new(1);
        disk.exclusive(true);
        // Another writer has taken the name and has written some bytes.
        let first: Arc<dyn Output> = disk.client().create("x").unwrap().into();
        first.write_at(0, &body[..4]).unwrap();
        let finish = Waiting(move || first.write_at(4, rest).unwrap());
        let published = publish(&disk.client(), &finish, "x", body, 7).unwrap();
        assert_eq!(published, expected);
        assert_eq!(names(&disk.client()), ["x"]);
    }
    // One that was killed there: bounded, and an error.
    let disk = FaultyDisk::new(1);
    disk.client().create("x").unwrap();
    let refused = publish(&disk.client(), &*ManualClock::start(), "x", body, 7).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn full_disk_within_a_copy_frees_the_name() {
    let disk = FaultyDisk::new(1);
    disk.exclusive(true);
    disk.limit(Some(15));
    let clock = ManualClock::start();
    let refused = publish(&disk.client(), &*clock, "x", b"ten bytes!", 7).unwrap_err();
    assert!(crate::storage::is_full(&refused), "{refused}");
    assert_eq!(names(&disk.client()), Vec::<String>::new());
    disk.limit(None);
    let published = publish(&disk.client(), &*clock, "x", b"ten bytes!", 8).unwrap();
    assert_eq!(published, Published::Done);
}

#[test]
fn unfinished_names() {
    let token = "0123456789abcdef";
    for (name, is_ours) in [
        (format!("00000.safetensors.tmp-{token}"), true),
        (format!("objects/00003.json.tmp-{token}"), true),
        (format!("COMMIT.json.tmp-{token}"), true),
        (format!("notes.tmp-{token}"), false),
        (format!("00000.safetensors.tmp-{token}.bak"), false),
        ("00000.safetensors.tmp-1".to_owned(), false),
        ("00000.safetensors.tmp-0123456789ABCDEF".to_owned(), false),
        (".tmp-".to_owned(), false),
    ] {
        assert_eq!(is_unfinished(&name), is_ours, "{name}");
    }
}

/// A source that fails at one chunk.
#[derive(Debug)]
struct Broken(AtomicU64);

impl Input for Broken {
    fn size(&self) -> io::Result<u64> {
        Ok(1 << 20)
    }

    fn read_at(&self, offset: u64, _: &mut [u8]) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        if offset == 0 {
            return Err(io::Error::other("broken"));
        }
        Ok(())
    }
}

#[test]
fn writers_stop_when_one_fails() {
    let client = FaultyDisk::new(1).client();
    let file = client.create("x").unwrap();
    let source = Broken(AtomicU64::new(0));
    let work = Work {
        file: &*file,
        source: &source,
        size: 1 << 20,
        chunk_bytes: 512,
        next: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
        chunks: 2048,
        may_continue: &|| Ok(()),
    };
    work.run().unwrap_err();
    assert_eq!(work.run().unwrap(), [], "the other thread takes no chunk");
    assert_eq!(source.0.load(Ordering::Relaxed), 1);
}
