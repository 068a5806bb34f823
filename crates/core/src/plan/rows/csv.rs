//! Comma-separated values with quotes, as spreadsheets write them.
//!
//! The crate `csv` (1.4) would save 50 lines here and was left out: it reads a quote that is never closed as a cell to the
//! end of the file, without an error, and numbers lines one too low after `\r\n` and after blank lines.
//!
//! Invariant: a table that was read and is written unchanged has the same cells.

use thiserror::Error;

/// Rows under one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Cells, as many in each row as there are columns.
    pub rows: Vec<Vec<String>>,
}

/// Why a text is not a table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CsvError {
    /// Nothing there.
    #[error("the table is empty; it needs a header")]
    Empty,
    /// Cells are missing or too many.
    #[error("line {line} has {found} cells, but the header has {wanted}")]
    Cells {
        /// Which line, from 1.
        line: usize,
        /// Cells of the line.
        found: usize,
        /// Cells of the header.
        wanted: usize,
    },
    /// A quote is never closed.
    #[error("the quote opened in line {line} is not closed")]
    Quote {
        /// Which line, from 1.
        line: usize,
    },
    /// The header lacks a column.
    #[error("the table has no column `{column}`")]
    Column {
        /// Which.
        column: String,
    },
}

impl Table {
    /// Reads a table.
    pub fn read(text: &str) -> Result<Self, CsvError> {
        let mut records = records(text.strip_prefix('\u{feff}').unwrap_or(text))?.into_iter();
        let (_, header) = records.next().ok_or(CsvError::Empty)?;
        let mut rows = Vec::new();
        for (line, cells) in records {
            if cells.len() != header.len() {
                return Err(CsvError::Cells {
                    line,
                    found: cells.len(),
                    wanted: header.len(),
                });
            }
            rows.push(cells);
        }
        Ok(Self { header, rows })
    }

    /// Which column has that name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.header.iter().position(|column| column == name)
    }

    /// Which column has that name, or the error that says so.
    pub fn needed(&self, name: &str) -> Result<usize, CsvError> {
        self.column(name).ok_or_else(|| CsvError::Column {
            column: name.to_owned(),
        })
    }

    /// The table as text.
    pub fn write(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.header).chain(&self.rows) {
            for (at, cell) in row.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                if cell.contains([',', '"', '\n', '\r']) {
                    text.push('"');
                    text.push_str(&cell.replace('"', "\"\""));
                    text.push('"');
                } else {
                    text.push_str(cell);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Records with the line that each begins in; blank lines are skipped.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, CsvError> {
    let mut records = Vec::new();
    let (mut cells, mut cell) = (Vec::new(), String::new());
    let (mut line, mut began) = (1, 1);
    let mut quoted_since = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\n' {
            line += 1;
        }
        if quoted_since.is_some() {
            match letter {
                '"' if letters.peek() == Some(&'"') => {
                    letters.next();
                    cell.push('"');
                }
                '"' => quoted_since = None,
                _ => cell.push(letter),
            }
            continue;
        }
        match letter {
            '"' if cell.is_empty() => quoted_since = Some(line),
            ',' => cells.push(std::mem::take(&mut cell)),
            '\r' => {}
            '\n' => {
                if !(cells.is_empty() && cell.is_empty()) {
                    cells.push(std::mem::take(&mut cell));
                    records.push((began, std::mem::take(&mut cells)));
                }
                began = line;
            }
            _ => cell.push(letter),
        }
    }
    if let Some(line) = quoted_since {
        return Err(CsvError::Quote { line });
    }
    if !(cells.is_empty() && cell.is_empty()) {
        cells.push(cell);
        records.push((began, cells));
    }
    Ok(records)
}
