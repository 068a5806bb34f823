//! Opens a URL in the browser of this desktop.

use std::{
    io,
    process::{Command, Stdio},
};

/// The program that each system has for it.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else {
    "xdg-open"
};

/// Starts the browser and does not wait for it.
pub(super) fn open(url: &str) -> io::Result<()> {
    let mut child = Command::new(OPENER)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start `{OPENER}`: {error}"))
        })?;
    std::thread::spawn(move || drop(child.wait()));
    Ok(())
}
