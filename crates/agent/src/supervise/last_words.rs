//! The file whose content the kubelet keeps with the status of a container that has ended.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::fcntl::OFlag;
use trainyard_core::launch::supervise::LastWords;

use crate::log_message;

/// Writes `words` to `path`. A program that has left a message there keeps it.
pub(crate) fn write(path: &Path, words: &LastWords) {
    if let Err(error) = try_write(path, words) {
        log_message(&format!("cannot write `{}`: {error}", path.display()));
    }
}

fn try_write(path: &Path, words: &LastWords) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits());
    let mut file = match options.open(path) {
        Ok(file) => file,
        // The kubelet makes it; elsewhere there is none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() || found.len() > 0 {
        return Ok(());
    }
    file.write_all(words.encode().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use trainyard_core::launch::supervise::HowEnded;

    use super::*;

    #[test]
    fn message_of_the_program_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let words = LastWords {
            attempt: 2,
            rank: Some(1),
            how: HowEnded::Ended,
            code: 1,
            signal: None,
            last_line: Some("RuntimeError: boom".to_owned()),
        };
        write(&path, &words);
        assert!(!path.exists(), "the kubelet makes it");
        fs::write(&path, "").unwrap();
        write(&path, &words);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(LastWords::parse(&text), Some(words.clone()));
        fs::write(&path, "mine").unwrap();
        write(&path, &words);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
