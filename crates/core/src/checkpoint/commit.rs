//! When the pieces of a save are a commit.
//!
//! The result follows from the pieces alone and not from who asks or when, so every rank that finishes a save writes the same bytes.

use std::{collections::BTreeMap, fmt};

use super::{
    codec::{Sealed, VERSION},
    manifest::{Commit, CommitFile, CommitPiece, LayoutRef, Piece, Seconds, SharedRef},
    names::LayoutId,
};

/// What the pieces of a save are.
#[derive(Clone, Debug, PartialEq)]
pub enum Gathered {
    /// All of them: the commit to publish.
    Commit(Box<Commit>),
    /// The pieces of these ranks are not there.
    Missing(Vec<u32>),
    /// They cannot be one save.
    Conflict(Conflict),
}

/// Two pieces that cannot be of one save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The rank whose piece differs.
    pub rank: u32,
    /// What differs: `run`, `step`, `attempt`, `restart`, `nonce`, `world`, `piece`, `layout` or `shared`.
    pub member: &'static str,
    /// What was expected.
    pub expected: String,
    /// What its piece says.
    pub found: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "the piece of rank {} is of another save: {} is {}, expected {}",
            self.rank, self.member, self.found, self.expected
        )
    }
}

/// The commit of these pieces in a world of `world` ranks. The same piece twice is the same as once.
pub fn commit(pieces: &[Sealed<Piece>], world: u32) -> Gathered {
    match gather(pieces, world) {
        Ok(gathered) => gathered,
        Err(conflict) => Gathered::Conflict(conflict),
    }
}

fn gather(pieces: &[Sealed<Piece>], world: u32) -> Result<Gathered, Conflict> {
    let mut by_rank: BTreeMap<u32, &Sealed<Piece>> = BTreeMap::new();
    for piece in pieces {
        let rank = piece.document.rank;
        if piece.document.world != world {
            return Err(differs(rank, "world", &world, &piece.document.world));
        }
        if let Some(other) = by_rank.insert(rank, piece)
            && other.crc32c != piece.crc32c
        {
            return Err(differs(rank, "piece", &other.crc32c, &piece.crc32c));
        }
    }
    let Some(first) = by_rank.values().next().map(|piece| &piece.document) else {
        return Ok(Gathered::Missing((0..world).collect()));
    };
    for piece in by_rank.values() {
        same_save(first, &piece.document)?;
    }
    let missing: Vec<u32> = (0..world)
        .filter(|rank| !by_rank.contains_key(rank))
        .collect();
    if !missing.is_empty() {
        return Ok(Gathered::Missing(missing));
    }
    let mut layouts: BTreeMap<LayoutId, LayoutRef> = BTreeMap::new();
    let mut shared: BTreeMap<String, SharedRef> = BTreeMap::new();
    let mut seconds = Seconds::default();
    for (rank, piece) in &by_rank {
        let piece = &piece.document;
        if let Some(layout) = &piece.layout {
            let known = layouts.entry(layout.id).or_insert_with(|| layout.clone());
            if known != layout {
                return Err(differs(*rank, "layout", &known.crc32c, &layout.crc32c));
            }
        }
        for file in &piece.shared {
            let known = shared
                .entry(file.blake3.clone())
                .or_insert_with(|| file.clone());
            if known != file {
                return Err(differs(*rank, "shared", &known.bytes, &file.bytes));
            }
        }
        seconds.snapshot = seconds.snapshot.max(piece.seconds.snapshot);
        seconds.write = seconds.write.max(piece.seconds.write);
    }
    let checked = || by_rank.values().map(|piece| piece.document.finite);
    let finite = if checked().any(|finite| finite == Some(false)) {
        Some(false)
    } else {
        checked().all(|finite| finite == Some(true)).then_some(true)
    };
    Ok(Gathered::Commit(Box::new(Commit {
        version: VERSION,
        run: first.run.clone(),
        step: first.step,
        attempt: first.attempt,
        restart: first.restart,
        nonce: first.nonce.clone(),
        world,
        layouts: layouts.into_values().collect(),
        shared: shared.into_values().collect(),
        finite,
        seconds,
        saved_at: by_rank
            .values()
            .filter_map(|piece| piece.document.saved_at)
            .max(),
        pieces: by_rank.into_values().map(line).collect(),
        other: serde_json::Map::new(),
    })))
}

/// What a commit keeps of a piece.
fn line(piece: &Sealed<Piece>) -> CommitPiece {
    let document = &piece.document;
    CommitPiece {
        rank: document.rank,
        crc32c: piece.crc32c,
        files: document
            .files
            .iter()
            .map(|file| CommitFile {
                bytes: file.bytes,
                data: file.data,
            })
            .collect(),
        layout: document.layout.as_ref().map(|layout| layout.id),
        at: document.at.clone(),
        objects: document.objects.clone(),
    }
}

fn same_save(first: &Piece, piece: &Piece) -> Result<(), Conflict> {
    let rank = piece.rank;
    if piece.run != first.run {
        return Err(differs(rank, "run", &first.run, &piece.run));
    }
    if piece.step != first.step {
        return Err(differs(rank, "step", &first.step, &piece.step));
    }
    if piece.attempt != first.attempt {
        return Err(differs(rank, "attempt", &first.attempt, &piece.attempt));
    }
    if piece.restart != first.restart {
        return Err(differs(rank, "restart", &first.restart, &piece.restart));
    }
    if piece.nonce != first.nonce {
        let (expected, found) = (first.nonce.as_str(), piece.nonce.as_str());
        return Err(differs(rank, "nonce", &expected, &found));
    }
    Ok(())
}

fn differs<T: fmt::Display + ?Sized>(
    rank: u32,
    member: &'static str,
    expected: &T,
    found: &T,
) -> Conflict {
    Conflict {
        rank,
        member,
        expected: expected.to_string(),
        found: found.to_string(),
    }
}
