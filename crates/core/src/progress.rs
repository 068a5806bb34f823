//! How far a training program is, from what it prints.
//!
//! The only place that reads steps. `run`, the operator, the doctor, `explain` and reports all use it, so that one
//! line means the same everywhere.
//!
//! # Flow
//!
//! Bytes of one stream go through a [`Reader`], which splits them into lines (also at `\r`), drops colour codes and turns
//! each line into a [`Reading`]. [`StepReporters`] finds which of the streams of an attempt reports its steps. A [`Track`]
//! puts the readings of one attempt in order of time.
//!
//! Trainers differ in the names that they give to a few values, and hardly in grammar: there are lines of names and
//! values, in any order, and there are progress bars. So a line is not matched against one expression for each trainer.
//! It is split into names and values once, and `names` holds the table of what each name means; bars are read in `bar`.
//! What a program sends instead of printing it is read by [`push`], with the same table.
//! What a program prints in no known form can be described by an expression in a file of rules ([`UserRules`]).
//!
//! # Guarantees
//!
//! What a line does not contain is `None`, never a guess. An epoch is not a step. The work for one line is bounded.

mod bar;
mod event;
mod fields;
mod figure;
mod lines;
mod names;
pub mod push;
mod reader;
mod reported;
mod reporters;
pub mod rota;
mod rules;
mod track;

pub(crate) use bar::after as text_after_bar;
pub use figure::Figure;
pub(crate) use lines::LineReader;
pub use reader::Reader;
pub use reported::Progress;
pub use reporters::StepReporters;
pub(crate) use rules::GROUPS;
pub use rules::UserRules;
pub use track::Track;

/// What one line of a training program reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The step, counted from the start of the training.
    pub step: Option<u64>,
    /// The number of steps after which the training ends.
    pub last_step: Option<u64>,
    /// The epoch; some programs report parts of one.
    pub epoch: Option<f64>,
    /// The training loss. It can be NaN or infinite: that is a report too.
    pub loss: Option<f64>,
    /// The norm of the gradients. It can be NaN or infinite.
    pub grad_norm: Option<f64>,
    /// The learning rate.
    pub learning_rate: Option<f64>,
    /// Tokens in a second, of all ranks or of one, as the program counts them.
    pub tokens_per_second: Option<f64>,
    /// Samples in a second.
    pub samples_per_second: Option<f64>,
    /// The time of one step.
    pub step_seconds: Option<f64>,
    /// What the line says besides numbers.
    pub event: Option<Event>,
}

/// What a program reports besides numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It began to save a checkpoint.
    Saving,
    /// It saved one.
    Saved,
    /// It evaluates, which is not training.
    Evaluating,
}

#[cfg(test)]
mod tests;
