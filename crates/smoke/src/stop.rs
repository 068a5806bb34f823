//! SIGTERM as a flag that is checked between two steps.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use signal_hook::consts::SIGTERM;

/// Whether this process was asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Watches for SIGTERM from here on; the signal no longer ends the process by itself.
    pub(crate) fn on_sigterm() -> io::Result<Self> {
        let stop = Self::default();
        signal_hook::flag::register(SIGTERM, Arc::clone(&stop.0))?;
        Ok(stop)
    }

    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks, as SIGTERM would.
    #[cfg(test)]
    pub(crate) fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
