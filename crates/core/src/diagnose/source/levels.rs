//! Log levels: what a program itself calls an error or a warning, whatever the text says.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use super::{Line, Source, shown, torch};

/// A level stands before what is said.
const HEAD: usize = 120;

impl Source {
    /// Keeps lines that stand out, for logs in which no rule finds a cause.
    pub(super) fn note_level(&mut self, line: &Line<'_>, number: u64, claimed: bool) {
        if self
            .errors
            .level
            .as_ref()
            .is_some_and(|known| self.is_past(known.line))
        {
            self.errors.level = None;
            self.errors.is_fatal = false;
        }
        if claimed || !ODD.is_match(line.text) || is_harmless(line.text) || is_warning(line.text) {
            return;
        }
        let by_level = is_error(line.text);
        let is_fatal = by_level && is_fatal(line.text);
        if by_level && (self.errors.level.is_none() || (is_fatal && !self.errors.is_fatal)) {
            self.errors.level = Some(self.evidence(line, number));
            self.errors.is_fatal = is_fatal;
            if is_fatal {
                self.note_alone(number);
            }
        }
        if by_level
            && torch::exception(line.text.trim_ascii_start()).is_none()
            && let Some(found) = torch::exception_within(line.text)
        {
            let rank = line.rank.or_else(|| self.default_rank(line));
            self.bare(line, number, rank, shown(found));
        }
        self.errors.odd = Some(self.evidence(line, number));
    }
}

/// Whether a line is a warning: of Python's `warnings`, of libfabric, or by its level. NCCL's level WARN is its level
/// for errors and does not count.
pub(super) fn is_warning(text: &[u8]) -> bool {
    const LEVELS: [&[u8]; 6] = [
        b"<warn>",
        b"[WARNING]",
        b" WARNING ",
        b"- WARNING -",
        b"[warning]",
        b"level=warning",
    ];
    let head = text.get(..text.len().min(HEAD)).unwrap_or_default();
    if text.starts_with(b"WARNING") || LEVELS.iter().any(|word| holds(head, word)) {
        return true;
    }
    // `UserWarning: `, `FutureWarning: `; not the type `Warning` of a Kubernetes event.
    let python = memchr::memmem::find(text, b"Warning: ");
    python
        .and_then(|at| text.get(at.checked_sub(1)?))
        .is_some_and(u8::is_ascii_alphabetic)
}

/// Whether the logger of a program wrote a line: as an error, or as a warning.
pub(super) fn is_logged(text: &[u8]) -> bool {
    is_error(text) || is_warning(text) || is_harmless(text)
}

/// Whether a program that writes a line ends.
fn is_fatal(text: &[u8]) -> bool {
    const LEVELS: [&[u8]; 6] = [
        b" FATAL ",
        b"[FATAL",
        b"[fatal]",
        b"level=fatal",
        b"\"level\":\"fatal\"",
        b" CRITICAL ",
    ];
    const BEGINS: [&[u8]; 5] = [
        b"FATAL",
        b"fatal: ",
        b"fatal error",
        b"panic: ",
        b"terminate called",
    ];
    let text = text.trim_ascii_start();
    let head = text.get(..text.len().min(HEAD)).unwrap_or_default();
    BEGINS.iter().any(|word| text.starts_with(word)) || LEVELS.iter().any(|word| holds(head, word))
}

/// Whether a line is an error by its level or its first words.
fn is_error(text: &[u8]) -> bool {
    const LEVELS: [&[u8]; 29] = [
        b" [E] ",
        b"\"level\":50,",
        b"\"level\":60,",
        b"[critical]",
        b"[fatal]",
        b"[err]",
        b"level=critical",
        b"level=ERROR",
        b"\"level\":\"fatal\"",
        b"\"level\":\"critical\"",
        b"\"level\":\"ERROR\"",
        b"\"level\": \"ERROR\"",
        b"\"severity\":\"ERROR\"",
        b"\"severity\": \"ERROR\"",
        b" ERROR ",
        b"[ERROR",
        b"ERROR]",
        b"ERROR:",
        b"[error]",
        b"|ERROR|",
        b"level=error",
        b"level=fatal",
        b"\"level\":\"error\"",
        b"\"level\": \"error\"",
        b" FATAL ",
        b"[FATAL",
        b" CRITICAL ",
        b"[CRITICAL",
        b"CRITICAL:",
    ];
    const BEGINS: [&[u8]; 11] = [
        b"FAILED ",
        b"ERROR",
        b"Error: ",
        b"error: ",
        b"FATAL",
        b"Fatal",
        b"fatal: ",
        b"fatal error",
        b"CRITICAL",
        b"panic: ",
        b"terminate called",
    ];
    let text = text.trim_ascii_start();
    let head = text.get(..text.len().min(HEAD)).unwrap_or_default();
    // Launchers log what a program writes to stderr at level ERROR, with the level of the program behind it.
    if holds(head, b" INFO") || holds(head, b"[INFO") {
        return false;
    }
    BEGINS.iter().any(|word| text.starts_with(word))
        || LEVELS.iter().any(|word| holds(head, word))
        || is_glog_error(head)
        || is_tensorflow_fatal(head)
}

/// `E0512 10:11:12.131415 …` and `[E512 10:11:12.131415 …` of glog and `PyTorch`.
fn is_glog_error(head: &[u8]) -> bool {
    let head = head.strip_prefix(b"[").unwrap_or(head);
    matches!(head.first(), Some(b'E' | b'F')) && crate::line::stamp::glog(head).is_some()
}

/// `F tensorflow/core/….cc:12] …`, with or without a time before it: the process ends with this line. Its level E is also in logs of runs
/// that succeed.
fn is_tensorflow_fatal(head: &[u8]) -> bool {
    let behind_time = memchr::memmem::find(head, b": F ").and_then(|at| head.get(at + 4..));
    let place = head.strip_prefix(b"F ").or(behind_time);
    let mut words = place
        .into_iter()
        .flat_map(|rest| rest.split(|byte| *byte == b' '));
    let place = words.next();
    place.is_some_and(|place| holds(place, b".cc:") && place.ends_with(b"]"))
}

/// Errors that programs log in runs that succeed.
fn is_harmless(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 17] = [
        b"not a git repository",
        b"PMIX ERROR",
        b"PMIX_ERROR",
        b"Unable to register cu",
        b"NRT:nrt_close",
        b"NRT:nrt_infodump",
        b"E0000 00:00",
        b"wandb",
        b"asyncio",
        b"ERROR: ld.so",
        b"dependency resolver",
        b"Task was destroyed",
        b"tensorboard",
        b"error_file: <N/A>",
        b"rrors: 0",
        b"0 errors",
        b"no error",
    ];
    WORDS.iter().any(|word| holds(text, word))
}

/// Words that make somebody who searches for a failure stop. Found in one pass: many lines of a log get here.
static ODD: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let words = [
        "rror",
        "ERROR",
        "fail",
        "Fail",
        "FAIL",
        "annot",
        "nable to",
        "refused",
        "imed out",
        "imeout",
        "denied",
        "not found",
        "nvalid",
        "illed",
        "bort",
        "WARN",
        "issing",
        "xception",
        "exit",
        "CRITICAL",
        "FATAL",
        "atal",
        "panic",
        "not exist",
        "n't ",
        "no such",
        "No such",
    ];
    AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::DFA))
        .build(words)
        .expect("words are few and short")
});

fn holds(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(text, word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_errors() {
        let cases = [
            ("ERROR: the store of widgets is gone", true),
            (
                "2026-01-02 03:04:05,678 - trainer - ERROR - no widget",
                true,
            ),
            ("[E512 10:11:12.131415 Widget.cpp:7] no widget", true),
            ("E0512 10:11:12.131415 71 widget.cc:7] no widget", true),
            (
                "2026-01-02 03:04:05.678901: F widgets/kernels/widget.cc:7] Run failed",
                true,
            ),
            ("F widgets/kernels/widget.cc:7] Run failed", true),
            (
                "2026-01-02 03:04:05.678901: E widgets/kernels/widget.cc:7] cannot register",
                false,
            ),
            ("grade: F widget.cc failed", false),
            ("[ERROR] tracker: INFO train-loss 0.5", false),
            ("validation error: 0.25", false),
            ("errors: 0", false),
            ("Epoch 3", false),
        ];
        for (text, want) in cases {
            assert_eq!(is_error(text.as_bytes()), want, "{text}");
        }
        assert!(is_harmless(b"PMIX ERROR: NO-PERMISSIONS in file x.c"));
    }

    #[test]
    fn levels_of_warnings() {
        let cases = [
            (
                "/a/b.py:3: UserWarning: CUDA initialization: no driver",
                true,
            ),
            (
                "libfabric:7:1::core:core:fi_getinfo_():1161<warn> failed",
                true,
            ),
            ("2026-01-02 03:04:05 WARNING retrying", true),
            ("node-1:7:8 [0] net.cc:3 NCCL WARN Connect failed", false),
            (
                "Warning  FailedScheduling  3s  default-scheduler  0/4 nodes",
                false,
            ),
            ("Warning: no widget", false),
        ];
        for (text, want) in cases {
            assert_eq!(is_warning(text.as_bytes()), want, "{text}");
        }
    }
}
