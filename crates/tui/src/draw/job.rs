//! The page of a job.

use jiff::Timestamp;
use ratatui_core::style::Style;
use serde_json::Value;

use super::{Part, pane, strip, words};
use crate::{
    canvas::Canvas,
    document::{Job, Ledger, Strip, Verdict},
    look::{bold, reversed},
    state::{self, JobPage, Page, State, Tab, label_width, strip_lines},
    text,
};

/// Lines of each section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heights {
    head: u16,
    verdict: u16,
    marks: u16,
    ranks: u16,
    job: u16,
    axis: u16,
    time: u16,
}

/// What a page of so many lines has room for; at least four lines are left for the lower part, where the page has that many.
fn heights(state: &State, height: u16) -> Heights {
    let (_, rows) = state.size;
    let ranks = state.known.strip.value.as_ref();
    let ranks = ranks.map_or(0, |strip| u16::try_from(strip.of.len()).unwrap_or(u16::MAX));
    let has_verdict = last_verdict(state).is_some();
    let mut left = height.saturating_sub(4);
    let mut take = |wanted: u16| {
        let taken = wanted.min(left);
        left -= taken;
        taken
    };
    let head = take(2);
    let job = take(1);
    let time = take(if height >= 14 { 2 } else { 1 });
    let mut verdict = take(u16::from(has_verdict && height >= 9));
    let axis = take(u16::from(height >= 10));
    let marks = take(u16::from(height >= 11));
    let ranks = take(ranks.min(strip_lines(rows)));
    if has_verdict && height >= 20 {
        verdict += take(2);
    }
    Heights {
        head,
        verdict,
        marks,
        ranks,
        job,
        axis,
        time,
    }
}

pub(super) fn draw(canvas: &mut Canvas<'_>, state: &State, page: &JobPage, part: Part) {
    let Some(job) = &state.known.job.value else {
        return;
    };
    let heights = heights(state, part.height);
    let (place, rest) = part.split(heights.head);
    head(canvas, state, page, job, place);
    let (place, rest) = rest.split(heights.verdict);
    if let Some(verdict) = last_verdict(state) {
        card(canvas, verdict, place);
    }
    let lines = heights.marks + heights.ranks + heights.job + heights.axis;
    let (place, rest) = rest.split(lines);
    over_time(canvas, state, page, heights, place);
    let (place, rest) = rest.split(heights.time);
    if let Some(ledger) = &state.known.ledger.value {
        time(canvas, ledger, place);
    }
    let (place, rest) = rest.split(1);
    tabs(canvas, state, page, place);
    let lines = pane::lines(state, page, rest.width.saturating_sub(2));
    let first = page.scroll.first(lines.len(), usize::from(rest.height));
    for (y, line) in (rest.y..rest.y + rest.height).zip(lines.iter().skip(first)) {
        let style = line.style(canvas.look);
        canvas.put(
            rest.x + 1,
            y,
            rest.width.saturating_sub(1),
            &line.text,
            style,
        );
    }
}

/// How many lines the lower part of the page has, and how many of them are shown.
pub(crate) fn pane_size(state: &State) -> (usize, usize) {
    let Page::Job(page) = &state.page else {
        return (0, 0);
    };
    let (columns, rows) = state.size;
    let banner = u16::from(state.known.job.trouble.is_some());
    let body = rows.saturating_sub(2 + banner);
    let all = heights(state, body);
    let above = all.head + all.verdict + all.marks + all.ranks + all.job + all.axis + all.time + 1;
    let lines = pane::lines(state, page, columns.saturating_sub(2));
    (lines.len(), body.saturating_sub(above).into())
}

fn last_verdict(state: &State) -> Option<&Verdict> {
    state.known.verdicts.value.as_ref()?.verdicts.first()
}

fn head(canvas: &mut Canvas<'_>, state: &State, page: &JobPage, job: &Job, part: Part) {
    if part.height == 0 {
        return;
    }
    let end = part.x + part.width;
    let row = &job.row;
    let name = format!("{}/{}", page.namespace, page.name);
    let room = part.width / 2;
    let mut x = canvas.put(part.x + 1, part.y, room, &name, bold()) + 2;
    let colour = canvas.look.of_state(words::colour_of(&row.state));
    let style = colour.patch(bold());
    x = canvas.put(x, part.y, end.saturating_sub(x), &row.state, style) + 2;
    let mut facts = vec![format!("step {}", words::step(row.step, row.steps))];
    if let (Some(step), Some(steps @ 1..)) = (row.step, row.steps) {
        let share = u128::from(step.min(steps)) * 100 / u128::from(steps);
        facts.push(format!("{share} %"));
    }
    facts.push(format!("attempt {}", row.attempt));
    facts.push(words::counted(row.ranks.into(), "rank"));
    if let Some(count @ 1..) = row.accelerators {
        facts.push(words::counted(count.into(), "GPU"));
    }
    let progress = job.status.progress.as_ref();
    if let Some(loss) = progress.and_then(|it| figure(&it.loss)) {
        facts.push(format!("loss {loss}"));
    }
    if let Some(seconds) = progress.and_then(|it| figure(&it.step_seconds)) {
        facts.push(format!("{seconds} s/step"));
    }
    canvas.put(
        x,
        part.y,
        end.saturating_sub(x),
        &facts.join(" · "),
        Style::new(),
    );
    if part.height < 2 {
        return;
    }
    let started = row.started_at.as_millisecond();
    let ended = row.ended_at.map(Timestamp::as_millisecond);
    let took = words::millis(ended.unwrap_or(state.now).saturating_sub(started));
    let at = words::moment(started, state.now);
    let when = match ended {
        Some(_) => format!("{} · began {at}, took {took}", row.kind),
        None => format!("{} · began {at}, {took} ago", row.kind),
    };
    // Why it does not train counts more than when it began.
    let (text, style) = match &row.line {
        Some(line) => (format!("{line} · {when}"), colour),
        None => (when, canvas.look.dim()),
    };
    canvas.put(
        part.x + 1,
        part.y + 1,
        part.width.saturating_sub(1),
        &text,
        style,
    );
}

/// A number of a log, or nothing.
fn figure(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

/// The newest verdict: one line, or three.
fn card(canvas: &mut Canvas<'_>, verdict: &Verdict, part: Part) {
    let head = pane::verdict_head(verdict);
    let width = part.width.saturating_sub(2);
    let failed = canvas.look.of_state(words::named("failed")).patch(bold());
    let mut lines = vec![(format!("! {head}"), failed)];
    if part.height > 1 {
        lines.push((format!("  {}", verdict.sentence), Style::new()));
        lines.push((format!("  next: {}", verdict.next), Style::new()));
    }
    for (y, (line, style)) in (part.y..part.y + part.height).zip(lines) {
        canvas.put(part.x + 1, y, width, &line, style);
    }
}

fn over_time(canvas: &mut Canvas<'_>, state: &State, page: &JobPage, heights: Heights, part: Part) {
    let Some(strip) = &state.known.strip.value else {
        if let (Some(trouble), true) = (&state.known.strip.trouble, part.height > 0) {
            let width = part.width.saturating_sub(1);
            canvas.put(part.x + 1, part.y, width, &trouble.message, bold());
        }
        return;
    };
    let label = label_width(part.width);
    let marks = state::marks(Some(strip));
    let (place, rest) = part.split(heights.marks);
    if place.height > 0 {
        strip::marks(canvas, strip, &marks, page.mark, place, label);
    }
    let (place, rest) = rest.split(heights.ranks);
    strip::ranks(canvas, strip, place, label);
    let (place, rest) = rest.split(heights.job);
    if place.height > 0 {
        canvas.put(place.x, place.y, label.saturating_sub(1), "job", bold());
        let columns = part.width.saturating_sub(label + 1);
        let cells = strip::cells(strip, &strip.job, columns);
        strip::line(canvas, &cells, place.x + label, place.y);
    }
    if heights.axis > 0 {
        axis(canvas, state, page, strip, rest);
    }
}

/// The selected mark in words, else what the signs mean.
fn axis(canvas: &mut Canvas<'_>, state: &State, page: &JobPage, strip: &Strip, part: Part) {
    let marks = state::marks(Some(strip));
    if let Some((at, mark)) = page.mark.and_then(|at| Some((at, marks.get(at)?))) {
        let count = marks.len();
        let left_out = match strip.marks_left_out {
            0 => String::new(),
            more => format!(", {more} more not shown"),
        };
        let words = strip::mark_words(strip, mark, state.now);
        let text = format!("{words}  ({}/{count}{left_out})", at + 1);
        canvas.put(
            part.x + 1,
            part.y,
            part.width.saturating_sub(1),
            &text,
            bold(),
        );
        return;
    }
    let end = part.x + part.width;
    let mut x = part.x + 1;
    for (state, word) in strip::legend(strip) {
        let style = canvas.look.of_state(state);
        let room = end.saturating_sub(x);
        // A word that does not fit is left out whole.
        if text::width(&word, room.saturating_add(1)) > room {
            break;
        }
        x = canvas.put(x, part.y, room, &word, style) + 2;
    }
    let span = words::millis(strip.to.saturating_sub(strip.from));
    let mixed = match strip.mixed {
        0 => String::new(),
        1 => "1 cell holds several states, ".to_owned(),
        count => format!("{count} cells hold several states, "),
    };
    let text = format!("{mixed}{span}");
    let room = end.saturating_sub(x + 1);
    if text::width(&text, room.saturating_add(1)) <= room {
        let dim = canvas.look.dim();
        canvas.put_right(end.saturating_sub(1), part.y, room, &text, dim);
    }
}

fn time(canvas: &mut Canvas<'_>, ledger: &Ledger, part: Part) {
    if part.height == 0 {
        return;
    }
    let end = part.x + part.width;
    let wall = words::millis(i64::try_from(ledger.wall).unwrap_or(i64::MAX));
    let trained = match ledger.ettr.all {
        Some(ratio) => format!("trained {} of {wall}", words::percent(ratio)),
        None => format!("{wall} in all"),
    };
    let mut x = canvas.put(part.x + 1, part.y, part.width, &trained, bold()) + 2;
    for it in &ledger.phases {
        let long = words::millis(i64::try_from(it.millis).unwrap_or(i64::MAX));
        let state = words::named(&it.phase);
        let word = format!("{} {} {long}", state.sign(), words::word(&it.phase));
        let room = end.saturating_sub(x);
        if text::width(&word, room.saturating_add(1)) > room {
            break;
        }
        let style = canvas.look.of_state(state);
        x = canvas.put(x, part.y, room, &word, style) + 2;
    }
    if part.height > 1
        && let Some(loss) = ledger.losses.first()
    {
        let text = format!("biggest loss: {}", pane::loss_words(loss));
        let dim = canvas.look.dim();
        canvas.put(
            part.x + 1,
            part.y + 1,
            part.width.saturating_sub(1),
            &text,
            dim,
        );
    }
}

fn tabs(canvas: &mut Canvas<'_>, state: &State, page: &JobPage, part: Part) {
    if part.height == 0 {
        return;
    }
    let end = part.x + part.width;
    let mut x = part.x;
    for tab in Tab::ALL {
        let style = if tab == page.tab {
            reversed()
        } else {
            Style::new()
        };
        let word = format!(" {} ", tab.word());
        x = canvas.put(x, part.y, end.saturating_sub(x), &word, style) + 1;
    }
    let room = end.saturating_sub(x + 1);
    let attempts = state
        .known
        .job
        .value
        .as_ref()
        .map_or(0, |it| it.row.attempt);
    let shown = state.known.logs.value.as_ref().map(|logs| logs.attempt);
    let text = match (page.tab, shown) {
        (Tab::Logs, Some(shown)) => format!("attempt {shown} of {attempts}"),
        _ => String::new(),
    };
    if text::width(&text, room.saturating_add(1)) <= room {
        let dim = canvas.look.dim();
        canvas.put_right(end.saturating_sub(1), part.y, room, &text, dim);
    }
}
