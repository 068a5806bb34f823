//! Files that one pod writes and the others must see.
//!
//! Invariant: a volume that does not respond blocks no other work: it is used on a thread that
//! is left behind when its time is over.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::Path,
    thread,
    time::Duration,
};

use trainyard_core::probe::Probed;

use super::{
    limit::Limit,
    message::{VolumeAction, VolumeStep},
};
use crate::deadline::begin;

/// Between two looks for a file that is not there yet.
const PAUSE: Duration = Duration::from_millis(100);
/// More than any of our files has.
const LARGEST: u64 = 4096;

/// Does one step and returns the files that are not as they should be, each with the reason.
pub(super) fn step(step: &VolumeStep, wait: Duration) -> Vec<(String, String)> {
    let (own, limit) = (step.clone(), Limit::after(wait));
    let grace = wait + Duration::from_secs(1);
    let ended = begin(grace, move || Probed::Read(done(&own, limit))).finish();
    let Probed::Read(wrong) = ended else {
        let why = format!("no answer within {:.0} s", grace.as_secs_f64());
        return vec![(step.path.clone(), why)];
    };
    wrong
}

fn done(step: &VolumeStep, limit: Limit) -> Vec<(String, String)> {
    let folder = Path::new(&step.path);
    let one = |name: &str, outcome: io::Result<()>| {
        let failed = outcome
            .err()
            .map(|error| (name.to_owned(), error.to_string()));
        failed.into_iter().collect()
    };
    match &step.action {
        VolumeAction::Write { name, text } => one(name, write(&folder.join(name), text)),
        VolumeAction::Remove { name } => one(name, fs::remove_file(folder.join(name))),
        VolumeAction::Look { files } => look(folder, files, limit),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    // Never over what is there already.
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Looks until every file is there or the time is over: network file systems may show them late.
fn look(folder: &Path, files: &[(String, String)], limit: Limit) -> Vec<(String, String)> {
    loop {
        let wrong = |(name, text): &(String, String)| {
            let why = match read(&folder.join(name)) {
                Ok(found) if found == *text => return None,
                Ok(_) => "it holds something else".to_owned(),
                Err(error) => error.to_string(),
            };
            Some((name.clone(), why))
        };
        let missing: Vec<(String, String)> = files.iter().filter_map(wrong).collect();
        if missing.is_empty() || limit.is_over() {
            return missing;
        }
        thread::sleep(PAUSE);
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LARGEST).read_to_string(&mut text)?;
    Ok(text)
}
