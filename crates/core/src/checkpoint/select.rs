//! Which commit an attempt restores, and from where each piece is read.
//!
//! The newest commit of the lineage whose every piece some tier has in full and that is not suspect. The result has an order of
//! sources for each piece: a piece whose checksum is wrong is read from the next one.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{
    lineage::{CommitSeen, Lineage},
    manifest::Commit,
    names::StepName,
    sealed::Crc32c,
    words,
};

/// Where checkpoints are kept, fastest first and safest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tier {
    /// The memory of a node.
    Memory,
    /// The disk of a node.
    Local,
    /// The memory or disk of another node.
    Peer,
    /// A volume that all nodes mount.
    Shared,
    /// An object store.
    Object,
}

impl Tier {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Local => "local",
            Self::Peer => "peer",
            Self::Shared => "shared",
            Self::Object => "object",
        }
    }

    /// The tier as a reader at `home` sees it: the memory or disk of another node is `peer`. Without a known home, `place` is taken as
    /// the reader's own.
    #[must_use]
    pub fn seen_from(self, home: Option<&str>, place: &str) -> Self {
        let is_own = home.is_none_or(|home| home == place);
        match self {
            Self::Memory | Self::Local if !is_own => Self::Peer,
            tier => tier,
        }
    }
}

/// A piece as a tier has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceSeen {
    /// The rank.
    pub rank: u32,
    /// The checksum at the end of its `piece.json`.
    pub crc32c: Crc32c,
    /// The sizes of its safetensors files, in order.
    pub files: Vec<u64>,
}

impl PieceSeen {
    /// Whether it is the piece that a commit means, in full.
    pub fn is_whole_in(&self, commit: &Commit) -> bool {
        let line = commit.pieces.get(self.rank as usize);
        line.is_some_and(|line| {
            let sizes = line.files.iter().map(|file| file.bytes);
            line.crc32c == self.crc32c && sizes.eq(self.files.iter().copied())
        })
    }
}

/// What one tier has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierView {
    /// Which tier.
    pub tier: Tier,
    /// The node that has it, for `memory` and `local`; a name for people otherwise.
    pub place: String,
    /// The pieces that it has, by folder.
    pub pieces: BTreeMap<StepName, Vec<PieceSeen>>,
}

/// What is to be restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// How many ranks will run.
    pub world: u32,
    /// Whether another number of ranks than the saved one can be restored.
    pub reshard: bool,
    /// The node of each rank, where known. A rank reads the memory and disk of its own node first.
    pub homes: BTreeMap<u32, String>,
    /// Whether a commit that was found not to be finite may be restored.
    pub allow_not_finite: bool,
}

/// One place to read a piece from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The tier, `peer` for the memory or disk of another node.
    pub tier: Tier,
    /// The place, as its view names it.
    pub place: String,
    /// The view, by its place in what was given.
    pub view: usize,
}

/// What to restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The commit.
    pub commit: CommitSeen,
    /// The sources of the piece of each rank, fastest first; never empty.
    pub sources: Vec<Vec<Source>>,
    /// Whether the ranks that will run are not those that saved.
    pub reshard: bool,
    /// Newer commits that were passed over, newest first.
    pub passed: Vec<Passed>,
}

/// A commit that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its folder.
    pub folder: StepName,
    /// Why.
    pub why: PassedWhy,
}

/// Why a commit was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassedWhy {
    /// It is suspect.
    Suspect(String),
    /// No tier has the pieces of these ranks in full.
    Unavailable(Vec<u32>),
    /// It was saved by another number of ranks, and the caller cannot reshard.
    OtherWorld {
        /// How many ranks saved it.
        saved: u32,
        /// How many will run.
        wanted: u32,
    },
    /// It has numbers that are not finite.
    NotFinite,
    /// Its `COMMIT.json` cannot be read.
    Unreadable(String),
}

impl fmt::Display for Passed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "step {} (`{}`): ", self.folder.step, self.folder)?;
        match &self.why {
            PassedWhy::Suspect(why) => write!(out, "suspect: {why}"),
            PassedWhy::Unavailable(ranks) => {
                write!(out, "no tier has {} in full", words::pieces_of(ranks))
            }
            PassedWhy::OtherWorld { saved, wanted } => write!(
                out,
                "{saved} ranks saved it, {wanted} will run, and this state cannot be resharded"
            ),
            PassedWhy::NotFinite => out.write_str("it has numbers that are NaN or infinite"),
            PassedWhy::Unreadable(why) => write!(out, "its commit cannot be read: {why}"),
        }
    }
}

/// What was selected.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// This one.
    Choice(Box<Choice>),
    /// Nothing: start at step 0, or stop, as the caller decides. Empty where there is no commit at all.
    None {
        /// Why each commit was passed over, newest first.
        reasons: Vec<Passed>,
    },
}

/// The commit to restore. `suspects` are those of [`super::suspects`] and those that the caller could not read in this attempt.
pub fn select(
    lineage: &Lineage,
    views: &[TierView],
    wanted: &Wanted,
    suspects: &BTreeMap<StepName, String>,
) -> Selection {
    let mut passed = Vec::new();
    for seen in lineage.commits.iter().rev() {
        match consider(seen, views, wanted, suspects) {
            Ok(sources) => {
                return Selection::Choice(Box::new(Choice {
                    commit: seen.clone(),
                    sources,
                    reshard: seen.commit.document.world != wanted.world,
                    passed,
                }));
            }
            Err(why) => passed.push(Passed {
                folder: seen.folder.clone(),
                why,
            }),
        }
    }
    Selection::None { reasons: passed }
}

fn consider(
    seen: &CommitSeen,
    views: &[TierView],
    wanted: &Wanted,
    suspects: &BTreeMap<StepName, String>,
) -> Result<Vec<Vec<Source>>, PassedWhy> {
    let commit = &seen.commit.document;
    if let Some(why) = suspects.get(&seen.folder) {
        return Err(PassedWhy::Suspect(why.clone()));
    }
    if commit.finite == Some(false) && !wanted.allow_not_finite {
        return Err(PassedWhy::NotFinite);
    }
    if commit.world != wanted.world && !wanted.reshard {
        return Err(PassedWhy::OtherWorld {
            saved: commit.world,
            wanted: wanted.world,
        });
    }
    let mut sources: Vec<Vec<Source>> = vec![Vec::new(); commit.pieces.len()];
    for (number, view) in views.iter().enumerate() {
        for piece in view.pieces.get(&seen.folder).into_iter().flatten() {
            if piece.is_whole_in(commit) {
                let home = wanted.homes.get(&piece.rank).map(String::as_str);
                sources[piece.rank as usize].push(Source {
                    tier: view.tier.seen_from(home, &view.place),
                    place: view.place.clone(),
                    view: number,
                });
            }
        }
    }
    let missing: Vec<u32> = (0..)
        .zip(&sources)
        .filter(|(_, sources)| sources.is_empty())
        .map(|(rank, _)| rank)
        .collect();
    if !missing.is_empty() {
        return Err(PassedWhy::Unavailable(missing));
    }
    for of_piece in &mut sources {
        // The memory of a peer before its disk, which the tier alone does not say.
        of_piece.sort_by_key(|source| (source.tier, views[source.view].tier, source.view));
        of_piece.dedup();
    }
    Ok(sources)
}
