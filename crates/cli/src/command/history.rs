//! `trainyard history`: what became of runs, kept after their folders are removed.
//!
//! Owns arguments, words and tables. What is kept, and how it is added up, is decided in [`trainyard_history`].

mod report;
mod sync;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Serialize;
use trainyard_history::{
    Filter, HistoryError, Imported, Listed, Options, Pruned, Reader, Retention, Store, export,
};

pub(super) use self::sync::uid;
use crate::{
    args::{
        Format, History, HistoryCommand, HistoryExport, HistoryImport, HistoryKeep, HistoryLs,
        HistoryOutcome, HistoryPrune, HistoryStore,
    },
    clean,
    environment::Environment,
    failure::{Exit, Failure},
    printer::Printer,
    table::columns,
    words,
};

/// The most pages of 4 KiB that a store may have, far beyond what retention leaves: a mistake must not fill the disk.
const PAGES_MAX: u32 = 16 << 20;

/// Runs one of its commands.
pub(super) fn run(
    args: &History,
    environment: &Environment,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    match &args.command {
        HistoryCommand::Sync(args) => {
            let path = path(&args.store, environment)?;
            sync::run(args, &path, printer)
        }
        HistoryCommand::Ls(args) => ls(args, &path(&args.store, environment)?, printer),
        HistoryCommand::Report(args) => {
            let path = path(&args.store, environment)?;
            report::run(args, &path, printer)
        }
        HistoryCommand::Export(args) => write(args, &path(&args.store, environment)?, printer),
        HistoryCommand::Import(args) => read(args, &path(&args.store, environment)?, printer),
        HistoryCommand::Prune(args) => prune(args, &path(&args.store, environment)?, printer),
    }
}

/// The file of the history.
fn path(args: &HistoryStore, environment: &Environment) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.store {
        return Ok(path.clone());
    }
    default_path(environment).ok_or_else(|| {
        Failure::new(
            "cannot find the folder for data of your user: neither `XDG_DATA_HOME` nor `HOME` is an absolute path",
        )
        .hint("name the file of the history with `--store`")
    })
}

/// The file of the history, unless `--store` names another.
pub(super) fn default_path(environment: &Environment) -> Option<PathBuf> {
    let folder = environment.data_folder.as_ref()?;
    Some(folder.join("trainyard").join("history.db"))
}

/// Opens the store for `command` to write.
fn open(path: &Path, command: &str, printer: &mut Printer) -> Result<Store, Failure> {
    let options = Options {
        holder: format!(
            "`trainyard history {command}` (process {})",
            std::process::id()
        ),
        pages_max: Some(PAGES_MAX),
    };
    let store = Store::open(path, &options).map_err(refused)?;
    if store.is_on_network() {
        printer.summary(&format!(
            "warning: `{}` is on a network file system: nobody can read it while it is written; `--store` selects another file",
            path.display()
        ));
    }
    Ok(store)
}

/// Turns an error of the history into a failure with a hint.
pub(super) fn refused(error: HistoryError) -> Failure {
    let hint = error.hint();
    let failure = Failure::from(anyhow::Error::new(error));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Times in the JSON forms, which the store has in milliseconds.
fn time(millis: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(millis).ok()
}

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List {
    version: u32,
    total: u64,
    runs: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(flatten)]
    run: Listed,
    created_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    seen_at: Option<Timestamp>,
}

fn ls(args: &HistoryLs, path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    let reader = Reader::open(path).map_err(refused)?;
    let outcome = args.outcome.map(|outcome| match outcome {
        HistoryOutcome::Succeeded => "succeeded",
        HistoryOutcome::Failed => "failed",
        HistoryOutcome::Stopped => "stopped",
        HistoryOutcome::Interrupted => "interrupted",
        HistoryOutcome::Unknown => "unknown",
        HistoryOutcome::Live => "live",
    });
    let filter = Filter {
        since: args.since.map(Timestamp::as_millisecond),
        outcome: outcome.map(str::to_owned),
        team: args.team.clone(),
        kind: args.kind.clone(),
        job: args.job.clone(),
        limit: args.limit,
    };
    let listing = reader.list(&filter).map_err(refused)?;
    let shown = listing.runs.len() as u64;
    match args.format {
        Format::Json => {
            let rows = listing.runs.into_iter().map(|run| Row {
                created_at: time(run.created),
                ended_at: run.ended.and_then(time),
                seen_at: time(run.seen),
                run,
            });
            printer.json(&List {
                version: 1,
                total: listing.total,
                runs: rows.collect(),
            })?;
        }
        Format::Text if listing.runs.is_empty() => {
            printer.summary("no runs in the history pass the filter");
        }
        Format::Text => {
            let table = table(&listing.runs, Timestamp::now());
            printer.data(table.as_bytes())?;
            if shown < listing.total {
                let total = words::counted(listing.total, "run");
                printer.summary(&format!(
                    "note: the newest {shown} of {total}; `--limit` lists more"
                ));
            }
        }
    }
    Ok(Exit::Done)
}

fn table(runs: &[Listed], now: Timestamp) -> String {
    let heads = [
        "JOB", "KIND", "TEAM", "OUTCOME", "ATTEMPTS", "TRAINED", "STEP", "AGE", "CAUSE",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    let unknown = || "-".to_owned();
    rows.extend(runs.iter().map(|run| {
        let age = time(run.created).map_or_else(unknown, |at| words::age(words::since(at, now)));
        let step = run.last_step.and_then(|step| u64::try_from(step).ok());
        vec![
            clean::text(&run.job),
            clean::text(&run.kind),
            clean::text(&run.team),
            run.outcome.clone().unwrap_or_else(|| "live".to_owned()),
            run.attempts.to_string(),
            run.trained_ratio.map_or_else(unknown, percent),
            step.map_or_else(unknown, words::grouped),
            age,
            run.cause.as_deref().map_or_else(unknown, clean::text),
        ]
    }));
    columns(&rows)
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn write(args: &HistoryExport, path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    let reader = Reader::open(path).map_err(refused)?;
    if args.file.as_os_str() == "-" {
        // Piece by piece, however large it is.
        let mut out = Pieces { printer };
        let runs = export(&reader, &mut out);
        return match runs {
            Ok(_) => Ok(Exit::Done),
            Err(_) if !printer.has_reader() => Ok(Exit::Done),
            Err(error) => Err(refused(error)),
        };
    }
    let name = args.file.display();
    let cannot = |error: io::Error| {
        let exists = error.kind() == io::ErrorKind::AlreadyExists;
        let failure =
            Failure::from(anyhow::Error::new(error).context(format!("cannot write `{name}`")));
        if exists {
            failure.hint("name another file, or remove this one")
        } else {
            failure
        }
    };
    // Taken first, so that two exports cannot both have the name.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&args.file)
        .map_err(cannot)?;
    let mut out = BufWriter::new(file);
    let written = export(&reader, &mut out).map_err(refused).and_then(|runs| {
        out.get_ref().sync_all().map_err(cannot)?;
        Ok(runs)
    });
    match written {
        Ok(runs) => {
            let runs = words::counted(runs, "run");
            printer.summary(&format!("wrote {runs} to `{name}`"));
            Ok(Exit::Done)
        }
        Err(failure) => {
            // Half an export would pass for one until somebody reads its end.
            drop(fs::remove_file(&args.file));
            Err(failure)
        }
    }
}

/// stdout, as a stream.
struct Pieces<'a> {
    printer: &'a mut Printer,
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(failure) = self.printer.data(bytes) {
            return Err(io::Error::other(failure.line()));
        }
        if self.printer.has_reader() {
            Ok(bytes.len())
        } else {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.printer.flush();
        flushed.map_err(|failure| io::Error::other(failure.line()))
    }
}

fn read(args: &HistoryImport, path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    let name = args.file.display();
    let Imported {
        runs,
        updated,
        known,
    } = if args.file.as_os_str() == "-" {
        let mut store = open(path, "import", printer)?;
        store.import(&mut io::stdin().lock()).map_err(refused)?
    } else {
        let cannot = |error: io::Error| {
            Failure::from(anyhow::Error::new(error).context(format!("cannot read `{name}`")))
        };
        let file = File::open(&args.file).map_err(cannot)?;
        let mut store = open(path, "import", printer)?;
        let imported = store.import(&mut BufReader::new(file));
        imported.map_err(refused)?
    };
    let (runs, known) = (words::counted(runs, "run"), words::grouped(known));
    let updated = words::grouped(updated);
    printer.summary(&format!(
        "added {runs}, updated {updated}; {known} were there already"
    ));
    Ok(Exit::Done)
}

/// The JSON form of `prune`.
#[derive(Serialize)]
struct PruneResult {
    version: u32,
    #[serde(flatten)]
    pruned: Pruned,
}

fn prune(args: &HistoryPrune, path: &Path, printer: &mut Printer) -> Result<Exit, Failure> {
    // A store that is not there is not made to be emptied.
    Reader::open(path).map_err(refused)?;
    let mut store = open(path, "prune", printer)?;
    let now = Timestamp::now().as_millisecond();
    let pruned = store.prune(&retention(&args.keep), now).map_err(refused)?;
    match args.format {
        Format::Json => printer.json(&PruneResult { version: 1, pruned })?,
        Format::Text => printer.summary(&pruned_words(&pruned)),
    }
    Ok(Exit::Done)
}

fn retention(keep: &HistoryKeep) -> Retention {
    Retention {
        detail_days: keep.detail,
        excerpt_days: keep.excerpts,
        end_days: keep.ends,
        cap_bytes: keep.cap,
    }
}

fn pruned_words(pruned: &Pruned) -> String {
    format!(
        "deleted {}, the detail of {} and the log lines of {}; {} KiB of {} KiB are in use",
        words::counted(pruned.runs, "run"),
        words::counted(pruned.details, "run"),
        words::counted(pruned.excerpts, "run"),
        words::grouped(pruned.bytes_after >> 10),
        words::grouped(pruned.bytes_before >> 10),
    )
}
