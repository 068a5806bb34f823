//! One piece from the local tier to the shared one: its data, its layout and small state, then its record.

use std::{io, time::Duration};

use trainyard_core::checkpoint::{
    CommitSeen, Crc32c, Document, Layout, OBJECTS, Objects, Piece, PieceFile, StepFile, decode,
};

use super::{Drain, DrainError, in_time, same};
use crate::{
    load::{data_name, known_piece, other_file},
    publish::{unfinished, write_chunks},
    read::check_file,
    storage::{read_small, within},
    store::StoreError,
};

impl Drain {
    /// Copies a piece; returns the bytes of data that were copied.
    pub(super) fn copy_piece(
        &self,
        seen: &CommitSeen,
        rank: u32,
        until: Duration,
    ) -> Result<u64, DrainError> {
        let (folder, step) = (&seen.folder, seen.folder.step);
        let (local, shared) = (&*self.tiers.local, &*self.tiers.shared);
        let path = folder.path();
        let damaged = |why| DrainError::Damaged { step, why };
        let Some(line) = seen.commit.document.pieces.get(rank as usize) else {
            return Ok(0);
        };
        let piece = known_piece(local, folder, line).map_err(damaged)?.document;
        let mut bytes = 0;
        for (file, written) in (0..).zip(&piece.files) {
            let name = data_name(folder, rank, file);
            if self.copy_file(step, &name, written, piece.chunk_bytes, until)? {
                bytes += written.bytes;
            }
        }
        if let Some(layout) = &piece.layout {
            let name = within(&path, &StepFile::Layout(layout.id).to_string());
            self.copy_document::<Layout>(step, &name, layout.crc32c)?;
        }
        if let Some(objects) = &piece.objects {
            let objects_path = within(&path, OBJECTS);
            (shared.storage.make_folder(&objects_path))
                .map_err(StoreError::storage("create", &objects_path))?;
            let name = within(&path, &StepFile::Objects(rank).to_string());
            self.copy_document::<Objects>(step, &name, objects.crc32c)?;
        }
        shared.sync_folder(&path)?;
        shared.check_fence(self.id)?;
        let name = within(&path, &StepFile::Piece(rank).to_string());
        self.copy_document::<Piece>(step, &name, line.crc32c)?;
        Ok(bytes)
    }

    /// Copies a small file byte for byte; its checksum must be the one that is known.
    fn copy_document<D: Document>(
        &self,
        step: u64,
        name: &str,
        crc32c: Crc32c,
    ) -> Result<(), DrainError> {
        let bytes = read_small(&*self.tiers.local.storage, name, D::MAX_BYTES as u64)
            .map_err(StoreError::storage("read", name))?;
        match decode::<D>(&bytes) {
            Ok(found) if found.crc32c == crc32c => same(&self.tiers.shared, name, &bytes),
            _ => Err(DrainError::Damaged {
                step,
                why: other_file(name),
            }),
        }
    }

    /// Copies a data file unless it is there and verified; true if it was copied.
    fn copy_file(
        &self,
        step: u64,
        name: &str,
        written: &PieceFile,
        chunk_bytes: u64,
        until: Duration,
    ) -> Result<bool, DrainError> {
        let shared = &*self.tiers.shared.storage;
        let is_there = || check_file(shared, name, written, chunk_bytes).1.is_ok();
        if shared.stat(name).is_ok() {
            if is_there() {
                return Ok(false);
            }
            // Nothing refers to it yet: a kill left a part of it on a storage that cannot publish at once.
            drop(shared.remove(name));
        }
        let source = (self.tiers.local.storage)
            .open(name)
            .map_err(StoreError::storage("open", name))?;
        let temporary = unfinished(name, self.tiers.shared.token());
        let chunk = usize::try_from(chunk_bytes).unwrap_or(1 << 24);
        let share = chunk_bytes.min(written.bytes);
        let may_continue = || {
            self.pace
                .take(&*self.clock, share, until, &self.tiers.behind.board)
        };
        let copied = write_chunks(shared, &temporary, &*source, chunk, &may_continue);
        let sums = match copied {
            Ok(sums) => sums,
            Err(error) => {
                drop(shared.remove(&temporary));
                return Err(in_time(step, error, "copy", name));
            }
        };
        if sums != written.chunks || source.size().ok() != Some(written.bytes) {
            drop(shared.remove(&temporary));
            let (_, checked) = check_file(&*self.tiers.local.storage, name, written, chunk_bytes);
            let why = match checked {
                Err(bad) => bad.to_string(),
                Ok(()) => format!("`{name}` changed while it was read"),
            };
            return Err(DrainError::Damaged { step, why });
        }
        match shared.publish(&temporary, name) {
            Ok(()) => Ok(true),
            Err(error) => {
                // It may be there all the same: then its bytes show it.
                let same = is_there();
                drop(shared.remove(&temporary));
                match error.kind() {
                    _ if same => Ok(true),
                    io::ErrorKind::AlreadyExists => Err(DrainError::Taken(name.to_owned())),
                    _ => Err(StoreError::storage("publish", name)(error).into()),
                }
            }
        }
    }
}
