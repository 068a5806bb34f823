//! What a page may ask, and what it gets.
//!
//! Queries are parsed and bounded before a question exists: whoever answers needs no second check of limits, only of names.

/// What a page asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// This program, its data, and how states are drawn.
    About,
    /// A page of jobs.
    Jobs(JobsAsk),
    /// One job, with its runs; the newest run where `run` is nothing.
    Job {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The id of the run.
        run: Option<String>,
    },
    /// A part of one run.
    Run {
        /// The id of the run.
        run: String,
        /// Which part.
        part: RunPart,
    },
    /// Nodes and what they hold.
    Nodes,
    /// Gangs that wait.
    Queue,
    /// Verdicts by cause, of the last so many milliseconds.
    Failures {
        /// How far back.
        window_millis: u64,
    },
}

/// A page of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsAsk {
    /// Part of a name, a namespace or a line.
    pub text: Option<String>,
    /// Only this state.
    pub state: Option<String>,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only this kind.
    pub kind: Option<String>,
    /// The column to sort by, with `-` in front for the other direction; running first and then newest, where nothing is given.
    pub sort: Option<String>,
    /// Where the page before ended, as the answer to it says.
    pub cursor: Option<String>,
    /// Rows, at most 200.
    pub limit: u32,
}

/// A part of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunPart {
    /// Ranks over time.
    Strip(StripQuery),
    /// Where the time went.
    Ledger,
    /// What diagnoses concluded.
    Verdicts,
    /// Which pod was on which node; of the newest attempt, where nothing is given.
    Seats {
        /// The attempt.
        attempt: Option<u32>,
    },
    /// Numbers over time.
    Series(SeriesAsk),
    /// Lines of one log.
    Logs(LogsAsk),
    /// Lines of all logs of an attempt, equal ones together; of the newest attempt, where nothing is given.
    FoldedLogs {
        /// The attempt.
        attempt: Option<u32>,
    },
    /// What happened, the newest first.
    Events {
        /// Where the page before ended.
        cursor: Option<String>,
    },
    /// Checkpoints.
    Checkpoints,
    /// The job as it was asked for.
    Spec,
    /// The strip as a trace file for other viewers.
    Trace,
}

/// A window of the strip. Times are Unix milliseconds; the whole run, where they are not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripQuery {
    /// The first moment.
    pub from: Option<i64>,
    /// The end.
    pub to: Option<i64>,
    /// Cells of a row, at most 2,000.
    pub columns: u32,
    /// Rows, at most 512.
    pub rows: u32,
    /// Whether a row is a node, and not a pod.
    pub by_node: bool,
}

/// Numbers over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesAsk {
    /// Which; all, where none is given.
    pub names: Vec<String>,
    /// The first moment.
    pub from: Option<i64>,
    /// The end.
    pub to: Option<i64>,
    /// Points of each, at most 2,000.
    pub points: u32,
}

/// Lines of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogsAsk {
    /// The attempt; the newest, where nothing is given.
    pub attempt: Option<u32>,
    /// The pod; that of the first failure, else the first one, where nothing is given.
    pub pod: Option<String>,
    /// The rank, in place of the pod.
    pub rank: Option<u32>,
    /// The container; the one that trains, where nothing is given.
    pub container: Option<String>,
    /// The byte at which to begin, or before which to end where `backwards`; the end of the log, where nothing is given.
    pub offset: Option<u64>,
    /// The line to begin at, from 1, in place of `offset`.
    pub line: Option<u64>,
    /// Lines, at most 2,000.
    pub lines: u32,
    /// Whether lines before the place are asked for.
    pub backwards: bool,
    /// Only lines that contain this text, and how many there are.
    pub search: Option<String>,
}

/// What is answered: JSON, or a file to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// JSON.
    pub json: Vec<u8>,
    /// The name under which a browser stores it, where it is a file.
    pub file_name: Option<String>,
}

impl Document {
    /// A document of JSON.
    pub fn json(json: Vec<u8>) -> Self {
        Self {
            json,
            file_name: None,
        }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of problem.
    pub code: ProblemCode,
    /// What was tried and what was found.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    /// There is none of that name, or the asker may not see it.
    NotFound,
    /// The question itself is wrong.
    BadRequest,
    /// It is not answered by this way of serving.
    NotHere,
    /// The data cannot be read.
    Unreadable,
    /// Whoever asks is not known; his token is none, or has ended.
    Unauthorized,
    /// Too much at once; the same question may be answered later.
    Busy,
}
