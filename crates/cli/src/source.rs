//! Reading the files that the user names.
//!
//! Invariant: never more than one byte above the reader's limit is held, whatever is named: a file
//! of gigabytes, a device or a pipe that never ends.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use crate::failure::Failure;

/// What stdin is called in messages.
const STDIN: &str = "<stdin>";

/// The name of a file in messages.
pub(crate) fn name(path: &Path) -> String {
    if is_stdin(path) {
        STDIN.to_owned()
    } else {
        path.display().to_string()
    }
}

/// At most `limit` + 1 bytes of the file at `path`, or of stdin where it is `-`. The one byte more
/// lets the reader distinguish a file that is too long from one that just fits.
pub(crate) fn read(path: &Path, limit: usize) -> Result<Vec<u8>, Failure> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    let outcome = if is_stdin(path) {
        io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    match outcome {
        Ok(_) => Ok(bytes),
        Err(error) => Err(refusal(path, error)),
    }
}

/// Whether the path stands for stdin.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Why the file at `path` cannot be read, and what to do.
pub(crate) fn refusal(path: &Path, error: io::Error) -> Failure {
    let name = name(path);
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("cannot read `{name}`: no such file"))
            .hint("check the path; `-` reads stdin"),
        io::ErrorKind::IsADirectory => {
            Failure::new(format!("cannot read `{name}`: it is a folder")).hint(format!(
                "name the files in it, such as `{}`",
                path.join("*.yaml").display()
            ))
        }
        io::ErrorKind::PermissionDenied => {
            Failure::new(format!("cannot read `{name}`: permission denied"))
                .hint(format!("check its permissions with `ls -l {name}`"))
        }
        _ => anyhow::Error::new(error)
            .context(format!("cannot read `{name}`"))
            .into(),
    }
}
