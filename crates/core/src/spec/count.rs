//! The values of a JSON text, counted while its bytes arrive.
//!
//! A body of 3 MiB can hold a million values, and each becomes some hundred bytes of memory when it is parsed. The count needs
//! none: a text that holds too much is refused before it is parsed, and before the rest of it has arrived. That goes for texts
//! inside of other texts, too, such as annotations that hold JSON.
//!
//! Caveat: this is not a parser. For a text that is not JSON the count means nothing, and parsing it fails early.

/// What a map counts, and a list: each reserves memory for several entries with its first one. With these weights one unit is at
/// most 200 bytes of parsed tree.
const MAP: usize = 4;
const LIST: usize = 3;

/// How much a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// At most this many in all.
    InAll(usize),
    /// At most this many in each element of the lists at `depth`: these are parsed one after the other.
    InEach {
        /// How many lists and maps are around an element.
        depth: usize,
        /// The most of one element.
        most: usize,
    },
}

impl Values {
    /// The most that is parsed at once.
    pub fn most(self) -> usize {
        match self {
            Self::InAll(most) | Self::InEach { most, .. } => most,
        }
    }
}

/// A text holds more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// Whether the JSON in an annotation is small enough to be parsed. A list of networks is hundreds of units.
pub fn is_small(text: &str) -> bool {
    Counter::new(Values::InAll(10_000))
        .feed(text.as_bytes())
        .is_ok()
}

/// The count so far.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    allowed: Values,
    in_string: bool,
    escaped: bool,
    depth: usize,
    units: usize,
    largest: usize,
}

impl Counter {
    /// Nothing is counted yet.
    pub fn new(allowed: Values) -> Self {
        Self {
            allowed,
            in_string: false,
            escaped: false,
            depth: 0,
            units: 1,
            largest: 1,
        }
    }

    /// Counts the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), TooMany> {
        for byte in bytes {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b',' => self.separate(),
                b'{' => self.open(MAP),
                b'[' => self.open(LIST),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            if self.units > self.allowed.most() {
                return Err(TooMany);
            }
        }
        Ok(())
    }

    /// The most that is parsed at once.
    pub fn largest(&self) -> usize {
        self.largest.max(self.units)
    }

    fn open(&mut self, units: usize) {
        self.depth += 1;
        self.units += units;
    }

    fn separate(&mut self) {
        if matches!(self.allowed, Values::InEach { depth, .. } if depth == self.depth) {
            self.largest = self.largest();
            self.units = 0;
        }
        self.units += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(allowed: Values, text: &str) -> Result<usize, TooMany> {
        // Byte by byte, as a slow sender would.
        let mut counter = Counter::new(allowed);
        for byte in text.as_bytes() {
            counter.feed(std::slice::from_ref(byte))?;
        }
        Ok(counter.largest())
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        let cases = [
            ("", 1),
            ("1", 1),
            ("[]", 4),
            ("[1,2,3]", 6),
            (r#"{"a":1,"b":[]}"#, 9),
            (r#"["[[[{{{,,,"]"#, 4),
            (r#"["\"[[[","\\",[]]"#, 9),
            ("]]]]", 1),
        ];
        for (text, want) in cases {
            assert_eq!(count(Values::InAll(100), text), Ok(want), "{text}");
        }
    }

    #[test]
    fn too_many_values_are_refused_early() {
        let text = format!("[{}]", "[],".repeat(1_000));
        let mut counter = Counter::new(Values::InAll(400));
        let read = text
            .as_bytes()
            .iter()
            .position(|byte| counter.feed(std::slice::from_ref(byte)).is_err());
        assert!(read.is_some_and(|read| read < 400), "{read:?}");
    }

    #[test]
    fn elements_are_counted_one_by_one() {
        let each = Values::InEach { depth: 1, most: 20 };
        let many = format!("[{}[]]", "[1,2],".repeat(1_000));
        assert_eq!(count(each, &many), Ok(8));
        let large = format!("[1,[{}1]]", "1,".repeat(30));
        assert_eq!(count(each, &large), Err(TooMany));
        // A list elsewhere gives no new allowance.
        assert_eq!(
            count(each, &format!("[[{}]]", "[],".repeat(30))),
            Err(TooMany)
        );
    }
}
