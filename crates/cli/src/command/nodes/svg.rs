//! The topology as a drawing: domains as boxes, nodes as rows, accelerators as squares.
//!
//! Boxes of the narrowest level stand side by side and wrap; wider ones are drawn around them.

use std::fmt::Write as _;

use trainyard_core::gang::{Area, Host};

use super::Signs;

const CELL: usize = 11;
const ROW: usize = 17;
const HEAD: usize = 22;
const PAD: usize = 10;
/// Width of a letter, in tenths.
const LETTER: usize = 73;
/// Boxes side by side take at most this much.
const WIDTH: usize = 1180;

/// Colours of gangs, distinguishable with red-green colour blindness; repeated after the last.
const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8172b3",
];

const STYLE: &str = "<style>\
text{font:12px ui-monospace,SFMono-Regular,Menlo,monospace;fill:#1f2328}\
.muted{fill:#656d76}.bold{font-weight:600}.bad{fill:#b42318}\
.box{fill:none;stroke:#d0d7de}.page{fill:#ffffff}\
.free{fill:#eef1f4;stroke:#c4ccd4}.foreign{fill:#8c959f}.out{fill:#ffe1dd;stroke:#d92d20}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.muted{fill:#8b949e}.bad{fill:#ff8a80}\
.box{stroke:#3d444d}.page{fill:#0d1117}.free{fill:#1c2128;stroke:#444c56}.out{fill:#4a1510}}\
</style>\n";

/// A drawn part and its size.
struct Piece {
    body: String,
    width: usize,
    height: usize,
}

/// The whole drawing.
pub(super) fn draw(area: &Area, signs: &Signs) -> String {
    let tree = piece(area, signs);
    let legend = legend(area, signs, tree.width.max(480));
    let width = tree.width.max(legend.width) + 2 * PAD;
    let height = tree.height + legend.height + 3 * PAD;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n{STYLE}\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n{}{}</svg>\n",
        moved(PAD, PAD, &tree.body),
        moved(PAD, tree.height + 2 * PAD, &legend.body)
    )
}

fn piece(area: &Area, signs: &Signs) -> Piece {
    let inner = if area.areas.is_empty() {
        hosts(&area.hosts, signs)
    } else {
        wrapped(area.areas.iter().map(|part| piece(part, signs)))
    };
    let name = match (&area.name, area.level.as_str()) {
        (Some(name), level) => format!("{level} {name}"),
        (None, "cluster") => "cluster".to_owned(),
        (None, level) => format!("no {level}"),
    };
    let tally = area.accelerators;
    let free = match tally.total {
        0 => String::new(),
        total => format!("{} of {total} free", tally.free),
    };
    let words = letters(&name) + letters(&free) + 3 * PAD;
    let width = (inner.width + 2 * PAD).max(words + 2 * PAD);
    let height = inner.height + HEAD + PAD;
    let mut body = String::new();
    put(
        &mut body,
        format_args!(
            "<rect class=\"box\" x=\"0.5\" y=\"0.5\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n"
        ),
    );
    put(
        &mut body,
        format_args!(
            "<text class=\"bold\" x=\"{PAD}\" y=\"16\">{}</text>\n",
            escaped(&name)
        ),
    );
    put(
        &mut body,
        format_args!(
            "<text class=\"muted\" x=\"{}\" y=\"16\" text-anchor=\"end\">{free}</text>\n",
            width - PAD
        ),
    );
    body.push_str(&moved(PAD, HEAD, &inner.body));
    Piece {
        body,
        width,
        height,
    }
}

/// Pieces side by side, in as many lines as they need.
fn wrapped(pieces: impl Iterator<Item = Piece>) -> Piece {
    let (mut x, mut y, mut tallest, mut widest) = (0, 0, 0, 0);
    let mut body = String::new();
    for piece in pieces {
        if x > 0 && x + piece.width > WIDTH {
            y += tallest + PAD;
            (x, tallest) = (0, 0);
        }
        body.push_str(&moved(x, y, &piece.body));
        x += piece.width + PAD;
        tallest = tallest.max(piece.height);
        widest = widest.max(x - PAD);
    }
    Piece {
        body,
        width: widest,
        height: y + tallest,
    }
}

/// One row for each node: its name, its accelerators, what is the matter with it.
fn hosts(hosts: &[Host], signs: &Signs) -> Piece {
    let name_width = hosts
        .iter()
        .map(|host| letters(&host.name))
        .max()
        .unwrap_or(0)
        + PAD;
    let mut width = name_width;
    let mut body = String::new();
    for (at, host) in hosts.iter().enumerate() {
        let y = at * ROW;
        put(
            &mut body,
            format_args!(
                "<text x=\"0\" y=\"{}\">{}</text>\n",
                y + 12,
                escaped(&host.name)
            ),
        );
        let mut x = name_width;
        for (class, title) in cells(host, signs) {
            put(
                &mut body,
                format_args!(
                    "<rect {class} x=\"{x}.5\" y=\"{}.5\" width=\"{}\" height=\"{}\" rx=\"2\"><title>{}</title></rect>\n",
                    y + 2,
                    CELL - 2,
                    CELL,
                    escaped(title)
                ),
            );
            x += CELL;
        }
        let mut note = host.state.clone().unwrap_or_default();
        if host.accelerators.total == 0 {
            let cpus = format!("{} of {} CPUs free", host.cpu.0 / 1000, host.cpu.1 / 1000);
            note = if note.is_empty() {
                cpus
            } else {
                format!("{cpus}, {note}")
            };
        }
        if !note.is_empty() {
            let class = if host.state.is_some() { "bad" } else { "muted" };
            put(
                &mut body,
                format_args!(
                    "<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>\n",
                    x + 6,
                    y + 12,
                    escaped(&note)
                ),
            );
            x += 6 + letters(&note);
        }
        width = width.max(x);
    }
    Piece {
        body,
        width,
        height: hosts.len() * ROW,
    }
}

/// The look of each accelerator of a node, and whose it is.
fn cells<'a>(host: &'a Host, signs: &Signs) -> Vec<(String, &'a str)> {
    let mut cells: Vec<(String, &str)> = Vec::new();
    let mut push = |look: String, title: &'a str, count: i64| {
        let count = usize::try_from(count).unwrap_or(0);
        cells.extend(std::iter::repeat_n((look, title), count));
    };
    for held in &host.holders {
        push(look(signs, &held.gang), &held.gang, held.accelerators);
    }
    push(class("foreign"), "other pods", host.accelerators.foreign);
    push(class("out"), "unavailable", host.accelerators.out);
    push(class("free"), "free", host.accelerators.free);
    cells
}

fn class(name: &str) -> String {
    format!("class=\"{name}\"")
}

fn look(signs: &Signs, gang: &str) -> String {
    format!("fill=\"{}\"", COLOURS[signs.place(gang) % COLOURS.len()])
}

/// What the colours mean.
fn legend(area: &Area, signs: &Signs, width: usize) -> Piece {
    let tally = area.accelerators;
    let mut items = vec![(class("free"), format!("free ({})", tally.free))];
    if tally.foreign > 0 {
        items.push((class("foreign"), format!("other pods ({})", tally.foreign)));
    }
    if tally.out > 0 {
        items.push((class("out"), format!("unavailable ({})", tally.out)));
    }
    for (gang, count) in &signs.gangs {
        items.push((look(signs, gang), format!("{gang} ({count})")));
    }
    let (mut x, mut y) = (0, 0);
    let mut body = String::new();
    for (look, words) in items {
        let needed = CELL + 6 + letters(&words) + 2 * PAD;
        if x > 0 && x + needed > width {
            (x, y) = (0, y + ROW);
        }
        put(
            &mut body,
            format_args!(
                "<rect {look} x=\"{x}.5\" y=\"{}.5\" width=\"{}\" height=\"{}\" rx=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
                y + 2,
                CELL - 2,
                CELL,
                x + CELL + 5,
                y + 12,
                escaped(&words)
            ),
        );
        x += needed;
    }
    Piece {
        body,
        width,
        height: y + ROW,
    }
}

/// The width of a text.
fn letters(text: &str) -> usize {
    (text.chars().count() * LETTER).div_ceil(10)
}

fn put(body: &mut String, words: std::fmt::Arguments<'_>) {
    body.write_fmt(words)
        .expect("a string takes whatever is written");
}

fn moved(x: usize, y: usize, body: &str) -> String {
    format!("<g transform=\"translate({x} {y})\">\n{body}</g>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
