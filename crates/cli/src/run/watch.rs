//! The loop that shows a run until it is over.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use signal_hook::flag;
use trainyard_host::stop_signals;

use super::{
    queue::Queue,
    screen::{Frame, Screen},
    view::View,
};
use crate::{failure::Failure, printer::Printer};

/// Lines are collected for at least this long, so that a flood is written in few pieces.
const PACE: Duration = Duration::from_millis(20);
/// Poll interval for stop requests.
const PATIENCE: Duration = Duration::from_millis(100);

/// Signals that ask the run to stop, as far as the view has to say something about them. The
/// engine acts on them by itself.
#[derive(Debug)]
pub(crate) struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in stop_signals() {
            flag::register(*signal, Arc::clone(&asked))?;
        }
        Ok(Self(asked))
    }

    /// Whether one came since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Shows what comes through `queue` until it is closed; the live line is gone afterwards.
///
/// A stdout that takes no more does not end the run; the failure is returned when it is over.
pub(crate) fn watch(
    queue: &Queue,
    began: Instant,
    signals: &Signals,
    view: &mut View,
    screen: &mut Screen,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut failure = None;
    let mut requests = 0;
    loop {
        let now = began.elapsed();
        let due = view.due_at().into_iter().chain(screen.redraw_at()).min();
        let wait = due.map_or(PATIENCE, |due| {
            due.saturating_sub(now).clamp(PACE, PATIENCE)
        });
        let batch = queue.take(wait);
        let closed = batch.closed;
        view.width_is(printer.width());
        view.take(batch);
        if signals.take() {
            requests += 1;
            view.stop_requested(requests);
        }
        let now = began.elapsed();
        let mut lines = view.due(now);
        if closed {
            lines.extend(view.finish());
        }
        let frame = screen.frame(&lines, now, printer.width(), || view.live_line(now));
        if let Err(error) = show(&frame, printer) {
            failure.get_or_insert(error);
        }
        if closed {
            printer.draw(&screen.erase(printer.width()));
            return failure.map_or(Ok(()), Err);
        }
        // Whatever arrives in the meantime comes with the next frame.
        std::thread::sleep(PACE);
    }
}

/// Writes a frame to both streams.
pub(crate) fn show(frame: &Frame, printer: &mut Printer) -> Result<(), Failure> {
    if !frame.before.is_empty() {
        printer.draw(&frame.before);
    }
    let written = if frame.stdout.is_empty() {
        Ok(())
    } else {
        printer
            .data(frame.stdout.as_bytes())
            .and_then(|()| printer.flush())
    };
    if !frame.stderr.is_empty() {
        printer.draw(&frame.stderr);
    }
    written
}
