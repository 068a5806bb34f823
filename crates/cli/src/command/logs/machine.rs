//! The logs of a run on this machine, from the store.

use std::{thread, time::Duration};

use trainyard_core::spec::{Kind, Slot};
use trainyard_host::store::LogFile;

use super::{Label, Pieces, Writer, wanted_slot};
use crate::{
    args::Logs,
    failure::{Exit, Failure},
    paint::Paint,
    printer::Printer,
    run::names,
    stored::{self, Stored},
};

/// Poll interval of followed logs.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);

/// Prints the lines.
pub(super) fn run(args: &Logs, printer: &mut Printer) -> Result<Exit, Failure> {
    let store = stored::open(&args.state)?;
    let run = stored::find(&store, &args.which)?;
    let wanted = Wanted::new(args, &run)?;
    if let (Some(rank), Some(slot)) = (args.rank, wanted.slot) {
        note_shared_log(&run, rank, slot, printer);
    }
    if args.follow {
        return follow(args, &run, &wanted, printer);
    }
    let attempt = match wanted.attempt {
        Some(attempt) => attempt,
        None => match last_attempt(&run)? {
            Some(attempt) => attempt,
            // A program may have nothing to say.
            None if !run.live => {
                let job = &run.record.name;
                let named = args.which.run.as_ref();
                let named = named.map_or(String::new(), |run| format!(" --run {run}"));
                printer.summary(&format!(
                    "no pod of job `{job}` wrote anything before it ended; `trainyard explain {job}{named}` says how"
                ));
                return Ok(Exit::Done);
            }
            None => return Err(nothing_yet(&run)),
        },
    };
    let logs = wanted.logs(&run, attempt, printer.stdout_paint())?;
    if logs.is_empty() {
        let job = &run.record.name;
        let failure = Failure::new(format!(
            "attempt {attempt} of job `{job}` has no log of this pod"
        ));
        return Err(failure.hint(if run.kind().is_some_and(Kind::is_mpi) {
            format!(
                "ranks of an MPIJob write through `mpirun`: `trainyard logs {job} --pod launcher`"
            )
        } else {
            format!("`trainyard logs {job}` prints the existing logs")
        }));
    }
    let mut writer = Writer::new(args, logs.len() > 1, printer);
    for log in &logs {
        let (offset, mut pieces) = begin(&mut writer, args, &log.log)?;
        let mut reader = log.log.open(offset).map_err(stored::refused)?;
        writer.copy(&log.label, &mut reader, &mut pieces)?;
        writer.end(&log.label, &mut pieces)?;
    }
    Ok(Exit::Done)
}

/// Prints what is there and what comes, until the run is over.
fn follow(
    args: &Logs,
    run: &Stored,
    wanted: &Wanted,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let paint = printer.stdout_paint();
    let mut writer = Writer::new(args, wanted.slot.is_none() && run.pods() > 1, printer);
    let mut open: Vec<(Source, u64, Pieces)> = Vec::new();
    let first = wanted.attempt.or(last_attempt(run)?).unwrap_or(1);
    loop {
        // Asked before the logs are read, so that what a run wrote last is not missed.
        let live = run.folder.is_live();
        let attempts = run.folder.attempts().map_err(stored::refused)?;
        for attempt in attempts.into_iter().filter(|attempt| {
            wanted
                .attempt
                .map_or(*attempt >= first, |only| *attempt == only)
        }) {
            for log in wanted.logs(run, attempt, paint)? {
                if !open.iter().any(|(known, ..)| known.log == log.log) {
                    let (offset, pieces) = begin(&mut writer, args, &log.log)?;
                    open.push((log, offset, pieces));
                }
            }
        }
        for (log, offset, pieces) in &mut open {
            let mut reader = log.log.open(*offset).map_err(stored::refused)?;
            writer.copy(&log.label, &mut reader, pieces)?;
            *offset = reader.offset();
        }
        if !live {
            for (log, _, pieces) in &mut open {
                writer.end(&log.label, pieces)?;
            }
            return Ok(Exit::Done);
        }
        writer.printer.flush()?;
        if !writer.printer.has_reader() {
            return Ok(Exit::Done);
        }
        thread::sleep(FOLLOW_EVERY);
    }
}

/// Where in `log` to begin, and which of its lines to pass over.
fn begin(writer: &mut Writer<'_>, args: &Logs, log: &LogFile) -> Result<(u64, Pieces), Failure> {
    let mut pieces = Pieces::default();
    let mut offset = 0;
    if let Some(at) = args.since {
        match log.offset_since(at).map_err(stored::refused)? {
            Some(since) => offset = since,
            None if !writer.untimed => {
                writer.untimed = true;
                writer.printer.summary(
                    "warning: `--since` is ignored: this run was made by an older version, which recorded \
                     no timestamps",
                );
            }
            None => {}
        }
    }
    if let Some(tail) = args.tail {
        let mut reader = log.open(offset).map_err(stored::refused)?;
        pieces.skip = writer.count(&mut reader)?.saturating_sub(tail);
    }
    Ok((offset, pieces))
}

/// A log of the store.
#[derive(Debug)]
struct Source {
    log: LogFile,
    label: Label,
}

/// Which logs are asked for.
#[derive(Debug)]
struct Wanted {
    attempt: Option<u32>,
    slot: Option<Slot>,
    container: Option<String>,
}

impl Wanted {
    fn new(args: &Logs, run: &Stored) -> Result<Self, Failure> {
        let job = &run.record.name;
        if args.first_failure {
            return Self::first_failure(run, args.attempt);
        }
        let record = &run.record;
        let slot = wanted_slot(args, job, record.ranks, &record.replicas)?;
        if let Some(attempt) = args.attempt {
            let known = run.folder.attempts().map_err(stored::refused)?;
            if !known.contains(&attempt) && !args.follow {
                let hint = match known.last() {
                    Some(last) => format!("its last is attempt {last}"),
                    None => "it has none yet".to_owned(),
                };
                let message = format!("job `{job}` has no logs of attempt {attempt}");
                return Err(Failure::new(message).hint(hint));
            }
        }
        Ok(Self {
            attempt: args.attempt,
            slot,
            container: None,
        })
    }

    fn first_failure(run: &Stored, attempt: Option<u32>) -> Result<Self, Failure> {
        let job = &run.record.name;
        let mut failures = run.failures.iter();
        let wanted =
            failures.find(|failed| attempt.is_none_or(|attempt| failed.attempt == attempt));
        let Some(failed) = wanted else {
            let so_far = if run.live { " so far" } else { "" };
            let within = attempt.map_or_else(
                || format!("in this run{so_far}"),
                |attempt| format!("in attempt {attempt}, as far as logs were kept"),
            );
            let message = format!("no pod of job `{job}` failed {within}");
            return Err(
                Failure::new(message).hint(format!("`trainyard logs {job}` prints what ran"))
            );
        };
        Ok(Self {
            attempt: Some(failed.attempt),
            slot: Some(failed.slot),
            container: Some(failed.container.clone()),
        })
    }

    /// The logs of `attempt` that are wanted, in listing order.
    fn logs(&self, run: &Stored, attempt: u32, paint: Paint) -> Result<Vec<Source>, Failure> {
        let logs = run.folder.logs(attempt).map_err(stored::refused)?;
        let mut logs: Vec<(Option<Slot>, LogFile)> = logs
            .into_iter()
            .map(|log| (run.slot_called(&log.pod), log))
            .filter(|(slot, log)| {
                self.slot.is_none_or(|wanted| *slot == Some(wanted))
                    && self
                        .container
                        .as_ref()
                        .is_none_or(|name| *name == log.container)
            })
            .collect();
        // Folders are sorted by letters, in which `worker-10` comes before `worker-2`.
        logs.sort_by_key(|(slot, _)| (slot.is_none(), *slot));
        let trains = run.kind().map_or("", Kind::container);
        let label = |(slot, log): &(Option<Slot>, LogFile)| {
            let of_pod = logs.iter().filter(|(_, other)| other.pod == log.pod);
            let named = of_pod.count() > 1 && log.container != trains;
            let container = (log.container.as_str(), named);
            Label::new(&log.pod, *slot, log.attempt, container, paint)
        };
        Ok(logs
            .iter()
            .map(|entry| Source {
                label: label(entry),
                log: entry.1.clone(),
            })
            .collect())
    }
}

/// The log of a pod is that of all its ranks.
fn note_shared_log(run: &Stored, rank: u32, slot: Slot, printer: &mut Printer) {
    if let Some(held) = run.ranks_beside(slot) {
        printer.summary(&format!(
            "rank {rank} runs in {}, whose log contains ranks {} to {}",
            names::short(slot),
            held.start(),
            held.end()
        ));
    }
}

fn last_attempt(run: &Stored) -> Result<Option<u32>, Failure> {
    let attempts = run.folder.attempts().map_err(stored::refused)?;
    Ok(attempts.last().copied())
}

fn nothing_yet(run: &Stored) -> Failure {
    let job = &run.record.name;
    Failure::new(format!("no pod of job `{job}` has written anything")).hint(format!(
        "`trainyard logs {job} --follow` waits for it; `trainyard status {job}` shows its state"
    ))
}
