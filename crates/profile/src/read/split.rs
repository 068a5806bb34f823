//! Cuts the bytes of a trace at the borders of its events, however the bytes arrive.
//!
//! A trace is one JSON object with the array `traceEvents`, or that array alone. Only borders are found here; what is between
//! them is [`super::scan`]'s.
//!
//! Invariants: at most [`MOST_PIECE`] bytes are held, whatever the input; each byte is looked at once.

/// Bytes of one event or of one field of the trace itself. An event of a profiler has some hundred.
pub(crate) const MOST_PIECE: usize = 4 << 20;
/// Brackets within brackets; an event of a profiler has three.
pub(crate) const MOST_DEPTH: u32 = 64;

/// What was cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// A field of the trace itself: its name without quotes, and its value.
    Field(&'a [u8], &'a [u8]),
    /// One event with its braces.
    Event(&'a [u8]),
    /// An event that is longer or deeper than the bounds, or no object.
    Oversized,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first bracket.
    Start,
    /// Between the fields of the trace.
    Fields,
    /// Between a field's name and its value.
    Colon,
    /// Between events.
    Events,
    /// Behind the last bracket.
    End,
    /// What follows is no trace.
    Foreign,
}

/// What is being cut out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Key,
    Value,
    Event,
}

/// Whether the next byte is part of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Outside,
    Inside,
    /// Behind a backslash.
    Escaped,
}

/// Cuts the bytes of one trace.
#[derive(Debug)]
pub(crate) struct Splitter {
    place: Place,
    inside: Option<Inside>,
    depth: u32,
    text: Text,
    /// Whether the piece is beyond a bound, so that its bytes are not kept.
    oversized: bool,
    /// The beginning of a piece whose end has not arrived.
    carry: Vec<u8>,
    /// The field whose value comes.
    key: Vec<u8>,
    /// Whether the array of events is the whole document.
    bare: bool,
    /// Whether there was an array of events.
    found_events: bool,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            place: Place::Start,
            inside: None,
            depth: 0,
            text: Text::Outside,
            oversized: false,
            carry: Vec::new(),
            key: Vec::new(),
            bare: false,
            found_events: false,
        }
    }
}

impl Splitter {
    /// Whether the document came to its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.place == Place::End
    }

    /// Whether what was read is no trace.
    pub(crate) fn is_foreign(&self) -> bool {
        self.place == Place::Foreign
    }

    /// Whether there was an array of events.
    pub(crate) fn has_events(&self) -> bool {
        self.found_events
    }

    /// Takes the next bytes, and passes on each piece that ends in them.
    pub(crate) fn push(&mut self, bytes: &[u8], take: &mut impl FnMut(Piece<'_>)) {
        let mut at = 0;
        // Where the piece begins in `bytes`; one that began before them is in `carry`.
        let mut begin = 0;
        while let Some(byte) = bytes.get(at) {
            let Some(inside) = self.inside else {
                if self.place == Place::End || self.place == Place::Foreign {
                    return;
                }
                if let Some(inside) = self.between(*byte) {
                    self.inside = Some(inside);
                    begin = at;
                    self.begin_piece(*byte);
                }
                at += 1;
                continue;
            };
            if self.text == Text::Escaped {
                self.text = Text::Inside;
                at += 1;
                continue;
            }
            if self.text == Text::Inside {
                let rest = bytes.get(at..).unwrap_or_default();
                let Some(skip) = memchr::memchr2(b'"', b'\\', rest) else {
                    break;
                };
                at += skip;
                if bytes.get(at) == Some(&b'\\') {
                    self.text = Text::Escaped;
                    at += 1;
                    continue;
                }
                self.text = Text::Outside;
                at += 1;
                if self.depth == 0 {
                    self.end_piece(inside, bytes.get(begin..at).unwrap_or_default(), take);
                }
                continue;
            }
            match byte {
                b'"' => self.text = Text::Inside,
                b'{' | b'[' => {
                    self.depth = self.depth.saturating_add(1);
                    self.oversized |= self.depth > MOST_DEPTH;
                }
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        at += 1;
                        self.end_piece(inside, bytes.get(begin..at).unwrap_or_default(), take);
                        continue;
                    }
                }
                // A number or a word ends before this byte, which is looked at again.
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 => {
                    self.end_piece(inside, bytes.get(begin..at).unwrap_or_default(), take);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        if self.inside.is_some() {
            self.hold(bytes.get(begin..).unwrap_or_default());
        }
    }

    /// Looks at a byte between pieces; which piece begins with it.
    fn between(&mut self, byte: u8) -> Option<Inside> {
        if byte.is_ascii_whitespace() {
            return None;
        }
        match (self.place, byte) {
            (Place::Start, b'{') => self.place = Place::Fields,
            (Place::Start, b'[') => {
                self.place = Place::Events;
                self.bare = true;
                self.found_events = true;
            }
            // A byte order mark.
            (Place::Start, 0xef | 0xbb | 0xbf)
            | (Place::Events | Place::Fields, b',')
            | (Place::Colon, b':')
            | (Place::End | Place::Foreign, _) => {}
            (Place::Fields, b'"') => return Some(Inside::Key),
            (Place::Fields, b'}') => self.place = Place::End,
            (Place::Colon, b'[') if self.key == b"traceEvents" => {
                self.place = Place::Events;
                self.found_events = true;
            }
            (Place::Colon, b',' | b'}' | b']') => self.place = Place::Foreign,
            (Place::Colon, _) => return Some(Inside::Value),
            (Place::Events, b']') => {
                self.place = if self.bare { Place::End } else { Place::Fields };
            }
            (Place::Events, b'}' | b':') | (Place::Start | Place::Fields, _) => {
                self.place = Place::Foreign;
            }
            (Place::Events, _) => return Some(Inside::Event),
        }
        None
    }

    fn begin_piece(&mut self, byte: u8) {
        self.carry.clear();
        self.oversized = false;
        self.text = if byte == b'"' {
            Text::Inside
        } else {
            Text::Outside
        };
        self.depth = u32::from(byte == b'{' || byte == b'[');
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.carry.len().saturating_add(bytes.len()) > MOST_PIECE {
            self.oversized = true;
        }
        if self.oversized {
            self.carry = Vec::new();
        } else {
            self.carry.extend_from_slice(bytes);
        }
    }

    fn end_piece(&mut self, inside: Inside, end: &[u8], take: &mut impl FnMut(Piece<'_>)) {
        self.inside = None;
        let is_held = !self.carry.is_empty() || self.oversized;
        if is_held {
            self.hold(end);
        }
        self.oversized |= end.len() > MOST_PIECE;
        let carry = std::mem::take(&mut self.carry);
        let piece: &[u8] = if is_held { &carry } else { end };
        match inside {
            Inside::Key => {
                let name = piece.strip_prefix(b"\"").unwrap_or(piece);
                let name = name.strip_suffix(b"\"").unwrap_or(name);
                self.key.clear();
                if !self.oversized {
                    self.key.extend_from_slice(name);
                }
                self.place = Place::Colon;
            }
            Inside::Value => {
                self.place = Place::Fields;
                if !self.oversized {
                    take(Piece::Field(&self.key, piece));
                }
            }
            Inside::Event if self.oversized || piece.first() != Some(&b'{') => {
                take(Piece::Oversized);
            }
            Inside::Event => take(Piece::Event(piece)),
        }
        // Its memory serves the next piece.
        self.carry = carry;
        self.carry.clear();
        self.oversized = false;
    }
}
