//! The reader against memory made by hand; `tests/it` has real interpreters.

mod fake;
mod hostile;

pub(crate) use fake::{sample, sample_described};
