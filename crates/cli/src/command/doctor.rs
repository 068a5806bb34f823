//! `trainyard doctor`: the verdict over logs.
//!
//! Owns finding and reading the logs and printing the report; what lines mean is
//! `trainyard_core::diagnose`.
//!
//! Invariant: memory does not grow with the size of a log: each is read in pieces.

mod cluster;
mod follow;
mod input;
mod progress;
mod svg;
mod table;
mod text;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::Context as _;
use serde::Serialize;
use trainyard_core::diagnose::{Doctor as Reader, Report, Rules};
use trainyard_kube::look::{JobSeen, PodSeen};

use self::input::Input;
use super::expand::Bounds;
use crate::{
    args::{Doctor, Format, Place, State},
    clean,
    cluster::Site,
    failure::{Exit, Failure},
    output,
    paint::Paint,
    printer::Printer,
    stored::Stored,
    words,
};

/// Threads that read: more would wait for the same disk.
const MAX_READERS: usize = 4;

/// Prints the report.
pub(super) fn run(args: &Doctor, printer: &mut Printer) -> Result<Exit, Failure> {
    let rules = Arc::new(rules(&args.rules)?);
    let of_cluster = args.place.is_cluster() && args.job.is_some();
    if args.place.is_cluster() && !args.place.plugin && !of_cluster {
        return Err(Failure::new("a cluster needs a job name")
            .hint("pass `--job NAME`, or remove the cluster options"));
    }
    if args.follow && of_cluster {
        let hint = "`kubectl logs --follow --prefix -l training.kubeflow.org/job-name=JOB | trainyard doctor --follow -`";
        return Err(Failure::new("`--follow` does not work with a cluster").hint(hint));
    }
    if args.follow {
        return follow::run(args, rules, printer);
    }
    let mut in_part = false;
    let (doctor, failures, sources) = match &args.job {
        Some(job) if of_cluster => {
            let read = cluster::read(args, job, &rules, printer)?;
            for what in &read.left_out {
                printer.summary(&format!("warning: not read: {what}"));
            }
            (read.doctor, read.failures, read.count)
        }
        _ => {
            let read = read_machine(args, &rules)?;
            for failure in &read.cut {
                printer.error(failure);
            }
            in_part = !read.cut.is_empty();
            (read.doctor, read.failures, read.count)
        }
    };
    for failure in &failures {
        printer.error(failure);
    }
    // Of what could not be read there is nothing to say.
    if !failures.is_empty() && failures.len() == sources {
        return Ok(Exit::CouldNot);
    }
    let mut report = doctor.finish();
    let warnings = progress::warnings(args)?;
    progress::amend(&mut report, &warnings);
    print(args, &report, &warnings, printer)?;
    if let Some(path) = &args.svg {
        let picture = svg::render(&report);
        output::write(path, picture.as_bytes())
            .with_context(|| format!("cannot write the SVG to `{}`", path.display()))?;
        printer.note(&format!("wrote `{}`", path.display()));
    }
    printer.flush()?;
    let facts = &report.facts;
    printer.note(&format!(
        "read {} ({} bytes) of {}",
        words::counted(facts.lines, "line"),
        words::grouped(facts.bytes),
        words::counted(sources as u64, "source"),
    ));
    Ok(if in_part || !failures.is_empty() {
        Exit::CouldNot
    } else if report.is_healthy() && warnings.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// What was read of files, standard input and jobs of this machine.
struct Sources {
    doctor: Reader,
    /// Why some were not read.
    failures: Vec<Failure>,
    /// Why some were read in part.
    cut: Vec<Failure>,
    /// How many there are.
    count: usize,
}

fn read_machine(args: &Doctor, rules: &Arc<Rules>) -> Result<Sources, Failure> {
    let inputs = input::find(args)?;
    let (mut doctor, failures, cut) = read_all(&inputs, rules);
    for known in input::known(args)? {
        doctor.add_known_end(known);
    }
    if input::succeeded(args)? {
        doctor.set_succeeded();
    }
    Ok(Sources {
        doctor,
        failures,
        cut,
        count: inputs.len(),
    })
}

/// The report over a job, and what it could not take into account.
pub(super) struct JobReport {
    report: String,
    /// Why some logs were not read, or in part.
    pub(super) incomplete: Vec<String>,
}

impl JobReport {
    /// The report; it begins with what is missing, so that nobody takes it for one over everything.
    pub(super) fn text(&self) -> String {
        let missing = self.incomplete.iter();
        let mut lines: Vec<String> = missing.map(|why| format!("not read: {why}")).collect();
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(self.report.clone());
        lines.join("\n")
    }
}

/// The report over the last attempt of a job of this machine. Of what could not be read at all there is nothing to say.
pub(super) fn report_of_job(job: &str, state_dir: &Path) -> Result<JobReport, Failure> {
    let args = Doctor {
        paths: Vec::new(),
        job: Some(job.to_owned()),
        attempt: None,
        follow: false,
        rules: Vec::new(),
        svg: None,
        state: State {
            state_dir: state_dir.to_owned(),
        },
        place: Place::machine(),
        format: Format::Text,
    };
    let rules = Arc::new(rules(&args.rules)?);
    let read = read_machine(&args, &rules)?;
    let incomplete: Vec<String> = read
        .failures
        .iter()
        .chain(&read.cut)
        .map(Failure::line)
        .collect();
    if !read.failures.is_empty() && read.failures.len() == read.count {
        return Err(Failure::new(incomplete.join("; ")));
    }
    let mut report = read.doctor.finish();
    let warnings = progress::warnings(&args)?;
    progress::amend(&mut report, &warnings);
    Ok(JobReport {
        report: text::render(&report, None, Paint::Plain),
        incomplete,
    })
}

/// The report over the last attempt of a job of a cluster, which the user called `word`.
pub(super) fn report_of_cluster_job(
    site: &Site<'_>,
    job: &JobSeen,
    pods: &[PodSeen],
    word: &str,
    printer: &mut Printer,
) -> Result<JobReport, Failure> {
    let rules = Arc::new(rules(&[])?);
    let how = (&rules, cluster::Bounds::PART);
    let read = cluster::read_job(site, job, pods, (word, None), how, printer)?;
    let mut incomplete: Vec<String> = read.failures.iter().map(Failure::line).collect();
    if !incomplete.is_empty() && incomplete.len() == read.count {
        return Err(Failure::new(incomplete.join("; ")));
    }
    incomplete.extend(read.left_out);
    let report = read.doctor.finish();
    Ok(JobReport {
        report: text::render(&report, None, Paint::Plain),
        incomplete,
    })
}

/// The verdicts on one attempt of a run of this machine, and how many of its logs were not read.
pub(super) fn diagnose(run: &Stored, attempt: u32) -> Result<(Report, usize), Failure> {
    let inputs = input::logs_of(run, Some(attempt))?;
    let rules = Arc::new(rules(&[])?);
    let (mut doctor, failures, cut) = read_all(&inputs, &rules);
    for known in input::known_of(run, Some(attempt)) {
        doctor.add_known_end(known);
    }
    if input::succeeded_in(run, Some(attempt)) {
        doctor.set_succeeded();
    }
    Ok((doctor.finish(), failures.len() + cut.len()))
}

/// Our rules, and those of the files that are named.
pub(super) fn rules(paths: &[PathBuf]) -> Result<Rules, Failure> {
    let mut texts = Vec::new();
    for path in paths {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the rules in `{}`", path.display()))?;
        texts.push(text);
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let rules = Rules::with(&texts).context("cannot use the rules")?;
    Ok(rules)
}

/// Reads every input, on as many threads as help, and merges their results in the order in
/// which the inputs were named. Beside it: why some were not read, and why some were read in part.
fn read_all(inputs: &[Input], rules: &Arc<Rules>) -> (Reader, Vec<Failure>, Vec<Failure>) {
    let bounds = Bounds::default();
    let next = AtomicUsize::new(0);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let readers = cores.min(MAX_READERS).min(inputs.len()).max(1);
    let mut done: Vec<(usize, Reader, Result<Option<Failure>, Failure>)> = thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            let mut buffer = vec![0; input::BUFFER];
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(input) = inputs.get(index) else {
                    return done;
                };
                let mut doctor = Reader::new(Arc::clone(rules));
                let read = input.read(&mut doctor, &mut buffer, &bounds);
                done.push((index, doctor, read));
            }
        };
        let threads: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for thread in threads {
            done.extend(thread.join().expect("a reader does not panic"));
        }
        done
    });
    done.sort_by_key(|(index, ..)| *index);
    let mut doctor = Reader::new(Arc::clone(rules));
    let (mut failures, mut cut) = (Vec::new(), Vec::new());
    for (_, part, read) in done {
        doctor.absorb(part);
        match read {
            Ok(in_part) => cut.extend(in_part),
            Err(failure) => failures.push(failure),
        }
    }
    (doctor, failures, cut)
}

/// The JSON form.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// What is wrong with the progress of the job, which no log shows.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

fn print(
    args: &Doctor,
    report: &Report,
    warnings: &[String],
    printer: &mut Printer,
) -> Result<(), Failure> {
    match args.format {
        Format::Text => {
            let (width, paint) = (printer.width(), printer.stdout_paint());
            let mut text = String::new();
            for warning in warnings {
                text.push_str(&paint.apply("1;33", &clean::text(warning)));
                text.push_str("\n\n");
            }
            text.push_str(&text::render(report, width, paint));
            printer.data(text.as_bytes())
        }
        Format::Json => printer.json(&Document { report, warnings }),
    }
}
