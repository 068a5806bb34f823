//! The server itself, and the operator against it.

mod poison;
mod server;
mod status;
