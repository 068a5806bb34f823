//! What a person sees while a job runs and when it is over.
//!
//! ```text
//! engine thread ──push──▶ queue ──take──▶ view ──lines──▶ screen ──frames──▶ printer
//!                         (gate)          (fold, names, clean, live)
//! ```
//!
//! Everything between the queue and the printer is pure; [`watch()`] is the loop around it. The
//! engine never waits for the terminal.
//!
//! Invariant: whatever ranks write, and however fast, memory and the work for the screen are
//! bounded.

mod fold;
mod gate;
mod live;
pub(crate) mod names;
mod queue;
pub(crate) mod report;
mod screen;
#[cfg(test)]
pub(crate) mod testing;
mod view;
mod watch;

pub(crate) use queue::Queue;
pub(crate) use screen::{Screen, Target};
pub(crate) use view::{Look, View};
pub(crate) use watch::{Signals, show, watch};
