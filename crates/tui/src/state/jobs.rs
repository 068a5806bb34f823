//! The list of jobs: what is selected, sorted and filtered.

use super::{Ask, pane::moved};
use crate::{
    document::{Jobs, Row},
    keys::Key,
};

/// Pages of the list before the one that is shown.
const CURSORS_MAX: usize = 1_000;

/// Columns with the name that they are sorted by, in order.
pub(crate) const COLUMNS: [(&str, Option<&str>); 9] = [
    ("STATE", Some("state")),
    ("JOB", Some("job")),
    ("NAMESPACE", Some("namespace")),
    ("KIND", Some("kind")),
    ("RANKS", Some("ranks")),
    ("ATT", Some("attempt")),
    ("STEP", Some("step")),
    ("TRAINED", Some("trainedRatio")),
    ("AGE", Some("startedAt")),
];

/// The list of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobsPage {
    pub(crate) selected: usize,
    /// The id of the selected row: it stays selected where others are listed before it.
    id: Option<String>,
    pub(crate) filter: String,
    /// Which of the columns; none is running first, then newest.
    pub(crate) sort: Option<usize>,
    pub(crate) is_reversed: bool,
    /// Where the pages before this one ended.
    pub(crate) cursors: Vec<String>,
    /// Whether the last row of the page before is to be selected.
    from_below: bool,
}

impl JobsPage {
    pub(super) fn ask(&self) -> Ask {
        let by = self.sort.and_then(|at| COLUMNS.get(at)?.1);
        // Most first is what is looked for in numbers, oldest last in ages.
        let is_number = self.sort.is_some_and(|at| at >= 4);
        let sort = by.map(|by| {
            let sign = if is_number == self.is_reversed {
                ""
            } else {
                "-"
            };
            format!("{sign}{by}")
        });
        Ask::Jobs {
            sort,
            text: Some(self.filter.trim().to_owned()).filter(|text| !text.is_empty()),
            cursor: self.cursors.last().cloned(),
        }
    }

    /// Whether the sorted column grows downwards.
    pub(crate) fn is_ascending(&self) -> bool {
        let is_number = self.sort.is_some_and(|at| at >= 4);
        is_number == self.is_reversed
    }

    /// Keeps the selected job selected.
    pub(super) fn listed(&mut self, rows: &[Row]) {
        let last = rows.len().saturating_sub(1);
        if std::mem::take(&mut self.from_below) {
            self.selected = last;
        } else if let Some(id) = &self.id
            && let Some(at) = rows.iter().position(|row| row.id == *id)
        {
            self.selected = at;
        }
        self.selected = self.selected.min(last);
        self.id = rows.get(self.selected).map(|row| row.id.clone());
    }

    pub(super) fn filter_is(&mut self, text: &str) {
        if self.filter != text {
            text.clone_into(&mut self.filter);
            self.restart();
        }
    }

    /// Shows all jobs again.
    pub(super) fn clear(&mut self) {
        self.filter_is("");
        if !self.cursors.is_empty() {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.cursors.clear();
        self.selected = 0;
        self.id = None;
    }

    /// Takes a key; what it could not do.
    pub(super) fn key(&mut self, key: Key, listed: Option<&Jobs>) -> Option<String> {
        let rows = listed.map_or(&[][..], |jobs| jobs.rows.as_slice());
        match key {
            Key::Char('>') | Key::Right => self.sort_by(true),
            Key::Char('<') | Key::Left => self.sort_by(false),
            Key::Char('R') => {
                if self.sort.is_none() {
                    return Some("the list is not sorted by a column; `>` sorts it".to_owned());
                }
                self.is_reversed = !self.is_reversed;
                self.restart();
            }
            key => {
                let is_down = matches!(key, Key::Char('j') | Key::Down | Key::PageDown);
                let is_up = matches!(key, Key::Char('k') | Key::Up | Key::PageUp);
                if is_down && self.selected + 1 >= rows.len() {
                    let next = listed.and_then(|jobs| jobs.cursor.clone())?;
                    if self.cursors.len() >= CURSORS_MAX {
                        return Some("filter the list with `/`; no more pages are kept".to_owned());
                    }
                    if self.cursors.last() != Some(&next) {
                        self.cursors.push(next);
                        self.selected = 0;
                        self.id = None;
                    }
                } else if is_up && self.selected == 0 {
                    if self.cursors.pop().is_some() {
                        self.id = None;
                        self.from_below = true;
                    }
                } else {
                    self.selected = moved(self.selected, key, rows.len());
                    self.id = rows.get(self.selected).map(|row| row.id.clone());
                }
            }
        }
        None
    }

    /// Sorts by the next or the previous column; before the first is the order of the list itself.
    fn sort_by(&mut self, is_next: bool) {
        let last = COLUMNS.len() - 1;
        self.sort = match (self.sort, is_next) {
            (None, true) => Some(0),
            (None, false) => Some(last),
            (Some(at), true) => Some(at + 1).filter(|at| *at <= last),
            (Some(at), false) => at.checked_sub(1),
        };
        self.is_reversed = false;
        self.restart();
    }
}
