//! The simulation against the decider of core, and against deciders that are wrong on purpose.

mod barrier;
mod deciders;
mod fleet;
mod mutants;
mod newer;
mod placement;
mod regressions;
mod shrinking;
mod smoke;
mod stored;
mod watch;
