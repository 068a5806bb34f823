//! What a file of each kind must hold to be believed: counts, sizes and names within bounds.

use super::{
    codec::Document,
    layout::Layout,
    limits::{
        CHUNK_BYTES, MAX_ACKNOWLEDGED, MAX_AXES, MAX_CHUNKS, MAX_FILE_BYTES, MAX_FILES,
        MAX_LAYOUTS, MAX_SHARED, MAX_TEXT, MAX_WORLD,
    },
    manifest::{Commit, Fence, Objects, Piece, Restored, Root, Seconds, SharedRef},
    names::LayoutId,
};

impl Document for Root {
    const MAX_BYTES: usize = 64 << 10;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)
    }
}

impl Document for Fence {
    const MAX_BYTES: usize = 4 << 20;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)?;
        check_text("holder", &self.holder)?;
        if let Some(job) = &self.job {
            check_text("uid of the job", &job.uid)?;
        }
        check_count(
            "acknowledged commits",
            self.acknowledged.len(),
            MAX_ACKNOWLEDGED,
        )?;
        match &self.resumes_from {
            Some(commit) if !self.acknowledged.contains(commit) => Err(format!(
                "it resumes from `{}`, which is not among the commits that it acknowledges",
                commit.folder
            )),
            _ => Ok(()),
        }
    }
}

impl Document for Restored {
    const MAX_BYTES: usize = 64 << 10;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)
    }
}

impl Document for Piece {
    const MAX_BYTES: usize = 8 << 20;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)?;
        check_world(self.world)?;
        if self.rank >= self.world {
            return Err(format!("rank {} of {} ranks", self.rank, self.world));
        }
        if self.chunk_bytes == 0 || self.chunk_bytes > CHUNK_BYTES {
            return Err(format!(
                "chunks of {} bytes; from 1 to {CHUNK_BYTES} are allowed",
                self.chunk_bytes
            ));
        }
        check_count("files", self.files.len(), MAX_FILES)?;
        check_count("coordinates", self.at.len(), MAX_AXES)?;
        check_count("shared files", self.shared.len(), MAX_SHARED)?;
        for (number, file) in self.files.iter().enumerate() {
            check_file(number, file.bytes, file.data)?;
            let wanted = file.bytes.div_ceil(self.chunk_bytes);
            if wanted > MAX_CHUNKS || wanted != file.chunks.len() as u64 {
                return Err(format!(
                    "file {number} has {} checksums for {wanted} chunks",
                    file.chunks.len()
                ));
            }
        }
        self.shared.iter().try_for_each(check_shared)?;
        check_seconds(&self.seconds)
    }
}

impl Document for Commit {
    const MAX_BYTES: usize = 64 << 20;

    fn check(&self) -> Result<(), String> {
        check_run(&self.run)?;
        check_world(self.world)?;
        check_count("layouts", self.layouts.len(), MAX_LAYOUTS)?;
        check_count("shared files", self.shared.len(), MAX_SHARED)?;
        check_seconds(&self.seconds)?;
        self.shared.iter().try_for_each(check_shared)?;
        let ranks = self.pieces.iter().map(|piece| piece.rank);
        if !ranks.eq(0..self.world) {
            return Err(format!(
                "its {} pieces are not those of ranks 0 to {}, in order",
                self.pieces.len(),
                self.world - 1
            ));
        }
        if !self.layouts.is_sorted_by(|one, two| one.id < two.id) {
            return Err("its layouts are not in order, or one is there twice".into());
        }
        for piece in &self.pieces {
            check_count("files", piece.files.len(), MAX_FILES)?;
            check_count("coordinates", piece.at.len(), MAX_AXES)?;
            for (number, file) in piece.files.iter().enumerate() {
                check_file(number, file.bytes, file.data)?;
            }
            let known = |id: LayoutId| self.layouts.binary_search_by_key(&id, |one| one.id).is_ok();
            if let Some(id) = piece.layout.filter(|id| !known(*id)) {
                return Err(format!(
                    "rank {} has layout `{id}`, which is not listed",
                    piece.rank
                ));
            }
        }
        Ok(())
    }
}

impl Document for Objects {
    const MAX_BYTES: usize = 256 << 20;

    fn check(&self) -> Result<(), String> {
        if self.rank >= MAX_WORLD {
            return Err(format!("rank {} is too large", self.rank));
        }
        Ok(())
    }
}

impl Document for Layout {
    const MAX_BYTES: usize = 64 << 20;

    fn check(&self) -> Result<(), String> {
        self.check_layout()
    }
}

/// A run id is a few letters, digits, `-`, `_` and `.`, so it can stand in a sentence and in a name.
fn check_run(run: &str) -> Result<(), String> {
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if run.is_empty() || run.len() > 64 || !run.bytes().all(letters) {
        return Err("the run id must be 1 to 64 letters, digits, `-`, `_` or `.`".into());
    }
    Ok(())
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_TEXT || text.chars().any(char::is_control) {
        return Err(format!(
            "the {what} must be 1 to {MAX_TEXT} bytes without control characters"
        ));
    }
    Ok(())
}

fn check_world(world: u32) -> Result<(), String> {
    if world == 0 || world > MAX_WORLD {
        return Err(format!("{world} ranks; from 1 to {MAX_WORLD} are allowed"));
    }
    Ok(())
}

fn check_count(what: &str, count: usize, limit: usize) -> Result<(), String> {
    if count > limit {
        return Err(format!("{count} {what}; at most {limit} are allowed"));
    }
    Ok(())
}

fn check_file(number: usize, bytes: u64, data: u64) -> Result<(), String> {
    if bytes > MAX_FILE_BYTES || data > bytes || data < 8 {
        return Err(format!(
            "file {number} of {bytes} bytes cannot have tensors from byte {data}"
        ));
    }
    Ok(())
}

fn check_shared(shared: &SharedRef) -> Result<(), String> {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if shared.blake3.len() != 64 || !shared.blake3.bytes().all(hex) {
        return Err("the name of a shared file must be 64 lower-case hexadecimal digits".into());
    }
    if shared.bytes > MAX_FILE_BYTES || shared.data > shared.bytes || shared.data < 8 {
        return Err(format!(
            "shared file `{}` of {} bytes cannot have tensors from byte {}",
            shared.blake3, shared.bytes, shared.data
        ));
    }
    Ok(())
}

fn check_seconds(seconds: &Seconds) -> Result<(), String> {
    let sane = |value: f64| value.is_finite() && value >= 0.0;
    if !sane(seconds.snapshot) || !sane(seconds.write) {
        return Err("a duration is negative or not a number".into());
    }
    Ok(())
}
