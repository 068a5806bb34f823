//! Suites that only need processor time, run at a low priority beside the others.
//!
//! Invariant: such a suite is a call of this program with the name of the suite. Its output is kept in a file and printed as one piece, so
//! that no line of it stands among those of another suite, and a call that ends without the row of its suite has failed.

use std::{
    fs::{self, File},
    io,
    path::Path,
    process::{self, Command, Stdio},
    thread::{self, JoinHandle},
};

use crate::{Failure, cache, report, step};

/// The priority of these suites. The lowest could let a busy machine starve them.
const NICE: &str = "10";

/// A row of the table: name, outcome, time, what ran.
pub(super) type Row = Vec<String>;

/// The suites that run beside the others.
pub(super) struct Beside(JoinHandle<Vec<Row>>);

impl Beside {
    /// Begins to run `suites`, one after another.
    pub(super) fn start(suites: Vec<&'static str>) -> Self {
        Self(thread::spawn(move || {
            suites.into_iter().map(row_of).collect()
        }))
    }

    /// Waits for all, and returns a row for each.
    pub(super) fn rows(self) -> Result<Vec<Row>, Failure> {
        let rows = self.0.join();
        rows.map_err(|_| Failure::Failed("the thread of the suites beside panicked".to_owned()))
    }
}

fn row_of(suite: &'static str) -> Row {
    let failed = |why: String| [suite, "FAILED", "", &why].map(str::to_owned).to_vec();
    let output = cache::folder().and_then(|folder| {
        let file = folder.join(format!("suite-{}-{suite}", process::id()));
        let output = run(suite, &file).and_then(|()| fs::read(&file));
        drop(fs::remove_file(&file));
        output.map_err(|error| Failure::CouldNotRun(error.to_string()))
    });
    match output {
        Ok(output) => {
            let output = String::from_utf8_lossy(&output);
            report::progress(&format!("suite beside the others: {suite}"));
            print!("{output}");
            row(&output, suite).unwrap_or_else(|| failed("it ended without a table".to_owned()))
        }
        Err(Failure::CouldNotRun(why) | Failure::Failed(why)) => failed(why),
        Err(Failure::Reported) => failed(String::new()),
    }
}

/// Runs one suite to its end, whatever its outcome.
fn run(suite: &str, file: &Path) -> io::Result<()> {
    let program = std::env::current_exe()?;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let output = File::create(file)?;
    let mut command = Command::new("nice");
    command.args(["-n", NICE]).arg(program);
    command.args(["test", "--require", "all", "--only", suite]);
    command.current_dir(step::root()).stdin(Stdio::null());
    command.stderr(output.try_clone()?).stdout(output);
    command.status().map(drop)
}

/// The row of `suite` in the last table of `output`.
fn row(output: &str, suite: &str) -> Option<Row> {
    let lines = output.lines().rev();
    let line = lines.map(str::trim_end).find(|line| {
        line.strip_prefix(suite)
            .is_some_and(|rest| rest.starts_with("  "))
    })?;
    let cells = line.split("  ").map(str::trim);
    let cells: Row = cells
        .filter(|cell| !cell.is_empty())
        .map(str::to_owned)
        .collect();
    (cells.len() >= 3).then_some(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_suite_is_found() {
        let table = report::table(&[
            ["suite", "outcome", "time", "ran"]
                .map(str::to_owned)
                .to_vec(),
            ["sim", "passed", "3.0 s", "20 seeds, 3 of the fleet"]
                .map(str::to_owned)
                .to_vec(),
            ["simple", "FAILED", "4.0 s", ""]
                .map(str::to_owned)
                .to_vec(),
        ]);
        let output = format!("sim  is a line of a test\n{table}1 passed, 1 failed\n");
        assert_eq!(
            row(&output, "sim").unwrap(),
            ["sim", "passed", "3.0 s", "20 seeds, 3 of the fleet"]
        );
        assert_eq!(
            row(&output, "simple").unwrap(),
            ["simple", "FAILED", "4.0 s"]
        );
        assert_eq!(row(&output, "storm"), None);
        assert_eq!(row("sim  cut", "sim"), None);
    }
}
