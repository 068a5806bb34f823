//! `PyTorch`'s watchdog lines and Python's tracebacks, which need more than one line or several related fields.

/// A collective as the watchdog logs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) sequence: i64,
    pub(super) operation: String,
    pub(super) elements_in: Option<u64>,
    pub(super) elements_out: Option<u64>,
}

/// `WorkNCCL(SeqNum=3, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=120000)`.
pub(super) fn work(text: &[u8]) -> Option<Work> {
    // Other backends have the same watchdog: `WorkHCCL(`, `WorkXCCL(`.
    let at = memchr::memmem::find(text, b"CCL(SeqNum=")?;
    let fields = text.get(at..)?;
    let operation = value(fields, b"OpType=")?;
    Some(Work {
        sequence: value(fields, b"SeqNum=").and_then(|word| word.parse().ok())?,
        operation: operation.chars().take(32).collect(),
        elements_in: value(fields, b"NumelIn=").and_then(|word| word.parse().ok()),
        elements_out: value(fields, b"NumelOut=").and_then(|word| word.parse().ok()),
    })
}

/// `last enqueued NCCL work: 6, last completed NCCL work: 2`, with and without the word in the middle.
pub(super) fn status(text: &[u8]) -> Option<(i64, i64)> {
    let number = |name: &[u8]| {
        let at = memchr::memmem::find(text, name)? + name.len();
        let rest = text.get(at..)?;
        let colon = memchr::memmem::find(rest.get(..rest.len().min(24))?, b"work: ")?;
        value(rest.get(colon..)?, b"work: ")?.parse().ok()
    };
    let enqueued = number(b"ast enqueued ")?;
    Some((enqueued, number(b"last completed ")?))
}

/// The rank that a line of the watchdog names: `[Rank 3]`, `[PG ID 0 PG GUID 0(default_pg) Rank 3]`. In another group
/// than that of all ranks it counts within that group, and is not taken.
pub(super) fn rank(text: &[u8]) -> Option<u32> {
    if group(text).is_some() {
        return None;
    }
    value(text, b"Rank ")?.parse().ok()
}

/// The group that a line of the watchdog names by the name that all its ranks use: `PG GUID 5(tp)`, `[PG 5 `. `None` for
/// the group of all ranks.
pub(super) fn group(text: &[u8]) -> Option<String> {
    let found = value(text, b"PG GUID ")
        .or_else(|| value(text, b"[PG ID "))
        .or_else(|| value(text, b"[PG "))?;
    let (name, kind) = found.split_once('(').unwrap_or((found, ""));
    let all = name == "0" || kind.starts_with("default_pg") || name.starts_with("default_pg");
    (!all).then(|| name.chars().take(16).collect())
}

/// Whether a line is an exception that only passes another one on: `KeyError: Caught KeyError in DataLoader worker
/// process 0.`, and `CheckpointException ranks:dict_keys([2])`, which the tracebacks of these ranks follow.
pub(super) fn is_raised_again(text: &[u8]) -> bool {
    if memchr::memmem::find(text, b"CheckpointException ranks:").is_some() {
        return true;
    }
    let Some(at) = memchr::memmem::find(text, b": Caught ") else {
        return false;
    };
    let rest = text.get(at..).unwrap_or_default();
    [
        &b" in DataLoader worker"[..],
        b" in replica ",
        b" in pin memory thread",
    ]
    .iter()
    .any(|place| memchr::memmem::find(rest, place).is_some())
}

/// How many lines of an exception's message may follow its first one, where that says that it goes on: it ends with a
/// colon, is a name without a message, or names a report of the device or of the graph.
pub(super) fn lines_of_message(text: &str) -> Option<u64> {
    const MESSAGE: u64 = 8;
    const REPORT: u64 = 64;
    const REPORTS: [&str; 5] = [
        "details refer to",
        "Graph execution error",
        "root error(s) found",
        "the following error",
        "Error Message",
    ];
    if REPORTS.iter().any(|words| text.contains(words)) {
        return Some(REPORT);
    }
    let only_name = text.trim_end().strip_suffix(':')?.split([' ', ':']).count() == 1;
    Some(if only_name { REPORT } else { MESSAGE })
}

/// What stands behind `key`, up to a separator.
fn value<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a str> {
    let at = memchr::memmem::find(text, key)? + key.len();
    let rest = text.get(at..)?;
    let end = rest
        .iter()
        .position(|byte| b", )]\t;".contains(byte))
        .unwrap_or(rest.len());
    let word = std::str::from_utf8(rest.get(..end)?).ok()?;
    let word = word.trim_end_matches('.');
    (!word.is_empty()).then_some(word)
}

/// A traceback as it comes in.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent of each other: what the log has shown of one traceback"
)]
pub(super) struct Trace {
    open: bool,
    /// Its head is not in the log.
    headless: bool,
    /// Python reports that it ignores this exception.
    ignored: bool,
    /// It ends a thread, not the process.
    of_thread: bool,
    frame: Option<String>,
    own_frame: Option<String>,
}

/// Where an exception was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frames {
    /// The deepest frame of the user's own code, else the deepest.
    pub(super) shown: Option<String>,
    /// Whether the deepest frame reads a checkpoint.
    pub(super) loads: bool,
    /// Whether it ended a thread only.
    pub(super) of_thread: bool,
    /// Whether the head of the traceback is not in the log.
    pub(super) headless: bool,
}

impl Trace {
    /// Notes `Traceback (most recent call last):` and what announces it.
    pub(super) fn begin(&mut self) {
        self.open = true;
        self.headless = false;
        self.frame = None;
        self.own_frame = None;
    }

    /// Notes a frame whose traceback began before the log did. It may be a stack that a program printed, too.
    pub(super) fn begin_headless(&mut self) {
        self.begin();
        self.headless = true;
    }

    /// Notes that the next traceback is only logged, not raised.
    pub(super) fn ignore(&mut self) {
        self.ignored = true;
    }

    /// Notes `Exception in thread Thread-5:`, which announces a traceback.
    pub(super) fn note_thread(&mut self) {
        self.of_thread = true;
    }

    /// Whether its exception ends a thread only: the process goes on, and may train on.
    pub(super) fn is_of_thread(&self) -> bool {
        self.of_thread
    }

    /// Notes `  File "train.py", line 3, in main`.
    pub(super) fn frame(&mut self, text: &[u8]) {
        let shown: String = String::from_utf8_lossy(text.trim_ascii())
            .chars()
            .take(200)
            .collect();
        let library = [
            "site-packages/",
            "dist-packages/",
            "/lib/python3",
            "<frozen",
            "/lib/python2",
        ]
        .iter()
        .any(|part| shown.contains(part));
        if !library {
            self.own_frame = Some(shown.clone());
        }
        self.frame = Some(shown);
    }

    /// Whether its exception is still to come.
    pub(super) fn is_open(&self) -> bool {
        self.open && !self.headless && !self.ignored && self.frame.is_some()
    }

    /// Whether an exception that Python does not ignore ends it.
    pub(super) fn is_begun(&self) -> bool {
        self.open && !self.ignored
    }

    /// Whether `text` is a line of code that the traceback quotes, not a message.
    pub(super) fn quotes(&self, text: &[u8]) -> bool {
        self.open && text.starts_with(b"    ")
    }

    /// Ends the traceback with its exception. `None` where none is open, or where Python itself ignores
    /// it.
    pub(super) fn end(&mut self) -> Option<Frames> {
        let ignored = std::mem::take(&mut self.ignored);
        let of_thread = std::mem::take(&mut self.of_thread);
        let open = std::mem::take(&mut self.open);
        let headless = std::mem::take(&mut self.headless);
        let deepest = self.frame.take();
        let loads = deepest.as_deref().is_some_and(|frame| {
            [
                "serialization.py",
                "pickle.py",
                "unpickler",
                "safetensors",
                "checkpoint",
            ]
            .iter()
            .any(|part| frame.contains(part))
        });
        let shown = self.own_frame.take().or(deepest);
        (open && !ignored).then_some(Frames {
            shown,
            loads,
            of_thread,
            headless,
        })
    }
}

/// Whether a line is the last of a traceback: `ValueError: …`, `torch.cuda.OutOfMemoryError: …`.
pub(super) fn exception(text: &[u8]) -> Option<&str> {
    let head = text.get(..text.len().min(160))?;
    let end = head
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || b"._".contains(byte)))
        .unwrap_or(head.len());
    let name = std::str::from_utf8(head.get(..end)?).ok()?;
    let after = text.get(end..)?;
    let ends = after.trim_ascii().is_empty() || after.starts_with(b": ") || after == b":";
    let last = name.rsplit('.').next()?;
    let kind = [
        "Error",
        "Exception",
        "Interrupt",
        "Exit",
        "Timeout",
        "Failure",
        "Fault",
        "Aborted",
    ]
    .iter()
    .any(|suffix| last.ends_with(suffix))
        || of_module_of_exceptions(name);
    let named = last.starts_with(|first: char| first.is_ascii_uppercase()) || last.starts_with('_');
    // Command-line tools print a bare `Error: `.
    (ends && kind && named && last != "Error").then_some(name)
}

/// The name of an exception of any name: the line behind the frames of a traceback.
pub(super) fn any_exception(text: &[u8]) -> Option<&str> {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._".contains(byte);
    let end = text.iter().take(160).position(|byte| !is_of_name(byte));
    let name = std::str::from_utf8(text.get(..end.unwrap_or(text.len()))?).ok()?;
    let after = text.get(name.len()..)?;
    let ends = after.is_empty() || after.starts_with(b": ");
    let last = name.rsplit('.').next()?;
    let named = last.starts_with(|first: char| first.is_ascii_uppercase());
    (ends && named && name.len() > 3).then_some(name)
}

/// The text of an exception that stands inside a line: `Uncaught exception: KeyError: 'x'`, `"msg":"KeyError: 'x'"`.
pub(super) fn exception_within(text: &[u8]) -> Option<&[u8]> {
    /// No line of a log says more in front of its exception.
    const HEAD: usize = 512;
    let head = text.get(..text.len().min(HEAD)).unwrap_or_default();
    // Most lines hold no exception, and every line that may matter gets here.
    let kinds = [&b"Error"[..], b"Exception"];
    if !kinds
        .iter()
        .any(|kind| memchr::memmem::find(head, kind).is_some())
    {
        return None;
    }
    // `KeyError: …`, and `KeyError('…')` where its representation is logged.
    let ends = [&b": "[..], b"('", b"(\""];
    let places = ends.iter();
    let places = places.flat_map(|end| memchr::memmem::find_iter(head, *end));
    places.into_iter().find_map(|end| {
        let before = head.get(..end)?;
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"._".contains(byte);
        let begin = before.iter().rposition(|byte| !is_of_name(byte));
        let begin = begin.map_or(0, |at| at + 1);
        let name = exception(before.get(begin..)?)?;
        let last = name.rsplit('.').next()?;
        let named = last.ends_with("Error") || last.ends_with("Exception");
        text.get(begin..).filter(|_| named)
    })
}

/// The text of an exception behind the tag of an unknown launcher: `[R1] KeyError: 'x'`, `worker-3: KeyError: 'x'`.
pub(super) fn exception_behind_tag(text: &[u8]) -> Option<&[u8]> {
    const TAG: usize = 40;
    let found = exception_within(text)?;
    let tag = text.get(..text.len() - found.len())?;
    let bracket = tag.starts_with(b"[") && tag.ends_with(b"] ")
        || tag.starts_with(b"(") && tag.ends_with(b") ");
    let word = tag.strip_suffix(b": ").or_else(|| tag.strip_suffix(b" | "));
    let word = word.is_some_and(|word| !word.contains(&b' '));
    (tag.len() <= TAG && (bracket || word)).then_some(found)
}

/// A line without the frame of a box that some programs draw around a traceback: `│ …` of rich, `| …` of groups of
/// exceptions.
pub(super) fn unboxed(text: &[u8]) -> &[u8] {
    let mut inner = text;
    for _ in 0..4 {
        let begun = inner.trim_ascii_start();
        let rest = begun.strip_prefix("│ ".as_bytes());
        let Some(rest) = rest.or_else(|| begun.strip_prefix(b"| ")) else {
            break;
        };
        inner = rest;
    }
    inner
}

/// Whether a line is the head of a traceback that rich draws as a box.
pub(super) fn begins_box(text: &[u8]) -> bool {
    text.starts_with("╭─".as_bytes())
        && memchr::memmem::find(text, b" Traceback (most recent call last) ").is_some()
}

/// Whether an exception is from a module that says so, which names it without a suffix:
/// `google.api_core.exceptions.ServiceUnavailable`.
fn of_module_of_exceptions(name: &str) -> bool {
    let Some((module, _)) = name.rsplit_once('.') else {
        return false;
    };
    let mut parts = module.split('.');
    parts.any(|part| matches!(part, "exceptions" | "errors" | "error" | "exc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_lines() {
        let line = b"[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST, NumelIn=25, NumelOut=26, Timeout(ms)=120000) ran for 120059 milliseconds before timing out.";
        let work = work(line).unwrap();
        assert_eq!((work.sequence, work.operation.as_str()), (3, "BROADCAST"));
        assert_eq!((work.elements_in, work.elements_out), (Some(25), Some(26)));
        assert_eq!(rank(line), Some(2));
        let old =
            b"Timeout at NCCL work: 3, last enqueued NCCL work: 6, last completed NCCL work: 2.";
        assert_eq!(status(old), Some((6, 2)));
        let new = b"[PG ID 1 PG GUID 1 Rank 0]  failure detected by watchdog at work sequence id: 1 PG status: last enqueued work: 547, last completed work: -1";
        assert_eq!(status(new), Some((547, -1)));
        assert_eq!(group(new).as_deref(), Some("1"));
        assert_eq!(rank(new), None, "its rank within group 1");
        let all = b"[PG ID 0 PG GUID 0(default_pg) Rank 3] Received a dump signal";
        assert_eq!((group(all), rank(all)), (None, Some(3)));
        let expert = b"[PG ID 4 PG GUID 17(EXPERT_PARALLEL) Rank 1] Watchdog caught";
        assert_eq!(group(expert).as_deref(), Some("17"));
        assert_eq!(status(b"last enqueued"), None);
    }

    #[test]
    fn ends_of_tracebacks() {
        let cases = [
            ("ValueError: x", Some("ValueError")),
            (
                "torch.cuda.OutOfMemoryError: CUDA",
                Some("torch.cuda.OutOfMemoryError"),
            ),
            ("KeyboardInterrupt", Some("KeyboardInterrupt")),
            ("Error: usage", None),
            ("error: x", None),
            ("some Error: x", None),
            ("RuntimeErrorx: ", None),
            ("", None),
        ];
        for (line, want) in cases {
            assert_eq!(exception(line.as_bytes()), want, "{line}");
        }
    }

    #[test]
    fn exceptions_inside_lines() {
        // the line, the exception inside it, and whether only a tag stands before it
        let cases = [
            ("uncaught: KeyError: 'x'", Some("KeyError: 'x'"), true),
            (
                "it is uncaught: KeyError: 'x'",
                Some("KeyError: 'x'"),
                false,
            ),
            (
                "{\"level\":\"error\",\"msg\":\"a.b.KeyError: 'x'\"}",
                Some("a.b.KeyError: 'x'\"}"),
                false,
            ),
            (
                "it crashed: TypeError('no')",
                Some("TypeError('no')"),
                false,
            ),
            ("[R1] ValueError: no", Some("ValueError: no"), true),
            ("worker-2 | ValueError: no", Some("ValueError: no"), true),
            (
                "retry on ConnectionError: back off",
                Some("ConnectionError: back off"),
                false,
            ),
            ("Error: no", None, false),
            ("val error: 0.31", None, false),
            ("", None, false),
        ];
        for (line, within, tagged) in cases {
            let found = exception_within(line.as_bytes());
            assert_eq!(found, within.map(str::as_bytes), "{line}");
            let behind = exception_behind_tag(line.as_bytes());
            assert_eq!(
                behind,
                within.filter(|_| tagged).map(str::as_bytes),
                "{line}"
            );
        }
    }

    #[test]
    fn frames_of_boxes() {
        let cases = [
            ("│ /app/a.py:3 in main │", "/app/a.py:3 in main │"),
            ("    | IndexError: 7", "IndexError: 7"),
            ("  |   File \"/a.py\", line 3", "  File \"/a.py\", line 3"),
            ("|±|", "|±|"),
            ("    raise x", "    raise x"),
        ];
        for (line, want) in cases {
            assert_eq!(unboxed(line.as_bytes()), want.as_bytes(), "{line}");
        }
        assert!(begins_box(
            "╭── Traceback (most recent call last) ──╮".as_bytes()
        ));
        assert!(!begins_box(b"Traceback (most recent call last):"));
        assert_eq!(any_exception(b"a.b.Exhausted: no"), Some("a.b.Exhausted"));
        assert_eq!(any_exception(b"During handling of it"), None);
    }

    #[test]
    fn the_deepest_frame_of_the_user() {
        let mut trace = Trace::default();
        assert_eq!(trace.end(), None);
        trace.begin();
        trace.frame(b"  File \"/app/train.py\", line 3, in main");
        trace.frame(b"  File \"/usr/lib/python3/dist-packages/torch/x.py\", line 9, in y");
        assert!(trace.quotes(b"    main()"));
        let frames = trace.end().unwrap();
        assert_eq!(
            frames.shown.as_deref(),
            Some("File \"/app/train.py\", line 3, in main")
        );
        assert!(!frames.loads && !trace.quotes(b"    main()"));
        trace.ignore();
        trace.begin();
        assert_eq!(trace.end(), None);
    }
}
