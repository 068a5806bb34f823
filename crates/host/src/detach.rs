//! An engine of its own: away from the terminal and the session it was started in.

use std::{fs::OpenOptions, io};

use nix::unistd;

/// Makes this process the first of a session of its own, which no terminal can end.
pub fn new_session() -> io::Result<()> {
    match unistd::setsid() {
        // The first of a group has a session already that is its own, or is started by a shell that waits for it.
        Ok(_) | Err(nix::Error::EPERM) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Closes the streams that this process was started with.
pub fn leave_streams() -> io::Result<()> {
    let nowhere = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    unistd::dup2_stdin(&nowhere)?;
    unistd::dup2_stdout(&nowhere)?;
    unistd::dup2_stderr(&nowhere)?;
    Ok(())
}
