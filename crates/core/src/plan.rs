//! What fits, how fast, how often it will break and what it will cost, before any job file is written.
//!
//! Values in, values out: a model ([`shape`], by [`names`] or by its numbers), a cluster
//! ([`hardware`]), a way to spread the one over the other ([`layout`]) and the [`software`] that does
//! it; memory by part ([`memory`]) and time by part ([`time`]) come out. One share of the peak
//! for each GPU and precision is fitted by a command ([`efficiency`]). The rest is counted, or stated with its
//! source; some constants of [`software`] and of the links were chosen by hand with the published runs at
//! hand, and say so.
//!
//! [`tuning`] says what of the model is trained, [`profile`] what this machine was measured to reach, and [`confidence`]
//! how far off such a prediction usually is.
//!
//! [`rows`] reads published runs, predicts them and says how far off the predictions are.
//!
//! Invariant: the same arguments give the same bytes; nothing here reads a file or the clock.

pub mod answer;
pub mod confidence;
pub mod config;
pub mod efficiency;
pub mod flops;
pub mod groups;
pub mod hardware;
pub mod layout;
pub mod memory;
pub mod names;
pub mod profile;
pub mod recovery;
pub mod rows;
pub mod search;
pub mod shape;
pub mod software;
pub mod time;
pub mod tuning;
