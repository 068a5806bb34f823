//! The smoke trainer: a small job that really trains, to test everything around it.
//!
//! It classifies hand-written digits with a two-layer network, data-parallel over any number of
//! ranks: real gradients, summed by a ring all-reduce over TCP, with checkpoints that survive a
//! kill at any moment. It speaks the environment of `torchrun` and of a `PyTorchJob`.
//!
//! A workload, not part of the control: only the binary depends on this crate, and this crate
//! depends on none of ours. It has no framework, starts in milliseconds, and its failures are
//! easy to distinguish from those of the control plane.
//!
//! Reading order: `options`, `world` (who this rank is), `digits` (the data), `sampler`,
//! `model`, `state` and `checkpoint` (what is kept), `join` and `ring` (the other ranks,
//! in the bytes of `wire`, with the `patience` of every wait), `trainer` (the loop).
#![forbid(unsafe_code)]

mod checkpoint;
mod digest;
mod digits;
mod interface;
mod join;
mod model;
mod options;
mod patience;
mod ring;
mod sampler;
mod state;
mod stop;
mod trainer;
mod wire;
mod world;

use std::{
    ffi::OsString,
    io::{self, Write},
};

use thiserror::Error;

pub use crate::{
    checkpoint::CheckpointError, join::JoinError, options::OptionsError, ring::PeerLost,
    world::WorldError,
};
use crate::{options::Command, stop::Stop, world::World};

/// How a run ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// The help was printed.
    Helped,
    /// The target accuracy was reached.
    Reached,
    /// Training is complete, but the target accuracy was not reached.
    Missed,
    /// A rank got SIGTERM, and all exited after the step, with a checkpoint where a folder is set.
    Left,
}

impl Outcome {
    /// The exit code: 143 (SIGTERM) where it was asked to stop.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Helped | Self::Reached => 0,
            Self::Missed => 1,
            Self::Left => 143,
        }
    }
}

/// Why a run failed.
#[derive(Debug, Error)]
pub enum SmokeError {
    /// The command line.
    #[error(transparent)]
    Options(OptionsError),
    /// The environment.
    #[error(transparent)]
    World(WorldError),
    /// SIGTERM cannot be watched for.
    #[error("cannot watch for SIGTERM")]
    Signal(#[source] io::Error),
    /// The ranks did not all join.
    #[error(transparent)]
    Join(JoinError),
    /// A rank was lost during training.
    #[error(transparent)]
    Lost(PeerLost),
    /// The checkpoint folder.
    #[error(transparent)]
    Checkpoint(CheckpointError),
    /// The state that rank 0 sent at the start cannot be used.
    #[error("rank 0 sent a state that cannot be used: {why}")]
    Handout {
        /// What is wrong with it.
        why: String,
    },
    /// The loss is not finite.
    #[error("the loss is not finite at step {step}; try a smaller `--learning-rate`")]
    Diverged {
        /// The step that was not taken.
        step: u64,
    },
    /// The output is closed.
    #[error("cannot write output")]
    Output(#[source] io::Error),
}

impl SmokeError {
    /// The exit code: 2 where a retry cannot help, 1 elsewhere.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Options(_)
            | Self::World(_)
            | Self::Checkpoint(CheckpointError::Open { .. } | CheckpointError::OtherRun { .. }) => {
                2
            }
            _ => 1,
        }
    }
}

/// Trains as one rank, to the end.
///
/// `arguments` come without the name of the program; `environment` looks up a variable; what
/// people and parsers read goes to `out`, line by line. SIGTERM is watched for from here on and
/// for the life of the process.
pub fn run(
    arguments: impl Iterator<Item = OsString>,
    environment: &dyn Fn(&str) -> Option<String>,
    out: &mut dyn Write,
) -> Result<Outcome, SmokeError> {
    let options = match options::parse(arguments).map_err(SmokeError::Options)? {
        Command::Train(options) => options,
        Command::Help => {
            let written = out.write_all(options::HELP.as_bytes());
            written
                .and_then(|()| out.flush())
                .map_err(SmokeError::Output)?;
            return Ok(Outcome::Helped);
        }
    };
    let world = World::read(environment).map_err(SmokeError::World)?;
    let stop = Stop::on_sigterm().map_err(SmokeError::Signal)?;
    trainer::train(&options, &world, &stop, out)
}
