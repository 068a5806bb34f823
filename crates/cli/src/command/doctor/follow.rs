//! `trainyard doctor --follow`: logs that are still written.
//!
//! Files are polled ten times a second; a report is made only when a line that matters came, and at most
//! four times a second, so following costs what is written, not how long it lasts.
//!
//! Of a job, the attempt that runs is followed. What its run knows (how pods ended, that no step comes) is read with
//! the logs; a verdict on an attempt that failed starts from it, as without `--follow`.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Seek as _, SeekFrom},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_core::diagnose::{Doctor as Reader, Report, Rules, SourceId, Verdict};
use trainyard_host::store::LogFile;

use super::{
    Document,
    input::{self, Input},
    print, progress, text,
};
use crate::{
    args::{Doctor, Format},
    clean,
    failure::{Exit, Failure},
    printer::Printer,
    stored::{self, Stored},
    words,
};

const LOOK_EVERY: Duration = Duration::from_millis(100);
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// After so long without a verdict a line says that the logs are still read.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
/// How often folders are searched for files that are new.
const SEARCH_EVERY: Duration = Duration::from_secs(2);

/// One log that grows.
struct Growing {
    id: SourceId,
    content: Content,
}

enum Content {
    File {
        path: PathBuf,
        file: File,
        offset: u64,
    },
    Log {
        log: LogFile,
        offset: u64,
    },
    Stdin {
        ended: bool,
    },
}

/// Follows until asked to stop.
pub(super) fn run(
    args: &Doctor,
    rules: Arc<Rules>,
    printer: &mut Printer,
) -> Result<Exit, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for Ctrl-C")?;
    }
    let mut run = match &args.job {
        Some(job) => Some(input::run_of(args, job)?),
        None => None,
    };
    let mut follower = Follower {
        args,
        doctor: Reader::new(Arc::clone(&rules)),
        rules,
        attempt: None,
        growing: Vec::new(),
        known: BTreeSet::new(),
        buffer: vec![0; input::BUFFER],
        printed: None,
        noticed: 0,
        reported: Instant::now(),
        alive: Instant::now(),
        warned: BTreeSet::new(),
    };
    let mut searched: Option<Instant> = None;
    loop {
        // Asked before the logs are read, so that what a run wrote last is not missed.
        let live = run.as_ref().is_none_or(|run| run.folder.is_live());
        if !live || searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            if let Some(run) = &mut run {
                *run = Stored::read_as(run.folder.clone(), live).map_err(stored::refused)?;
                follower.warn(run, printer)?;
            }
            follower.search(run.as_ref(), printer)?;
            searched = Some(Instant::now());
        }
        let open = follower.look()?;
        follower.print_new_verdict(printer)?;
        follower.say_alive(printer);
        if stop.load(Ordering::Relaxed) || !live || !open || !printer.has_reader() {
            break;
        }
        thread::sleep(LOOK_EVERY);
    }
    let mut warnings = Vec::new();
    if let Some(run) = &run {
        follower.add_pod_ends(run);
        if input::succeeded_in(run, follower.attempt) {
            follower.doctor.set_succeeded();
        }
        warnings = progress::warnings_of(&run.report(Timestamp::now()), args.attempt);
    }
    let mut report = follower.doctor.finish();
    progress::amend(&mut report, &warnings);
    let identity = report.verdicts.first().map(identity_of);
    if args.format == Format::Text || follower.printed.is_none() {
        print(args, &report, &warnings, printer)?;
    } else if follower.printed != identity {
        line_of(&report, &warnings, printer)?;
    }
    Ok(if report.is_healthy() && warnings.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

struct Follower<'a> {
    args: &'a Doctor,
    doctor: Reader,
    rules: Arc<Rules>,
    /// The attempt of the job that is followed.
    attempt: Option<u32>,
    growing: Vec<Growing>,
    known: BTreeSet<String>,
    buffer: Vec<u8>,
    /// Label and ranks of the verdict that was printed last.
    printed: Option<(String, Vec<u32>)>,
    noticed: u64,
    reported: Instant,
    /// When something was printed last.
    alive: Instant,
    /// Warnings about the progress of the job that were printed.
    warned: BTreeSet<String>,
}

/// What makes a verdict another one: its label and ranks.
fn identity_of(verdict: &Verdict) -> (String, Vec<u32>) {
    (verdict.label.clone(), verdict.ranks.clone())
}

impl Follower<'_> {
    /// Takes in logs that were not there before.
    fn search(&mut self, run: Option<&Stored>, printer: &mut Printer) -> Result<(), Failure> {
        let found = match run {
            // A run that has not written yet will.
            Some(run) => input::logs(self.args, run).unwrap_or_default(),
            None => input::find(self.args)?,
        };
        let newest = found.iter().filter_map(|found| match found {
            Input::Log { log, .. } => Some(log.attempt),
            _ => None,
        });
        if let (Some(newest), Some(run)) = (newest.max(), run)
            && self.attempt != Some(newest)
        {
            self.begin(newest, run, printer)?;
        }
        for found in found {
            let name = match &found {
                Input::Log { log, name, .. } => format!("{} attempt {}", name, log.attempt),
                other => other.name(),
            };
            if self.known.contains(&name) {
                continue;
            }
            let content = match found {
                Input::Stdin => Content::Stdin { ended: false },
                Input::File { path, named } => match File::open(&path) {
                    Ok(file) => Content::File {
                        path,
                        file,
                        offset: 0,
                    },
                    Err(error) if named => {
                        return Err(anyhow::Error::new(error)
                            .context(format!("cannot read `{name}`"))
                            .into());
                    }
                    Err(_) => continue,
                },
                Input::Log { log, .. } => Content::Log { log, offset: 0 },
            };
            let id = self.doctor.source(&name);
            if let (Content::Log { log, .. }, Some(run)) = (&content, run) {
                let slot = run.slot_called(&log.pod);
                let held =
                    slot.and_then(|slot| run.record.ranks.of_pod(&run.record.replicas, slot));
                let rank = held.filter(|held| held.start() == held.end());
                self.doctor
                    .set_rank_and_node(id, rank.map(|held| *held.start()), Some(&log.pod));
            }
            printer.note(&format!("following `{name}`"));
            self.known.insert(name);
            self.growing.push(Growing { id, content });
        }
        Ok(())
    }

    /// Follows another attempt. The verdict on the previous one starts from how its pods ended.
    fn begin(&mut self, attempt: u32, run: &Stored, printer: &mut Printer) -> Result<(), Failure> {
        if self.attempt.is_some() {
            self.look()?;
            self.add_pod_ends(run);
            self.print_verdict(printer)?;
            printer.note(&format!("following attempt {attempt}"));
        }
        self.attempt = Some(attempt);
        self.doctor = Reader::new(Arc::clone(&self.rules));
        self.growing.clear();
        self.printed = None;
        self.noticed = 0;
        Ok(())
    }

    /// Adds how the pods of the followed attempt ended.
    fn add_pod_ends(&mut self, run: &Stored) {
        for known in input::known_of(run, self.attempt) {
            self.doctor.add_known_end(known);
        }
    }

    /// Says what is wrong with the progress of the job, once for each time that it begins.
    fn warn(&mut self, run: &Stored, printer: &mut Printer) -> Result<(), Failure> {
        let warnings = progress::warnings_of(&run.report(Timestamp::now()), self.args.attempt);
        let kinds: BTreeSet<String> = warnings
            .iter()
            .map(|warning| progress::kind_of(warning).to_owned())
            .collect();
        let new = warnings
            .iter()
            .filter(|warning| !self.warned.contains(progress::kind_of(warning)));
        let new: Vec<String> = new.cloned().collect();
        self.warned = kinds;
        if new.is_empty() {
            return Ok(());
        }
        let mut report = self.doctor.report();
        progress::amend(&mut report, &new);
        match self.args.format {
            Format::Text => {
                let paint = printer.stdout_paint();
                for warning in &new {
                    let line = paint.apply("1;33", &clean::text(warning));
                    printer.data(format!("{line}\n").as_bytes())?;
                }
            }
            Format::Json => line_of(&report, &new, printer)?,
        }
        printer.flush()
    }

    /// Reads what came; says whether more can come.
    fn look(&mut self) -> Result<bool, Failure> {
        let mut open = false;
        for growing in &mut self.growing {
            let (doctor, buffer) = (&mut self.doctor, self.buffer.as_mut_slice());
            open |= growing
                .read(doctor, buffer)
                .context("cannot read a followed log")?;
        }
        Ok(open || self.growing.is_empty())
    }

    /// Prints the verdict if it changed.
    fn print_new_verdict(&mut self, printer: &mut Printer) -> Result<(), Failure> {
        let noticed = self.doctor.noticed();
        if noticed == self.noticed || self.reported.elapsed() < REPORT_EVERY {
            return Ok(());
        }
        self.noticed = noticed;
        self.print_verdict(printer)
    }

    fn print_verdict(&mut self, printer: &mut Printer) -> Result<(), Failure> {
        self.reported = Instant::now();
        let report: Report = self.doctor.report();
        let Some(verdict) = report.verdicts.first() else {
            return Ok(());
        };
        let identity = identity_of(verdict);
        if self.printed.as_ref() == Some(&identity) {
            return Ok(());
        }
        match self.args.format {
            Format::Text => {
                let line = text::headline(verdict, printer.stdout_paint());
                let time = Timestamp::now().strftime("%H:%M:%SZ");
                let place = verdict.evidence.first().map(|evidence| {
                    let file = clean::text(&evidence.file);
                    match evidence.line {
                        0 => format!("  {file}"),
                        number => format!("  {file}:{number}"),
                    }
                });
                let place = place.unwrap_or_default();
                printer.data(format!("{time}  {line}{place}\n").as_bytes())?;
            }
            Format::Json => line_of(&report, &[], printer)?,
        }
        printer.flush()?;
        self.printed = Some(identity);
        self.alive = Instant::now();
        Ok(())
    }

    /// Says on stderr that the logs are still followed, where nothing was printed for a while.
    fn say_alive(&mut self, printer: &mut Printer) {
        if self.alive.elapsed() < ALIVE_EVERY {
            return;
        }
        self.alive = Instant::now();
        let verdict = self
            .printed
            .as_ref()
            .map_or("none yet", |(label, _)| label.as_str());
        let time = Timestamp::now().strftime("%H:%M:%SZ");
        let logs = words::counted(self.growing.len() as u64, "log");
        let lines = words::counted(self.doctor.lines(), "line");
        printer.summary(&format!(
            "{time}  following {logs}, {lines} read; verdict: {verdict}"
        ));
    }
}

/// Prints a report as one line.
fn line_of(report: &Report, warnings: &[String], printer: &mut Printer) -> Result<(), Failure> {
    let document = Document { report, warnings };
    let mut json = serde_json::to_vec(&document).context("cannot write the report as JSON")?;
    json.push(b'\n');
    printer.data(&json)
}

impl Growing {
    fn read(&mut self, doctor: &mut Reader, buffer: &mut [u8]) -> io::Result<bool> {
        let id = self.id;
        match &mut self.content {
            Content::File { path, file, offset } => {
                // Cut short, or another file under the same name: from its beginning.
                let length = std::fs::metadata(&*path).map_or(*offset, |found| found.len());
                if length < *offset {
                    *file = File::open(&*path)?;
                    *offset = 0;
                }
                if length > *offset {
                    file.seek(SeekFrom::Start(*offset))?;
                    *offset += drain(doctor, id, file, buffer)?;
                }
                Ok(true)
            }
            Content::Log { log, offset } => {
                let mut reader = log.open(*offset).map_err(io::Error::other)?;
                drain(doctor, id, &mut reader, buffer)?;
                *offset = reader.offset();
                Ok(true)
            }
            Content::Stdin { ended } => {
                if !*ended {
                    // One piece at a time: a read of a pipe blocks until something is written.
                    let count = io::stdin().lock().read(buffer)?;
                    doctor.bytes(id, buffer.get(..count).unwrap_or_default());
                    *ended = count == 0;
                }
                Ok(!*ended)
            }
        }
    }
}

fn drain(
    doctor: &mut Reader,
    id: SourceId,
    reader: &mut dyn Read,
    buffer: &mut [u8],
) -> io::Result<u64> {
    let mut total = 0;
    loop {
        let count = reader.read(buffer)?;
        if count == 0 {
            return Ok(total);
        }
        doctor.bytes(id, buffer.get(..count).unwrap_or_default());
        total += count as u64;
    }
}
