//! How far a program is, as the lines of a log report it: a sample of them, with the reader of `crate::progress`.

use std::collections::BTreeMap;

use super::{
    super::rules::{Rules, Stage},
    MAX_FIELDS, MAX_NAMES, Source,
};
use crate::{
    line,
    progress::{LineReader, Reading},
};

/// Texts at the end of one line that a progress bar wrote over each other.
const SAMPLED_BARS: usize = 3;

/// What was read of the steps and losses in a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples {
    /// The last line that was read.
    line: u64,
    /// What lines of each rank said of its progress; `None` where lines name no rank.
    readers: BTreeMap<Option<u32>, LineReader>,
}

impl Samples {
    /// The reader of the lines of `rank`, while there are not too many.
    fn reader(&mut self, rank: Option<u32>) -> Option<&mut LineReader> {
        if self.readers.len() >= MAX_NAMES && !self.readers.contains_key(&rank) {
            return None;
        }
        Some(self.readers.entry(rank).or_default())
    }
}

impl Source {
    /// Step and loss of one line.
    pub(super) fn sample(&mut self, rules: &Rules, raw: &[u8], number: u64, rank: Option<u32>) {
        // Lines at the beginning are read one by one, and may be at the end of their block too.
        if number <= self.samples.line {
            return;
        }
        self.samples.line = number;
        let mut found = std::mem::take(&mut self.found);
        rules.samples.rules_in(raw, &mut found);
        if !found.is_empty() {
            let mut scratch = std::mem::take(&mut self.scratch);
            let last = raw
                .rsplit(|byte| *byte == b'\r')
                .find(|part| !part.is_empty());
            let line = line::read(last.unwrap_or(raw), &mut scratch);
            self.last_stamp = line.stamp.or(self.last_stamp);
            for index in &found {
                let rule = rules.rule(*index);
                if rule.matches(line.text) {
                    match rule.stage {
                        Stage::Progress => self.marks.note_step(number, None),
                        Stage::Done => self.marks.done = self.marks.done.max(number),
                        _ => {}
                    }
                    self.fields(rule, line.text, rank.or(line.rank));
                }
            }
            self.scratch = scratch;
        }
        self.found = found;
        self.progress(rules, raw, number, rank);
    }

    /// How far the program is, as one line reports it.
    fn progress(&mut self, rules: &Rules, raw: &[u8], number: u64, rank: Option<u32>) {
        let added = rules.progress();
        if added.is_empty() && !LineReader::is_worth_reading(raw) {
            return;
        }
        let bars = raw
            .split(|byte| *byte == b'\r')
            .filter(|part| !part.is_empty());
        let skipped = bars.clone().count().saturating_sub(SAMPLED_BARS);
        for part in bars.skip(skipped) {
            let mut scratch = std::mem::take(&mut self.scratch);
            let rank = rank.or(line::read(part, &mut scratch).rank);
            self.scratch = scratch;
            let Some(reader) = self.samples.reader(rank) else {
                return;
            };
            if let Some(reading) = reader.read(part, Some(added)) {
                self.note_progress(&reading, number, rank);
            }
        }
    }

    fn note_progress(&mut self, reading: &Reading, number: u64, rank: Option<u32>) {
        if reading.step.is_none() && reading.epoch.is_none() && reading.loss.is_none() {
            return;
        }
        self.marks.note_step(number, reading.step);
        let index = self.members.of(rank.or(self.rank));
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        member.progress_line = number;
        if let Some(seconds) = reading.step_seconds {
            member.steps.note(seconds);
        }
        let facts = [
            ("step", reading.step.map(|step| step.to_string())),
            ("loss", reading.loss.map(|loss| loss.to_string())),
        ];
        for (name, value) in facts {
            let room = member.fields.contains_key(name) || member.fields.len() < MAX_FIELDS;
            if let Some(value) = value.filter(|_| room) {
                member.fields.insert(name.to_owned(), value);
            }
        }
    }
}
