//! An object that is read in ranges.

use std::{io, sync::Arc};

use bytes::Bytes;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore as _, ObjectStoreExt as _, path::Path,
};

use super::{Client, failure};
use crate::storage::Input;

/// Bytes that are read when an object is opened: documents are mostly smaller, so they take one request.
const FIRST: u64 = 64 << 10;

/// Most bytes of one request.
const RANGE: usize = 16 << 20;

/// An object as it was when it was opened: a later one under the same name is an error, never a mix.
#[derive(Debug)]
pub(super) struct ObjectInput {
    client: Arc<Client>,
    key: Path,
    size: u64,
    etag: Option<String>,
    first: Bytes,
}

impl ObjectInput {
    pub(super) fn open(client: &Arc<Client>, key: Path) -> io::Result<Self> {
        let opened = client.wait(async {
            let options = GetOptions {
                range: Some(GetRange::Bounded(0..FIRST)),
                ..GetOptions::default()
            };
            match client.s3.get_opts(&key, options).await {
                Ok(found) => {
                    let meta = found.meta.clone();
                    Ok((meta, found.bytes().await?))
                }
                // An empty object has no range.
                Err(error) if failure::has_no_range(&error) => {
                    let meta = client.s3.head(&key).await?;
                    Ok((meta, Bytes::new()))
                }
                Err(error) => Err(error),
            }
        });
        let (ObjectMeta { size, e_tag, .. }, first) = opened?;
        if first.len() as u64 != size.min(FIRST) {
            return Err(short());
        }
        Ok(Self {
            client: Arc::clone(client),
            key,
            size,
            etag: e_tag,
            first,
        })
    }
}

fn short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the object store answered with fewer bytes than the object has",
    )
}

impl Input for ObjectInput {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        if end > self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if end <= self.first.len() as u64 {
            return self.first.to_vec().read_at(offset, buffer);
        }
        let mut start = offset;
        for part in buffer.chunks_mut(RANGE) {
            let range = start..start + part.len() as u64;
            start = range.end;
            let read = self.client.wait(async {
                let options = GetOptions {
                    range: Some(GetRange::Bounded(range)),
                    if_match: self.etag.clone(),
                    ..GetOptions::default()
                };
                self.client
                    .s3
                    .get_opts(&self.key, options)
                    .await?
                    .bytes()
                    .await
            });
            let bytes = read.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the object was replaced while it was read",
                ),
                _ => error,
            })?;
            if bytes.len() != part.len() {
                return Err(short());
            }
            part.copy_from_slice(&bytes);
        }
        Ok(())
    }
}
