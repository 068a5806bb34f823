//! `trainyard place`: where the pods of a job would go, and why.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    capacity::{Answer, answers},
    gang::{Gang, GangKey, Place, Placement, Refusal, Seat, Seating, Snapshot, place},
    launch::Cluster,
    spec::{self, Job},
};

use super::jobs_file;
use crate::{
    args::{Format, PlaceJob},
    capacity_source, clean,
    failure::{Exit, Failure},
    node_source,
    paint::Paint,
    printer::Printer,
    tree::Branch,
    words,
};

/// Seats of one job that are drawn one by one; more are summed up by domain.
const DRAWN: usize = 64;

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    jobs: Vec<Entry<'a>>,
    warnings: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    notes: &'a [String],
}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    job: &'a str,
    namespace: &'a str,
    kind: &'static str,
    placed: bool,
    #[serde(flatten)]
    seating: Option<&'a Seating>,
    #[serde(flatten)]
    refusal: Option<&'a Refusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<&'a [Seat]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<Capacity<'a>>,
}

/// Whether a job fits with nodes that could be added.
#[derive(Debug, Serialize)]
struct Capacity<'a> {
    message: String,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// Prints the node assignment.
pub(super) fn run(args: &PlaceJob, printer: &mut Printer) -> Result<Exit, Failure> {
    let Some(jobs) = jobs(args, printer)? else {
        return Ok(Exit::CouldNot);
    };
    let mut snapshot = match &args.capacity {
        Some(_) => node_source::snapshot_or_empty(&args.node_source, printer)?,
        None => node_source::snapshot(&args.node_source, printer)?,
    };
    let now = Timestamp::now();
    let offer = args.capacity.as_deref();
    let offer = offer.map(|path| capacity_source::read(path, &snapshot, now, printer));
    let offer = offer.transpose()?;
    let mut gangs = Vec::new();
    for (at, job) in (0_i64..).zip(&jobs) {
        // Of several jobs of a file the first is the oldest.
        let created = now
            .checked_add(jiff::SignedDuration::from_nanos(at))
            .unwrap_or(now);
        let gang = Gang::of(job, &Cluster::default(), created)
            .with_context(|| format!("cannot plan {} `{}`", job.kind, job.name))?;
        // A running job is treated as if it were starting.
        snapshot
            .pods
            .retain(|_, pod| pod.gang.as_ref() != Some(&gang.key));
        gangs.push(gang);
    }
    let placement = place(&snapshot, &gangs, now);
    let notes = offer.as_ref().map(|offer| offer.notes.clone());
    let notes = notes.unwrap_or_default();
    let answers = offer.map(|offer| answers(&snapshot, &gangs, &placement, &offer));
    let answers = answers.unwrap_or_default();
    match args.format {
        Format::Text => {
            let paint = printer.stdout_paint();
            for gang in &gangs {
                let mut text = text(&snapshot, gang, &placement, paint);
                if let Some(answer) = answers.get(&gang.key)
                    && *answer != Answer::FitsNow
                {
                    let message = clean::text(&answer.message());
                    text = format!("{text}{}: {message}\n", gang.key.name);
                }
                printer.data(text.as_bytes())?;
            }
        }
        Format::Json => {
            let document = Document {
                version: 1,
                jobs: gangs
                    .iter()
                    .map(|gang| entry(gang, &placement, &answers))
                    .collect(),
                warnings: &placement.warnings,
                notes: &notes,
            };
            printer.json(&document)?;
        }
    }
    Ok(if placement.refused.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// The jobs of the file; none if it has errors, which are printed.
fn jobs(args: &PlaceJob, printer: &mut Printer) -> Result<Option<Vec<Job>>, Failure> {
    let Some((file, fabrics)) = jobs_file(&args.file, printer)? else {
        return Ok(None);
    };
    let jobs = file
        .documents
        .iter()
        .filter_map(|document| spec::check(document).job)
        .map(|job| fabrics.fit_known(job, printer));
    jobs.collect::<Result<Vec<Job>, Failure>>().map(Some)
}

fn entry<'a>(
    gang: &'a Gang,
    placement: &'a Placement,
    answers: &'a BTreeMap<GangKey, Answer>,
) -> Entry<'a> {
    let seating = placement.seated.get(&gang.key);
    Entry {
        job: &gang.key.name,
        namespace: &gang.key.namespace,
        kind: gang.key.kind.name(),
        placed: seating.is_some(),
        seating,
        refusal: placement.refused.get(&gang.key),
        reserved: placement.reservations.get(&gang.key).map(Vec::as_slice),
        capacity: answers.get(&gang.key).map(|answer| Capacity {
            message: answer.message(),
            answer,
        }),
    }
}

fn text(snapshot: &Snapshot, gang: &Gang, placement: &Placement, paint: Paint) -> String {
    let name = &gang.key.name;
    if let Some(refusal) = placement.refused.get(&gang.key) {
        let why = clean::text(&refusal.message);
        return format!("{}: does not fit: {why}\n", paint.apply("1;31", name));
    }
    let Some(seating) = placement.seated.get(&gang.key) else {
        return format!("{name}: has no pods\n");
    };
    let mut root = Branch::new(format!(
        "{}: {}",
        paint.apply("1;32", name),
        summary(seating)
    ));
    let draws_all = seating.seats.len() <= DRAWN;
    let mut domains = Domains::default();
    for seat in &seating.seats {
        let labels = snapshot.nodes.get(&seat.node).map(|node| &node.labels);
        let path = snapshot.topology.levels.iter().map(|level| {
            let value = labels.and_then(|labels| labels.get(&level.key));
            match value {
                Some(value) => clean::text(&format!("{} {value}", level.name)),
                None => format!("no {}", level.name),
            }
        });
        domains.add(path.collect::<Vec<_>>().as_slice(), seat);
    }
    root.branches = domains.branches(draws_all);
    let mut text = root.draw();
    for warning in &seating.warnings {
        text = format!("{text}note: {warning}\n");
    }
    text
}

/// `8 pods in block b1: 2 racks, 8 hosts; cost 16`.
fn summary(seating: &Seating) -> String {
    let place = match &seating.domain {
        Some(Place { level, name }) => format!(" in {level} {name}"),
        None => String::new(),
    };
    let spans: Vec<String> = seating
        .spans
        .iter()
        .filter(|span| span.domains > 0)
        .map(|span| words::counted(span.domains as u64, &span.level))
        .collect();
    let pods = words::counted(seating.seats.len() as u64, "pod");
    let mut words = format!("{pods}{place}: {}; cost {}", spans.join(", "), seating.cost);
    if seating.unseated > 0 {
        words = format!("{words}; {} more pods do not fit", seating.unseated);
    }
    words
}

/// Seats by domain, in the order in which ranks meet them.
#[derive(Default)]
struct Domains<'a> {
    order: Vec<String>,
    below: BTreeMap<String, Domains<'a>>,
    seats: Vec<&'a Seat>,
}

impl<'a> Domains<'a> {
    fn add(&mut self, path: &[String], seat: &'a Seat) {
        let Some((first, rest)) = path.split_first() else {
            self.seats.push(seat);
            return;
        };
        if !self.below.contains_key(first) {
            self.order.push(first.clone());
        }
        self.below.entry(first.clone()).or_default().add(rest, seat);
    }

    fn branches(&self, draws_all: bool) -> Vec<Branch> {
        let mut branches: Vec<Branch> = self
            .order
            .iter()
            .filter_map(|name| Some((name, self.below.get(name)?)))
            .map(|(name, domain)| {
                let mut branch = Branch::new(name.clone());
                if !draws_all && !domain.seats.is_empty() {
                    branch.words = format!("{name}: {}", range(&domain.seats));
                } else {
                    branch.branches = domain.branches(draws_all);
                }
                branch
            })
            .collect();
        if !draws_all && !self.seats.is_empty() {
            branches.push(Branch::new(range(&self.seats)));
        } else {
            branches.extend(by_node(&self.seats));
        }
        branches
    }
}

/// One line for each node, with its pods.
fn by_node(seats: &[&Seat]) -> Vec<Branch> {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for seat in seats {
        match lines.iter_mut().find(|(node, _)| *node == seat.node) {
            Some((_, pods)) => pods.push(&seat.pod),
            None => lines.push((&seat.node, vec![&seat.pod])),
        }
    }
    let width = lines
        .iter()
        .map(|(node, _)| node.chars().count())
        .max()
        .unwrap_or(0);
    lines
        .into_iter()
        .map(|(node, pods)| {
            Branch::new(clean::text(&format!("{node:<width$}  {}", pods.join(" "))))
        })
        .collect()
}

/// `16 pods on 16 hosts, j-worker-0 … j-worker-15`.
fn range(seats: &[&Seat]) -> String {
    let hosts: BTreeSet<&str> = seats.iter().map(|seat| seat.node.as_str()).collect();
    let ends = match seats {
        [] => String::new(),
        [only] => only.pod.clone(),
        [first, .., last] => format!("{} … {}", first.pod, last.pod),
    };
    let pods = words::counted(seats.len() as u64, "pod");
    format!(
        "{pods} on {}, {ends}",
        words::counted(hosts.len() as u64, "host")
    )
}
