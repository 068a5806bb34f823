//! The server itself, and the operator against it.

mod lease;
mod logs;
mod look;
mod operator;
mod pass;
mod server;
mod storm;
