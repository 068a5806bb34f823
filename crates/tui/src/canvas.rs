//! The one way to put text into a frame: escaped, cut, and never outside.

use ratatui_core::{buffer::Buffer, layout::Rect, style::Style};

use crate::{look::Look, text};

/// A frame that is drawn on.
pub(crate) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    /// How it looks.
    pub(crate) look: Look,
}

impl<'a> Canvas<'a> {
    pub(crate) fn new(buffer: &'a mut Buffer, look: Look) -> Self {
        Self { buffer, look }
    }

    /// Where there is room.
    pub(crate) fn area(&self) -> Rect {
        *self.buffer.area()
    }

    /// Puts text at a place, in at most `most` columns; what does not fit ends with `…`. Where the next text can be put.
    pub(crate) fn put(&mut self, x: u16, y: u16, most: u16, text: &str, style: Style) -> u16 {
        let area = self.area();
        if y < area.top() || y >= area.bottom() || x < area.left() || x >= area.right() {
            return x;
        }
        let end = x.saturating_add(most).min(area.right());
        let room = end - x;
        let is_cut = text::width(text, room.saturating_add(1)) > room;
        let until = if is_cut { end.saturating_sub(1) } else { end };
        let mut at = x;
        for piece in text::pieces(text) {
            if at.saturating_add(piece.width) > until {
                break;
            }
            if let Some(cell) = self.buffer.cell_mut((at, y)) {
                cell.set_symbol(&piece.text).set_style(style);
            }
            // A wide character also takes the cell behind it.
            for behind in at + 1..at + piece.width {
                if let Some(cell) = self.buffer.cell_mut((behind, y)) {
                    cell.reset();
                    cell.set_style(style);
                }
            }
            at += piece.width;
        }
        if is_cut && at < end {
            if let Some(cell) = self.buffer.cell_mut((at, y)) {
                cell.set_symbol("…").set_style(style);
            }
            at += 1;
        }
        at
    }

    /// Puts text so that it ends at `end`.
    pub(crate) fn put_right(&mut self, end: u16, y: u16, most: u16, text: &str, style: Style) {
        let taken = text::width(text, most);
        self.put(end.saturating_sub(taken), y, taken, text, style);
    }

    /// Gives a style to what is there already.
    pub(crate) fn restyle(&mut self, x: u16, y: u16, width: u16, style: Style) {
        let wanted = Rect::new(x, y, width, 1);
        let area = wanted.intersection(self.area());
        if !area.is_empty() {
            self.buffer.set_style(area, style);
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::buffer::Cell;

    use super::*;

    fn drawn(x: u16, most: u16, text: &str) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 8, 1));
        Canvas::new(&mut buffer, Look::PLAIN).put(x, 0, most, text, Style::new());
        let symbols = buffer.content().iter().map(Cell::symbol);
        symbols.collect()
    }

    #[test]
    fn text_is_cut_to_its_room() {
        let cases = [
            (0, 8, "12345678", "12345678"),
            (0, 8, "123456789", "1234567…"),
            (2, 3, "abcd", "  ab…   "),
            (6, 9, "abc", "      a…"),
            (9, 9, "abc", "        "),
            (0, 0, "abc", "        "),
            (0, 4, "損失損", "損 …     "),
        ];
        for (x, most, text, want) in cases {
            assert_eq!(drawn(x, most, text), want, "{text}");
        }
    }
}
