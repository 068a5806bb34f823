//! Places in lists that keys move.

use crate::keys::Key;

/// Rows that a page key moves.
const PAGE: usize = 10;

/// The first line that is shown of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scroll(pub(crate) usize);

impl Scroll {
    /// Moves. How many lines there are is only known to whoever draws them, who stops at the last.
    pub(crate) fn key(&mut self, key: Key) {
        const MOST: usize = 1 << 20;
        self.0 = moved(self.0, key, MOST);
        // The end of all lines: the drawing finds it.
        if key == Key::End || key == Key::Char('G') {
            self.0 = MOST;
        }
    }

    /// The first line that is shown of `lines`, where `room` of them fit.
    pub(crate) fn first(self, lines: usize, room: usize) -> usize {
        self.0.min(lines.saturating_sub(room))
    }

    /// The same, once it is known what it is the scroll of: keys then move from what is seen.
    pub(crate) fn settle(&mut self, lines: usize, room: usize) {
        self.0 = self.first(lines, room);
    }
}

/// Where a key moves the selection `at` of `count` rows.
pub(crate) fn moved(at: usize, key: Key, count: usize) -> usize {
    let last = count.saturating_sub(1);
    let to = match key {
        Key::Char('j') | Key::Down => at.saturating_add(1),
        Key::Char('k') | Key::Up => at.saturating_sub(1),
        Key::PageDown => at.saturating_add(PAGE),
        Key::PageUp => at.saturating_sub(PAGE),
        Key::Home | Key::Char('g') => 0,
        Key::End | Key::Char('G') => last,
        _ => at,
    };
    to.min(last)
}
