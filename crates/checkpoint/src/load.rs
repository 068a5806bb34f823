//! Restoring: choose, read with checksums, fall back to the next source and then, for a single process, to the next step.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use trainyard_core::checkpoint::{
    COMMIT_FILE, Choice, Commit, CommitPiece, CommitRef, CommitSeen, Objects, Passed, Piece,
    Sealed, Selection, Source, StepFile, StepName, Tier, TierView, Wanted, lineage, suspects,
};

use crate::{
    choose,
    read::{ReadError, read_file},
    storage::within,
    store::{Store, StoreError},
};

/// One place that has checkpoints of the run.
#[derive(Clone, Debug)]
pub struct TierStore {
    /// What kind of place.
    pub tier: Tier,
    /// The node, or a name for people.
    pub place: String,
    /// The store.
    pub store: Arc<Store>,
}

/// Takes the bytes of a restore.
pub trait Sink: Send {
    /// A step is about to be read; what was put before is void.
    fn begin(&mut self, commit: &Commit) -> io::Result<()>;
    /// Verified bytes of a file of a rank, in any order. The same place may be put twice, when a source fails midway.
    fn put(&mut self, rank: u32, file: u32, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

/// What was restored.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The commit.
    pub commit: CommitRef,
    /// Its step.
    pub step: u64,
    /// The small state of the ranks that were asked for, by rank.
    pub objects: BTreeMap<u32, Objects>,
    /// Newer commits that were passed over, with the reason.
    pub passed: Vec<Passed>,
    /// Sources that failed on the way, one sentence each.
    pub failures: Vec<String>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A store could not be read at all.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The taker of the bytes failed.
    #[error("cannot take the restored bytes: {0}")]
    Sink(io::Error),
    /// The commit that was to be restored cannot be read from any source.
    #[error("step {} (`{folder}`) cannot be restored: {why}", folder.step)]
    Unreadable {
        /// Its folder.
        folder: StepName,
        /// Why.
        why: String,
    },
    /// The commit has no such rank.
    #[error("step {step} has no rank {rank}: {world} ranks saved it")]
    NoSuchRank {
        /// The step.
        step: u64,
        /// The rank that was asked for.
        rank: u32,
        /// How many ranks saved it.
        world: u32,
    },
}

/// The ways a piece can be unusable.
#[derive(Debug)]
enum Failed {
    /// This source; the next one may do.
    Source(String),
    /// The taker of the bytes.
    Sink(io::Error),
}

/// Reads from some tiers.
#[derive(Clone, Debug)]
pub struct Loader {
    tiers: Vec<TierStore>,
    /// Steps that could not be read by this loader, with the reason.
    suspects: BTreeMap<StepName, String>,
    failures: Vec<String>,
}

impl Loader {
    /// A loader over tiers of one run.
    pub fn new(tiers: Vec<TierStore>) -> Result<Self, StoreError> {
        for pair in tiers.windows(2) {
            let (one, two) = (pair[0].store.run(), pair[1].store.run());
            if one != two {
                return Err(StoreError::OtherRun {
                    found: two.to_owned(),
                    wanted: one.to_owned(),
                });
            }
        }
        Ok(Self {
            tiers,
            suspects: BTreeMap::new(),
            failures: Vec::new(),
        })
    }

    /// A loader of one store.
    pub fn of(store: Arc<Store>) -> Self {
        let tier = TierStore {
            tier: Tier::Shared,
            place: "store".into(),
            store,
        };
        Self {
            tiers: vec![tier],
            suspects: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Which commit to restore.
    ///
    /// Pieces are looked at for the newest commit first and for older ones only if that is not enough.
    pub fn choose(&self, wanted: &Wanted) -> Result<Selection, StoreError> {
        let (mut records, mut commits, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        for tier in &self.tiers {
            let view = tier.store.view()?;
            commits.extend(view.commits());
            records.extend(view.records);
            folders.extend(view.folders);
        }
        let Some(first) = self.tiers.first() else {
            return Ok(Selection::None {
                reasons: Vec::new(),
            });
        };
        let history = lineage(first.store.run(), &records, &commits);
        let mut known = suspects(&records, &commits);
        known.extend(self.suspects.clone());
        let mut views: Vec<TierView> = self
            .tiers
            .iter()
            .map(|tier| TierView {
                tier: tier.tier,
                place: tier.place.clone(),
                pieces: BTreeMap::new(),
            })
            .collect();
        let selection = choose::choose(&history, &mut views, wanted, &known, |number, seen| {
            let store = &self.tiers.get(number)?.store;
            Some(store.pieces_seen(&seen.folder, &seen.commit.document))
        });
        Ok(selection.with_unreadable(&history, &folders))
    }

    /// Restores the files of some ranks of the newest commit that can be read; `None` where there is none.
    ///
    /// A step that cannot be read is passed over, by this process alone. So this is for a job of one process, and for tools. Where several
    /// processes restore, each must get the same step: one of them chooses ([`Self::choose`]), its choice is in the record of the
    /// attempt, and all restore that one ([`Self::load_commit`]).
    pub fn load(
        &mut self,
        wanted: &Wanted,
        ranks: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<Option<Loaded>, LoadError> {
        loop {
            let Selection::Choice(choice) = self.choose(wanted)? else {
                return Ok(None);
            };
            match self.restore(&choice, ranks, sink)? {
                Ok(loaded) => return Ok(Some(loaded)),
                Err(why) => self.pass_over(choice.commit.folder, why),
            }
        }
    }

    /// Restores the files of some ranks of one commit, the one that [`Store::resumes_from`] names for the attempt.
    ///
    /// Nothing else is restored in its place: a commit that cannot be read is [`LoadError::Unreadable`]. The attempt then ends, and the
    /// choice is made again once for all, by the process that takes the next record. This loader passes the step over in
    /// [`Self::choose`]; a loader of another process does after [`Self::pass_over`].
    pub fn load_commit(
        &mut self,
        wanted: &Wanted,
        commit: &CommitRef,
        ranks: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<Loaded, LoadError> {
        let restored = match self.choice(wanted, commit, ranks) {
            Ok(choice) => self.restore(&choice, ranks, sink)?,
            Err(why) => Err(why),
        };
        restored.map_err(|why| {
            let folder = commit.folder.clone();
            self.pass_over(folder.clone(), why.clone());
            LoadError::Unreadable { folder, why }
        })
    }

    /// Passes a step over from now on, because a process could not restore it.
    pub fn pass_over(&mut self, folder: StepName, why: String) {
        self.suspects.insert(folder, why);
    }

    /// A commit as a choice: every tier is a source of every piece, the nearest first.
    fn choice(&self, wanted: &Wanted, commit: &CommitRef, ranks: &[u32]) -> Result<Choice, String> {
        let seen = self.find(commit)?;
        let saved = seen.commit.document.world;
        if saved != wanted.world && !wanted.reshard {
            return Err(format!(
                "{saved} ranks saved it, {} will run, and this state cannot be resharded",
                wanted.world
            ));
        }
        let mut sources = vec![Vec::new(); seen.commit.document.pieces.len()];
        for rank in ranks {
            let home = wanted.homes.get(rank).map(String::as_str);
            let Some(of_piece) = sources.get_mut(*rank as usize) else {
                continue;
            };
            *of_piece = (self.tiers.iter().enumerate())
                .map(|(view, tier)| Source {
                    tier: tier.tier.seen_from(home, &tier.place),
                    place: tier.place.clone(),
                    view,
                })
                .collect();
            of_piece.sort_by_key(|source| (source.tier, self.tiers[source.view].tier, source.view));
        }
        Ok(Choice {
            reshard: saved != wanted.world,
            commit: seen,
            sources,
            passed: Vec::new(),
        })
    }

    /// A commit, from the first tier that has it.
    fn find(&self, commit: &CommitRef) -> Result<CommitSeen, String> {
        let name = within(&commit.folder.path(), COMMIT_FILE);
        let mut why = format!("`{name}` is missing");
        for tier in &self.tiers {
            match tier.store.read::<Commit>(&name) {
                Ok(Some(found)) if found.crc32c == commit.crc32c => {
                    return Ok(CommitSeen {
                        folder: commit.folder.clone(),
                        commit: found,
                    });
                }
                Ok(Some(_)) => why = other_file(&name),
                Ok(None) => {}
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    }

    /// The inner error is why the step cannot be read from any source.
    fn restore(
        &mut self,
        choice: &Choice,
        ranks: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<Result<Loaded, String>, LoadError> {
        let commit = &choice.commit.commit.document;
        if let Some(rank) = ranks.iter().find(|rank| **rank >= commit.world) {
            return Err(LoadError::NoSuchRank {
                step: commit.step,
                rank: *rank,
                world: commit.world,
            });
        }
        sink.begin(commit).map_err(LoadError::Sink)?;
        let objects = match self.read_choice(choice, ranks, sink)? {
            Ok(objects) => objects,
            Err(why) => return Ok(Err(why)),
        };
        Ok(Ok(Loaded {
            commit: choice.commit.reference(),
            step: commit.step,
            objects,
            passed: choice.passed.clone(),
            failures: std::mem::take(&mut self.failures),
        }))
    }

    /// The inner error is why the step cannot be read from any source.
    fn read_choice(
        &mut self,
        choice: &Choice,
        ranks: &[u32],
        sink: &mut dyn Sink,
    ) -> Result<Result<BTreeMap<u32, Objects>, String>, LoadError> {
        let folder = &choice.commit.folder;
        let commit = &choice.commit.commit.document;
        let mut objects = BTreeMap::new();
        for rank in ranks {
            let index = *rank as usize;
            let (Some(line), Some(sources)) = (commit.pieces.get(index), choice.sources.get(index))
            else {
                continue;
            };
            let mut last = format!("no source has the piece of rank {rank}");
            let mut is_read = false;
            for source in sources {
                let tier = &self.tiers[source.view];
                match read_piece(&tier.store, folder, line, sink) {
                    Ok(found) => {
                        objects.extend(found.map(|found| (*rank, found)));
                        is_read = true;
                        break;
                    }
                    Err(Failed::Sink(error)) => return Err(LoadError::Sink(error)),
                    Err(Failed::Source(why)) => {
                        last = format!("{} {}: {why}", tier.tier.name(), tier.place);
                        self.failures.push(last.clone());
                    }
                }
            }
            if !is_read {
                return Ok(Err(last));
            }
        }
        Ok(Ok(objects))
    }
}

/// Reads the files of a rank from one store.
fn read_piece(
    store: &Store,
    folder: &StepName,
    line: &CommitPiece,
    sink: &mut dyn Sink,
) -> Result<Option<Objects>, Failed> {
    let piece = known_piece(store, folder, line).map_err(Failed::Source)?;
    for (file, written) in (0..).zip(&piece.document.files) {
        let name = data_name(folder, line.rank, file);
        let sink = Mutex::new(&mut *sink);
        let read = read_file(
            &*store.storage,
            &name,
            written,
            piece.document.chunk_bytes,
            &|offset, bytes| {
                let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
                sink.put(line.rank, file, offset, bytes)
            },
        );
        read.map_err(|error| match error {
            ReadError::Bad(bad) => Failed::Source(bad.to_string()),
            ReadError::Put(error) => Failed::Sink(error),
        })?;
    }
    read_objects(store, folder, line).map_err(Failed::Source)
}

/// The small state of a rank, as the commit knows it.
pub(crate) fn read_objects(
    store: &Store,
    folder: &StepName,
    line: &CommitPiece,
) -> Result<Option<Objects>, String> {
    let Some(wanted) = &line.objects else {
        return Ok(None);
    };
    let name = within(&folder.path(), &StepFile::Objects(line.rank).to_string());
    let found = store
        .read::<Objects>(&name)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("`{name}` is missing"))?;
    if found.crc32c != wanted.crc32c {
        return Err(other_file(&name));
    }
    Ok(Some(found.document))
}

/// The piece that a commit means.
pub(crate) fn known_piece(
    store: &Store,
    folder: &StepName,
    line: &CommitPiece,
) -> Result<Sealed<Piece>, String> {
    let name = within(&folder.path(), &StepFile::Piece(line.rank).to_string());
    let piece = store
        .piece(folder, line.rank)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("`{name}` is missing"))?;
    if piece.crc32c != line.crc32c {
        return Err(other_file(&name));
    }
    Ok(piece)
}

pub(crate) fn other_file(name: &str) -> String {
    format!("`{name}` is not the file that was committed: its checksum differs")
}

pub(crate) fn data_name(folder: &StepName, rank: u32, file: u32) -> String {
    within(&folder.path(), &StepFile::Data { rank, file }.to_string())
}
