//! What the next process of an operator needs to know after a crash, in a folder of this machine.
//!
//! `in-work` holds the job whose pass is being computed right now. It is overwritten in place before and after every
//! step of a pass: what is written to a file stays when the process is killed, and costs no call to the API server.
//! `set-aside.json` holds the records; it is replaced as a whole and seldom.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use super::suspects::{Mark, Suspects};

/// Bytes of `in-work`: an identity, a kind, a namespace and a name at their longest fit.
const RECORD: usize = 512;
/// The first byte while a job is in work, and while none is.
const BUSY: u8 = b'*';
const IDLE: u8 = b'-';
/// Bytes of `set-aside.json` that are read.
const STORED_MAX: u64 = 4 << 20;

/// The folder of an operator.
#[derive(Debug)]
pub(super) struct Journal {
    in_work: File,
    folder: PathBuf,
}

/// What the last process left.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// The job that was in work when it ended.
    pub(super) crashed: Option<Mark>,
    /// The records.
    pub(super) stored: Option<Suspects>,
}

impl Journal {
    pub(super) fn open(folder: &Path) -> io::Result<(Self, Left)> {
        fs::create_dir_all(folder)?;
        let in_work = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join("in-work"))?;
        let journal = Self {
            in_work,
            folder: folder.to_owned(),
        };
        let mut record = Vec::new();
        let size = RECORD as u64;
        (&journal.in_work).take(size).read_to_end(&mut record)?;
        let left = Left {
            crashed: mark_of(&record),
            stored: journal.stored(),
        };
        journal.in_work.write_all_at(&[IDLE; RECORD], 0)?;
        Ok((journal, left))
    }

    /// Marks a job as in work until the returned value is dropped, also by a panic.
    pub(super) fn enter(&self, record: &[u8]) -> InWork<'_> {
        // A disk that takes nothing costs the memory of crashes, and no pass.
        drop(self.in_work.write_all_at(record, 0));
        InWork(self)
    }

    pub(super) fn save(&self, suspects: &Suspects) -> io::Result<()> {
        let (path, new) = (self.path(), self.folder.join("set-aside.json.new"));
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(suspects)?)?;
        file.sync_all()?;
        fs::rename(new, path)
    }

    /// The records; none if they cannot be read: then it takes two more crashes.
    fn stored(&self) -> Option<Suspects> {
        let mut text = Vec::new();
        let file = File::open(self.path()).ok()?;
        file.take(STORED_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }

    fn path(&self) -> PathBuf {
        self.folder.join("set-aside.json")
    }
}

/// A job is in work.
#[derive(Debug)]
pub(super) struct InWork<'a>(&'a Journal);

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        drop(self.0.in_work.write_all_at(&[IDLE], 0));
    }
}

/// A mark as it is written.
pub(super) fn record_of(mark: &Mark) -> Vec<u8> {
    let text = format!("{} {}\n", mark.uid, mark.job);
    let mut record = vec![BUSY];
    record.extend(text.bytes().take(RECORD - 2));
    record.resize(RECORD, b'\n');
    record
}

fn mark_of(record: &[u8]) -> Option<Mark> {
    let text = record.strip_prefix(&[BUSY])?;
    let text = std::str::from_utf8(text).ok()?;
    let (uid, job) = text.lines().next()?.split_once(' ')?;
    Some(Mark {
        uid: uid.to_owned(),
        job: job.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            uid: "8a4c1f6e".to_owned(),
            job: "PyTorchJob team/bert".to_owned(),
        }
    }

    #[test]
    fn job_in_work_is_found_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, left) = Journal::open(folder.path()).unwrap();
        assert!(left.crashed.is_none() && left.stored.is_none());
        // What a killed process does: it never drops.
        std::mem::forget(journal.enter(&record_of(&mark())));
        let (journal, left) = Journal::open(folder.path()).unwrap();
        assert_eq!(left.crashed, Some(mark()));
        let (_, left) = Journal::open(folder.path()).unwrap();
        assert_eq!(left.crashed, None, "a crash is counted once");
        drop(journal.enter(&record_of(&mark())));
        let (_, left) = Journal::open(folder.path()).unwrap();
        assert_eq!(left.crashed, None, "a step that ended is not a crash");
    }

    #[test]
    fn panic_is_not_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(folder.path()).unwrap();
        let record = record_of(&mark());
        let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _in_work = journal.enter(&record);
            std::panic::resume_unwind(Box::new("a pass panics"));
        }));
        assert!(step.is_err());
        let (_, left) = Journal::open(folder.path()).unwrap();
        assert_eq!(left.crashed, None);
    }

    #[test]
    fn damaged_files_are_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let longest = Mark {
            uid: "u".repeat(36),
            job: "é".repeat(2_000),
        };
        let records: [&[u8]; 5] = [b"", b"*", b"*\xff\xff a", b"*onlyone", &[b'*'; 4096]];
        for record in records {
            fs::write(folder.path().join("in-work"), record).unwrap();
            fs::write(folder.path().join("set-aside.json"), record).unwrap();
            let (_, left) = Journal::open(folder.path()).unwrap();
            assert!(
                left.crashed.is_none() && left.stored.is_none(),
                "{record:?}"
            );
        }
        assert_eq!(record_of(&longest).len(), RECORD);
    }

    #[test]
    fn records_are_stored() {
        let folder = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(folder.path()).unwrap();
        let suspects = Suspects::recover(None, Some(&mark()), "0.1.0", 5);
        journal.save(&suspects).unwrap();
        let (_, left) = Journal::open(folder.path()).unwrap();
        assert_eq!(left.stored, Some(suspects));
    }
}
