//! An object that is being written.
//!
//! A small one is kept in memory and sent whole when it is published. A large one is sent in parts while it is written, and appears under
//! its name when the upload is ended: so nobody ever sees a part of a file, and a kill leaves an upload that `prune` ends.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use object_store::{PutMode, multipart::MultipartStore as _, path::Path};

use super::Client;
use crate::storage::Output;

/// Bytes of a part, unless a file needs more than [`MAX_PARTS`] of them. As large as a chunk, so that a chunk is one part.
pub(super) const PART_BYTES: u64 = 16 << 20;

/// Most parts of an upload; a limit of S3.
const MAX_PARTS: u64 = 10_000;

/// Largest file that is written without its size being known before.
const MAX_SMALL: u64 = 256 << 20;

/// Most parts that are partly filled at a time.
const MAX_OPEN: usize = 16;

/// What is being written under one name.
#[derive(Debug)]
pub(super) struct Upload {
    client: Arc<Client>,
    key: Path,
    state: Mutex<State>,
    /// Held while an upload is begun, so that there is one.
    begin: Mutex<()>,
    /// Whether the name is the final one: then a sync publishes.
    is_final: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The size, where it was announced.
    size: Option<u64>,
    small: Vec<u8>,
    id: Option<String>,
    open: BTreeMap<u64, Open>,
    done: BTreeMap<u64, String>,
}

/// A part that is not yet full.
#[derive(Debug, Default)]
struct Open {
    bytes: Vec<u8>,
    filled: usize,
}

/// How a file of a size is cut.
fn part_bytes(size: u64, smallest: u64) -> u64 {
    match size.div_ceil(MAX_PARTS) {
        needed if needed <= smallest => smallest,
        needed => needed.next_multiple_of(1 << 20),
    }
}

impl Upload {
    pub(super) fn new(client: &Arc<Client>, key: Path, is_final: bool) -> Arc<Self> {
        Arc::new(Self {
            client: Arc::clone(client),
            key,
            state: Mutex::default(),
            begin: Mutex::default(),
            is_final,
        })
    }

    pub(super) fn key(&self) -> &Path {
        &self.key
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of a file that is sent in parts.
    fn parted(&self) -> Option<u64> {
        self.state()
            .size
            .filter(|size| *size > self.client.part_bytes)
    }

    /// The upload that the parts belong to.
    fn id(&self) -> io::Result<String> {
        let _one = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = &self.state().id {
            return Ok(id.clone());
        }
        let id = self
            .client
            .wait(self.client.s3.create_multipart(&self.key))?;
        self.state().id = Some(id.clone());
        Ok(id)
    }

    fn put_part(&self, part: u64, bytes: Bytes) -> io::Result<()> {
        let id = self.id()?;
        let number = usize::try_from(part).map_err(io::Error::other)?;
        let sent = self
            .client
            .s3
            .put_part(&self.key, &id, number, bytes.into());
        let sent = self.client.wait(sent)?;
        self.state().done.insert(part, sent.content_id);
        Ok(())
    }

    fn write_small(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > MAX_SMALL {
            return Err(io::Error::other(format!(
                "a file whose size was not announced has more than {MAX_SMALL} bytes"
            )));
        }
        let (start, end) = (
            usize::try_from(offset).map_err(io::Error::other)?,
            usize::try_from(end).map_err(io::Error::other)?,
        );
        let small = &mut self.state().small;
        let length = small.len().max(end);
        small.resize(length, 0);
        small[start..end].copy_from_slice(bytes);
        Ok(())
    }

    /// Adds bytes to a part; the whole part, once it is full.
    fn fill(&self, part: u64, length: usize, at: usize, bytes: &[u8]) -> io::Result<Option<Bytes>> {
        let mut state = self.state();
        if !state.open.contains_key(&part) && state.open.len() == MAX_OPEN {
            return Err(io::Error::other(format!(
                "more than {MAX_OPEN} parts of one upload are begun at a time"
            )));
        }
        let open = state.open.entry(part).or_default();
        open.bytes.resize(length, 0);
        let Some(target) = open.bytes.get_mut(at..at + bytes.len()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        target.copy_from_slice(bytes);
        open.filled += bytes.len();
        if open.filled < length {
            return Ok(None);
        }
        Ok(state.open.remove(&part).map(|open| open.bytes.into()))
    }

    /// Makes what was written appear under its name; fails with `AlreadyExists` where that name is taken.
    pub(super) fn publish(&self) -> io::Result<()> {
        if self.parted().is_none() {
            return self.put(PutMode::Create);
        }
        let (id, document) = {
            let state = self.state();
            let id = state.id.clone().ok_or(io::ErrorKind::InvalidInput)?;
            (id, parts_document(&state.done))
        };
        self.client.complete(&self.key, &id, document)
    }

    /// Sends a small file under a name, and replaces what had it.
    pub(super) fn replace(&self, key: &Path) -> io::Result<()> {
        let body = Bytes::copy_from_slice(&self.state().small);
        self.client.put(key, body, PutMode::Overwrite)
    }

    fn put(&self, mode: PutMode) -> io::Result<()> {
        let body = Bytes::copy_from_slice(&self.state().small);
        self.client.put(&self.key, body, mode)
    }

    /// Ends an upload that is not to be published.
    pub(super) fn abort(&self) -> io::Result<()> {
        let id = self.state().id.take();
        match id {
            Some(id) => self
                .client
                .wait(self.client.s3.abort_multipart(&self.key, &id)),
            None => Ok(()),
        }
    }
}

fn put(text: &mut String, part: &str) {
    text.push_str(part);
}

/// The list of parts that ends an upload.
fn parts_document(parts: &BTreeMap<u64, String>) -> String {
    let mut text = String::from("<CompleteMultipartUpload>");
    for (part, etag) in parts {
        let etag = etag
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('"', "&quot;");
        put(
            &mut text,
            &format!(
                "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>",
                part + 1
            ),
        );
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}

/// The handle of a writer.
#[derive(Debug)]
pub(super) struct ObjectOutput(pub(super) Arc<Upload>);

impl Output for ObjectOutput {
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        self.0.state().size = Some(bytes);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let upload = &*self.0;
        let Some(size) = upload.parted() else {
            return upload.write_small(offset, bytes);
        };
        if offset.saturating_add(bytes.len() as u64) > size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a write reaches beyond the announced size",
            ));
        }
        let cut = part_bytes(size, upload.client.part_bytes);
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let part = at / cut;
            let length = usize::try_from(cut.min(size - part * cut)).map_err(io::Error::other)?;
            let within = usize::try_from(at - part * cut).map_err(io::Error::other)?;
            let (now, later) = rest.split_at(rest.len().min(length - within));
            let full = if now.len() == length {
                Some(Bytes::copy_from_slice(now))
            } else {
                upload.fill(part, length, within, now)?
            };
            if let Some(full) = full {
                upload.put_part(part, full)?;
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let upload = &*self.0;
        if let Some(size) = upload.parted() {
            let wanted = size.div_ceil(part_bytes(size, upload.client.part_bytes));
            let sent = upload.state().done.len() as u64;
            if sent != wanted {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!("{sent} of {wanted} parts of the upload were written"),
                ));
            }
        }
        if upload.is_final {
            upload.publish()
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_fits_into_the_parts() {
        for size in [
            1,
            PART_BYTES,
            64 << 30,
            MAX_PARTS * PART_BYTES,
            (MAX_PARTS * PART_BYTES) + 1,
            5 << 40,
        ] {
            let cut = part_bytes(size, PART_BYTES);
            assert!(size.div_ceil(cut) <= MAX_PARTS, "{size}");
            assert!((PART_BYTES..=5 << 30).contains(&cut), "{size}");
        }
    }

    #[test]
    fn list_of_parts_is_in_order() {
        let parts = BTreeMap::from([(1, "\"b\"".to_owned()), (0, "a".to_owned())]);
        assert_eq!(
            parts_document(&parts),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>a</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>&quot;b&quot;</ETag></Part></CompleteMultipartUpload>"
        );
    }
}
