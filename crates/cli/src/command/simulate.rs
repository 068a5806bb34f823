//! `trainyard simulate`: weeks of a job, with failures, in seconds.
//!
//! Words and wiring; the simulation is `core::outlook`.

mod timeline;

use std::{fmt::Write as _, time::Duration};

use anyhow::Context as _;
use serde::Serialize;
use trainyard_core::{
    ledger::{Phase, PhaseMillis},
    outlook::{self, Effect, Figures, Given, Length, Outlook, Path, PathSeconds, World},
    plan::recovery::{LLAMA3, Saving as CoreSaving, standbys},
};

use crate::{
    args::{Format, PathName, Saving, Simulate},
    bar,
    failure::{Exit, Failure},
    output,
    printer::Printer,
    source,
    table::columns,
    words,
};

/// Seconds from process start to the first step, where neither the arguments nor a job say.
const START_SECONDS: f64 = 120.0;
/// Seconds of training between checkpoints, likewise.
const SAVE_EVERY: f64 = 600.0;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    version: u32,
    seed: u64,
    world: World,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    measured: Vec<String>,
    outlook: Outlook,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sensitivity: Vec<Effect>,
}

/// Simulates and says what came of it.
pub(super) fn run(args: &Simulate, printer: &mut Printer) -> Result<Exit, Failure> {
    let figures = figures(args)?;
    let (world, measured) = world(args, &figures)?;
    let outlook = outlook::simulate(&world, args.seed, args.runs);
    if let Some(path) = &args.svg {
        let first = outlook::run(&world, args.seed, 0, true);
        let drawing = timeline::draw(&first, &title(args));
        output::write(path, drawing.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    let report = Report {
        version: 1,
        seed: args.seed,
        sensitivity: if args.sensitivity {
            outlook::sensitivity(&world, args.seed, args.runs)
        } else {
            Vec::new()
        },
        world,
        measured,
        outlook,
    };
    match args.format {
        Format::Json => {
            let json = serde_json::to_string_pretty(&report).map_err(anyhow::Error::from)?;
            printer.data(format!("{json}\n").as_bytes())?;
        }
        Format::Text => {
            let paint = printer.stdout_paint();
            let bar = bar::render(&millis(&report.outlook), &[], printer.width(), paint);
            printer.data(text(&report, args, &bar).as_bytes())?;
        }
    }
    Ok(Exit::Done)
}

fn title(args: &Simulate) -> String {
    format!(
        "{} GPUs, seed {}",
        words::grouped(args.gpus.into()),
        args.seed
    )
}

/// The world that the arguments describe.
fn world(args: &Simulate, figures: &Figures) -> Result<(World, Vec<String>), Failure> {
    if args.gpus == 0 || args.gpus_per_node == 0 {
        return Err(Failure::new(
            "`--gpus` and `--gpus-per-node` must be at least 1",
        ));
    }
    let machines = args.gpus.div_ceil(args.gpus_per_node);
    let per_thousand = args
        .failures
        .rate
        .or_else(|| figures.failure_rate(args.gpus))
        .unwrap_or_else(|| LLAMA3.iter().map(|component| component.rate).sum());
    let rate = per_thousand * f64::from(args.gpus_per_node) * 24.0 / 1_000.0;
    let day = 86_400.0;
    let mut world = World::usual(machines, args.days, rate);
    if let Some(days) = args.train_days {
        world.length = Length::Trained(days * day);
    }
    let failures = &args.failures;
    let software = failures.software_share;
    if !(0.0..=1.0).contains(&software) {
        return Err(Failure::new(format!(
            "`--software-share` is {software}; it must be between 0 and 1"
        )));
    }
    world.failures.hardware = rate * (1.0 - software);
    world.failures.software = rate * software;
    world.failures.bad_share = failures.bad_share;
    world.failures.bad_times = failures.bad_times;
    world.bursts.per_day = failures.bursts;
    world.bursts.machines = failures.burst_machines;
    world.preemptions.per_day = failures.preemptions;
    world.preemptions.wait = failures.preempted;
    let restart = &args.restart;
    world.path = match restart.path {
        PathName::Requeue => Path::Requeue,
        PathName::Replace => Path::Replace,
        PathName::Standby => Path::Standby,
        PathName::InPlace => Path::InPlace,
    };
    if let Some(seconds) = restart.seconds {
        world.path_seconds = PathSeconds::same(seconds);
    }
    world.start_seconds = restart.start.unwrap_or(START_SECONDS);
    world.notice.seconds = restart.notice;
    world.notice.silent_share = restart.silent_share;
    world.notice.silent_seconds = restart.silent;
    let (saving, blocking, safe_after) = match args.checkpoint.saving {
        Saving::Blocking => (CoreSaving::Blocking, 60.0, 60.0),
        Saving::Asynchronous => (CoreSaving::Asynchronous, 1.0, 60.0),
        Saving::InMemory => (CoreSaving::InMemory, 0.05, 1.0),
    };
    world.checkpoints.saving = saving;
    world.checkpoints.every = args.checkpoint.save_every.unwrap_or(SAVE_EVERY);
    world.checkpoints.blocking = args.checkpoint.blocking.unwrap_or(blocking);
    world.checkpoints.safe_after = args.checkpoint.safe_after.unwrap_or(safe_after);
    world.spares.standbys = args
        .spares
        .standbys
        .unwrap_or_else(|| standbys(machines, world.failures.hardware, 0.99));
    if let Some(pool) = args.spares.pool {
        world.spares.pool = pool;
    }
    world.repair.automatic = 3_600.0 * args.spares.repair;
    world.repair.manual = 3_600.0 * args.spares.manual;
    let mut measured = figures.apply(&mut world, &given(args));
    if args.failures.rate.is_none()
        && let Some(rate) = figures.failure_rate(args.gpus)
    {
        measured.insert(0, format!("{rate:.3} failures per 1,000 GPU-hours"));
    }
    world
        .check()
        .map_err(|error| Failure::new(format!("invalid simulation: {error}")))?;
    Ok((world, measured))
}

/// What the arguments say of what a job could measure.
fn given(args: &Simulate) -> Vec<Given> {
    [
        (Given::Restart, args.restart.seconds),
        (Given::Start, args.restart.start),
        (Given::Blocking, args.checkpoint.blocking),
        (Given::SaveEvery, args.checkpoint.save_every),
    ]
    .into_iter()
    .filter_map(|(which, figure)| figure.map(|_| which))
    .collect()
}

/// Longest status that is read.
const STATUS_LIMIT: usize = 64 << 20;

/// What the jobs that are named measured.
fn figures(args: &Simulate) -> Result<Figures, Failure> {
    let mut figures = Figures::default();
    for path in &args.jobs {
        let name = source::name(path);
        let text = String::from_utf8(source::read(path, STATUS_LIMIT)?)
            .map_err(|_| Failure::new(format!("cannot read `{name}`: it is not UTF-8")))?;
        figures
            .add(&text)
            .map_err(|error| Failure::new(format!("cannot use the job `{name}`: {error}")))?;
    }
    Ok(figures)
}

/// What most of the lost time goes to, and what to change first.
fn first_change(outlook: &Outlook, path: Path) -> Option<String> {
    let total: f64 = outlook.phases.values().sum();
    let (phase, seconds) = outlook
        .phases
        .iter()
        .filter(|(phase, _)| **phase != Phase::Training)
        .max_by(|one, other| one.1.total_cmp(other.1))?;
    let (what, change) = match phase {
        Phase::Redoing => ("repeating lost steps", "save checkpoints more often"),
        Phase::Saving => ("saving checkpoints", "save asynchronously, or less often"),
        Phase::Starting => ("starting processes", "shorten the time to the first step"),
        Phase::Stalled => ("failures that are not detected yet", "detect hangs sooner"),
        Phase::Restarting => (
            "restarting",
            match path {
                Path::Requeue | Path::Replace => {
                    "use a shorter restart path, such as `--path standby`"
                }
                Path::Standby | Path::InPlace => "shorten the restart of processes",
            },
        ),
        Phase::Queued | Phase::Placing => ("waiting for machines", "keep more standbys"),
        _ => return None,
    };
    let share = 100.0 * seconds / total.max(1.0);
    (share >= 0.1).then(|| format!("most is lost to {what} ({share:.1} %): {change}"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "milliseconds of ten years fit"
)]
fn millis(outlook: &Outlook) -> PhaseMillis {
    outlook
        .phases
        .iter()
        .map(|(phase, seconds)| (*phase, (seconds * 1e3) as u64))
        .collect()
}

fn text(report: &Report, args: &Simulate, bar: &[String]) -> String {
    let outlook = &report.outlook;
    let world = &report.world;
    let time = |seconds: f64| words::duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e12)));
    let mut text = String::new();
    let mut say =
        |line: &str| writeln!(text, "{line}").expect("a string takes whatever is written");
    say(&format!(
        "{} GPUs on {} machines, {} of {}, path `{}`, {} standbys, checkpoint every {} ({})",
        words::grouped(args.gpus.into()),
        words::grouped(world.machines.into()),
        words::counted(outlook.runs.into(), "run"),
        time(outlook.seconds.mean),
        world.path.name(),
        world.spares.standbys,
        time(world.checkpoints.every),
        world.checkpoints.saving.name(),
    ));
    say("");
    say(&format!(
        "training    {:.2} % of wall time (ETTR), ± {:.2}; from {:.2} to {:.2}",
        100.0 * outlook.ettr.mean,
        100.0 * outlook.ettr.plus_minus,
        100.0 * outlook.ettr.least,
        100.0 * outlook.ettr.most
    ));
    say(&format!(
        "interrupted {:.1} times, ± {:.1}: once every {}",
        outlook.interruptions.mean,
        outlook.interruptions.plus_minus,
        time(outlook.seconds.mean / outlook.interruptions.mean.max(1e-9))
    ));
    if outlook.given_up > 0 {
        say(&format!(
            "{} did not finish (abandoned)",
            words::counted(outlook.given_up.into(), "run")
        ));
    }
    if !report.measured.is_empty() {
        say(&format!(
            "measured    {} (of {})",
            report.measured.join(", "),
            words::counted(u64::try_from(args.jobs.len()).unwrap_or(u64::MAX), "job")
        ));
    }
    if let Some(change) = first_change(outlook, world.path) {
        say(&format!("do first    {change}"));
    }
    say("");
    for line in bar {
        say(line);
    }
    if !report.sensitivity.is_empty() {
        say("");
        say("what would help most");
        let rows: Vec<Vec<String>> = report
            .sensitivity
            .iter()
            .map(|effect| {
                vec![
                    format!("  {}", effect.change),
                    format!("{:+.2} points", effect.points),
                ]
            })
            .collect();
        say(columns(&rows).trim_end());
    }
    text
}
