//! Small parsers: ranks, signals, hosts.

use super::{MAX_NAMES, MAX_TEXT};

/// Ranks as people write them: `3`, `0-1,4`, `[1, 2]`.
pub(super) fn numbers(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for part in text
        .split([',', ' ', '[', ']'])
        .filter(|part| !part.is_empty())
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
            && last.saturating_sub(first) < 65_536
        {
            found.extend(first..=last);
        }
        if found.len() > MAX_NAMES {
            break;
        }
    }
    found
}

pub(super) fn signal_number(word: &str) -> Option<i64> {
    let known = match word.trim_start_matches("SIG") {
        "Killed" | "KILL" => 9,
        "Aborted" | "ABRT" => 6,
        "Segmentation fault" | "SEGV" => 11,
        "Terminated" | "TERM" => 15,
        "Bus error" | "BUS" => 7,
        other => return other.parse().ok(),
    };
    Some(known)
}

/// The host of `[10.0.0.5]:3452.`, `node-1<45074>`, `10.0.0.5`.
pub(super) fn host(peer: &str) -> &str {
    let inside = peer
        .strip_prefix('[')
        .and_then(|rest| rest.split(']').next());
    let host = inside.unwrap_or_else(|| peer.split(['<', '>']).next().unwrap_or(peer));
    host.trim_end_matches(['.', ',', ':'])
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// How many NULs `bytes` begin with. A log that is truncated while its writer continues, or that a power
/// loss has ended, has holes of any length, which read as NULs.
pub(super) fn leading_nuls(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<16>();
    let zeros = words
        .iter()
        .take_while(|word| u128::from_ne_bytes(**word) == 0)
        .count()
        * 16;
    let rest = bytes.get(zeros..).unwrap_or_default();
    zeros + rest.iter().take_while(|byte| **byte == 0).count()
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The text of a line without control characters, safe to print to a terminal.
pub(super) fn shown(text: &[u8]) -> String {
    let cut = text.get(..text.len().min(MAX_TEXT)).unwrap_or(text);
    let mut shown: String = String::from_utf8_lossy(cut.trim_ascii_end())
        .chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect();
    if text.len() > MAX_TEXT {
        shown.push('…');
    }
    shown
}

/// Whether a known field of a rank is kept: its world does not change.
pub(super) fn is_fixed(known: Option<&String>, name: &str) -> bool {
    known.is_some() && name == "world"
}
