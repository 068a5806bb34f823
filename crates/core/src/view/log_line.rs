//! What a page shows beside a line of a log.

use super::fold::{self, Severity};
use crate::line::{self, stamp::Clock};

/// What a line says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Whose it is, where its prefix says so.
    pub rank: Option<u32>,
    /// When it was written, in Unix milliseconds, where its prefix says so.
    pub at: Option<i64>,
    /// How bad it is.
    pub severity: Severity,
}

/// Reads the beginning of `raw`, a line without its end; `scratch` is room for one that has to be decoded.
pub fn read_line(raw: &[u8], scratch: &mut Vec<u8>) -> LogLine {
    let raw = raw.get(..raw.len().min(8 << 10)).unwrap_or_default();
    let line = line::read(raw, scratch);
    let stamp = line.stamp.filter(|stamp| stamp.clock == Clock::Epoch);
    LogLine {
        rank: line.rank,
        at: stamp.map(|stamp| stamp.millis),
        severity: fold::severity(line.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rank_time_and_severity() {
        let cases: [(&[u8], Option<u32>, bool, Severity); 4] = [
            (b"step 1 loss 2.0", None, false, Severity::Info),
            (
                b"2026-11-18T10:00:00Z ValueError: x",
                None,
                true,
                Severity::Error,
            ),
            (
                b"[rank3]: UserWarning: slow",
                Some(3),
                false,
                Severity::Warning,
            ),
            (b"\xff\xfe\x00", None, false, Severity::Info),
        ];
        let mut scratch = Vec::new();
        for (raw, rank, has_time, severity) in cases {
            let line = read_line(raw, &mut scratch);
            let name = String::from_utf8_lossy(raw);
            assert_eq!(line.rank, rank, "{name}");
            assert_eq!(line.at.is_some(), has_time, "{name}");
            assert_eq!(line.severity, severity, "{name}");
        }
    }
}
