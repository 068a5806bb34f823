//! Time stamps of many shapes, read from the beginning of a line.
//!
//! Owns the shapes; does not guess time zones: two logs of hosts with different local time
//! cannot be put in order, and are not.
//!
//! Invariant: only stamps of the same clock are compared.

use std::{cmp::Ordering, sync::LazyLock};

use memchr::memmem::Finder;

/// What the number of a stamp counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// 1970.
    Epoch,
    /// The beginning of a year that is not written.
    Year,
    /// The start of the machine.
    Boot,
}

/// A time stamp in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) clock: Clock,
    pub(crate) millis: i64,
}

impl Stamp {
    /// Milliseconds since 1970.
    pub(crate) fn epoch(millis: i64) -> Self {
        let clock = Clock::Epoch;
        Self { clock, millis }
    }

    /// Which of two came first, where their clocks are the same.
    pub(crate) fn compare(self, other: Self) -> Option<Ordering> {
        (self.clock == other.clock).then(|| self.millis.cmp(&other.millis))
    }
}

/// The stamp at the beginning of `text` and how many bytes it takes, brackets and one space included.
pub(crate) fn leading(text: &[u8]) -> Option<(Stamp, usize)> {
    let first = *text.first()?;
    if first == b'[' {
        let (stamp, end) = bare(text.get(1..)?).or_else(|| seconds(text.get(1..)?))?;
        let rest = text.get(1 + end..)?;
        let close = rest.iter().take(12).position(|byte| *byte == b']')?;
        return Some((stamp, after_space(text, 2 + end + close)));
    }
    let (stamp, end) = bare(text)?;
    Some((stamp, after_space(text, end)))
}

/// The stamp of a log line of glog or of `PyTorch`, such as `E1218 20:27:21.426415540 `.
pub(crate) fn glog(text: &[u8]) -> Option<(Stamp, usize)> {
    if !matches!(text.first()?, b'I' | b'W' | b'E' | b'F') {
        return None;
    }
    let mut cursor = Cursor::new(text.get(1..)?);
    let digits = cursor.run_of_digits();
    // PyTorch writes the month without a leading zero.
    let (month, day) = match digits {
        (3 | 4, value) => (value / 100, value % 100),
        _ => return None,
    };
    cursor.take(b' ')?;
    let millis = cursor.time()?;
    let stamp = Stamp {
        clock: Clock::Year,
        millis: days(1972, month, day)? * DAY - days(1972, 1, 1)? * DAY + millis,
    };
    Some((stamp, 1 + cursor.at))
}

/// The stamp in a record of `MLPerf`'s logging, anywhere in the line.
pub(crate) fn mlperf(text: &[u8]) -> Option<Stamp> {
    static KEY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"time_ms\": "));
    let head = text.get(..text.len().min(200))?;
    let start = KEY.find(head)? + KEY.needle().len();
    let mut cursor = Cursor::new(text.get(start..)?);
    let (length, value) = cursor.run_of_digits();
    (length == 13).then(|| Stamp::epoch(value))
}

const DAY: i64 = 86_400_000;

fn after_space(text: &[u8], end: usize) -> usize {
    end + usize::from(text.get(end) == Some(&b' '))
}

fn bare(text: &[u8]) -> Option<(Stamp, usize)> {
    match *text.first()? {
        b'0'..=b'9' => iso(text),
        b'A'..=b'Z' => words(text),
        _ => None,
    }
}

/// `2024-07-25 06:36:18,293`, `2023-05-18T12:23:48.590860700Z`, `2024/07/25 06:36:18`.
fn iso(text: &[u8]) -> Option<(Stamp, usize)> {
    let mut cursor = Cursor::new(text);
    let year = cursor.number(4)?;
    let separator = cursor.any(b"-/")?;
    let month = cursor.number(2)?;
    cursor.take(separator)?;
    let day = cursor.number(2)?;
    cursor.any(b"T _")?;
    let millis = cursor.time()?;
    let mut total = days(year, month, day)? * DAY + millis;
    match cursor.peek() {
        Some(b'Z') => cursor.at += 1,
        Some(sign @ (b'+' | b'-')) => {
            let before = cursor.at;
            cursor.at += 1;
            let zone = cursor.number(2).map(|hours| {
                cursor.take(b':');
                hours * 60 + cursor.number(2).unwrap_or(0)
            });
            match zone {
                Some(minutes) if sign == b'+' => total -= minutes * 60_000,
                Some(minutes) => total += minutes * 60_000,
                None => cursor.at = before,
            }
        }
        _ => {}
    }
    Some((Stamp::epoch(total), cursor.at))
}

/// `Nov 15 07:57:42`, `Sun Feb 23 16:24:18 2025`.
fn words(text: &[u8]) -> Option<(Stamp, usize)> {
    let mut cursor = Cursor::new(text);
    if ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
        .iter()
        .any(|day| text.starts_with(day.as_bytes()))
    {
        cursor.at = 3;
        cursor.take(b' ')?;
    }
    let names = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let name = text.get(cursor.at..cursor.at + 3)?;
    let month = names.chunks(3).position(|known| known == name)? + 1;
    cursor.at += 3;
    cursor.take(b' ')?;
    cursor.take(b' ');
    let (1 | 2, day) = cursor.run_of_digits() else {
        return None;
    };
    cursor.take(b' ')?;
    let millis = cursor.time()?;
    let month = i64::try_from(month).ok()?;
    let before = cursor.at;
    let year = cursor.take(b' ').and_then(|()| cursor.number(4));
    if let Some(year @ 1990..2200) = year {
        let total = days(year, month, day)? * DAY + millis;
        return Some((Stamp::epoch(total), cursor.at));
    }
    let start = days(1972, 1, 1)? * DAY;
    let stamp = Stamp {
        clock: Clock::Year,
        millis: days(1972, month, day)? * DAY - start + millis,
    };
    Some((stamp, before))
}

/// `4254.197816` since the machine started, or `1725158970.410395` since 1970.
fn seconds(text: &[u8]) -> Option<(Stamp, usize)> {
    let mut cursor = Cursor::new(text);
    while cursor.take(b' ').is_some() {}
    let (1..=10, whole) = cursor.run_of_digits() else {
        return None;
    };
    cursor.take(b'.')?;
    let millis = cursor.fraction();
    let clock = if whole >= 1_000_000_000 {
        Clock::Epoch
    } else {
        Clock::Boot
    };
    let millis = whole * 1000 + millis;
    Some((Stamp { clock, millis }, cursor.at))
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn any(&mut self, bytes: &[u8]) -> Option<u8> {
        let byte = self.peek().filter(|byte| bytes.contains(byte))?;
        self.at += 1;
        Some(byte)
    }

    /// A number of exactly `length` digits.
    fn number(&mut self, length: usize) -> Option<i64> {
        let digits = self.text.get(self.at..self.at + length)?;
        let mut value = 0;
        for digit in digits {
            value = value * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        }
        self.at += length;
        Some(value)
    }

    /// How many digits follow, and their value; at most 18 are taken.
    fn run_of_digits(&mut self) -> (usize, i64) {
        let start = self.at;
        let mut value = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek()
            && self.at - start < 18
        {
            value = value * 10 + i64::from(digit - b'0');
            self.at += 1;
        }
        (self.at - start, value)
    }

    /// `06:36:18`, with a fraction or without, in milliseconds of the day.
    fn time(&mut self) -> Option<i64> {
        let hours = self.number(2)?;
        self.take(b':')?;
        let minutes = self.number(2)?;
        self.take(b':')?;
        let seconds = self.number(2)?;
        if hours > 23 || minutes > 59 || seconds > 60 {
            return None;
        }
        let fraction = match self.any(b".,") {
            Some(_) => self.fraction(),
            None => 0,
        };
        Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + fraction)
    }

    /// Digits of a fraction of a second, in milliseconds.
    fn fraction(&mut self) -> i64 {
        let (mut length, mut value) = self.run_of_digits();
        while length > 3 {
            value /= 10;
            length -= 1;
        }
        while length < 3 {
            value *= 10;
            length += 1;
        }
        value
    }
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let epoch = |millis| Some(Stamp::epoch(millis));
        let other = |clock, millis| Some(Stamp { clock, millis });
        let cases: &[(&str, Option<Stamp>, usize)] = &[
            (
                "2023-05-18T12:23:48.590860700Z x",
                epoch(1_684_412_628_590),
                31,
            ),
            ("2024-07-25 06:36:18,293 x", epoch(1_721_889_378_293), 24),
            ("[2024-07-25 06:36:18,293] x", epoch(1_721_889_378_293), 26),
            ("[2026-03-03 12:11:38] x", epoch(1_772_539_898_000), 22),
            ("2024-05-01_22:04:48", epoch(1_714_601_088_000), 19),
            ("2024-01-01T02:00:00+02:00 x", epoch(1_704_067_200_000), 26),
            ("2024-01-01T02:00:00-0100 x", epoch(1_704_078_000_000), 25),
            ("[Sun Feb 23 16:24:18 2025] x", epoch(1_740_327_858_000), 27),
            (
                "Jan  2 00:00:01 node kernel: x",
                other(Clock::Year, DAY + 1000),
                16,
            ),
            ("[ 4254.197816] x", other(Clock::Boot, 4_254_197), 15),
            ("[1725158970.410395] x", epoch(1_725_158_970_410), 20),
            ("2024-13-01 00:00:00", None, 0),
            ("2024-01-01 25:00:00", None, 0),
            ("[0] NCCL INFO", None, 0),
            ("March of time", None, 0),
            ("", None, 0),
        ];
        for (text, stamp, end) in cases {
            let found = leading(text.as_bytes());
            assert_eq!(found.map(|(stamp, _)| stamp), *stamp, "{text}");
            assert_eq!(found.map_or(0, |(_, end)| end), *end, "{text}");
        }
    }

    #[test]
    fn stamps_of_google_logs() {
        let cases = [
            ("E1218 20:27:21.426415540 f", true),
            ("E409 05:10:01.930967482 f", true),
            ("Error", false),
            ("I99 00:00:00", false),
        ];
        for (text, found) in cases {
            assert_eq!(glog(text.as_bytes()).is_some(), found, "{text}");
        }
        let (early, _) = glog(b"E409 05:10:01.930967482 f").unwrap();
        let (late, _) = glog(b"E0410 05:10:01.9 f").unwrap();
        assert_eq!(early.compare(late), Some(Ordering::Less));
        assert_eq!(early.compare(Stamp::epoch(0)), None);
    }
}
