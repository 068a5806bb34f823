//! Errors of the engine as exceptions, one sentence each.

use std::{fmt::Display, io};

use pyo3::{PyErr, create_exception, exceptions::PyException};
use trainyard_checkpoint_engine::{
    begin::BeginError, regions::RegionsError, save::SaveError, store::StoreError,
};
use trainyard_core::checkpoint::ReshardError;

create_exception!(
    trainyard_checkpoint,
    CheckpointError,
    PyException,
    "A checkpoint could not be saved or restored."
);
create_exception!(
    trainyard_checkpoint,
    Fenced,
    CheckpointError,
    "A later attempt of the same run has begun: this process should end."
);
create_exception!(
    trainyard_checkpoint,
    NotFound,
    CheckpointError,
    "The root, the step or the tensor does not exist."
);
create_exception!(
    trainyard_checkpoint,
    Damaged,
    CheckpointError,
    "A file of the step is missing or is not what was written."
);
create_exception!(
    trainyard_checkpoint,
    NoRoom,
    CheckpointError,
    "The volume is full, also after retention removed what it may."
);
create_exception!(
    trainyard_checkpoint,
    Abandoned,
    CheckpointError,
    "The deadline of the save passed before every rank had written its part."
);

/// An error without a class of its own.
pub(crate) fn plain(error: impl Display) -> PyErr {
    CheckpointError::new_err(error.to_string())
}

/// Something that Python asked for and that makes no sense.
pub(crate) fn refused(error: &io::Error) -> PyErr {
    plain(error)
}

pub(crate) fn of_store(error: &StoreError) -> PyErr {
    let text = error.to_string();
    match error {
        StoreError::Fenced { .. } => Fenced::new_err(format!(
            "{text}; if both are to run, give each a root of its own"
        )),
        StoreError::NotAStore => NotFound::new_err(text),
        _ => CheckpointError::new_err(text),
    }
}

pub(crate) fn of_begin(error: &BeginError) -> PyErr {
    match error {
        BeginError::Store(error) => of_store(error),
        BeginError::NothingUsable(_) => Damaged::new_err(error.to_string()),
        BeginError::NoRecord { .. } => NotFound::new_err(error.to_string()),
    }
}

pub(crate) fn of_regions(error: &RegionsError) -> PyErr {
    let text = error.to_string();
    match error {
        RegionsError::Store(error) => of_store(error),
        RegionsError::NoCommit(_)
        | RegionsError::Damaged(_)
        | RegionsError::Reshard(ReshardError::Index(_)) => Damaged::new_err(text),
        RegionsError::Reshard(_) => NotFound::new_err(text),
        RegionsError::Sink(_) => CheckpointError::new_err(text),
    }
}

pub(crate) fn of_save(error: &SaveError) -> PyErr {
    let text = error.to_string();
    match error {
        SaveError::Store(error) => of_store(error),
        SaveError::Full { .. } | SaveError::NoExchange { .. } => NoRoom::new_err(text),
        SaveError::Missing { .. } | SaveError::Late { .. } => Abandoned::new_err(text),
        _ => CheckpointError::new_err(text),
    }
}
