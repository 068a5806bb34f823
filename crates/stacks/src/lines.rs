//! From an instruction of a code object to its line, in the three forms that `CPython` 3.9 to 3.14 have.
//!
//! Source of the forms: `Objects/lnotab_notes.txt` of `CPython` 3.9 and 3.10, `InternalDocs/code_objects.md` (before:
//! `Objects/locations.md`) for 3.11 and later, both checked against the interpreters.
//!
//! Invariant: each form is read once from its start to its end, so the time is linear in the table.

/// How a code object stores its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineTable {
    /// `co_lnotab` of 3.9: pairs of bytes, how far the instruction and the line move.
    Increments,
    /// `co_linetable` of 3.10: pairs of bytes, how long a range is and how far its line moves; −128 is no line.
    Ranges,
    /// `co_linetable` of 3.11 and later: entries of variable length with columns.
    Locations,
}

impl LineTable {
    /// The line of the instruction at byte `offset` of the code that begins in line `first`.
    pub fn line(self, table: &[u8], first: u32, offset: u64) -> Option<u32> {
        let line = match self {
            Self::Increments => Some(increments(table, first, offset)),
            Self::Ranges => ranges(table, first, offset),
            Self::Locations => locations(table, first, offset),
        };
        line.and_then(|line| u32::try_from(line).ok())
    }
}

fn increments(table: &[u8], first: u32, offset: u64) -> i64 {
    let (mut line, mut at) = (i64::from(first), 0u64);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        if at > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    line
}

fn ranges(table: &[u8], first: u32, offset: u64) -> Option<i64> {
    const NO_LINE: i8 = -128;
    let (mut line, mut end) = (i64::from(first), 0u64);
    for pair in table.chunks_exact(2) {
        let delta = pair[1].cast_signed();
        end += u64::from(pair[0]);
        if delta != NO_LINE {
            line += i64::from(delta);
        }
        if offset < end {
            return (delta != NO_LINE).then_some(line);
        }
    }
    None
}

fn locations(table: &[u8], first: u32, offset: u64) -> Option<i64> {
    // Lengths count code units of two bytes.
    const UNIT: u64 = 2;
    let (mut line, mut end) = (i64::from(first), 0u64);
    let mut bytes = table.iter().copied().peekable();
    while let Some(head) = bytes.next() {
        // Only the first byte of an entry has its highest bit set.
        if head & 0x80 == 0 {
            return None;
        }
        end += (u64::from(head & 7) + 1) * UNIT;
        let (has_line, delta) = match (head >> 3) & 15 {
            15 => (false, 0),
            13 | 14 => (true, signed(&mut bytes)),
            code @ 10..=12 => (true, i64::from(code) - 10),
            _ => (true, 0),
        };
        line = line.saturating_add(delta);
        if offset < end {
            return has_line.then_some(line);
        }
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// A number of which each byte has six bits, lowest first, and whose lowest bit is the sign.
fn signed(bytes: &mut std::iter::Peekable<impl Iterator<Item = u8>>) -> i64 {
    const MORE: u8 = 0x40;
    let (mut value, mut shift) = (0u64, 0u32);
    while let Some(byte) = bytes.next_if(|byte| byte & 0x80 == 0) {
        // Larger numbers are no lines: the bits that do not fit are dropped.
        if shift < 36 {
            value |= u64::from(byte & 0x3f) << shift;
        }
        shift = shift.saturating_add(6);
        if byte & MORE == 0 {
            break;
        }
    }
    let size = (value >> 1).cast_signed();
    if value & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::{LineTable::*, *};

    #[test]
    fn lines_of_offsets() {
        type Case = (&'static str, LineTable, &'static [u8], u64, Option<u32>);
        // The tables are those of
        //     def f(x):        # line 10
        //         a = x        # 11
        //         for i in a:  # 12
        //             g(i)     # 13
        // as the forms above prescribe them, written out by hand.
        let cases: &[Case] = &[
            ("3.9 start", Increments, &[0, 1, 4, 1, 8, 1], 0, Some(11)),
            ("3.9 between", Increments, &[0, 1, 4, 1, 8, 1], 6, Some(12)),
            ("3.9 last", Increments, &[0, 1, 4, 1, 8, 1], 500, Some(13)),
            ("3.9 back", Increments, &[0, 3, 4, 0xfe], 4, Some(11)),
            ("3.9 odd", Increments, &[0, 1, 4], 4, Some(11)),
            ("3.10 first", Ranges, &[4, 1, 8, 1, 6, 1], 2, Some(11)),
            ("3.10 second", Ranges, &[4, 1, 8, 1, 6, 1], 4, Some(12)),
            ("3.10 behind", Ranges, &[4, 1, 8, 1, 6, 1], 18, None),
            ("3.10 none", Ranges, &[4, 1, 2, 0x80, 6, 1], 4, None),
            (
                "3.10 after none",
                Ranges,
                &[4, 1, 2, 0x80, 6, 1],
                6,
                Some(12),
            ),
            ("3.11 short", Locations, &[0x80 | 1, 0], 2, Some(10)),
            (
                "3.11 one line",
                Locations,
                &[0xd0 | 1, 0, 5, 0xd8, 0, 4],
                4,
                Some(11),
            ),
            ("3.11 no columns", Locations, &[0xe8, 6], 0, Some(13)),
            ("3.11 back", Locations, &[0xe8, 7], 0, Some(7)),
            (
                "3.11 long",
                Locations,
                &[0xf0, 0x42, 1, 0, 1, 1],
                0,
                Some(43),
            ),
            ("3.11 none", Locations, &[0xf8], 0, None),
            ("3.11 no entry", Locations, &[0x00], 0, None),
            ("3.11 cut", Locations, &[0xf0, 0x7f], 2, None),
            ("3.11 negative", Locations, &[0xe8, 0x7f, 0x3f], 0, None),
            ("empty", Locations, &[], 0, None),
        ];
        for (name, form, table, offset, expected) in cases {
            assert_eq!(form.line(table, 10, *offset), *expected, "{name}");
        }
    }
}
