//! The binary as its users meet it: full snapshots of stdout, stderr and exit code.
//!
//! Every call runs under the limits that bad input must keep (see `call.rs`), so any test that
//! passes also shows that the answer came within them. `UPDATE=1 cargo test -p trainyard` rewrites
//! the snapshots in `tests/testdata/`.
#![forbid(unsafe_code)]

mod agent;
mod agreement;
mod bad_input;
mod call;
mod checkpoints;
mod control;
mod dashboard;
mod debug_cluster;
mod detached;
mod doctor;
mod examples;
mod fabrics;
mod faults;
mod findings;
mod golden;
mod growth;
mod hangs;
mod history;
mod in_cluster;
mod inspect;
mod looking;
mod new;
#[path = "../../../probe/src/read/tests/node.rs"]
mod node;
mod notices;
mod objects;
mod placement;
mod plain;
mod plain_words;
mod planning;
mod preflight;
mod profile;
mod program;
mod readme;
mod report;
mod resume;
mod run;
mod stored;
mod streams;
mod supervise;
mod top;
mod trainjob;
mod trust;
mod truth;
mod verdict;
