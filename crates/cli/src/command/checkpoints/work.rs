//! Long work with its progress: a thread works, this one prints how far it is.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{failure::Failure, printer::Printer, words};

/// Between two lines of progress on a terminal, and elsewhere.
const LIVE: Duration = Duration::from_secs(1);
const PLAIN: Duration = Duration::from_secs(10);

/// Runs `work`, which counts bytes; prints progress of work that takes longer than a second.
pub(super) fn with_progress<T: Send + 'static>(
    total: u64,
    verb: &str,
    printer: &mut Printer,
    work: impl FnOnce(&Arc<AtomicU64>) -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = Arc::new(AtomicU64::new(0));
    let (send, ended) = channel();
    let counter = Arc::clone(&done);
    let thread = thread::Builder::new().name("checkpoints".into());
    thread
        .spawn(move || drop(send.send(work(&counter))))
        .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    let is_live = printer.stderr_is_terminal() && printer.wants_warnings();
    let pause = if is_live { LIVE } else { PLAIN };
    let began = Instant::now();
    let mut is_drawn = false;
    loop {
        match ended.recv_timeout(pause) {
            Ok(result) => {
                if is_drawn {
                    printer.draw("\r\x1b[K");
                }
                return Ok(result);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("the work ended without a result"));
            }
            Err(RecvTimeoutError::Timeout) => {
                let bytes = done.load(Ordering::Relaxed).min(total);
                let line = format!(
                    "{verb} {} of {} bytes, {}",
                    words::grouped(bytes),
                    words::grouped(total),
                    words::duration(began.elapsed())
                );
                if is_live {
                    printer.draw(&format!("\r\x1b[K{line}"));
                    is_drawn = true;
                } else {
                    printer.summary(&line);
                }
            }
        }
    }
}
