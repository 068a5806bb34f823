//! One frame of a state.

mod failures;
mod help;
mod job;
mod jobs;
mod nodes;
mod pane;
mod queue;
mod strip;
#[cfg(test)]
mod tests;
mod words;

use ratatui_core::{buffer::Buffer, layout::Rect, style::Style};

use crate::{
    canvas::Canvas,
    document::Trouble,
    look::{bold, reversed},
    state::{Extents, Page, Slot, State, Typing},
    text,
};

/// How far what is drawn of `state` can be scrolled.
pub fn measure(state: &State) -> Extents {
    Extents {
        pane: job::pane_size(state),
        nodes: nodes::size(state),
        help: help::size(state.size),
    }
}

/// Where a part of a page is: columns from `x`, lines from `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    x: u16,
    y: u16,
    width: u16,
    height: u16,
}

impl Part {
    /// The first `lines` of it, and the rest.
    fn split(self, lines: u16) -> (Self, Self) {
        let lines = lines.min(self.height);
        let first = Self {
            height: lines,
            ..self
        };
        let rest = Self {
            y: self.y + lines,
            height: self.height - lines,
            ..self
        };
        (first, rest)
    }
}

/// The pages by their keys.
const PAGES: [(&str, &str); 4] = [
    ("1", "Jobs"),
    ("2", "Failures"),
    ("3", "Nodes"),
    ("4", "Queue"),
];

/// Draws `state` on all of `buffer`.
pub fn draw(state: &State, buffer: &mut Buffer) {
    let area = *buffer.area();
    let mut canvas = Canvas::new(buffer, state.look);
    let all = Part {
        x: area.x,
        y: area.y,
        width: area.width,
        height: area.height,
    };
    let (top, rest) = all.split(1);
    let (body, bottom) = rest.split(rest.height.saturating_sub(1));
    title(&mut canvas, state, top);
    footer(&mut canvas, state, bottom);
    if let Some(scroll) = state.help {
        help::draw(&mut canvas, scroll, body);
        return;
    }
    match &state.page {
        Page::Jobs => {
            let body = answered(&mut canvas, state, &state.known.jobs, body);
            jobs::draw(&mut canvas, state, body);
        }
        Page::Job(page) => {
            let body = answered(&mut canvas, state, &state.known.job, body);
            job::draw(&mut canvas, state, page, body);
        }
        Page::Failures => {
            let body = answered(&mut canvas, state, &state.known.failures, body);
            failures::draw(&mut canvas, state, body);
        }
        Page::Nodes => {
            let body = answered(&mut canvas, state, &state.known.nodes, body);
            nodes::draw(&mut canvas, state, body);
        }
        Page::Queue => {
            let body = answered(&mut canvas, state, &state.known.queue, body);
            queue::draw(&mut canvas, state, body);
        }
    }
}

/// One frame of the list of jobs as text without colours, so many columns wide and as long as it needs to be.
pub fn once(state: &State, columns: u16) -> String {
    /// Lines around the rows.
    const AROUND: usize = 8;
    let rows = state.known.jobs.value.as_ref();
    let rows = rows.map_or(0, |jobs| jobs.rows.len() + jobs.unreadable.len());
    let height = u16::try_from(rows + AROUND).unwrap_or(u16::MAX);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns.max(40), height));
    let mut canvas = Canvas::new(&mut buffer, state.look);
    let part = Part {
        x: 0,
        y: 0,
        width: columns.max(40),
        height,
    };
    let part = answered(&mut canvas, state, &state.known.jobs, part);
    jobs::list(&mut canvas, state, part, false);
    let mut text = lines_of(&buffer).join("\n").trim_end().to_owned();
    text.push('\n');
    text
}

/// The lines of a frame, without the spaces at their ends.
pub(crate) fn lines_of(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area();
    let mut lines = Vec::new();
    for y in area.top()..area.bottom() {
        let (mut line, mut x) = (String::new(), area.left());
        while x < area.right() {
            let symbol = buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
            line.push_str(symbol);
            // What is behind a wide character is a part of it.
            x += text::width(symbol, 2).max(1);
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

fn title(canvas: &mut Canvas<'_>, state: &State, part: Part) {
    let end = part.x + part.width;
    let mut x = part.x;
    if part.width >= 60 {
        x = canvas.put(x, part.y, 12, " trainyard", bold()) + 2;
    }
    let current = match state.page {
        Page::Jobs | Page::Job(_) => 0,
        Page::Failures => 1,
        Page::Nodes => 2,
        Page::Queue => 3,
    };
    for (at, (key, word)) in PAGES.iter().enumerate() {
        let style = if at == current {
            reversed()
        } else {
            Style::new()
        };
        let word = if part.width >= 60 {
            format!(" {key} {word} ")
        } else {
            format!(" {word} ")
        };
        x = canvas.put(x, part.y, end.saturating_sub(x), &word, style) + 1;
    }
    let room = end.saturating_sub(x + 1);
    if room >= 12 {
        let source = text::width(&state.source.name, room + 1);
        if source <= room {
            let dim = canvas.look.dim();
            canvas.put_right(end.saturating_sub(1), part.y, room, &state.source.name, dim);
        }
    }
}

fn footer(canvas: &mut Canvas<'_>, state: &State, part: Part) {
    let typed = match &state.typing {
        Some(Typing::Filter(typed)) => Some(format!("/{typed}")),
        Some(Typing::GoTo(typed)) => Some(format!(":{typed}")),
        None => None,
    };
    if let Some(typed) = typed {
        // The end of what is typed is where the next character comes.
        let width = text::width(&typed, u16::MAX);
        let over = width.saturating_sub(part.width.saturating_sub(2));
        let shown: String = typed.chars().skip(usize::from(over)).collect();
        let x = canvas.put(part.x, part.y, part.width, &shown, bold());
        canvas.put(x, part.y, 1, " ", reversed());
        return;
    }
    if let Some(said) = &state.said {
        canvas.put(part.x, part.y, part.width, said, bold());
        return;
    }
    let keys = match state.page {
        _ if state.help.is_some() => "Esc back  j k move",
        Page::Jobs => "Enter open  / filter  < > sort  R reverse  : go to  ? help  q quit",
        Page::Job(_) => {
            "l logs  d verdict  e events  t time  n p marks  [ ] attempt  ? help  Esc back"
        }
        Page::Failures => "Enter open the newest  : go to  ? help  Esc back  q quit",
        Page::Nodes => "j k move  : go to  ? help  Esc back  q quit",
        Page::Queue => "Enter open  : go to  ? help  Esc back  q quit",
    };
    // Half a list of keys helps less than the key that shows all.
    let fits = text::width(keys, part.width.saturating_add(1)) <= part.width;
    let keys = if fits {
        keys
    } else {
        "? help  Esc back  q quit"
    };
    let dim = canvas.look.dim();
    canvas.put(part.x, part.y, part.width, keys, dim);
}

/// Says why an answer is missing or old; what is left of the page.
fn answered<T>(canvas: &mut Canvas<'_>, state: &State, slot: &Slot<T>, part: Part) -> Part {
    match (&slot.value, &slot.trouble) {
        (Some(_), None) => part,
        (None, None) => {
            let (line, rest) = part.split(1);
            let dim = canvas.look.dim();
            canvas.put(line.x + 1, line.y, line.width, "reading …", dim);
            rest
        }
        (Some(_), Some(trouble)) => {
            let (line, rest) = part.split(1);
            let age = words::millis(state.now.saturating_sub(slot.at));
            let text = format!("as of {age} ago: {}", trouble.message);
            canvas.put(
                line.x + 1,
                line.y,
                line.width.saturating_sub(1),
                &text,
                bold(),
            );
            rest
        }
        (None, Some(trouble)) => refused(canvas, trouble, part),
    }
}

fn refused(canvas: &mut Canvas<'_>, trouble: &Trouble, part: Part) -> Part {
    let (_, mut rest) = part.split(1);
    let width = part.width.saturating_sub(2);
    let parts = [
        (trouble.message.as_str(), Style::new()),
        (trouble.hint.as_str(), canvas.look.dim()),
    ];
    for (text, style) in parts {
        for line in text::wrapped(text, width, 6) {
            let (place, below) = rest.split(1);
            if place.height > 0 {
                canvas.put(place.x + 1, place.y, width, &line, style);
            }
            rest = below;
        }
    }
    rest
}
