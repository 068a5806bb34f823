//! The dashboard of this machine.

pub(crate) mod local;
