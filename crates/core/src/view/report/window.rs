//! The part of a history that lies in a window.

use jiff::Timestamp;

use crate::chronicle::{Chronicle, Content, Stretch};

/// What of `chronicle` lies between `from` and `to`, in Unix milliseconds, where it is known until `until`; and how much time does, of which the phase is not
/// known: it is part of a stretch without an order that the window cuts.
pub(super) fn clip(
    chronicle: &Chronicle,
    from: i64,
    to: i64,
    until: Timestamp,
) -> (Chronicle, u64) {
    // What pods did is not part of it: there may be much of that.
    let mut inside = Chronicle::default();
    let mut not_placed = 0_u64;
    for stretch in &chronicle.stretches {
        let (begin, end) = (stretch.from.max(from), stretch.to.min(to));
        if begin >= end {
            continue;
        }
        let is_whole = (begin, end) == (stretch.from, stretch.to);
        if !is_whole && !matches!(stretch.content, Content::Phase { .. }) {
            not_placed = not_placed.saturating_add(length(begin, end));
            continue;
        }
        inside.stretches.push(Stretch {
            from: begin,
            to: end,
            content: stretch.content.clone(),
        });
    }
    inside.open = chronicle.open.and_then(|mut open| {
        let end = until.as_millisecond().max(open.since.as_millisecond());
        if end < from || open.since.as_millisecond() >= to {
            return None;
        }
        if open.since.as_millisecond() < from {
            open.since = Timestamp::from_millisecond(from).ok()?;
        }
        Some(open)
    });
    inside.began = chronicle.began.map(|began| began.max(from));
    inside.ended = chronicle.ended;
    inside.left_out = chronicle.left_out;
    let saves = chronicle.saves.iter();
    inside.saves = saves
        .filter(|(at, _)| (from..to).contains(at))
        .copied()
        .collect();
    let headlines = chronicle.headlines.iter();
    inside.headlines = headlines
        .filter(|(at, _)| (from..to).contains(at))
        .cloned()
        .collect();
    (inside, not_placed)
}

fn length(from: i64, to: i64) -> u64 {
    u64::try_from(to.saturating_sub(from)).unwrap_or(0)
}
