//! `trainyard_checkpoint._engine`: the checkpoint engine for Python.
//!
//! A thin border: it turns Python values into those of `trainyard-checkpoint-engine` and results and errors back. It decides nothing
//! and writes nothing by itself. Tensors that are saved never cross it: Python copies them into the mapping of an arena, and the
//! engine reads that by descriptor. Tensors that are restored cross as buffers of Python, which are written with the GIL.
//!
//! The `unsafe` of this border is written by the macros of pyo3; the workspace's rule against `unsafe` of ours holds here too.
//!
//! Every call that can wait releases the GIL. Threads that outlive a call never take it, so they cannot hang an interpreter that ends.

mod arena;
mod drain;
mod error;
mod restore;
mod save;
mod store;
mod tiers;

use pyo3::prelude::*;

/// The module that Python imports.
#[pymodule]
mod _engine {
    #[pymodule_export]
    use super::{
        arena::{Arena, Layout, owner},
        drain::Drain,
        error::{Abandoned, CheckpointError, Damaged, Fenced, NoRoom, NotFound},
        restore::Checkpoint,
        save::{Save, Session},
        store::{Attempt, Store},
    };
}
