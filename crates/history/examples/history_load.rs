//! Writes a made-up history and asks questions about it, with the time of each: `history_load FILE [JOBS]`.
//!
//! 10,000 jobs over 90 days, about 3 attempts each, 24 phases an attempt, 8 pods; every attempt but the last fails on a node. Sizes and mixes of real
//! jobs differ: it compares versions of this program with each other.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    time::Instant,
};

use trainyard_core::{
    account::Account,
    chronicle::{Fact, Headline, What},
    ledger::Phase,
    spec::{Role, Slot},
};
use trainyard_history::{By, End, Filter, Options, Reader, Run, Store};

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;
const DAY: i64 = 86_400_000;
const MINUTE: i64 = 60_000;
const PODS: u32 = 8;
/// Pairs of training and saving of an attempt.
const SAVES: u32 = 11;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let path = words.next().map(PathBuf::from);
    let path = path.ok_or("usage: history_load FILE [JOBS]")?;
    let jobs = words.next().and_then(|word| word.to_str()?.parse().ok());
    let jobs: u32 = jobs.unwrap_or(10_000);
    let options = Options {
        holder: "history_load".to_owned(),
        pages_max: None,
    };
    let mut store = Store::open(&path, &options)?;
    let mut out = io::stdout().lock();
    let began = Instant::now();
    let mut written = 0_u64;
    for number in 0..jobs {
        let created = START + i64::from(number) * 90 * DAY / i64::from(jobs.max(1));
        let (facts, ended) = facts(number, created);
        let run = run(number, created);
        written += store.write(&run, &facts, ended)?.new;
        let end = End {
            ended,
            outcome: "succeeded".to_owned(),
            ..End::default()
        };
        store.end(&run, &end, ended)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    let rate = f64::from(u32::try_from(written)?) / seconds;
    writeln!(
        out,
        "{written} facts of {jobs} jobs in {seconds:.1} s: {rate:.0} facts/s"
    )?;
    let bytes = store.bytes()?;
    writeln!(
        out,
        "{} MB, {} bytes a job",
        bytes / 1_000_000,
        bytes / u64::from(jobs.max(1))
    )?;
    drop(store);
    let reader = Reader::open(&path)?;
    let since = START;
    let now = START + 100 * DAY;
    let mut ask = |name: &str, ask: &dyn Fn() -> Result<(), Box<dyn std::error::Error>>| {
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let began = Instant::now();
            ask()?;
            best = best.min(began.elapsed().as_secs_f64());
        }
        writeln!(out, "{name}: {:.1} ms, the best of 5", best * 1_000.0)?;
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    ask("report by team, 100 days", &|| {
        Ok(reader.report(By::Team, since, now).map(drop)?)
    })?;
    ask("report by kind, 100 days", &|| {
        Ok(reader.report(By::Kind, since, now).map(drop)?)
    })?;
    ask("report by team, 30 days", &|| {
        Ok(reader.report(By::Team, now - 30 * DAY, now).map(drop)?)
    })?;
    let filter = Filter {
        limit: 50,
        ..Filter::default()
    };
    ask("list of 50", &|| Ok(reader.list(&filter).map(drop)?))?;
    Ok(())
}

fn run(number: u32, created: i64) -> Run {
    Run {
        uid: format!("run-{number:06}"),
        source: "/made/up".to_owned(),
        namespace: format!("team-{}", number % 7),
        name: format!("job-{}", number % 500),
        kind: ["PyTorchJob", "MPIJob", "TFJob"]
            .get((number % 3) as usize)
            .map_or_else(String::new, |kind| (*kind).to_owned()),
        team: format!("team-{}", number % 7),
        ranks: PODS * 8,
        accelerators: Some(PODS * 8),
        created,
        ..Run::default()
    }
}

/// The facts of a job, and when it ended.
fn facts(number: u32, created: i64) -> (Vec<Fact>, i64) {
    let mut whats = vec![(created, What::Began)];
    let mut at = created;
    let mut span = |whats: &mut Vec<(i64, What)>, attempt, phase, minutes: i64| {
        let from = at;
        at += minutes * MINUTE + i64::from(number % 997);
        let what = What::Span {
            from,
            to: at,
            attempt,
            phase,
        };
        whats.push((at, what));
        at
    };
    let attempts = 1 + number % 5;
    let mut now = created;
    for attempt in 1..=attempts {
        whats.push((now, What::Attempt { attempt }));
        for index in 0..PODS {
            let seated = What::Seated {
                attempt,
                slot: Slot::new(Role::Worker, index),
                first_rank: Some(index * 8),
                ranks: 8,
                node: format!("gpu-{:03}", (number * 13 + index) % 400),
            };
            whats.push((now, seated));
        }
        span(&mut whats, attempt, Phase::Placing, 3);
        now = span(&mut whats, attempt, Phase::Starting, 4);
        for _ in 0..SAVES {
            span(&mut whats, attempt, Phase::Training, 25);
            now = span(&mut whats, attempt, Phase::Saving, 1);
        }
        if attempt < attempts {
            let failed = Headline {
                attempt,
                pod: "job-worker-3".to_owned(),
                slot: Some(Slot::new(Role::Worker, 3)),
                account: Some(Account::Infrastructure),
                message: "exit code 1".to_owned(),
                step: Some(100),
            };
            whats.push((now, What::Failed(failed)));
        }
    }
    let numbered = whats.into_iter().zip(0..);
    let facts = numbered.map(|((at, what), seq)| Fact {
        version: 1,
        seq,
        at,
        what,
    });
    (facts.collect(), now)
}
