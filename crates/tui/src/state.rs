//! What is on the screen, and what events make of it.

mod jobs;
mod page;
mod pane;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use crate::{
    ask::Ask,
    document::{
        Answer, Content, Events, Failures, Folded, Job, Jobs, Ledger, Mark, Nodes, Queue, Strip,
        Trouble, Verdicts,
    },
    keys::Key,
    look::Look,
};

pub(crate) use self::{
    jobs::{COLUMNS, JobsPage},
    page::{JobPage, Page, Tab, label_width, strip_lines},
    pane::Scroll,
};

/// Characters of a line that is typed.
const TYPED_MAX: usize = 100;
/// Pages behind the one that is shown.
const BACK_MAX: usize = 16;

/// What happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A key.
    Key(Key),
    /// The terminal has so many columns and rows now.
    Resized(u16, u16),
    /// A question was answered.
    Answered {
        /// The question.
        ask: Ask,
        /// The answer, or why there is none.
        answer: Result<Box<Answer>, Trouble>,
    },
    /// The time, in Unix milliseconds.
    Clock(i64),
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Answer these, in this order, now and whenever the answers change; nothing else that was asked before.
    pub ask: Option<Vec<Ask>>,
    /// Draw again.
    pub redraw: bool,
    /// End.
    pub quit: bool,
}

/// An answer, and why the last one is older than it could be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slot<T> {
    pub(crate) value: Option<T>,
    pub(crate) trouble: Option<Trouble>,
    /// When the value was answered, in Unix milliseconds.
    pub(crate) at: i64,
}

impl<T: PartialEq> Slot<T> {
    /// Whether that changes what is shown.
    fn put(&mut self, value: Result<T, Trouble>, now: i64) -> bool {
        match value {
            Ok(value) => {
                let is_new = self.trouble.is_some() || self.value.as_ref() != Some(&value);
                self.trouble = None;
                self.at = now;
                self.value = Some(value);
                is_new
            }
            Err(trouble) => {
                let is_new = self.trouble.as_ref() != Some(&trouble);
                self.trouble = Some(trouble);
                is_new
            }
        }
    }
}

/// The newest answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) jobs: Slot<Jobs>,
    pub(crate) job: Slot<Box<Job>>,
    pub(crate) strip: Slot<Strip>,
    pub(crate) ledger: Slot<Ledger>,
    pub(crate) verdicts: Slot<Verdicts>,
    pub(crate) logs: Slot<Folded>,
    pub(crate) events: Slot<Events>,
    pub(crate) failures: Slot<Failures>,
    pub(crate) nodes: Slot<Box<Nodes>>,
    pub(crate) queue: Slot<Queue>,
}

/// A line that is typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typing {
    /// A filter of the list of jobs; what it was before.
    Filter(String),
    /// Where to go.
    GoTo(String),
}

/// How far what is drawn can be scrolled: its lines, and how many of them there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    pub(crate) pane: (usize, usize),
    pub(crate) nodes: (usize, usize),
    pub(crate) help: (usize, usize),
}

/// Measures what would be drawn of a state, which only the drawing knows.
pub type Measure = fn(&State) -> Extents;

/// What is shown, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// What it is, such as `runs below .trainyard`.
    pub name: String,
    /// What to do where it has no jobs.
    pub no_jobs: String,
}

/// Everything that a frame is drawn of.
#[derive(Clone, Debug)]
pub struct State {
    measure: Measure,
    pub(crate) source: Source,
    pub(crate) look: Look,
    pub(crate) now: i64,
    pub(crate) size: (u16, u16),
    pub(crate) page: Page,
    back: Vec<Page>,
    pub(crate) jobs: JobsPage,
    /// The selected row of the page of failures.
    pub(crate) failure: usize,
    /// The selected row of the queue.
    pub(crate) queued: usize,
    pub(crate) nodes: Scroll,
    pub(crate) known: Known,
    pub(crate) typing: Option<Typing>,
    pub(crate) help: Option<Scroll>,
    /// What the last key could not do.
    pub(crate) said: Option<String>,
    asked: Vec<Ask>,
}

impl State {
    /// The page of jobs of `source`, drawn as `look` says, before anything was answered, on a terminal of so many columns and rows.
    pub fn new(source: Source, size: (u16, u16), look: Look, now: i64, measure: Measure) -> Self {
        Self {
            measure,
            source,
            look,
            now,
            size,
            page: Page::Jobs,
            back: Vec::new(),
            jobs: JobsPage::default(),
            failure: 0,
            queued: 0,
            nodes: Scroll::default(),
            known: Known::default(),
            typing: None,
            help: None,
            said: None,
            asked: Vec::new(),
        }
    }

    /// What to do first.
    pub fn start(&mut self) -> Effects {
        let mut effects = Effects {
            redraw: true,
            ..Effects::default()
        };
        self.renew(&mut effects);
        effects
    }

    /// Takes an event.
    pub fn update(&mut self, event: Event) -> Effects {
        let mut effects = Effects::default();
        match event {
            Event::Key(key) => {
                effects.redraw = true;
                self.said = None;
                effects.quit = self.key(key);
                self.settle();
            }
            Event::Resized(columns, rows) => {
                effects.redraw = self.size != (columns, rows);
                self.size = (columns, rows);
            }
            Event::Answered { ask, answer } => {
                // What is no longer shown is no longer wanted.
                if self.asked.contains(&ask) {
                    effects.redraw = self.answered(answer.map(|answer| *answer), &ask);
                }
            }
            Event::Clock(now) => {
                // Ages of less than a minute change with every second.
                effects.redraw = now / 1_000 != self.now / 1_000;
                self.now = now;
            }
        }
        self.renew(&mut effects);
        effects
    }

    /// Asks for what the page needs, where that has changed.
    fn renew(&mut self, effects: &mut Effects) {
        let wanted = self.wanted();
        if wanted != self.asked {
            self.asked.clone_from(&wanted);
            effects.ask = Some(wanted);
        }
    }

    fn wanted(&self) -> Vec<Ask> {
        match &self.page {
            Page::Jobs => vec![self.jobs.ask()],
            Page::Failures => vec![Ask::Failures],
            Page::Nodes => vec![Ask::Nodes],
            Page::Queue => vec![Ask::Queue],
            Page::Job(page) => {
                let known = self.known.job.value.as_ref();
                page.wanted(known.map(|job| job.run.as_str()), self.strip_size())
            }
        }
    }

    /// Columns and rows of the strip that there is room for.
    fn strip_size(&self) -> (u32, u32) {
        let (columns, rows) = self.size;
        let label = label_width(columns);
        let columns = columns.saturating_sub(label + 1).clamp(1, 2_000);
        // Two rows share a line where there are colours to part them.
        let each = if self.look.has_colour() { 2 } else { 1 };
        let rows = strip_lines(rows) * each;
        (columns.into(), rows.max(1).into())
    }

    /// Takes an answer; whether it changes what is shown.
    fn answered(&mut self, answer: Result<Answer, Trouble>, ask: &Ask) -> bool {
        /// One slot, whatever was answered.
        macro_rules! put {
            ($slot:ident, $kind:ident) => {{
                let value = match answer {
                    Ok(Answer(Content::$kind(value))) => Ok(value),
                    Err(trouble) => Err(trouble),
                    // Whoever answers mixes questions up.
                    Ok(_) => return false,
                };
                self.known.$slot.put(value, self.now)
            }};
        }
        match ask {
            Ask::Jobs { .. } => {
                let is_new = put!(jobs, Jobs);
                let rows = self.known.jobs.value.as_ref().map(|it| it.rows.as_slice());
                self.jobs.listed(rows.unwrap_or_default());
                is_new
            }
            Ask::Job { .. } => put!(job, Job) | self.run_changed(),
            Ask::Strip { .. } => put!(strip, Strip),
            Ask::Ledger { .. } => put!(ledger, Ledger),
            Ask::Verdicts { .. } => put!(verdicts, Verdicts),
            Ask::Logs { .. } => put!(logs, Logs),
            Ask::Events { .. } => put!(events, Events),
            Ask::Failures => put!(failures, Failures),
            Ask::Nodes => put!(nodes, Nodes),
            Ask::Queue => put!(queue, Queue),
        }
    }

    /// Stops a scroll at the last line, so that the next key moves from what is seen.
    fn settle(&mut self) {
        let extents = (self.measure)(self);
        if let Page::Job(page) = &mut self.page {
            let (lines, room) = extents.pane;
            page.scroll.settle(lines, room);
        }
        let (lines, room) = extents.nodes;
        self.nodes.settle(lines, room);
        if let Some(scroll) = &mut self.help {
            let (lines, room) = extents.help;
            scroll.settle(lines, room);
        }
    }

    /// Forgets what was known of another run of the job; whether it did.
    fn run_changed(&mut self) -> bool {
        let run = self.known.job.value.as_ref().map(|job| job.run.clone());
        let Page::Job(page) = &mut self.page else {
            return false;
        };
        if page.shown == run {
            return false;
        }
        page.shown = run;
        page.mark = None;
        page.attempt = None;
        page.scroll = Scroll::default();
        self.forget_run();
        true
    }

    fn forget_run(&mut self) {
        self.known = Known {
            jobs: std::mem::take(&mut self.known.jobs),
            job: std::mem::take(&mut self.known.job),
            failures: std::mem::take(&mut self.known.failures),
            nodes: std::mem::take(&mut self.known.nodes),
            queue: std::mem::take(&mut self.known.queue),
            ..Known::default()
        };
    }

    /// Shows a page; what was known of another job is forgotten.
    fn open(&mut self, page: Page) {
        if page == self.page {
            return;
        }
        if matches!(page, Page::Job(_)) {
            self.known.job = Slot::default();
            self.forget_run();
        }
        let before = std::mem::replace(&mut self.page, page);
        self.back.push(before);
        if self.back.len() > BACK_MAX {
            self.back.remove(0);
        }
    }

    fn close(&mut self) {
        let Some(page) = self.back.pop() else {
            self.page = Page::Jobs;
            return;
        };
        self.open(page);
        self.back.pop();
    }

    /// Takes a key; whether it ends the program.
    fn key(&mut self, key: Key) -> bool {
        if key == Key::Interrupt {
            return true;
        }
        if let Some(typing) = self.typing.take() {
            return self.typed(typing, key);
        }
        if let Some(scroll) = &mut self.help {
            match key {
                Key::Esc | Key::Char('?' | 'q') | Key::Enter => self.help = None,
                _ => scroll.key(key),
            }
            return false;
        }
        match key {
            Key::Char('q') => return true,
            Key::Char('?') => self.help = Some(Scroll::default()),
            Key::Char(':') => self.typing = Some(Typing::GoTo(String::new())),
            Key::Char('/') => {
                self.open(Page::Jobs);
                self.typing = Some(Typing::Filter(self.jobs.filter.clone()));
            }
            Key::Char('1') => self.open(Page::Jobs),
            Key::Char('2') => self.open(Page::Failures),
            Key::Char('3') => self.open(Page::Nodes),
            Key::Char('4') => self.open(Page::Queue),
            Key::Esc => match self.page {
                // A filter is left before the page is.
                Page::Jobs => self.jobs.clear(),
                _ => self.close(),
            },
            key => self.key_of_page(key),
        }
        false
    }

    fn key_of_page(&mut self, key: Key) {
        match &mut self.page {
            Page::Jobs => {
                let listed = self.known.jobs.value.as_ref();
                if key == Key::Enter {
                    let row = listed.and_then(|jobs| jobs.rows.get(self.jobs.selected));
                    let page = row.map(|row| Page::of_job(&row.namespace, &row.job, None));
                    if let Some(page) = page {
                        self.open(page);
                    }
                } else {
                    self.said = self.jobs.key(key, listed);
                }
            }
            Page::Job(page) => {
                let marks = marks(self.known.strip.value.as_ref()).len();
                let attempts = self.known.job.value.as_ref().map_or(0, |it| it.row.attempt);
                self.said = page.key(key, marks, attempts);
            }
            Page::Failures => {
                let rows = self.known.failures.value.as_ref();
                let rows = rows.map_or(&[][..], |it| it.rows.as_slice());
                if key == Key::Enter {
                    let newest = rows.get(self.failure).map(|row| &row.newest);
                    let page =
                        newest.map(|it| Page::of_job(&it.namespace, &it.job, Some(it.run.clone())));
                    if let Some(page) = page {
                        self.open(page);
                    }
                } else {
                    self.failure = pane::moved(self.failure, key, rows.len());
                }
            }
            Page::Nodes => self.nodes.key(key),
            Page::Queue => {
                let rows = self.known.queue.value.as_ref();
                let rows = rows.map_or(&[][..], |it| it.rows.as_slice());
                if key == Key::Enter {
                    let row = rows.get(self.queued);
                    let page =
                        row.map(|it| Page::of_job(&it.namespace, &it.job, Some(it.id.clone())));
                    if let Some(page) = page {
                        self.open(page);
                    }
                } else {
                    self.queued = pane::moved(self.queued, key, rows.len());
                }
            }
        }
    }

    fn typed(&mut self, typing: Typing, key: Key) -> bool {
        let (mut text, is_filter) = match typing {
            Typing::Filter(text) => (text, true),
            Typing::GoTo(text) => (text, false),
        };
        match key {
            Key::Char(found) if text.chars().count() < TYPED_MAX => text.push(found),
            Key::Backspace => {
                text.pop();
            }
            Key::Clear => text.clear(),
            Key::Esc => {
                if is_filter {
                    self.jobs.filter_is("");
                }
                return false;
            }
            Key::Enter if is_filter => return false,
            Key::Enter => return self.go_to(text.trim()),
            _ => {}
        }
        if is_filter {
            self.jobs.filter_is(&text);
            self.typing = Some(Typing::Filter(text));
        } else {
            self.typing = Some(Typing::GoTo(text));
        }
        false
    }

    /// Goes where a typed line says; whether that ends the program.
    fn go_to(&mut self, place: &str) -> bool {
        const PLACES: [&str; 4] = ["jobs", "failures", "nodes", "queue"];
        match place {
            "" => {}
            "q" | "quit" => return true,
            "help" => self.help = Some(Scroll::default()),
            place if PLACES.contains(&place) => self.open(match place {
                "jobs" => Page::Jobs,
                "failures" => Page::Failures,
                "nodes" => Page::Nodes,
                _ => Page::Queue,
            }),
            place => match self.job_called(place) {
                Some(page) => self.open(page),
                None => {
                    self.said = Some(format!(
                        "no page or job `{place}`; expected jobs, failures, nodes, queue, or the name of a job in the list"
                    ));
                }
            },
        }
        false
    }

    /// The page of the job `NAME` or `NAMESPACE/NAME`: one of the list by its name or the only one that begins so.
    fn job_called(&self, place: &str) -> Option<Page> {
        if let Some((namespace, name)) = place.split_once('/') {
            return Some(Page::of_job(namespace, name, None));
        }
        let rows = &self.known.jobs.value.as_ref()?.rows;
        let exact = rows.iter().find(|row| row.job == place);
        let mut similar = rows.iter().filter(|row| row.job.starts_with(place));
        let only = similar.next().filter(|_| similar.next().is_none());
        let row = exact.or(only)?;
        Some(Page::of_job(&row.namespace, &row.job, None))
    }
}

/// The marks of a strip in order of time; what is said of the job and of a rank at once is one.
pub(crate) fn marks(strip: Option<&Strip>) -> Vec<&Mark> {
    let all = strip.map_or(&[][..], |strip| strip.marks.as_slice());
    let is_said_of_rank = |mark: &Mark| {
        let same = |it: &Mark| it.t == mark.t && it.kind == mark.kind && it.n == mark.n;
        mark.row.is_none() && all.iter().any(|it| it.row.is_some() && same(it))
    };
    // Bounded by the document: at most a thousand.
    let mut marks: Vec<&Mark> = all.iter().filter(|it| !is_said_of_rank(it)).collect();
    marks.sort_by_key(|mark| (mark.t, mark.row));
    marks
}
