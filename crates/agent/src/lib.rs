//! What runs inside the pods of a job: the remote shell of `mpirun` and its server, and the supervisor of training programs.
//!
//! One static program, brought to every pod by an init container (`trainyard_core::launch::agent`), so that images need no `sshd`
//! and launchers no rights. [`supervise()`] is the first process of a training container: it restarts the program in place.
//!
//! # Flow
//! [`install()`] copies the program. [`serve`] is what a worker runs: it accepts connections and
//! starts a command for each. [`remote_shell`] is what `mpirun` calls in place of ssh: it waits until
//! the worker answers, passes the command on, and ends as it does.
//!
//! # Guarantees
//! - Both sides show a certificate of the job's own authority (TLS 1.3); others get no further.
//! - A worker refuses a command of another attempt than its own.
//! - A command whose remote shell is gone is ended with all that it started. One that ends by itself
//!   leaves what it put into the background, as with ssh: Open MPI's daemons detach themselves.
//! - Commands, connections, the size of a request, waits and buffers are bounded.
//!
//! # Assumptions
//! A worker is the first process of its container, or adopts orphans like it: it reaps every process
//! that no other process does.
#![forbid(unsafe_code)]

mod children;
#[doc(hidden)]
pub mod feed;
mod frame;
mod guests;
mod identity;
mod install;
mod link;
mod server;
mod session;
mod settings;
mod shell;
mod supervise;
mod wait;
mod words;

pub use identity::IdentityError;
pub use install::{InstallError, install};
pub use server::{ServeError, serve};
pub use settings::{Settings, SettingsError};
pub use shell::remote_shell;
pub use supervise::{ask_for_stacks, supervise};

/// Logs a message to stderr: the log of the pod, or the terminal of the remote shell's caller.
#[expect(
    clippy::print_stderr,
    reason = "the remote shell prints to stderr as ssh does; a worker's stderr is its log"
)]
fn log_message(message: &str) {
    eprintln!("trainyard: {message}");
}

/// An error with its cause.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
