//! The pages, and that of a job.

use super::{Ask, pane::Scroll};
use crate::keys::Key;

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Jobs,
    Job(Box<JobPage>),
    Failures,
    Nodes,
    Queue,
}

/// What is in the lower part of the page of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tab {
    #[default]
    Logs,
    Verdict,
    Events,
    Time,
}

impl Tab {
    pub(crate) const ALL: [Self; 4] = [Self::Logs, Self::Verdict, Self::Events, Self::Time];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Logs => "logs",
            Self::Verdict => "verdict",
            Self::Events => "events",
            Self::Time => "time",
        }
    }

    fn beside(self, step: usize) -> Self {
        let at = Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0);
        let next = (at + step) % Self::ALL.len();
        Self::ALL.get(next).copied().unwrap_or_default()
    }
}

/// The page of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobPage {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The run that was chosen; else the newest one.
    run: Option<String>,
    /// The run that is shown.
    pub(super) shown: Option<String>,
    pub(crate) tab: Tab,
    pub(crate) scroll: Scroll,
    /// Which mark of the strip is selected.
    pub(crate) mark: Option<usize>,
    /// The attempt whose logs are shown; else the newest one.
    pub(crate) attempt: Option<u32>,
}

impl Page {
    pub(crate) fn of_job(namespace: &str, name: &str, run: Option<String>) -> Self {
        Self::Job(Box::new(JobPage {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            run,
            ..JobPage::default()
        }))
    }
}

impl JobPage {
    /// What it needs: the job first, then what is known by the id of its run.
    pub(super) fn wanted(&self, run: Option<&str>, (columns, rows): (u32, u32)) -> Vec<Ask> {
        let mut asks = vec![Ask::Job {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            run: self.run.clone(),
        }];
        let Some(run) = run.map(str::to_owned) else {
            return asks;
        };
        asks.extend([
            Ask::Strip {
                run: run.clone(),
                columns,
                rows,
            },
            Ask::Ledger { run: run.clone() },
            Ask::Verdicts { run: run.clone() },
        ]);
        match self.tab {
            Tab::Logs => asks.push(Ask::Logs {
                run,
                attempt: self.attempt,
            }),
            Tab::Events => asks.push(Ask::Events { run }),
            Tab::Verdict | Tab::Time => {}
        }
        asks
    }

    /// Takes a key; what it could not do.
    pub(super) fn key(&mut self, key: Key, marks: usize, attempts: u32) -> Option<String> {
        match key {
            Key::Char('l') => self.show(Tab::Logs),
            Key::Char('d') => self.show(Tab::Verdict),
            Key::Char('e') => self.show(Tab::Events),
            Key::Char('t') => self.show(Tab::Time),
            Key::Tab | Key::Right => self.show(self.tab.beside(1)),
            Key::BackTab | Key::Left => self.show(self.tab.beside(Tab::ALL.len() - 1)),
            Key::Char('n' | 'p') if marks == 0 => {
                return Some("no failure, attempt, move or checkpoint is on the strip".to_owned());
            }
            Key::Char('n') => {
                self.mark = Some(self.mark.map_or(0, |at| (at + 1) % marks));
            }
            Key::Char('p') => {
                let before = |at: usize| at.checked_sub(1).unwrap_or(marks - 1).min(marks - 1);
                self.mark = Some(self.mark.map_or(marks - 1, before));
            }
            Key::Char('[' | ']') => {
                let now = self.attempt.unwrap_or(attempts);
                let to = if key == Key::Char(']') {
                    now.saturating_add(1)
                } else {
                    now.saturating_sub(1)
                };
                if to == 0 || to > attempts {
                    return Some(format!("the job has {attempts} attempts"));
                }
                self.show(Tab::Logs);
                self.attempt = Some(to).filter(|to| *to < attempts);
                self.scroll = Scroll::default();
            }
            key => self.scroll.key(key),
        }
        None
    }

    fn show(&mut self, tab: Tab) {
        if self.tab != tab {
            self.tab = tab;
            self.scroll = Scroll::default();
        }
    }
}

/// Columns of the labels beside a strip.
pub(crate) fn label_width(columns: u16) -> u16 {
    match columns {
        0..50 => 6,
        50..110 => 10,
        _ => 20,
    }
}

/// Lines for the ranks of a strip, on a terminal with so many rows.
pub(crate) fn strip_lines(rows: u16) -> u16 {
    (rows.saturating_sub(12) / 3).min(64)
}
