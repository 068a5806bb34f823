//! The dashboard in a terminal: what it asks, what keys do, and what is drawn.
//!
//! [`State`] takes events and returns effects; [`draw()`] draws a state. Both are pure: whoever calls them asks the questions, knows the time and owns
//! the threads. [`Screen`] is the only part that touches a terminal.
//!
//! Invariants: nothing of a document reaches the terminal unescaped, since all text is drawn by one function. Nothing is drawn outside of the frame,
//! whatever its size. No state is shown by its colour alone. The terminal is as it was before, however the program ends. Nothing acts on a job.
#![forbid(unsafe_code)]

mod ansi;
mod ask;
mod canvas;
mod document;
mod draw;
mod keys;
mod look;
mod screen;
mod state;
mod text;

pub use ask::Ask;
pub use document::{Answer, Trouble};
pub use draw::{draw, measure, once};
pub use keys::{Key, Keys};
pub use look::{Depth, Look};
pub use screen::{Input, Screen};
pub use state::{Effects, Event, Extents, Measure, Source, State};
