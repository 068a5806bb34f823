//! The server itself, and the operator against it.

mod events;
mod lease;
mod logs;
mod look;
mod operator;
mod pass;
mod poison;
mod progress;
mod push;
mod server;
mod status;
mod storm;
mod trainjob;
