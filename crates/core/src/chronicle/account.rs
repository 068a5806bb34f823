//! Which time a ledger closed since it was last seen, and in which order.
//!
//! The sums of a ledger are exact, its timeline is for drawing and may be coarse. So the sums decide how much time went where, attempt by attempt, and
//! the timeline gives the order only where it says exactly the same as the sums. Elsewhere the order counts as not observed.

use jiff::Timestamp;

use super::stretch::{Booked, Content, Stretch, length};
use crate::ledger::{AttemptSpans, Ledger, PhaseMillis, Span};

/// A part of the closed time: all of an attempt, or of attempts whose numbers the ledger no longer has.
struct Piece {
    attempt: Option<u32>,
    millis: PhaseMillis,
}

impl Piece {
    fn length(&self) -> Option<u64> {
        let mut millis = self.millis.values();
        millis.try_fold(0_u64, |sum, millis| sum.checked_add(*millis))
    }

    fn booked(&self) -> Vec<Booked> {
        let parts = self.millis.iter().filter(|(_, millis)| **millis > 0);
        parts
            .map(|(phase, millis)| Booked {
                attempt: self.attempt,
                phase: *phase,
                millis: *millis,
            })
            .collect()
    }
}

/// The time that `after` closed since `before`, oldest first. `None` where `after` does not continue `before`.
pub(super) fn closed_since(before: &Ledger, after: &Ledger) -> Option<Vec<Stretch>> {
    let Some(began) = after.began else {
        return before.began.is_none().then(Vec::new);
    };
    if before.began.is_some_and(|before| before != began) {
        return None;
    }
    let from = before
        .began
        .map_or(Some(began), |_| closed_until(before))?
        .as_millisecond();
    let to = closed_until(after)?.as_millisecond();
    if to < from || !after.is_sound() {
        return None;
    }
    let pieces = pieces(before, after)?;
    let lengths = pieces.iter().map(Piece::length);
    let sum = lengths
        .into_iter()
        .try_fold(0_u64, |sum, length| sum.checked_add(length?))?;
    if sum != length(from, to) {
        return None;
    }
    Some(ordered(&pieces, &after.timeline.0, to))
}

/// Until when all time is closed.
fn closed_until(ledger: &Ledger) -> Option<Timestamp> {
    ledger.open.map(|open| open.since).or(ledger.ended)
}

/// What the sums of `after` have more than those of `before`, in order of time.
fn pieces(before: &Ledger, after: &Ledger) -> Option<Vec<Piece>> {
    let (known, now) = (&before.attempts, &after.attempts);
    let whole = |spans: &AttemptSpans| Piece {
        attempt: Some(spans.attempt),
        millis: spans.millis.clone(),
    };
    let Some((last, rest)) = known.split_last() else {
        let earlier = minus(&after.earlier, [&before.earlier])?;
        let first = Piece {
            attempt: None,
            millis: earlier,
        };
        return Some(
            std::iter::once(first)
                .chain(now.iter().map(whole))
                .collect(),
        );
    };
    // The entry that was last may have grown. Those before it are as they were, except that the oldest were added up.
    for (at, entry) in now.iter().enumerate().take(known.len()) {
        let Some(grown) = minus(&entry.millis, [&last.millis]) else {
            continue;
        };
        let folded = rest.len() - at;
        let same = entry.attempt == last.attempt && now[..at] == rest[folded..];
        let earlier = rest[..folded].iter().map(|spans| &spans.millis);
        let earlier = minus(&after.earlier, earlier.chain([&before.earlier]));
        if !same || !earlier.is_some_and(|left| left.values().all(|millis| *millis == 0)) {
            continue;
        }
        let first = Piece {
            attempt: Some(entry.attempt),
            millis: grown,
        };
        let later = now.iter().skip(at + 1).map(whole);
        return Some(std::iter::once(first).chain(later).collect());
    }
    let known = known.iter().map(|spans| &spans.millis);
    let earlier = minus(&after.earlier, known.chain([&before.earlier]))?;
    let first = Piece {
        attempt: None,
        millis: earlier,
    };
    Some(
        std::iter::once(first)
            .chain(now.iter().map(whole))
            .collect(),
    )
}

/// `sums` without `others`; nothing where that is negative.
fn minus<'a>(
    sums: &PhaseMillis,
    others: impl IntoIterator<Item = &'a PhaseMillis>,
) -> Option<PhaseMillis> {
    let mut left = sums.clone();
    for (phase, millis) in others.into_iter().flatten() {
        if *millis > 0 {
            let sum = left.get_mut(phase)?;
            *sum = sum.checked_sub(*millis)?;
        }
    }
    Some(left)
}

/// The pieces as stretches that end at `to`, in the order of `timeline` where that agrees with them.
fn ordered(pieces: &[Piece], timeline: &[Span], to: i64) -> Vec<Stretch> {
    let mut tail: Vec<Span> = timeline.to_vec();
    let mut newest_first: Vec<Stretch> = Vec::new();
    let mut end = to;
    for piece in pieces.iter().rev() {
        let millis = piece.length().unwrap_or(0);
        let drawn = take_tail(&mut tail, millis);
        let spans = if agrees(piece, &drawn) {
            drawn
        } else {
            Vec::new()
        };
        if spans.is_empty() {
            let from = before(end, millis);
            let booked = piece.booked();
            let content = match booked.as_slice() {
                // No order is needed for one phase.
                [
                    Booked {
                        attempt: Some(attempt),
                        phase,
                        ..
                    },
                ] => Content::Phase {
                    attempt: *attempt,
                    phase: *phase,
                },
                _ => Content::NotObserved(booked),
            };
            newest_first.push(Stretch {
                from,
                to: end,
                content,
            });
            end = from;
            continue;
        }
        for span in spans {
            let from = before(end, span.millis);
            newest_first.push(Stretch {
                from,
                to: end,
                content: Content::Phase {
                    attempt: span.attempt,
                    phase: span.phase,
                },
            });
            end = from;
        }
    }
    newest_first.retain(|stretch| stretch.millis() > 0);
    newest_first.reverse();
    newest_first
}

fn before(end: i64, millis: u64) -> i64 {
    end.saturating_sub_unsigned(millis)
}

/// Takes the last `millis` from the end, newest first; what is cut stays.
fn take_tail(tail: &mut Vec<Span>, millis: u64) -> Vec<Span> {
    let mut left = millis;
    let mut taken = Vec::new();
    while left > 0 {
        let Some(last) = tail.last_mut() else { break };
        let part = last.millis.min(left);
        taken.push(Span {
            millis: part,
            ..*last
        });
        left -= part;
        last.millis -= part;
        if last.millis == 0 {
            tail.pop();
        }
    }
    taken
}

/// Whether the drawn spans have exactly the sums of the piece.
fn agrees(piece: &Piece, drawn: &[Span]) -> bool {
    let mut sums = PhaseMillis::new();
    for span in drawn {
        if piece.attempt.is_some_and(|attempt| attempt != span.attempt) {
            return false;
        }
        *sums.entry(span.phase).or_default() += span.millis;
    }
    let mut booked = piece.millis.clone();
    booked.retain(|_, millis| *millis > 0);
    sums == booked
}
