//! Looks at a store for whoever starts attempts: now and then, in a thread of its own, and never longer than a limit.
//!
//! A disk or server that hangs keeps that thread and nothing else: the look is reported as late, and until it ends no other one is begun.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use trainyard_core::checkpoint::{
    CommitRef, CommitSeen, PieceSeen, Selection, StoreSeen, Tier, TierView, Wanted, lineage,
    suspects, suspects_at_start,
};

use crate::{
    choose,
    clock::SystemClock,
    files::Files,
    store::{Store, StoreError},
};

/// How long a look may take until it is reported as late.
pub const LIMIT: Duration = Duration::from_secs(5);
/// The shortest time between two looks while an attempt runs.
pub const EVERY: Duration = Duration::from_secs(3);
/// Looks take at most one part in this many of the time.
const SHARE: u32 = 20;

/// When a store is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// An attempt begins; all before it have ended.
    Start(
        /// The attempt.
        u32,
    ),
    /// The last attempt has ended, and no other one begins.
    End,
    /// At any other time.
    Running,
}

/// The result of a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Looked {
    /// When it was asked for.
    pub moment: Moment,
    /// How long ago it began. Of a late one, how long ago it was asked for at least.
    pub age: Duration,
    /// What was seen, or why nothing was.
    pub store: Result<StoreSeen, String>,
}

/// Looks at the store in `root` once. A folder that is not there, or that holds no store, has no checkpoints.
///
/// `known` is the newest commit whose pieces were found to be whole; they are not looked at again while an attempt runs.
pub fn look(
    root: &Path,
    moment: Moment,
    known: &mut Option<CommitRef>,
) -> Result<StoreSeen, StoreError> {
    let files = match Files::existing(root) {
        Ok(files) => files,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoreSeen::empty()),
        Err(source) => {
            return Err(StoreError::Storage {
                action: "open",
                name: ".".to_owned(),
                source,
            });
        }
    };
    let store = match Store::existing(Arc::new(files), SystemClock::start(), 0) {
        Ok(store) => store,
        Err(StoreError::NotAStore) => return Ok(StoreSeen::empty()),
        Err(error) => return Err(error),
    };
    if moment != Moment::Running {
        *known = None;
    }
    let view = store.view()?;
    let commits = view.commits();
    let history = lineage(store.run(), &view.records, &commits);
    let suspected = match moment {
        Moment::Start(_) | Moment::End => suspects_at_start(&view.records, &commits),
        Moment::Running => suspects(&view.records, &commits),
    };
    let mut tiers = [TierView {
        tier: Tier::Shared,
        place: "store".to_owned(),
        pieces: BTreeMap::new(),
    }];
    let wanted = Wanted {
        world: 1,
        reshard: true,
        ..Wanted::default()
    };
    let selection = choose::choose(&history, &mut tiers, &wanted, &suspected, |_, seen| {
        Some(if known.as_ref() == Some(&seen.reference()) {
            promised(seen)
        } else {
            store.pieces_seen(&seen.folder, &seen.commit.document)
        })
    })
    .with_unreadable(&history, &view.folders);
    if let Selection::Choice(choice) = &selection {
        *known = Some(choice.commit.reference());
    }
    Ok(StoreSeen::new(&history, &selection, &view.folders))
}

/// The pieces of a commit as it lists them.
fn promised(seen: &CommitSeen) -> Vec<PieceSeen> {
    let pieces = seen.commit.document.pieces.iter();
    pieces
        .map(|line| PieceSeen {
            rank: line.rank,
            crc32c: line.crc32c,
            files: line.files.iter().map(|file| file.bytes).collect(),
        })
        .collect()
}

/// What was asked for, when the look began, how long it took and what was seen.
type Answer = (Moment, Instant, Duration, Result<StoreSeen, String>);

/// Looks at a store repeatedly. Time is an argument of every call; call [`Watcher::take`] when notified and when [`Watcher::due`] is reached.
pub struct Watcher {
    requests: SyncSender<Moment>,
    answers: Receiver<Answer>,
    /// The look in work, when it is late, and whether that was reported.
    in_work: Option<(Moment, Instant, bool)>,
    /// The look that waits for the one in work, and when it is late.
    waiting: Option<(Moment, Instant)>,
    /// When the next look is due.
    next: Option<Instant>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watcher")
            .field("in_work", &self.in_work)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl Watcher {
    /// Starts the thread that looks at the store in `root`. It calls `notify` when there is something to take.
    pub fn start(root: PathBuf, notify: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut known = None;
        Self::with(
            move |moment| look(&root, moment, &mut known).map_err(|error| words(&error)),
            notify,
        )
    }

    fn with(
        mut look: impl FnMut(Moment) -> Result<StoreSeen, String> + Send + 'static,
        notify: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, to_do) = sync_channel::<Moment>(1);
        let (done, answers): (Sender<Answer>, Receiver<Answer>) = channel();
        let thread = thread::Builder::new().name("checkpoint-look".to_owned());
        // The thread is never joined: one that hangs in the kernel cannot be.
        thread.spawn(move || {
            while let Ok(moment) = to_do.recv() {
                let began = Instant::now();
                let seen = look(moment);
                if done.send((moment, began, began.elapsed(), seen)).is_err() {
                    return;
                }
                notify();
            }
        })?;
        Ok(Self {
            requests,
            answers,
            in_work: None,
            waiting: None,
            next: None,
        })
    }

    /// Asks for a look that begins now or, where one is in work, after that. While a late one is in work, the answer is that, at once.
    pub fn ask(&mut self, moment: Moment, now: Instant) {
        match self.in_work {
            None => self.begin(moment, now + LIMIT),
            Some((_, _, false)) => self.waiting = Some((moment, now + LIMIT)),
            Some((_, _, true)) => self.waiting = Some((moment, now)),
        }
    }

    fn begin(&mut self, moment: Moment, late_at: Instant) {
        self.next = None;
        // A thread that is gone never ends the look, which is then late.
        self.requests.try_send(moment).ok();
        self.in_work = Some((moment, late_at, false));
    }

    /// The next result, where there is one. Begins the next look where that is due.
    pub fn take(&mut self, now: Instant) -> Option<Looked> {
        if let Ok((moment, began, took, store)) = self.answers.try_recv() {
            let was_late = self.in_work.take().is_some_and(|(_, _, late)| late);
            self.next = Some(now + EVERY.max(took.saturating_mul(SHARE)));
            if let Some((moment, late_at)) = self.waiting.take() {
                self.begin(moment, late_at);
            }
            // Whoever waited for a late one has gone on without it.
            let moment = if was_late { Moment::Running } else { moment };
            let age = now.saturating_duration_since(began);
            return Some(Looked { moment, age, store });
        }
        if let Some((moment, late_at)) = self.waiting
            && now >= late_at
        {
            self.waiting = None;
            return Some(late(moment));
        }
        if let Some((moment, late_at, is_late)) = &mut self.in_work {
            if !*is_late && now >= *late_at {
                *is_late = true;
                return Some(late(*moment));
            }
        } else if self.next.is_some_and(|next| next <= now) {
            self.begin(Moment::Running, now + LIMIT);
        }
        None
    }

    /// When [`Watcher::take`] is to be called if nothing is notified before.
    pub fn due(&self) -> Option<Instant> {
        let waiting = self.waiting.map(|(_, late_at)| late_at);
        let in_work = self.in_work.filter(|(_, _, is_late)| !is_late);
        let in_work = in_work.map(|(_, late_at, _)| late_at);
        let next = self.next.filter(|_| self.in_work.is_none());
        [waiting, in_work, next].into_iter().flatten().min()
    }
}

fn late(moment: Moment) -> Looked {
    let why = format!("the store did not respond within {} s", LIMIT.as_secs());
    Looked {
        moment,
        age: LIMIT,
        store: Err(why),
    }
}

/// An error with its causes.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests;
