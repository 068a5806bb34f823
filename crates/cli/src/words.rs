//! Figures and ends as people read them: durations, counts, exit codes and signals in words.
//!
//! Owns no decision and no layout; every command that says the same thing says it through here.

use std::time::Duration;

use jiff::Timestamp;
use trainyard_core::pod::exit;
use trainyard_host::FailedRank;

/// `1 pod`, `2 pods`, `12,345 lines`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration with its two largest units: `0.4s`, `12s`, `3m07s`, `2h05m`, `3d04h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => {
            let tenths = duration.as_millis() / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// The time from one moment to another; none where they are the other way round.
pub(crate) fn since(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).try_into().unwrap_or_default()
}

/// How long something is ago: like [`duration`], in whole units.
pub(crate) fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// `text` in lines of at most `width` columns, broken between words; a word that is longer has a
/// line of its own. `None` is without bound.
pub(crate) fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else {
        return vec![text.to_owned()];
    };
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
    }
    lines
}

/// A loss with its significant digits.
pub(crate) fn loss(loss: f64) -> String {
    let size = loss.abs();
    match size {
        0.0 => "0".to_owned(),
        1e-4..10.0 => format!("{loss:.4}"),
        10.0..1e3 => format!("{loss:.2}"),
        1e3..1e6 => format!("{loss:.0}"),
        _ if loss.is_finite() => format!("{loss:.3e}"),
        _ => loss.to_string(),
    }
}

/// How a container ended, from its code alone.
pub(crate) fn exit(code: i32, out_of_memory: bool) -> String {
    exit::words(code, out_of_memory)
}

/// How the first rank to fail ended.
pub(crate) fn failed(failed: &FailedRank) -> String {
    if failed.out_of_memory {
        return format!("ran out of memory (exit code {})", failed.code);
    }
    let Some(name) = &failed.signal else {
        return exit::words(failed.code, false);
    };
    match exit::SIGNALS.iter().find(|signal| signal.name == name) {
        Some(exit::Signal {
            number,
            meaning: "",
            ..
        }) => format!("killed by signal {number} ({name})"),
        Some(exit::Signal {
            number, meaning, ..
        }) => format!("killed by signal {number} ({name}: {meaning})"),
        None => format!("killed by {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing;

    #[test]
    fn counts() {
        assert_eq!(counted(1, "pod"), "1 pod");
        assert_eq!(counted(0, "pod"), "0 pods");
        assert_eq!(counted(1_234_567, "line"), "1,234,567 lines");
        assert_eq!(counted(123, "line"), "123 lines");
    }

    #[test]
    fn durations() {
        let cases = [
            (0, "0.0s", "0s"),
            (430, "0.4s", "0s"),
            (9_990, "9.9s", "9s"),
            (10_000, "10s", "10s"),
            (187_000, "3m07s", "3m"),
            (7_500_000, "2h05m", "2h"),
            (273_600_000, "3d04h", "3d"),
        ];
        for (millis, long, short) in cases {
            let given = Duration::from_millis(millis);
            assert_eq!(
                (duration(given).as_str(), age(given).as_str()),
                (long, short)
            );
        }
    }

    #[test]
    fn sentences_break_between_words() {
        let cases: [(Option<usize>, &[&str]); 4] = [
            (None, &["one two three"]),
            (Some(13), &["one two three"]),
            (Some(8), &["one two", "three"]),
            (Some(2), &["one", "two", "three"]),
        ];
        for (width, want) in cases {
            assert_eq!(wrapped("one two three", width), want);
        }
    }

    #[test]
    fn losses() {
        let cases = [
            (2.314_159, "2.3142"),
            (0.0, "0"),
            (142.5, "142.50"),
            (1.5e-7, "1.500e-7"),
            (-3.25e9, "-3.250e9"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ];
        for (value, want) in cases {
            assert_eq!(loss(value), want);
        }
    }

    #[test]
    fn ends_are_said_in_words() {
        let codes = [
            (1, false, "exit code 1"),
            (127, false, "exit code 127 (the command was not found)"),
            (137, false, "exit code 137 (128 + signal 9, SIGKILL)"),
            (137, true, "ran out of memory (exit code 137)"),
            (200, false, "exit code 200"),
        ];
        for (code, out_of_memory, want) in codes {
            assert_eq!(exit(code, out_of_memory), want);
        }
        let signals = [
            ("SIGKILL", "killed by signal 9 (SIGKILL)"),
            (
                "SIGSEGV",
                "killed by signal 11 (SIGSEGV: invalid memory access)",
            ),
            ("SIGRTMIN+3", "killed by SIGRTMIN+3"),
        ];
        for (name, want) in signals {
            let rank = FailedRank {
                signal: Some(name.to_owned()),
                ..testing::failed_rank()
            };
            assert_eq!(failed(&rank), want);
        }
    }
}
