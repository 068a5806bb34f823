//! Writes facts of one run after the other into a store, forever, and prints each batch that is written: what a test kills.

use std::{
    io::{self, Write as _},
    path::PathBuf,
};

use trainyard_core::{
    chronicle::{Fact, What},
    ledger::Phase,
};
use trainyard_history::{BATCH, End, Options, Run, Store};

/// Facts of one run.
const FACTS: i64 = 2_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let path = path.ok_or("usage: history_writer FILE")?;
    let options = Options {
        holder: "a writer that is killed".to_owned(),
        pages_max: None,
    };
    let mut store = Store::open(&path, &options)?;
    let mut out = io::stdout().lock();
    for number in 0_u32.. {
        let uid = format!("run-{number:05}");
        let state = store.state(&uid)?;
        if state.is_some_and(|state| state.is_complete) {
            continue;
        }
        let run = Run {
            uid: uid.clone(),
            namespace: "default".to_owned(),
            name: "job".to_owned(),
            team: "team".to_owned(),
            accelerators: Some(8),
            ..Run::default()
        };
        let facts: Vec<Fact> = (0..FACTS).map(fact).collect();
        for batch in facts.chunks(BATCH) {
            store.write(&run, batch, FACTS)?;
            let last = batch.last().map_or(0, |fact| fact.seq);
            writeln!(out, "{uid} {last}")?;
            out.flush()?;
        }
        let end = End {
            ended: FACTS,
            outcome: "succeeded".to_owned(),
            ..End::default()
        };
        store.end(&run, &end, FACTS)?;
        writeln!(out, "{uid} end")?;
        out.flush()?;
    }
    Ok(())
}

fn fact(at: i64) -> Fact {
    let what = match at {
        0 => What::Began,
        _ => What::Span {
            from: at - 1,
            to: at,
            attempt: 1,
            phase: Phase::Training,
        },
    };
    Fact {
        version: 1,
        seq: at.unsigned_abs(),
        at,
        what,
    }
}
