//! The engine against real, short processes.
//!
//! Every test starts the example program `engine` in a folder of its own and waits on what it
//! says, never on time.

mod bad_input;
mod faults;
mod figures;
mod harness;
mod lifecycle;
mod mpi;
mod orphans;
mod surroundings;
