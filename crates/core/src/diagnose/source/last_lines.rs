//! The last lines of a log, for errors that no rule matches: a program whose log ends with an error has
//! failed, whatever the error says.

use super::{Line, MAX_LINE, Part, Rules, SHORT_LINES, Source, Stage, Trace, line};
use crate::progress::{self, LineReader};

/// Bytes at the end of a log that are kept.
const KEPT: usize = 2 << 10;
/// How many of the last non-empty lines are searched for an error.
const LAST: usize = 3;

/// The end of a log.
#[derive(Clone, Debug, Default)]
pub(in crate::diagnose) struct LastLines {
    bytes: Vec<u8>,
    /// Whether something was dropped, so that the first of the lines may be half of one.
    cut: bool,
}

impl LastLines {
    /// Adds the next bytes. The middle of a log is not its end.
    pub(super) fn note(&mut self, bytes: &[u8], part: Part) {
        if part == Part::Middle {
            self.bytes.clear();
            self.cut = true;
            return;
        }
        let from = bytes.len().saturating_sub(KEPT);
        if from > 0 {
            self.bytes.clear();
            self.cut = true;
        }
        self.bytes
            .extend_from_slice(bytes.get(from..).unwrap_or_default());
        // Now and then only, as lines may come one by one.
        if self.bytes.len() > 2 * KEPT {
            self.bytes.drain(..self.bytes.len() - KEPT);
            self.cut = true;
        }
    }

    /// Lines from the last to the first, each with how many come after it.
    fn backwards(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let from = self.bytes.len().saturating_sub(KEPT);
        let kept = self.bytes.get(from..).unwrap_or_default();
        let whole = kept.strip_suffix(b"\n").unwrap_or(kept);
        let first = if self.cut || from > 0 {
            memchr::memchr(b'\n', whole).map_or(whole.len(), |at| at + 1)
        } else {
            0
        };
        let lines = whole.get(first..).unwrap_or_default();
        (0..).zip(lines.rsplit(|byte| *byte == b'\n'))
    }
}

impl Source {
    /// Looks for every rule in the last lines; elsewhere they need an anchor.
    pub(super) fn judge_last_lines(&mut self, rules: &Rules) {
        let last = self.last_lines.backwards().filter_map(|(after, raw)| {
            let number = self.lines.checked_sub(after)?;
            let quoted = raw.starts_with(b"    ");
            let judged = number <= SHORT_LINES || rules.anchors().is_match(raw);
            (!judged && !quoted && raw.len() <= MAX_LINE).then(|| (number, raw.to_vec()))
        });
        let last: Vec<(u64, Vec<u8>)> = last.collect();
        for (number, raw) in last.iter().rev() {
            let mut scratch = Vec::new();
            let part = raw
                .rsplit(|byte| *byte == b'\r')
                .find(|part| !part.is_empty());
            let line = line::read(part.unwrap_or(raw), &mut scratch);
            if !self.rules(rules, &line, *number, None)
                && let Some(text) = progress::text_after_bar(line.text)
            {
                self.rules(rules, &Line { text, ..line }, *number, None);
            }
        }
    }

    /// Looks for `^C`, which a terminal shows where somebody pressed Ctrl-C: too short for a literal of a rule.
    pub(super) fn find_ctrl_c(&mut self, rules: &Rules) {
        let mut all = rules.rules().iter();
        let Some(index) = all.position(|rule| rule.id == "interrupted") else {
            return;
        };
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let found = self.last_lines.backwards().find_map(|(after, raw)| {
            let mut parts = raw.rsplit(|byte| *byte == b'\r');
            let part = parts.find(|part| !part.is_empty())?;
            let mut scratch = Vec::new();
            let line = line::read(part, &mut scratch);
            let text = progress::text_after_bar(line.text).unwrap_or(line.text);
            let number = self.lines.checked_sub(after)?;
            text.starts_with(b"^C").then(|| (number, text.to_vec()))
        });
        let Some((number, text)) = found else { return };
        if self.marks.continue_after(number) {
            // It was started again.
            return;
        }
        let line = Line {
            text: &text,
            ..Line::default()
        };
        self.notable += 1;
        self.marks.note_failure(number);
        self.record_match(rules, index, &line, number, None);
        if let Some(seen) = self.seen.get_mut(&index) {
            seen.only_warnings = false;
        }
    }

    /// Looks for an error in the last lines of the log.
    pub(super) fn find_last_error(&mut self, rules: &Rules) {
        let last = std::mem::take(&mut self.last_lines);
        let lines = last
            .backwards()
            .filter(|(_, raw)| !raw.trim_ascii().is_empty());
        for (after, raw) in lines.take(LAST) {
            let Some(number) = self.lines.checked_sub(after) else {
                break;
            };
            let part = raw
                .rsplit(|byte| *byte == b'\r')
                .find(|part| !part.is_empty());
            let mut scratch = Vec::new();
            let line = line::read(part.unwrap_or(raw), &mut scratch);
            if self.errors.odd.is_none() {
                self.errors.odd = Some(self.evidence(&line, number));
            }
            let in_trace = self.traces.values().any(Trace::is_open);
            if in_trace && self.errors.cut_trace.is_none() {
                self.errors.cut_trace = Some(self.evidence(&line, number));
            }
            if self.marks.progress.max(self.marks.done) >= number || is_step(rules, line.text) {
                // The job continued.
                break;
            }
            if is_error(line.text) {
                self.errors.last = Some(self.evidence(&line, number));
                break;
            }
        }
    }
}

/// Whether a line reports a step; which of them were noted before depends on where the log was split.
fn is_step(rules: &Rules, text: &[u8]) -> bool {
    let reading = LineReader::default().read(text, Some(rules.progress()));
    if reading.is_some_and(|reading| reading.step.is_some() || reading.loss.is_some()) {
        return true;
    }
    let mut found = Vec::new();
    rules.samples.rules_in(text, &mut found);
    let mut rules = found.iter().map(|index| rules.rule(*index));
    rules.any(|rule| rule.stage == Stage::Progress && rule.matches(text))
}

/// Whether a line is an error that ends the program, by its first words or by its log level.
///
/// The level `ERROR` does not count: many launchers log everything from stderr at level ERROR.
fn is_error(text: &[u8]) -> bool {
    const BEGINS: [&[u8]; 9] = [
        b"Error: ",
        b"error: ",
        b"Fatal",
        b"fatal: ",
        b"fatal error",
        b"FATAL",
        b"CRITICAL",
        b"panic: ",
        b"terminate called",
    ];
    const LEVELS: [&[u8]; 5] = [
        b"[FATAL]",
        b"[fatal]",
        b"[CRITICAL]",
        b" FATAL ",
        b" CRITICAL ",
    ];
    /// A level stands before what is said.
    const HEAD: usize = 80;
    let text = text.trim_ascii_start();
    let head = text.get(..text.len().min(HEAD)).unwrap_or_default();
    BEGINS.iter().any(|word| text.starts_with(word))
        || LEVELS
            .iter()
            .any(|word| memchr::memmem::find(head, word).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_end_a_program() {
        let cases = [
            ("FATAL: the store of widgets is gone", true),
            ("panic: runtime error: index out of range", true),
            ("2026-01-02 03:04:05,678 CRITICAL trainer no widget", true),
            ("[ERROR] tracker: INFO train-loss 0.5", false),
            ("ERROR Tracker: INFO train-loss 0.5", false),
            ("error: no such widget", true),
            ("validation error: 0.25", false),
            ("errors: 0", false),
            ("INFO retried, no FATAL", false),
            ("PMIX ERROR: NO-PERMISSIONS in file x.c", false),
            ("", false),
        ];
        for (text, want) in cases {
            assert_eq!(is_error(text.as_bytes()), want, "{text}");
        }
    }

    #[test]
    fn last_lines_ignore_chunk_boundaries() {
        let all: Vec<String> = (0..900).map(|number| format!("line {number}\n")).collect();
        let text = all.concat();
        let lines = |size: usize| {
            let mut last = LastLines::default();
            for part in text.as_bytes().chunks(size) {
                last.note(part, Part::End);
            }
            let lines = last
                .backwards()
                .map(|(after, line)| (after, line.to_owned()));
            lines.collect::<Vec<_>>()
        };
        let whole = lines(text.len());
        assert_eq!(whole.first(), Some(&(0, b"line 899".to_vec())));
        assert!(whole.iter().all(|(_, line)| line.starts_with(b"line ")));
        for size in [1, 7, 100, KEPT - 1, KEPT, KEPT + 1] {
            assert_eq!(lines(size), whole, "{size}");
        }
    }
}
