//! The server itself, and the operator against it.

mod server;
