//! Identical lines of several ranks, printed once.
//!
//! A line waits for a short time, so that other ranks that write the same can join it. Lines are
//! let out in the order in which they first came.
//!
//! Invariant: the lines of one stream of a rank keep their order, and none waits longer than the window or
//! when [`WAITING_MAX`] others wait.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use trainyard_core::spec::Slot;
use trainyard_host::Stream;

/// How long a line waits for others like it. Ranks in lockstep print within some milliseconds of
/// each other, interpreters that start together within some hundred; beyond a quarter of a second
/// people notice that a line came late.
const WINDOW: Duration = Duration::from_millis(200);
/// Most lines that wait.
const WAITING_MAX: usize = 4_096;

/// What makes two lines the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) text: Arc<str>,
    pub(crate) container: Arc<str>,
    pub(crate) stderr: bool,
}

impl Line {
    pub(crate) fn new(text: &str, container: &Arc<str>, stream: Stream) -> Self {
        Self {
            text: text.into(),
            container: Arc::clone(container),
            stderr: stream == Stream::Err,
        }
    }
}

/// A line and who wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    pub(crate) line: Line,
    /// Sorted, without repeats, at least one.
    pub(crate) slots: Vec<Slot>,
    since: Duration,
}

/// The lines that wait.
#[derive(Debug)]
pub(crate) struct Fold {
    /// How many ranks can write the same.
    ranks: usize,
    waiting: VecDeque<Folded>,
    /// How many lines were printed so far: the number of the first that waits.
    first: u64,
    /// The number of the last line of each text that waits.
    newest: BTreeMap<Line, u64>,
    /// The number of the last line of each stream of each rank.
    last: BTreeMap<(Slot, bool), u64>,
}

impl Fold {
    /// For the lines of `ranks` ranks.
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            ranks,
            waiting: VecDeque::new(),
            first: 0,
            newest: BTreeMap::new(),
            last: BTreeMap::new(),
        }
    }

    /// Takes a line in.
    pub(crate) fn add(&mut self, slot: Slot, line: Line, now: Duration) {
        let stream = (slot, line.stderr);
        let joined = self.newest.get(&line).copied().filter(|number| {
            // Joining a line that came before one the stream already has would swap the two.
            self.last.get(&stream).is_none_or(|last| last < number)
        });
        let number = if let Some(number) = joined {
            let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
            if let Some(folded) = self.waiting.get_mut(place)
                && let Err(at) = folded.slots.binary_search(&slot)
            {
                folded.slots.insert(at, slot);
            }
            number
        } else {
            let number = self.first + self.waiting.len() as u64;
            self.newest.insert(line.clone(), number);
            self.waiting.push_back(Folded {
                line,
                slots: vec![slot],
                since: now,
            });
            number
        };
        self.last.insert(stream, number);
    }

    /// The next line that has waited enough at `now`.
    pub(crate) fn due(&mut self, now: Duration) -> Option<Folded> {
        let first = self.waiting.front()?;
        let full = first.slots.len() >= self.ranks || self.waiting.len() > WAITING_MAX;
        (full || first.since + WINDOW <= now).then(|| self.pop())?
    }

    /// When the next line is due.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.waiting.front().map(|folded| folded.since + WINDOW)
    }

    /// The next line, whether or not it has waited enough.
    pub(crate) fn pop(&mut self) -> Option<Folded> {
        let folded = self.waiting.pop_front()?;
        if self.newest.get(&folded.line) == Some(&self.first) {
            self.newest.remove(&folded.line);
        }
        self.first += 1;
        Some(folded)
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::spec::Role;

    use super::*;

    fn feed(ranks: usize, lines: &[(u32, u64, &str)]) -> Vec<(String, Vec<u32>)> {
        let container: Arc<str> = "c".into();
        let mut fold = Fold::new(ranks);
        let mut folded_lines = Vec::new();
        for (index, millis, text) in lines {
            let now = Duration::from_millis(*millis);
            while let Some(folded) = fold.due(now) {
                folded_lines.push(folded);
            }
            let line = Line::new(text, &container, Stream::Out);
            fold.add(Slot::new(Role::Worker, *index), line, now);
        }
        folded_lines.extend(std::iter::from_fn(|| fold.pop()));
        folded_lines
            .into_iter()
            .map(|folded| {
                let indices = folded.slots.iter().map(|slot| slot.index).collect();
                (folded.line.text.to_string(), indices)
            })
            .collect()
    }

    #[test]
    fn identical_lines_are_printed_once() {
        type Case<'a> = (
            &'a str,
            &'a [(u32, u64, &'a str)],
            &'a [(&'a str, &'a [u32])],
        );
        let cases: &[Case<'_>] = &[
            (
                "within the window",
                &[(2, 0, "a"), (0, 50, "a"), (1, 199, "a")],
                &[("a", &[0, 1, 2])],
            ),
            (
                "beyond the window",
                &[(0, 0, "a"), (1, 200, "a")],
                &[("a", &[0]), ("a", &[1])],
            ),
            (
                "a rank that repeats itself",
                &[(0, 0, "a"), (0, 1, "a"), (1, 2, "a")],
                &[("a", &[0]), ("a", &[0, 1])],
            ),
            (
                "lockstep",
                &[(0, 0, "a"), (0, 1, "b"), (1, 2, "a"), (1, 3, "b")],
                &[("a", &[0, 1]), ("b", &[0, 1])],
            ),
            (
                "another order stays another order",
                &[(0, 0, "a"), (0, 1, "b"), (1, 2, "b"), (1, 3, "a")],
                &[("a", &[0]), ("b", &[0, 1]), ("a", &[1])],
            ),
        ];
        for (name, lines, want) in cases {
            let want: Vec<(String, Vec<u32>)> = want
                .iter()
                .map(|(text, indices)| ((*text).to_owned(), indices.to_vec()))
                .collect();
            assert_eq!(feed(4, lines), want, "{name}");
        }
    }

    #[test]
    fn the_two_streams_and_containers_are_apart() {
        let mut fold = Fold::new(3);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let now = Duration::ZERO;
        for (index, container, stream) in [
            (0, &a, Stream::Out),
            (1, &a, Stream::Err),
            (2, &b, Stream::Out),
        ] {
            let line = Line::new("x", container, stream);
            fold.add(Slot::new(Role::Worker, index), line, now);
        }
        assert_eq!(std::iter::from_fn(|| fold.pop()).count(), 3);
    }

    #[test]
    fn waits_for_ranks_are_bounded() {
        let container: Arc<str> = "c".into();
        let line = |text: &str| Line::new(text, &container, Stream::Out);
        let mut alone = Fold::new(1);
        alone.add(Slot::new(Role::Worker, 0), line("a"), Duration::ZERO);
        assert!(alone.due(Duration::ZERO).is_some());

        let mut many = Fold::new(2);
        for number in 0..2 * WAITING_MAX {
            many.add(
                Slot::new(Role::Worker, 0),
                line(&number.to_string()),
                Duration::ZERO,
            );
        }
        let let_out = std::iter::from_fn(|| many.due(Duration::ZERO)).count();
        assert_eq!(let_out, WAITING_MAX);
        while many.pop().is_some() {}
        assert!(many.newest.is_empty());
    }
}
