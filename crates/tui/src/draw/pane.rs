//! The lower part of the page of a job, as lines.

use ratatui_core::style::Style;

use super::words;
use crate::{
    document::{Folded, Group, Loss, Trouble, Verdict},
    look::{Look, bold},
    state::{JobPage, State, Tab},
    text,
};

/// Lines that one text is broken into.
const WRAPPED_MAX: usize = 12;

/// How a line stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Dim,
    Bold,
    Bad,
    Warning,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    tone: Tone,
}

impl Line {
    pub(super) fn style(&self, look: Look) -> Style {
        match self.tone {
            Tone::Plain => Style::new(),
            Tone::Dim => look.dim(),
            Tone::Bold => bold(),
            Tone::Bad => look.of_state(words::named("failed")).patch(bold()),
            Tone::Warning => look.of_state(words::named("restarting")),
        }
    }
}

/// Lines that are gathered.
#[derive(Debug, Default)]
struct Lines {
    width: u16,
    all: Vec<Line>,
}

impl Lines {
    /// One line, cut where it is drawn.
    fn add(&mut self, tone: Tone, text: impl Into<String>) {
        let text = text.into();
        self.all.push(Line { text, tone });
    }

    /// As many lines as the text needs.
    fn wrap(&mut self, tone: Tone, indent: u16, text: &str) {
        let width = self.width.saturating_sub(indent);
        for line in text::wrapped(text, width, WRAPPED_MAX) {
            let space = " ".repeat(indent.into());
            self.add(tone, format!("{space}{line}"));
        }
    }

    fn trouble(&mut self, trouble: &Trouble) {
        self.wrap(Tone::Bold, 0, &trouble.message);
        self.wrap(Tone::Dim, 0, &trouble.hint);
    }
}

/// What the tab of a page shows.
pub(super) fn lines(state: &State, page: &JobPage, width: u16) -> Vec<Line> {
    let mut lines = Lines {
        width,
        all: Vec::new(),
    };
    let known = &state.known;
    let trouble = match page.tab {
        Tab::Logs => &known.logs.trouble,
        Tab::Verdict => &known.verdicts.trouble,
        Tab::Events => &known.events.trouble,
        Tab::Time => &known.ledger.trouble,
    };
    if let Some(trouble) = trouble {
        lines.trouble(trouble);
    }
    match page.tab {
        Tab::Logs => logs(&mut lines, state),
        Tab::Verdict => verdicts(&mut lines, state),
        Tab::Events => events(&mut lines, state),
        Tab::Time => time(&mut lines, state),
    }
    lines.all
}

fn logs(lines: &mut Lines, state: &State) {
    let Some(logs) = &state.known.logs.value else {
        if state.known.logs.trouble.is_none() {
            lines.add(Tone::Dim, "reading …");
        }
        return;
    };
    first_failure(lines, logs, state.now);
    for group in &logs.groups {
        let (tone, sign) = tone_of(group);
        let at = group.first_at.map(|at| words::moment(at, state.now));
        let at = at.unwrap_or_else(|| "         ".to_owned());
        let count = if group.count > 1 {
            format!("×{}", group.count)
        } else {
            String::new()
        };
        let ranks = if group.ranks.is_empty() {
            "–".to_owned()
        } else {
            cut(&group.ranks, 12)
        };
        let text = format!("{sign} {at} {count:>6} {ranks:<5} {}", group.example);
        lines.add(tone, text);
    }
    if logs.groups.is_empty() && logs.first_failure.is_none() {
        lines.add(Tone::Dim, "no line was logged in this attempt");
    }
    if let Some(bytes @ 1..) = logs.bytes_left_out {
        let text = format!("{bytes} bytes of the logs were not read; `trainyard logs` prints all");
        lines.wrap(Tone::Warning, 0, &text);
    }
    if logs.left_out > 0 {
        let text = format!("{} lines are in no group", logs.left_out);
        lines.wrap(Tone::Warning, 0, &text);
    }
    for log in &logs.unread {
        let text = format!("log of `{}` was not read: {}", log.pod, log.why);
        lines.wrap(Tone::Warning, 0, &text);
    }
}

/// The first failure, open on top of the folded lines.
fn first_failure(lines: &mut Lines, logs: &Folded, now: i64) {
    let Some(first) = &logs.first_failure else {
        return;
    };
    let mut head = vec!["first failure".to_owned()];
    head.extend(first.rank.map(|rank| format!("rank {rank}")));
    let pod = logs.first_failure_at.as_ref();
    head.extend(pod.map(|it| format!("pod `{}`", it.pod)));
    head.extend(first.at.map(|at| words::moment(at, now)));
    lines.add(Tone::Bold, head.join(" · "));
    for line in &first.before {
        lines.add(Tone::Dim, format!("  {line}"));
    }
    lines.add(Tone::Bad, format!("x {}", first.text));
    lines.add(Tone::Plain, "");
}

/// How a group stands out, with a letter that says the same without colour.
fn tone_of(group: &Group) -> (Tone, char) {
    match (group.role.as_str(), group.severity.as_str()) {
        ("cause", _) => (Tone::Bad, 'x'),
        ("wrapper", _) => (Tone::Dim, '^'),
        ("progress", _) => (Tone::Dim, ' '),
        ("symptom", _) | (_, "error") => (Tone::Bold, '!'),
        (_, "warning") => (Tone::Warning, 'w'),
        _ => (Tone::Plain, ' '),
    }
}

/// At most so many characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most - 1).collect();
    format!("{kept}…")
}

/// A verdict in one line.
pub(super) fn verdict_head(verdict: &Verdict) -> String {
    let retry = match verdict.retry.as_str() {
        "" => String::new(),
        retry => format!(", retry {}", retry.replace('_', " ")),
    };
    format!(
        "attempt {}: {} ({} confidence), {} budget{retry}",
        verdict.attempt, verdict.label, verdict.confidence, verdict.account
    )
}

fn verdicts(lines: &mut Lines, state: &State) {
    let Some(known) = &state.known.verdicts.value else {
        lines.add(Tone::Dim, "reading …");
        return;
    };
    for verdict in &known.verdicts {
        lines.wrap(Tone::Bad, 0, &verdict_head(verdict));
        lines.wrap(Tone::Plain, 2, &verdict.sentence);
        for line in &verdict.evidence {
            let place = if line.line > 0 {
                format!("{}:{}", line.file, line.line)
            } else {
                line.file.clone()
            };
            lines.wrap(Tone::Dim, 4, &format!("{place}  {}", line.text));
        }
        if let Some(refuted) = &verdict.refuted_by {
            lines.wrap(Tone::Plain, 2, &format!("refuted by: {refuted}"));
        }
        if !verdict.next.is_empty() {
            lines.wrap(Tone::Bold, 2, &format!("next: {}", verdict.next));
        }
        if let Some(at) = verdict.at {
            lines.add(Tone::Dim, format!("  {}", words::moment(at, state.now)));
        }
        lines.add(Tone::Plain, "");
    }
    if known.verdicts.is_empty() {
        lines.add(Tone::Plain, "no attempt of this run failed");
    }
    let job = state.known.job.value.as_ref();
    for note in job.map_or(&[][..], |job| job.notes.as_slice()) {
        lines.wrap(Tone::Warning, 0, &format!("note: {note}"));
    }
    let warnings = job.map_or(0, |job| job.warnings.len());
    if warnings > 0 {
        let count = words::counted(warnings as u64, "warning");
        let text = format!("{count} about the job file; `trainyard lint` prints them");
        lines.wrap(Tone::Warning, 0, &text);
    }
}

fn events(lines: &mut Lines, state: &State) {
    let Some(known) = &state.known.events.value else {
        lines.add(Tone::Dim, "reading …");
        return;
    };
    for event in &known.events {
        let at = words::moment(event.at, state.now);
        let tone = match event.kind.as_str() {
            "failed" | "podFailed" | "verdict" => Tone::Bad,
            "stalled" => Tone::Warning,
            _ => Tone::Plain,
        };
        let mut first = true;
        let width = lines.width.saturating_sub(14);
        for line in text::wrapped(&event.sentence, width, 3) {
            let stamp = if std::mem::take(&mut first) { &at } else { "" };
            lines.add(tone, format!("{stamp:<13} {line}"));
        }
    }
    if known.cursor.is_some() {
        lines.add(Tone::Dim, "older events: `trainyard dashboard`");
    }
}

/// A loss in one sentence.
pub(super) fn loss_words(loss: &Loss) -> String {
    let long = words::millis(i64::try_from(loss.millis).unwrap_or(i64::MAX));
    let attempt = loss.attempt.map(|n| format!(", most in attempt {n}"));
    let hours = if loss.gpu_hours >= 0.05 {
        format!(", {:.1} GPU-hours", loss.gpu_hours)
    } else {
        String::new()
    };
    let win = loss.would_win.as_ref();
    let win = win.map(|win| format!("; {} would win {:.1} points", win.change, win.points));
    format!(
        "{} {long}{hours}{}{}",
        words::word(&loss.phase),
        attempt.unwrap_or_default(),
        win.unwrap_or_default()
    )
}

fn time(lines: &mut Lines, state: &State) {
    /// Columns of the longest bar.
    const BAR: u64 = 30;
    let Some(ledger) = &state.known.ledger.value else {
        lines.add(Tone::Dim, "reading …");
        return;
    };
    let most = ledger.phases.iter().map(|it| it.millis).max();
    let most = most.unwrap_or(0).max(1);
    let bar = u128::from(BAR.min(u64::from(lines.width) / 3));
    for it in &ledger.phases {
        let state = words::named(&it.phase);
        let long = words::millis(i64::try_from(it.millis).unwrap_or(i64::MAX));
        let count = u128::from(it.millis) * bar / u128::from(most);
        let sign = state.sign().to_string();
        let bar = sign.repeat(usize::try_from(count).unwrap_or(0).max(1));
        #[expect(
            clippy::cast_precision_loss,
            reason = "a share with one digit behind the point"
        )]
        let share = words::percent(it.millis as f64 / ledger.wall.max(1) as f64);
        let word = words::word(&it.phase);
        lines.add(
            Tone::Plain,
            format!("{word:<12} {long:>8} {share:>8}  {bar}"),
        );
    }
    if ledger.not_observed > 0 {
        let long = words::millis(i64::try_from(ledger.not_observed).unwrap_or(i64::MAX));
        lines.wrap(
            Tone::Warning,
            0,
            &format!("the order of {long} was not observed"),
        );
    }
    if let Some(ratio) = ledger.ettr.last_hour {
        let text = format!("trained {} of the last hour", words::percent(ratio));
        lines.add(Tone::Plain, text);
    }
    for (at, loss) in ledger.losses.iter().enumerate() {
        lines.wrap(Tone::Bold, 0, &format!("{}. {}", at + 1, loss_words(loss)));
        lines.wrap(Tone::Dim, 3, &loss.why);
    }
}
