//! `trainyard nodes`: the topology as the scheduler sees it, with free and held seats.

mod svg;

use std::collections::BTreeMap;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use trainyard_core::{
    gang::{Area, Host, Level, Tally, survey},
    probe::Outcome,
};

use super::watched::{Frame, watch};
use crate::{
    args::{Format, Nodes},
    clean,
    failure::{Exit, Failure},
    node_source,
    paint::Paint,
    printer::Printer,
    tree::Branch,
    words,
};

/// Nodes of the narrowest domains that are drawn one by one, in all.
const DRAWN: usize = 256;
/// Letters of gangs, in order of first appearance.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The sign of gangs beyond those.
const MANY: char = '+';
const FREE: char = '·';
const FOREIGN: char = '#';
const OUT: char = 'x';

/// The JSON form. Documented in `docs/reference/json.md`; fields are only ever added.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    levels: &'a [Level],
    cluster: &'a Area,
    warnings: &'a [String],
}

/// Prints the tree, and draws it where asked to.
pub(super) fn run(args: &Nodes, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.watch {
        return watch(printer, |printer| {
            let snapshot = node_source::read(&args.node_source)?;
            let area = survey(&snapshot);
            let text = text(&area, &Signs::new(&area), args.all, printer.stdout_paint());
            Ok(Frame {
                notes: node_source::warnings(&snapshot),
                ..Frame::of(text)
            })
        });
    }
    let snapshot = node_source::snapshot(&args.node_source, printer)?;
    let area = survey(&snapshot);
    let signs = Signs::new(&area);
    if let Some(path) = &args.svg {
        let drawing = svg::draw(&area, &signs);
        crate::output::write(path, drawing.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    match args.format {
        Format::Text => {
            let text = text(&area, &signs, args.all, printer.stdout_paint());
            printer.data(text.as_bytes())?;
        }
        Format::Json => {
            let document = Document {
                version: 1,
                levels: &snapshot.topology.levels,
                cluster: &area,
                warnings: &snapshot.warnings,
            };
            printer.json(&document)?;
        }
    }
    Ok(Exit::Done)
}

/// What stands for each gang.
struct Signs {
    /// Preflight results older than this are ignored.
    now: Timestamp,
    /// The gangs in order of first appearance, with their accelerators.
    gangs: Vec<(String, i64)>,
    places: BTreeMap<String, usize>,
}

impl Signs {
    fn new(area: &Area) -> Self {
        let mut signs = Self {
            now: Timestamp::now(),
            gangs: Vec::new(),
            places: BTreeMap::new(),
        };
        signs.add_gangs(area);
        signs
    }

    fn add_gangs(&mut self, area: &Area) {
        area.areas.iter().for_each(|part| self.add_gangs(part));
        for held in area.hosts.iter().flat_map(|host| &host.holders) {
            let next = self.gangs.len();
            let place = *self.places.entry(held.gang.clone()).or_insert(next);
            if place == next {
                self.gangs.push((held.gang.clone(), 0));
            }
            self.gangs[place].1 += held.accelerators;
        }
    }

    /// The number of a gang.
    fn place(&self, gang: &str) -> usize {
        self.places.get(gang).copied().unwrap_or(usize::MAX)
    }

    fn sign(&self, gang: &str) -> char {
        LETTERS.chars().nth(self.place(gang)).unwrap_or(MANY)
    }
}

fn text(area: &Area, signs: &Signs, all: bool, paint: Paint) -> String {
    let draws_hosts = all || area.nodes <= DRAWN;
    let width = widest(area);
    let mut text = branch(area, signs, draws_hosts, width, paint).draw();
    let mut legend = vec![format!("{FREE} free")];
    let tally = area.accelerators;
    if tally.foreign > 0 {
        legend.push(format!("{FOREIGN} other pods"));
    }
    if tally.out > 0 {
        legend.push(format!("{OUT} unavailable"));
    }
    if draws_hosts && tally.total > 0 {
        for (gang, count) in &signs.gangs {
            legend.push(format!(
                "{} {} ({count})",
                signs.sign(gang),
                clean::text(gang)
            ));
        }
        text.push('\n');
        text.push_str(&legend.join("  "));
        text.push('\n');
    }
    text
}

fn branch(area: &Area, signs: &Signs, draws_hosts: bool, width: usize, paint: Paint) -> Branch {
    let name = match (&area.name, area.level.as_str()) {
        (Some(name), level) => format!("{level} {name}"),
        (None, "cluster") => "cluster".to_owned(),
        (None, level) => format!("no {level}"),
    };
    let nodes = words::counted(area.nodes as u64, "node");
    let name = paint.apply("1", &clean::text(&name));
    let words = format!("{name}: {nodes}{}", tally(area.accelerators));
    let mut branch = Branch::new(words);
    for part in &area.areas {
        branch
            .branches
            .push(self::branch(part, signs, draws_hosts, width, paint));
    }
    if draws_hosts {
        let hosts = area.hosts.iter();
        branch
            .branches
            .extend(hosts.map(|host| Branch::new(line(host, signs, width, paint))));
    }
    branch
}

/// `, 64 GPUs: 12 free, 48 used by gangs, 4 unavailable`; empty if there are none.
fn tally(tally: Tally) -> String {
    if tally.total == 0 {
        return String::new();
    }
    let parts = [
        (tally.free, "free"),
        (tally.held, "used by gangs"),
        (tally.foreign, "used by other pods"),
        (tally.out, "unavailable"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, word)| *count > 0 || *word == "free")
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    format!(", {} GPUs: {}", tally.total, parts.join(", "))
}

/// `node-3  aaaabb··  cordoned`.
fn line(host: &Host, signs: &Signs, width: usize, paint: Paint) -> String {
    let mut line = format!("{:<width$}  ", clean::text(&host.name));
    for cell in cells(host, signs) {
        let codes = match cell {
            FREE => "32",
            OUT => "31",
            FOREIGN => "33",
            _ => "36",
        };
        line.push_str(&paint.apply(codes, cell.encode_utf8(&mut [0; 4])));
    }
    if host.accelerators.total == 0 {
        let (free, total) = host.cpu;
        line = format!("{line}{} of {} CPUs free", free / 1000, total / 1000);
    }
    if let Some(state) = &host.state {
        line.push_str("  ");
        line.push_str(&paint.apply("31", &clean::text(state)));
        if let Some(until) = host.probation_until {
            line = format!("{line} until {until}");
        }
    }
    if let Some(record) = host
        .preflight
        .as_ref()
        .filter(|record| record.is_fresh(signs.now))
    {
        let (codes, word) = match record.outcome {
            Outcome::Fail => ("31", "failed"),
            Outcome::Warn => ("33", "warned"),
            Outcome::Pass | Outcome::NotApplicable => ("32", "passed"),
        };
        line = format!("{line}  preflight {}", paint.apply(codes, word));
        if !record.check.is_empty() {
            line = format!("{line} ({})", clean::text(&record.check));
        }
    }
    line
}

/// One sign for each accelerator of a node.
fn cells(host: &Host, signs: &Signs) -> Vec<char> {
    let mut cells = Vec::new();
    let mut push = |sign: char, count: i64| {
        cells.extend(std::iter::repeat_n(
            sign,
            usize::try_from(count).unwrap_or(0),
        ));
    };
    for held in &host.holders {
        push(signs.sign(&held.gang), held.accelerators);
    }
    push(FOREIGN, host.accelerators.foreign);
    push(OUT, host.accelerators.out);
    push(FREE, host.accelerators.free);
    cells
}

fn widest(area: &Area) -> usize {
    let own = area
        .hosts
        .iter()
        .map(|host| host.name.chars().count())
        .max();
    let below = area.areas.iter().map(widest).max();
    own.max(below).unwrap_or(0)
}
