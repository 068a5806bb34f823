//! What chores print: errors on stderr, tables on stdout.

use std::{io::Write as _, time::Duration};

/// Prints `message` as an error.
pub(crate) fn error(message: &str) {
    // With stderr closed, there is nowhere to report it.
    drop(writeln!(std::io::stderr(), "error: {message}"));
}

/// Prints a line about the progress of a chore.
pub(crate) fn progress(message: &str) {
    drop(writeln!(std::io::stderr(), "==> {message}"));
}

/// Seconds with one decimal, such as `12.3 s`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Rows of equal length as aligned columns; the first row is the heading.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        if at == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&rules.join("  "));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let got = table(&[row(["suite", "time"]), row(["a", "1.0 s"]), row(["b", ""])]);
        assert_eq!(got, "suite  time\n-----  -----\na      1.0 s\nb\n");
    }
}
