//! Stores made up for the tests of each decision.

mod commits;
mod drains;
mod figures;
mod files;
mod headers;
mod histories;
mod large;
mod looks;
mod places;
mod placing;
mod retention;
mod selection;
mod slices;
mod summaries;

use super::*;

pub(super) const RUN: &str = "run-1";

/// A folder; its nonce follows from the numbers, so that two saves differ.
pub(super) fn name(step: u64, attempt: u32) -> StepName {
    StepName {
        step,
        attempt,
        nonce: Nonce::from_random(step * 31 + u64::from(attempt)),
    }
}

/// The piece of one rank: one file of 100 bytes, two chunks.
pub(super) fn piece(rank: u32, world: u32, step: u64, id: AttemptId) -> Piece {
    let name = name(step, id.attempt);
    Piece {
        version: VERSION,
        run: RUN.into(),
        step,
        attempt: id.attempt,
        restart: id.restart,
        nonce: name.nonce,
        rank,
        world,
        chunk_bytes: 64,
        files: vec![PieceFile {
            bytes: 100,
            data: 32,
            chunks: vec![Crc32c(rank), Crc32c(7)],
        }],
        layout: None,
        at: Vec::new(),
        objects: None,
        shared: Vec::new(),
        finite: None,
        seconds: Seconds {
            snapshot: 0.5,
            write: f64::from(rank),
        },
        saved_at: Some(1_000 + i64::from(rank)),
        other: Other::new(),
    }
}

/// A commit of two ranks.
pub(super) fn seen(step: u64, attempt: u32, restart: u32) -> CommitSeen {
    let id = AttemptId { attempt, restart };
    let pieces: Vec<_> = (0..2)
        .map(|rank| sealed(piece(rank, 2, step, id)).unwrap())
        .collect();
    let Gathered::Commit(commit) = commit(&pieces, 2) else {
        panic!("two pieces of two");
    };
    CommitSeen {
        folder: commit.folder(),
        commit: sealed(*commit).unwrap(),
    }
}

/// A record that acknowledges `commits` and resumes from the last one.
pub(super) fn record(attempt: u32, restart: u32, commits: &[&CommitSeen]) -> RecordSeen {
    RecordSeen::Fence(Fence {
        version: VERSION,
        run: RUN.into(),
        attempt,
        restart,
        holder: format!("pod-{attempt}-{restart}"),
        job: None,
        resumes_from: commits.last().map(|seen| seen.reference()),
        acknowledged: commits.iter().map(|seen| seen.reference()).collect(),
        other: Other::new(),
    })
}

/// The folder of a commit with all its pieces.
pub(super) fn folder(seen: &CommitSeen) -> FolderSeen {
    FolderSeen {
        folder: seen.folder.to_string(),
        state: FolderState::Committed(Box::new(seen.commit.clone())),
        other_run: None,
        pieces: Some(whole(seen)),
        bytes: 200,
    }
}

/// A folder without commit.
pub(super) fn bare(name: &StepName, state: FolderState) -> FolderSeen {
    FolderSeen {
        folder: name.to_string(),
        state,
        other_run: None,
        pieces: None,
        bytes: 1,
    }
}

/// The pieces of a commit as a tier that has all of them shows them.
pub(super) fn whole(seen: &CommitSeen) -> Vec<PieceSeen> {
    (seen.commit.document.pieces.iter())
        .map(|line| PieceSeen {
            rank: line.rank,
            crc32c: line.crc32c,
            files: line.files.iter().map(|file| file.bytes).collect(),
        })
        .collect()
}

/// The steps of a history.
pub(super) fn steps(lineage: &Lineage) -> Vec<u64> {
    lineage
        .commits
        .iter()
        .map(|seen| seen.folder.step)
        .collect()
}
