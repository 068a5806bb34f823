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

/// The number of a signal, by its name or by the words of a shell.
pub(super) fn signal_number(word: &str) -> Option<i64> {
    const WORDS: [(&str, i64); 30] = [
        ("hangup", 1),
        ("hup", 1),
        ("interrupt", 2),
        ("int", 2),
        ("quit", 3),
        ("illegal instruction", 4),
        ("ill", 4),
        ("trace/breakpoint trap", 5),
        ("trap", 5),
        ("aborted", 6),
        ("abort", 6),
        ("abrt", 6),
        ("bus error", 7),
        ("bus", 7),
        ("floating point exception", 8),
        ("fpe", 8),
        ("killed", 9),
        ("kill", 9),
        ("user defined signal 1", 10),
        ("usr1", 10),
        ("segmentation fault", 11),
        ("segv", 11),
        ("user defined signal 2", 12),
        ("usr2", 12),
        ("alarm clock", 14),
        ("terminated", 15),
        ("term", 15),
        ("cpu time limit exceeded", 24),
        ("xcpu", 24),
        ("file size limit exceeded", 25),
    ];
    let lower = word.to_ascii_lowercase();
    let name = lower.trim_start_matches("sig");
    let known = WORDS.iter().find(|(word, _)| *word == name);
    known
        .map(|(_, number)| *number)
        .or_else(|| name.parse().ok())
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
pub(in crate::diagnose) fn shown(text: &[u8]) -> String {
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
