//! The token that a user has chosen.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use anyhow::Context as _;
use nix::{libc, unistd::Uid};
use trainyard_web::Token;

use crate::failure::Failure;

/// Most bytes of the file.
const MAX_BYTES: u64 = 4096;

/// Reads the token in `path`. A file that others may read or write is refused: whoever has the token can read all logs.
pub(super) fn read(path: &Path) -> Result<Token, Failure> {
    let shown = path.display();
    let cannot = || format!("cannot read the token in `{shown}`");
    // A FIFO would be waited for without end.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .with_context(cannot)?;
    let about = file.metadata().with_context(cannot)?;
    if !about.is_file() {
        return Err(
            Failure::new(format!("`{shown}` is not a file")).hint("write the token into a file")
        );
    }
    let is_own = about.uid() == Uid::effective().as_raw() || about.uid() == 0;
    if !is_own || about.mode() & 0o077 != 0 {
        return Err(Failure::new(format!(
            "the token in `{shown}` is not secret: the file has mode {:03o} and belongs to user {}",
            about.mode() & 0o777,
            about.uid()
        ))
        .hint(format!("run `chmod 600 {shown}`, as its owner")));
    }
    let mut text = String::new();
    file.take(MAX_BYTES)
        .read_to_string(&mut text)
        .with_context(cannot)?;
    Token::parse(&text)
        .with_context(|| format!("`{shown}` holds no token"))
        .map_err(Failure::from)
}
