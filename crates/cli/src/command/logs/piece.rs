//! A log in lines, and in pieces of lines where they are long.

use std::io::{self, Read};

/// Longest line that is handed out as one piece.
const PIECE_MAX: usize = 64 << 10;

/// A line, or a piece of one, without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) bytes: Vec<u8>,
    /// Nothing of the line came before.
    pub(super) starts_line: bool,
    /// Nothing of the line comes after.
    pub(super) ends_line: bool,
}

/// Bytes on their way to lines. An incomplete line waits for the rest of it.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were handed out.
    taken: usize,
    inside_line: bool,
    /// Lines that match and are still not shown.
    pub(super) skip: u64,
    /// Whether the current line is shown.
    pub(super) shown: bool,
}

impl Pieces {
    /// Reads more, at most one piece's worth; 0 when there is nothing now.
    pub(super) fn fill(&mut self, reader: &mut impl Read) -> io::Result<usize> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let room = (2 * PIECE_MAX).saturating_sub(self.buffer.len());
        let mut more = reader.take(room as u64);
        more.read_to_end(&mut self.buffer)
    }

    /// The next piece that is whole.
    pub(super) fn next(&mut self) -> Option<Piece> {
        let waiting = self.buffer.get(self.taken..).unwrap_or_default();
        let end = waiting.iter().position(|byte| *byte == b'\n');
        let (length, ends_line) = match end {
            Some(end) if end <= PIECE_MAX => (end, true),
            _ if waiting.len() >= PIECE_MAX => (PIECE_MAX, false),
            _ => return None,
        };
        let piece = Piece {
            bytes: waiting.get(..length).unwrap_or_default().to_vec(),
            starts_line: !self.inside_line,
            ends_line,
        };
        self.inside_line = !ends_line;
        self.taken += length + usize::from(ends_line);
        Some(piece)
    }

    /// What is left when nothing more comes: a last line without newline.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        let bytes = self.buffer.split_off(self.taken);
        self.buffer.clear();
        self.taken = 0;
        let starts_line = !std::mem::take(&mut self.inside_line);
        (!bytes.is_empty() || !starts_line).then_some(Piece {
            bytes,
            starts_line,
            ends_line: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u8]) -> Vec<(usize, bool, bool)> {
        let mut pieces = Pieces::default();
        let mut reader = bytes;
        let mut got = Vec::new();
        loop {
            let count = pieces.fill(&mut reader).unwrap();
            got.extend(std::iter::from_fn(|| pieces.next()));
            assert!(pieces.buffer.len() <= 2 * PIECE_MAX);
            if count == 0 {
                break;
            }
        }
        got.extend(pieces.rest());
        got.into_iter()
            .map(|piece| (piece.bytes.len(), piece.starts_line, piece.ends_line))
            .collect()
    }

    #[test]
    fn lines_and_pieces_of_lines() {
        assert_eq!(pieces(b""), []);
        assert_eq!(
            pieces(b"one\n\nthree\n"),
            [(3, true, true), (0, true, true), (5, true, true)]
        );
        assert_eq!(pieces(b"no newline"), [(10, true, true)]);
        let mut long = vec![b'x'; 3 * PIECE_MAX + 7];
        long.extend(b"\nnext\n");
        assert_eq!(
            pieces(&long),
            [
                (PIECE_MAX, true, false),
                (PIECE_MAX, false, false),
                (PIECE_MAX, false, false),
                (7, false, true),
                (4, true, true)
            ]
        );
    }

    #[test]
    fn half_a_line_waits_for_its_other_half() {
        let mut pieces = Pieces::default();
        pieces.fill(&mut &b"ha"[..]).unwrap();
        assert_eq!(pieces.next(), None);
        pieces.fill(&mut &b"lf\n"[..]).unwrap();
        assert_eq!(pieces.next().unwrap().bytes, b"half");
        assert_eq!(pieces.rest(), None);
    }
}
