//! Names and values of one line, in any order.
//!
//! Works for `step 5 loss 0.4`, `{'loss': '0.43', 'epoch': 0.1}`, `iteration 5/ 100 | lm loss: 4.3E-01 |`,
//! `epoch=0/micro_step=5/global_step=5, lr=[0.1]` and in JSON: each number belongs to the words right before it.
//!
//! Invariant: one pass over the line, with a fixed amount of memory.

use super::names::{self, Field, PARTS, Trust};

/// The step that no other program counts.
pub(super) const GLOBAL: Trust = Trust::Global;

/// Words before a value that are kept.
const WORDS: usize = 6;
/// Signs, other than spaces, that may stand between a name and its value.
const SIGNS: usize = 4;

/// What one line holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Fields {
    pub(super) step: Option<(Trust, u64)>,
    pub(super) last_step: Option<u64>,
    /// The place within an epoch, and how many there are.
    pub(super) batch: Option<(u64, u64)>,
    in_brackets: bool,
    pub(super) epoch: Option<f64>,
    pub(super) epochs: Option<u64>,
    loss: Option<(u8, f64)>,
    pub(super) grad_norm: Option<f64>,
    pub(super) learning_rate: Option<f64>,
    pub(super) tokens_per_second: Option<f64>,
    samples_per_second: Option<(u8, f64)>,
    pub(super) step_seconds: Option<f64>,
    seconds: Option<f64>,
    /// A word of an evaluation stands in the line, by itself.
    pub(super) evaluates: bool,
    /// Words behind the step that belong to no value.
    prose: u32,
    /// A sentence leads to the step, or it is one `of` several.
    doubtful: bool,
}

impl Fields {
    pub(super) fn loss(&self) -> Option<f64> {
        self.loss.map(|(_, loss)| loss)
    }

    pub(super) fn samples_per_second(&self) -> Option<f64> {
        self.samples_per_second.map(|(_, rate)| rate)
    }

    /// Whether the line is the head of a report of Composer, `[batch=20/3000]:`.
    pub(super) fn is_only_batch(&self) -> bool {
        self.in_brackets && self.prose == 0
    }

    fn is_known(&self) -> bool {
        self.step.is_some() || self.loss.is_some()
    }

    /// Whether something here is printed by training programs only.
    fn is_training(&self) -> bool {
        self.loss.is_some()
            || self.grad_norm.is_some()
            || self.learning_rate.is_some()
            || self.tokens_per_second.is_some()
            || self.samples_per_second.is_some()
            || self.step_seconds.is_some()
            || self.epoch.is_some()
    }

    /// Drops a step that may be that of anything: a recipe, a build, a sentence.
    fn settle(&mut self) {
        if let Some((trust, _)) = self.step {
            if trust == Trust::Global && self.step_seconds.is_none() {
                self.step_seconds = self.seconds;
            }
            let lone = trust != Trust::Global && !self.is_training();
            if lone && (self.prose > 0 || self.doubtful) {
                self.step = None;
            }
        }
        if self.step.is_none() {
            self.last_step = None;
        }
        if self.last_step < self.step.map(|(_, step)| step) {
            self.last_step = None;
        }
    }
}

/// Reads a line in lower case.
pub(super) fn read(line: &[u8]) -> Fields {
    let mut scan = Scan {
        line,
        at: 0,
        words: [""; WORDS],
        count: 0,
        signs: 0,
        bound: false,
        near: true,
        start: 0,
        beside: false,
        fields: Fields::default(),
    };
    scan.run();
    scan.fields.settle();
    scan.fields
}

struct Scan<'a> {
    line: &'a [u8],
    at: usize,
    /// Words since the last value or break, the newest last.
    words: [&'a str; WORDS],
    count: usize,
    /// Signs since the last word.
    signs: usize,
    /// One of them binds a value to its name: `:` or `=`.
    bound: bool,
    /// Only what may stand between a name and its value came since the last word.
    near: bool,
    /// Where the last word begins.
    start: usize,
    /// The words that are dropped next name a value, and a step or loss came before it.
    beside: bool,
    fields: Fields,
}

impl Scan<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.line.get(self.at).copied() {
            match byte {
                b'a'..=b'z' | b'_' => self.word(),
                b'0'..=b'9' => self.value(false),
                b'.' if self.starts_number(self.at) && !self.follows_word() => self.value(false),
                b'-' | b'+' if self.starts_number(self.at + 1) && !self.follows_word() => {
                    self.at += 1;
                    self.value(byte == b'-');
                }
                // `-nan`, `-inf`.
                b'-' if matches!(self.line.get(self.at + 1), Some(b'n' | b'i'))
                    && !self.follows_word() =>
                {
                    self.at += 1;
                }
                b' ' | b'\t' => self.at += 1,
                b':' | b'=' => {
                    self.bound = true;
                    self.sign();
                }
                b'"' | b'\'' | b'(' | b'[' | b'#' | b')' => self.sign(),
                b',' | b';' | b'|' | b'{' | b'}' => self.stop(),
                b'-' if self.line.get(self.at + 1) == Some(&b' ') => self.stop(),
                _ => {
                    self.near = false;
                    self.at += 1;
                }
            }
        }
        self.drop_words(0);
    }

    fn sign(&mut self) {
        self.signs += 1;
        self.at += 1;
    }

    fn stop(&mut self) {
        self.drop_words(0);
        self.at += 1;
    }

    /// Forgets the words; those that are not the `used` last ones belong to no value.
    fn drop_words(&mut self, used: usize) {
        let words = self.words.get(..self.count).unwrap_or_default();
        // `step 5: train loss 0.4, val loss 0.5` holds a metric of an evaluation beside those of the training.
        let metric = if self.beside { 2 } else { 0 };
        let spoken = words.len().saturating_sub(metric);
        let mut spoken = words.iter().take(spoken);
        self.fields.evaluates |= spoken.any(|word| names::is_evaluation(word));
        self.beside = false;
        if self.fields.step.is_some() || self.fields.batch.is_some() {
            let unused = self.count.saturating_sub(used);
            let words = self.words.iter().take(unused);
            let prose = words.filter(|word| !names::is_remark(word)).count();
            self.fields.prose += u32::try_from(prose).unwrap_or(u32::MAX);
        }
        self.count = 0;
        self.signs = 0;
        self.bound = false;
        self.near = true;
    }

    fn follows_word(&self) -> bool {
        let before = self.at.checked_sub(1).and_then(|at| self.line.get(at));
        before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }

    fn starts_number(&self, at: usize) -> bool {
        let is_digit = |at: usize| self.line.get(at).is_some_and(u8::is_ascii_digit);
        is_digit(at) || self.line.get(at) == Some(&b'.') && is_digit(at + 1)
    }

    /// One word; parts that `/`, `.` or `-` join belong to it.
    fn word(&mut self) {
        let start = self.at;
        let part = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        loop {
            while part(self.line.get(self.at)) {
                self.at += 1;
            }
            let joins = matches!(self.line.get(self.at), Some(b'/' | b'.' | b'-' | b'@'))
                && part(self.line.get(self.at + 1));
            if !joins {
                break;
            }
            self.at += 1;
        }
        let bytes = self.line.get(start..self.at).unwrap_or_default();
        let word = std::str::from_utf8(bytes).unwrap_or_default();
        let negative = start.checked_sub(1).and_then(|at| self.line.get(at)) == Some(&b'-');
        if let Some(value) = not_finite(word, negative)
            && self.count > 0
            && self.near
        {
            // Only as the value of a name that has one: `number of nan iterations` is none.
            if let Some(field @ (Field::Loss(_) | Field::GradNorm)) = self.field() {
                self.beside = self.fields.is_known();
                self.set(field, value);
                self.drop_words(1);
                return;
            }
        }
        if self.count == WORDS {
            self.words.rotate_left(1);
            self.count -= 1;
        }
        if let Some(place) = self.words.get_mut(self.count) {
            *place = word;
            self.count += 1;
        }
        self.start = start;
        self.signs = 0;
        self.bound = false;
        self.near = true;
    }

    fn field(&self) -> Option<Field> {
        let words = self.words.get(..self.count)?;
        let (last, before) = words.split_last()?;
        if self.signs > SIGNS || !self.near {
            return None;
        }
        let mut parts = [""; PARTS];
        let count = names::split(last, &mut parts);
        names::field(parts.get(..count)?, before)
    }

    /// A number, and what it is the value of.
    fn value(&mut self, negative: bool) {
        let field = self.field();
        self.beside = self.fields.is_known();
        let start = self.at;
        self.at = number_end(self.line, start);
        let text = self.line.get(start..self.at).unwrap_or_default();
        let rest = self.line.get(self.at..).unwrap_or_default();
        if let Some(value) = windows_value(text, rest) {
            if let Some(field @ (Field::Loss(_) | Field::GradNorm)) = field {
                self.set(field, value);
            }
            self.drop_words(1);
            return;
        }
        let Some(value) = number(text) else {
            self.drop_words(0);
            return;
        };
        let value = if negative { -value } else { value };
        self.unit(value);
        let Some(field) = field else {
            let metric = self.count == 1
                && (self.bound
                    || self
                        .words
                        .first()
                        .is_some_and(|word| names::is_metric(word)));
            self.drop_words(usize::from(metric));
            return;
        };
        match field {
            Field::Step(trust) if !negative => {
                self.step(trust, start, text);
                // What leads to it is judged there.
                self.drop_words(self.count);
                return;
            }
            Field::Batch | Field::LastStep if !negative => {
                if let Some(count) = count(text) {
                    let total = self.total().map(|(total, _)| total);
                    if field == Field::LastStep {
                        self.fields.last_step = Some(count);
                    } else if let Some(total) = total.filter(|total| count <= *total) {
                        self.fields.batch = Some((count, total));
                        let before = self.start.checked_sub(1);
                        let before = before.and_then(|at| self.line.get(at));
                        self.fields.in_brackets = before == Some(&b'[');
                    }
                }
                self.drop_words(self.count);
                return;
            }
            Field::Epoch if !negative => {
                self.fields.epoch = Some(value);
                self.fields.epochs = self.total().map(|(total, _)| total);
                self.place_in_epoch();
            }
            Field::Time => {
                let millis = rest.starts_with(b"ms") || rest.starts_with(b" ms");
                if millis && self.fields.step_seconds.is_none() {
                    self.fields.step_seconds = positive(value / 1000.0);
                }
            }
            Field::Step(_) | Field::Batch | Field::LastStep | Field::Epoch => {}
            _ => self.set(field, value),
        }
        self.drop_words(1);
    }

    fn step(&mut self, trust: Trust, start: usize, text: &[u8]) {
        // Progress bars of NeMo write whole numbers with three zeros behind the point.
        let whole = match text.iter().position(|byte| *byte == b'.') {
            Some(point) if trust == Trust::Global => {
                let zeros = text.get(point + 1..).unwrap_or_default();
                if zeros.iter().any(|byte| *byte != b'0') {
                    return;
                }
                text.get(..point).unwrap_or_default()
            }
            _ => text,
        };
        let Some(step) = count(whole) else {
            return;
        };
        // `STEP 2545.batch` of Slurm, `step 3a`.
        let next = self.line.get(self.at);
        let after = self.line.get(self.at + 1);
        if next.is_some_and(u8::is_ascii_alphabetic)
            || matches!(next, Some(b'.' | b'-' | b':'))
                && after.is_some_and(u8::is_ascii_alphanumeric)
        {
            return;
        }
        // `module:step:15`, a place in the source.
        let sign = |at: Option<usize>| at.and_then(|at| self.line.get(at)) == Some(&b':');
        if sign(self.start.checked_sub(1)) && sign(start.checked_sub(1)) {
            return;
        }
        let words = self.words.get(..self.count).unwrap_or_default();
        let near = words.iter().nth_back(1);
        let mut doubtful = near.is_some_and(|word| names::is_prose(word))
            && !words.iter().any(|word| word.contains("loss"));
        // `self.step(batch, step=5)` of a traceback.
        doubtful |= next == Some(&b')');
        let total = self.total();
        // `Step 1/12 : FROM image` of image builds, `Step 1 of 3` of recipes.
        if let Some((_, of)) = total {
            let rest = self.line.get(self.at..).unwrap_or_default();
            doubtful |= of || rest.starts_with(b" : ");
        }
        if self.fields.step.is_none_or(|(known, _)| trust > known) {
            // The number of all steps belongs to another counter, unless both are at the same place.
            let same = self.fields.step.is_none_or(|(_, known)| known == step);
            let known = self.fields.last_step.filter(|_| same);
            self.fields.step = Some((trust, step));
            self.fields.last_step = total.map(|(total, _)| total).or(known);
            self.fields.doubtful = doubtful;
            self.fields.prose = 0;
        }
    }

    /// `/ 100` or `of 100` behind a number, and whether it was the word.
    fn total(&mut self) -> Option<(u64, bool)> {
        let spaces = |at: usize| {
            let rest = self.line.get(at..).unwrap_or_default();
            at + rest.iter().take_while(|byte| **byte == b' ').count()
        };
        let mut at = spaces(self.at);
        let of = self
            .line
            .get(at..)
            .is_some_and(|rest| rest.starts_with(b"of "));
        match self.line.get(at) {
            Some(b'/') => at += 1,
            _ if of => at += 3,
            _ => return None,
        }
        let start = spaces(at);
        let end = number_end(self.line, start);
        let total = count(self.line.get(start..end)?)?;
        if self.line.get(end).is_some_and(u8::is_ascii_alphabetic) {
            return None;
        }
        self.at = end;
        Some((total, of))
    }

    /// `Epoch: [0][  10/5005]`: the second pair of brackets counts the batches.
    fn place_in_epoch(&mut self) {
        let rest = self.line.get(self.at..).unwrap_or_default();
        let Some(inside) = rest.strip_prefix(b"][") else {
            return;
        };
        let before = self.at;
        let spaces = inside.iter().take_while(|byte| **byte == b' ').count();
        let start = self.at + 2 + spaces;
        self.at = number_end(self.line, start);
        let place = count(self.line.get(start..self.at).unwrap_or_default());
        match (place, self.total()) {
            (Some(place), Some((total, false))) if place <= total => {
                self.fields.batch = Some((place, total));
            }
            _ => self.at = before,
        }
    }

    /// The unit behind a number: `8.5it/s`, `30ms/step`, `120 samples/s`.
    fn unit(&mut self, value: f64) {
        let rest = self.line.get(self.at..).unwrap_or_default();
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        let length = rest
            .iter()
            .take(12)
            .take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'/')
            .count();
        let unit = std::str::from_utf8(rest.get(..length).unwrap_or_default()).unwrap_or_default();
        if let Some(seconds) = step_seconds(value, unit) {
            self.fields.step_seconds.get_or_insert(seconds);
        }
        match unit {
            "tokens/s" | "tokens/sec" | "tok/s" => {
                self.fields.tokens_per_second.get_or_insert(value);
            }
            "samples/s" | "samples/sec" => {
                self.fields.samples_per_second.get_or_insert((1, value));
            }
            _ => {}
        }
    }

    fn set(&mut self, field: Field, value: f64) {
        let fields = &mut self.fields;
        match field {
            Field::Loss(rank) => {
                if fields.loss.is_none_or(|(known, _)| rank > known) {
                    fields.loss = Some((rank, value));
                }
            }
            Field::SamplesPerSecond(rank) => {
                if fields
                    .samples_per_second
                    .is_none_or(|(known, _)| rank > known)
                {
                    fields.samples_per_second = Some((rank, value));
                }
            }
            Field::GradNorm => fields.grad_norm = Some(value),
            Field::LearningRate => {
                fields.learning_rate.get_or_insert(value);
            }
            Field::TokensPerSecond => {
                fields.tokens_per_second.get_or_insert(value);
            }
            Field::StepMillis => fields.step_seconds = positive(value / 1000.0),
            Field::StepSeconds => {
                // A unit behind the number says otherwise.
                let rest = self.line.get(self.at..).unwrap_or_default();
                let millis = rest.starts_with(b"ms") || rest.starts_with(b" ms");
                fields.step_seconds = positive(if millis { value / 1000.0 } else { value });
            }
            Field::Seconds => fields.seconds = positive(value),
            Field::Step(_) | Field::Batch | Field::LastStep | Field::Epoch | Field::Time => {}
        }
    }
}

/// The time of one step, from a rate or a time and its unit.
pub(super) fn step_seconds(value: f64, unit: &str) -> Option<f64> {
    let seconds = match unit {
        "it/s" | "step/s" | "steps/s" | "steps/sec" | "batch/s" | "batches/s" | "ba/s" => {
            1.0 / value
        }
        "s/it" | "s/step" | "sec/step" | "s/batch" | "sec/batch" | "s/ba" | "s/iter" => value,
        "ms/it" | "ms/step" | "ms/batch" | "ms/iter" => value / 1e3,
        "us/step" => value / 1e6,
        _ => return None,
    };
    positive(seconds)
}

fn positive(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

/// Where the number that begins at `start` ends.
fn number_end(line: &[u8], start: usize) -> usize {
    let digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
    let digits = |mut at: usize| {
        while digit(at) {
            at += 1;
        }
        at
    };
    let mut at = digits(start);
    // Groups of three: `1,234,567`.
    if (1..=3).contains(&(at - start)) {
        while line.get(at) == Some(&b',') && digits(at + 1) == at + 4 {
            at += 4;
        }
    }
    if line.get(at) == Some(&b'.') {
        at = digits(at + 1);
        if line.get(at - 1) == Some(&b'.') && at - 1 > start && line.get(at) != Some(&b'#') {
            // The full stop of a sentence.
            at -= 1;
        }
    }
    if line.get(at) == Some(&b'e') {
        let sign = usize::from(matches!(line.get(at + 1), Some(b'+' | b'-')));
        if digit(at + 1 + sign) {
            at = digits(at + 1 + sign);
        }
    }
    at
}

/// The value of a number as programs write it, or of a word for one that is not finite.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.len() > 64 {
        return None;
    }
    if text.contains(',') {
        return text.replace(',', "").parse().ok();
    }
    text.parse().ok()
}

/// A number that counts something.
pub(super) fn count(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 24 {
        return None;
    }
    let mut count: u64 = 0;
    for byte in text.iter().filter(|byte| **byte != b',') {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        count = count.checked_mul(10)?.checked_add(digit)?;
    }
    Some(count)
}

fn not_finite(word: &str, negative: bool) -> Option<f64> {
    match word {
        "nan" => Some(f64::NAN),
        "inf" | "infinity" if negative => Some(f64::NEG_INFINITY),
        "inf" | "infinity" => Some(f64::INFINITY),
        _ => None,
    }
}

/// `1.#QNAN`, `-1.#IND`, `1.#INF` of the C library of Windows.
fn windows_value(text: &[u8], rest: &[u8]) -> Option<f64> {
    if text != b"1." {
        return None;
    }
    let rest = rest.strip_prefix(b"#")?;
    if rest.starts_with(b"inf") {
        return Some(f64::INFINITY);
    }
    let nan = [&b"qnan"[..], b"snan", b"ind"];
    nan.iter()
        .any(|word| rest.starts_with(word))
        .then_some(f64::NAN)
}
