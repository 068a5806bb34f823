//! The page of nodes: the domains of the cluster as a tree, and who holds what.

use ratatui_core::style::Style;

use super::{Part, words};
use crate::{
    canvas::Canvas,
    document::{Area, Host, Nodes, Tally},
    look::bold,
    state::State,
};

/// Accelerators of a node that are drawn one by one.
const DRAWN_MOST: i64 = 16;
/// Domains within each other that are drawn, one step to the right each.
const DEEP_MOST: usize = 16;
/// What the name of a node takes at most.
const NAME_MOST: u16 = 40;
/// Who holds accelerators of a node: those that are named.
const HOLDERS: usize = 4;

/// One line of the tree.
enum Line<'a> {
    Area(usize, &'a Area),
    Host(usize, &'a Host),
    Warning(&'a str),
    Signs,
}

/// How many lines there are, and for how many of them there is room.
pub(crate) fn size(state: &State) -> (usize, usize) {
    let lines = state.known.nodes.value.as_ref();
    let lines = lines.map_or(0, |nodes| lines_of(nodes).len());
    let banner = u16::from(state.known.nodes.trouble.is_some());
    (lines, state.size.1.saturating_sub(2 + banner).into())
}

pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, part: Part) {
    let Some(nodes) = &state.known.nodes.value else {
        return;
    };
    let lines = lines_of(nodes);
    let first = state.nodes.first(lines.len(), part.height.into());
    let width = part.width.saturating_sub(2);
    for (y, line) in (part.y..part.y + part.height).zip(lines.iter().skip(first)) {
        let x = |depth: &usize| part.x + 1 + indent(*depth);
        match line {
            Line::Area(depth, area) => {
                let width = width.saturating_sub(indent(*depth));
                canvas.put(x(depth), y, width, &heading(area), bold());
            }
            Line::Host(depth, host) => {
                let line = Part {
                    x: x(depth),
                    y,
                    width: width.saturating_sub(indent(*depth)),
                    height: 1,
                };
                self::host(canvas, state, host, line);
            }
            Line::Warning(text) => {
                canvas.put(part.x + 1, y, width, text, bold());
            }
            Line::Signs => {
                let dim = canvas.look.dim();
                let signs = "█ held by a gang  ▒ held by other pods  · free  x free, but the node accepts no pods";
                canvas.put(part.x + 1, y, width, signs, dim);
            }
        }
    }
}

/// Two columns for each step.
fn indent(depth: usize) -> u16 {
    u16::try_from(depth * 2).unwrap_or(0)
}

/// Every line, from the top.
fn lines_of(nodes: &Nodes) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = nodes.warnings.iter().map(|it| Line::Warning(it)).collect();
    // A stack instead of calls, since the depth is that of the document.
    let mut left = vec![(0, &nodes.cluster)];
    while let Some((depth, area)) = left.pop() {
        lines.push(Line::Area(depth, area));
        let below = (depth + 1).min(DEEP_MOST);
        lines.extend(area.hosts.iter().map(|host| Line::Host(below, host)));
        left.extend(area.areas.iter().rev().map(|part| (below, part)));
    }
    if nodes.cluster.accelerators.total > 0 {
        lines.push(Line::Signs);
    }
    lines
}

fn heading(area: &Area) -> String {
    let name = match (&area.name, area.level.as_str()) {
        (Some(name), level) => format!("{level} {name}"),
        (None, "cluster" | "") => "cluster".to_owned(),
        (None, level) => format!("no {level}"),
    };
    let nodes = words::counted(area.nodes, "node");
    match area.accelerators {
        Tally { total: 0, .. } => format!("{name}  {nodes}"),
        tally => format!("{name}  {nodes}, {}", free(tally)),
    }
}

/// What is free, and what is free in vain.
fn free(tally: Tally) -> String {
    let words = format!("{} of {} free", tally.free, tally.total);
    match tally.out {
        0 => words,
        out => format!("{words}, {out} more on nodes that accept no pods"),
    }
}

fn host(canvas: &mut Canvas<'_>, state: &State, host: &Host, part: Part) {
    let end = part.x + part.width;
    let name = (part.width / 3).min(NAME_MOST);
    canvas.put(part.x, part.y, name, &host.name, Style::new());
    let mut x = part.x + name + 1;
    let mut put = |canvas: &mut Canvas<'_>, text: &str, style: Style| {
        let room = end.saturating_sub(x);
        if !text.is_empty() && room > 0 {
            x = canvas.put(x, part.y, room, text, style) + 2;
        }
    };
    put(canvas, &cells(host.accelerators), Style::new());
    if let Some(why) = &host.state {
        put(canvas, why, bold());
    }
    if let Some(until) = host.probation_until {
        let until = words::moment(until.as_millisecond(), state.now);
        put(canvas, &format!("on probation until {until}"), bold());
    }
    let dim = canvas.look.dim();
    put(canvas, &holders(host), dim);
}

/// One sign for each accelerator, or words where there are many.
fn cells(tally: Tally) -> String {
    let groups = [
        (tally.held, '█'),
        (tally.foreign, '▒'),
        (tally.free, '·'),
        (tally.out, 'x'),
    ];
    let is_drawn = (1..=DRAWN_MOST).contains(&tally.total);
    let fit = groups
        .iter()
        .all(|(count, _)| (0..=DRAWN_MOST).contains(count));
    if tally.total == 0 {
        return String::new();
    }
    if !is_drawn || !fit {
        return free(tally);
    }
    let mut cells = String::new();
    for (count, sign) in groups {
        cells.extend((0..count).map(|_| sign));
    }
    cells
}

fn holders(host: &Host) -> String {
    let mut all: Vec<String> = host
        .holders
        .iter()
        .take(HOLDERS)
        .map(|it| format!("{} ×{}", it.gang, it.accelerators))
        .collect();
    if host.holders.len() > HOLDERS {
        all.push(format!("{} more", host.holders.len() - HOLDERS));
    }
    all.join(", ")
}
