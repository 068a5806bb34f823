//! Jobs on Kubernetes: watches and acts for the decisions of `trainyard-core`.
#![forbid(unsafe_code)]

pub mod convert;
pub mod crd;
pub mod rights;
