//! A prefix of a bucket: profile `object`.
//!
//! What differs from a folder: nothing is renamed and there are no folders. A file is kept in memory or sent in parts until it is
//! published, and appears under its final name at once, only if that name is free (`If-None-Match: *`). Data needs no other
//! exclusion: the name of its step folder carries the nonce of the save. What was answered is durable, so there is nothing to sync.
//!
//! The engine is synchronous: a call waits for its request, on a small runtime of this storage. Requests have a bound in time and in
//! number of tries ([`Patience`]).

mod address;
mod failure;
mod http;
mod input;
mod pages;
mod pending;
#[cfg(test)]
mod server;
mod settings;
#[cfg(test)]
mod tests;
mod tls;
mod upload;

use std::{
    collections::BTreeMap,
    error::Error,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ::http::{HeaderValue, Method, header};
use bytes::Bytes;
use object_store::{
    ObjectStore as _, ObjectStoreExt as _, PutMode, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    client::HttpClient,
    list::{PaginatedListOptions, PaginatedListStore as _},
    multipart::MultipartStore as _,
    path::Path,
    signer::{SignedUrlOptions, Signer as _},
};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::timeout,
};

pub use self::{
    address::{Address, BadAddress},
    http::Patience,
    settings::{BadSettings, Settings},
};
use self::{
    http::Connections,
    input::ObjectInput,
    pages::Pages,
    upload::{ObjectOutput, PART_BYTES, Upload},
};
use crate::{
    publish::unfinished_base,
    storage::{Entry, Input, Kind, MAX_ENTRIES, Output, Stat, Storage},
};

/// Threads that send parts of one file.
const WRITERS: usize = 4;

/// Threads that read ranges of one file.
const READERS: usize = 4;

/// Threads that wait for sockets.
const WORKERS: usize = 2;

/// Keys of one page of a listing; the most that S3 gives.
const PAGE: usize = 1000;

/// Largest object that is given another name, which takes its bytes here and back.
const MAX_RENAMED: u64 = 64 << 20;

/// How long a signed address is valid.
const SIGNED_FOR: Duration = Duration::from_mins(15);

/// Why a bucket cannot keep checkpoints.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The settings.
    #[error("`{address}` cannot be opened: {source}")]
    Settings {
        /// Which place.
        address: Address,
        /// What is wrong.
        source: BadSettings,
    },
    /// An answer of the store, or none.
    #[error("cannot {step} in `{address}`: {source}")]
    Storage {
        /// What was tried.
        step: &'static str,
        /// Where.
        address: Address,
        /// The answer.
        source: io::Error,
    },
}

/// What sends requests to one bucket.
struct Client {
    s3: AmazonS3,
    /// For the requests that the client of S3 does not have.
    service: HttpClient,
    runtime: Option<Runtime>,
    longest: Duration,
    /// The smallest size of a part; tests have smaller ones.
    part_bytes: u64,
    address: Address,
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing else: settings hold keys.
        write!(out, "Client({})", self.address)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Without waiting for a server that hangs.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Client {
    /// What went wrong, in one sentence.
    fn plain(&self, error: &(dyn Error + 'static)) -> io::Error {
        failure::plain(error, self.address.bucket())
    }

    /// Waits for a request, bounded.
    fn wait<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> io::Result<T> {
        self.block(async {
            match timeout(self.longest, request).await {
                Ok(answer) => answer.map_err(|error| self.plain(&error)),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }

    fn block<T>(&self, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let runtime = self.runtime.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if Handle::try_current().is_ok() {
            return Err(io::Error::other(
                "an object store was used from an asynchronous task",
            ));
        }
        runtime.block_on(work)
    }

    fn put(&self, key: &Path, body: Bytes, mode: PutMode) -> io::Result<()> {
        let put = self.s3.put_opts(key, body.into(), mode.into());
        self.wait(put).map(drop)
    }

    /// Sends a request that the client of S3 does not have; the body of the answer.
    fn send(
        &self,
        method: Method,
        key: &Path,
        query: Vec<(String, String)>,
        is_exclusive: bool,
        body: String,
    ) -> io::Result<Bytes> {
        let work = async {
            let options = SignedUrlOptions::new().with_query(query);
            let url = self
                .s3
                .signed_url_opts(method.clone(), key, SIGNED_FOR, &options)
                .await
                .map_err(|error| self.plain(&error))?;
            let mut request = ::http::Request::builder()
                .method(method)
                .uri(url.as_str())
                .header(header::CONTENT_LENGTH, body.len())
                .body(body.into())
                .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            if is_exclusive {
                let any = HeaderValue::from_static("*");
                request.headers_mut().insert(header::IF_NONE_MATCH, any);
            }
            let answer = self.service.execute(request).await;
            let answer = answer.map_err(|error| self.plain(&error))?;
            let body = answer.into_body().bytes().await;
            body.map_err(|error| self.plain(&error))
        };
        self.block(async {
            timeout(self.longest, work)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }

    /// Ends an upload under a name that must be free.
    fn complete(&self, key: &Path, id: &str, parts: String) -> io::Result<()> {
        let query = || vec![("uploadId".to_owned(), id.to_owned())];
        match self.send(Method::POST, key, query(), true, parts.clone()) {
            // A store without the condition: the name carries the nonce of the save, so only this rank writes it.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            other => return other.map(drop),
        }
        match self.wait(self.s3.head(key)) {
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.send(Method::POST, key, query(), false, parts)
            .map(drop)
    }
}

/// A prefix of a bucket.
#[derive(Debug)]
pub struct Objects {
    client: Arc<Client>,
    /// What is being written, by the name until it is published.
    uploads: Mutex<BTreeMap<String, Arc<Upload>>>,
}

impl Objects {
    /// Opens a prefix for saving, and tries out what the store can do.
    pub fn open(
        address: &Address,
        settings: &Settings,
        patience: Patience,
    ) -> Result<Self, Refused> {
        Self::existing(address, settings, patience)?.probed()
    }

    /// Tries out what the store can do.
    fn probed(self) -> Result<Self, Refused> {
        let objects = self;
        let address = objects.address().clone();
        let address = &address;
        let refuse = |step| {
            move |source| Refused::Storage {
                step,
                address: address.clone(),
                source,
            }
        };
        let token = crate::token::random().map_err(refuse("read random bytes"))?;
        let name = format!(".probe-{token}-a");
        let key = objects.key(&name).map_err(refuse("create an object"))?;
        let client = &objects.client;
        let body = Bytes::from_static(b"trainyard probe\n");
        let create = || client.put(&key, body.clone(), PutMode::Create);
        let probe = || {
            match create() {
                // A try that was not answered may have been carried out.
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(refuse("create an object")(error));
                }
                _ => {}
            }
            match create() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(refuse("create an object exclusively")(error)),
                Ok(()) => {
                    return Err(refuse("create an object exclusively")(io::Error::other(
                        "the same name was created twice; the object store ignores `If-None-Match`",
                    )));
                }
            }
            let read = crate::storage::read_small(&objects, &name, 1 << 10);
            if read.map_err(refuse("read an object back"))? != *body {
                return Err(refuse("read an object back")(io::Error::other(
                    "other bytes were read than were written",
                )));
            }
            Ok(())
        };
        let probed = probe();
        let removed = objects.remove(&name);
        probed?;
        removed.map_err(refuse("remove an object"))?;
        objects.list("").map_err(refuse("list objects"))?;
        Ok(objects)
    }

    /// Opens a prefix for reading and removing; nothing is created or tried out.
    pub fn existing(
        address: &Address,
        settings: &Settings,
        patience: Patience,
    ) -> Result<Self, Refused> {
        Self::connect(address, settings, patience, PART_BYTES)
    }

    fn connect(
        address: &Address,
        settings: &Settings,
        patience: Patience,
        part_bytes: u64,
    ) -> Result<Self, Refused> {
        let unusable = |source| Refused::Settings {
            address: address.clone(),
            source,
        };
        let broken = |source| Refused::Storage {
            step: "start the client",
            address: address.clone(),
            source,
        };
        let builder = settings.builder(address.bucket()).map_err(unusable)?;
        let tls = tls::config(settings).map_err(unusable)?;
        let seed = crate::token::seed().map_err(broken)?;
        let connections = Connections::new(tls, patience, seed, settings.metadata());
        // The connections repeat what failed; twice would be too often.
        let once = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("object-store")
            .enable_all()
            .build()
            .map_err(broken)?;
        let build = |builder: AmazonS3Builder| {
            builder
                .with_retry(once.clone())
                .with_http_connector(connections.clone())
                .build()
        };
        let s3 = build(builder).map_err(|_| {
            let builds = |builder| build(builder).is_ok();
            unusable(settings.refused(address.bucket(), &builds))
        })?;
        Ok(Self {
            client: Arc::new(Client {
                s3,
                // An endpoint without TLS is what the settings say, or there would be none.
                service: connections.service(true),
                runtime: Some(runtime),
                longest: patience.longest(),
                part_bytes,
                address: address.clone(),
            }),
            uploads: Mutex::default(),
        })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.client.address
    }

    fn key(&self, name: &str) -> io::Result<Path> {
        let key = self.client.address.key(name).filter(|_| !name.is_empty());
        key.ok_or_else(|| bad_name(name))
    }

    fn below(&self, folder: &str) -> io::Result<String> {
        let below = self.client.address.below(folder);
        below.ok_or_else(|| bad_name(folder))
    }

    fn uploads(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Upload>>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upload(&self, name: &str) -> Option<Arc<Upload>> {
        self.uploads().get(name).cloned()
    }

    /// One page of what is in a folder.
    fn page(
        &self,
        below: &str,
        limit: usize,
        token: Option<String>,
    ) -> io::Result<(Vec<Entry>, Option<String>)> {
        let options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(limit),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let prefix = (!below.is_empty()).then_some(below);
        let page = self
            .client
            .wait(self.client.s3.list_paginated(prefix, options))?;
        let name_of = |key: &Path| {
            let name = key.as_ref().strip_prefix(below)?.trim_end_matches('/');
            (!name.is_empty()).then(|| name.to_owned())
        };
        let files = page.result.objects.iter().filter_map(|object| {
            let name = name_of(&object.location)?;
            let kind = Kind::File;
            Some(Entry { name, kind })
        });
        let folders = page.result.common_prefixes.iter().filter_map(|prefix| {
            let name = name_of(prefix)?;
            let kind = Kind::Folder;
            Some(Entry { name, kind })
        });
        Ok((files.chain(folders).collect(), page.page_token))
    }
}

fn bad_name(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("`{}` is not a name below the root", name.escape_debug()),
    )
}

impl Storage for Objects {
    fn make_folder(&self, name: &str) -> io::Result<()> {
        self.below(name).map(drop)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Output>> {
        // An object appears under its name when it is published, never before.
        let base = unfinished_base(name).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "`{}` is not a name of an unfinished file",
                    name.escape_debug()
                ),
            )
        })?;
        let upload = Upload::new(&self.client, self.key(base)?);
        let mut uploads = self.uploads();
        if uploads.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        uploads.insert(name.to_owned(), Arc::clone(&upload));
        Ok(Box::new(ObjectOutput(upload)))
    }

    fn publish(&self, temporary: &str, name: &str) -> io::Result<()> {
        let upload = self.upload(temporary).ok_or(io::ErrorKind::NotFound)?;
        if *upload.key() != self.key(name)? {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{temporary}` was begun for another name than `{name}`"),
            ));
        }
        upload.publish()?;
        self.uploads().remove(temporary);
        Ok(())
    }

    /// Copies, then removes the old name: a kill between the two leaves both, and never neither.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let target = self.key(to)?;
        if let Some(upload) = self.upload(from) {
            upload.replace(&target)?;
            self.uploads().remove(from);
            return Ok(());
        }
        let body = crate::storage::read_small(self, from, MAX_RENAMED)?;
        self.client.put(&target, body.into(), PutMode::Overwrite)?;
        self.remove(from)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if let Some(upload) = self.uploads().remove(name) {
            return upload.abort();
        }
        let key = self.key(name)?;
        self.client.wait(self.client.s3.delete(&key))
    }

    fn remove_folder(&self, name: &str) -> io::Result<()> {
        // There are none: a folder is gone with its last object.
        self.below(name).map(drop)
    }

    fn sync_folder(&self, name: &str) -> io::Result<()> {
        self.below(name).map(drop)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Input>> {
        Ok(Box::new(ObjectInput::open(&self.client, self.key(name)?)?))
    }

    fn list(&self, name: &str) -> io::Result<Vec<Entry>> {
        let below = self.below(name)?;
        let mut entries = Vec::new();
        let mut pages = Pages::default();
        loop {
            let (page, next) = self.page(&below, PAGE, pages.marker().cloned())?;
            entries.extend(page);
            if entries.len() > MAX_ENTRIES {
                return Err(io::Error::other(format!(
                    "`{name}` has more than {MAX_ENTRIES} entries"
                )));
            }
            if !pages.advance(next)? {
                break;
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        Ok(entries)
    }

    fn stat(&self, name: &str) -> io::Result<Stat> {
        // The folders of the format have no dot in their names, so most names take one request.
        let last = name.rsplit('/').next().unwrap_or_default();
        let missing = if name.is_empty() {
            io::ErrorKind::NotFound.into()
        } else {
            match self.client.wait(self.client.s3.head(&self.key(name)?)) {
                Ok(meta) => {
                    return Ok(Stat {
                        kind: Kind::File,
                        bytes: meta.size,
                    });
                }
                Err(error) => error,
            }
        };
        if missing.kind() != io::ErrorKind::NotFound || last.contains('.') {
            return Err(missing);
        }
        let (entries, _) = self.page(&self.below(name)?, 1, None)?;
        if entries.is_empty() {
            return Err(missing);
        }
        Ok(Stat {
            kind: Kind::Folder,
            bytes: 0,
        })
    }

    fn free(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn writers(&self) -> usize {
        WRITERS
    }

    fn readers(&self) -> usize {
        READERS
    }

    fn end_uploads(&self, is_left: &dyn Fn(&str) -> bool) -> io::Result<u64> {
        let below = self.below("")?;
        let pending = match self.client.pending(&below) {
            // A store that does not list them removes them by a rule of its own, or not at all.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return Ok(0),
            other => other?,
        };
        let mut ended = 0;
        for upload in pending {
            let Some(name) = upload.key.strip_prefix(&below) else {
                continue;
            };
            let Ok(key) = self.key(name) else { continue };
            if !is_left(name) {
                continue;
            }
            let abort = self.client.s3.abort_multipart(&key, &upload.id);
            match self.client.wait(abort) {
                // Somebody else ended it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => {
                    other?;
                    ended += 1;
                }
            }
        }
        Ok(ended)
    }
}
