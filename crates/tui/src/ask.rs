//! What a screen asks for.

/// A question, as the documents of the dashboard answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A page of jobs.
    Jobs {
        /// The column to sort by, with `-` in front for the other direction.
        sort: Option<String>,
        /// Part of a name, a namespace or a line.
        text: Option<String>,
        /// Where the page before ended.
        cursor: Option<String>,
    },
    /// One job, with its newest run or this one.
    Job {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The id of the run.
        run: Option<String>,
    },
    /// Ranks over time.
    Strip {
        /// The id of the run.
        run: String,
        /// Cells of a row.
        columns: u32,
        /// Rows.
        rows: u32,
    },
    /// Where the time went.
    Ledger {
        /// The id of the run.
        run: String,
    },
    /// What diagnoses concluded.
    Verdicts {
        /// The id of the run.
        run: String,
    },
    /// Folded logs of an attempt, or of the newest one.
    Logs {
        /// The id of the run.
        run: String,
        /// The attempt.
        attempt: Option<u32>,
    },
    /// What happened.
    Events {
        /// The id of the run.
        run: String,
    },
    /// Verdicts by cause.
    Failures,
    /// Nodes.
    Nodes,
    /// Gangs that wait.
    Queue,
}
