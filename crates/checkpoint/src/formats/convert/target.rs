//! The four formats, written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value as Json, json};
use trainyard_core::checkpoint::{Entry, Layout, Policy, VERSION, header};

use super::{
    super::{
        Contents, FormatError, base64, dcp as dcp_format, hf as hf_format,
        pickle::{MAX_DEPTH, Writer},
        safetensors as file_format, torch,
        tree::{self, Key, OPAQUE},
    },
    Checksum, Sums, blocks,
    place::sync,
};
use crate::{
    Files, Session, Store,
    clock::SystemClock,
    save::{Image, Limits, State},
    storage::Input,
    token,
    verify::verify,
};

/// Where a rank starts its next file.
const FILE_BYTES: u64 = 64 << 30;

/// A file that is being written from its beginning to its end.
struct Output {
    path: PathBuf,
    file: File,
    at: u64,
}

impl Output {
    fn create(path: PathBuf) -> Result<Self, FormatError> {
        match File::create_new(&path) {
            Ok(file) => Ok(Self { path, file, at: 0 }),
            Err(error) => Err(FormatError::io(&path, &error)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FormatError> {
        self.at += bytes.len() as u64;
        let written = self.file.write_all(bytes);
        written.map_err(|error| FormatError::io(&self.path, &error))
    }

    fn finish(self) -> Result<(), FormatError> {
        let synced = self.file.sync_all();
        synced.map_err(|error| FormatError::io(&self.path, &error))
    }
}

fn folder(path: &Path) -> Result<(), FormatError> {
    fs::create_dir(path).map_err(|error| FormatError::io(path, &error))
}

/// One safetensors file with some tensors.
fn shard(
    contents: &Contents,
    names: &[&str],
    path: PathBuf,
    done: &AtomicU64,
    sums: &mut Sums,
) -> Result<(), FormatError> {
    let mut out = Output::create(path)?;
    let wanted: BTreeSet<&str> = names.iter().copied().collect();
    let chosen = contents.tensors.iter();
    let chosen = chosen.filter(|(name, _)| wanted.contains(name.as_str()));
    let order = file_format::order(chosen);
    let listed = order.iter().map(|name| (*name, &contents.tensors[*name]));
    let header = file_format::write_header(listed)
        .map_err(|why| FormatError::new(out.path.display().to_string(), why))?;
    out.write(&header)?;
    for name in order {
        let mut sum = Checksum::default();
        blocks(contents, name, &mut |bytes| {
            sum.add(bytes);
            done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            out.write(bytes)
        })?;
        sums.insert(name.to_owned(), sum.finish());
    }
    out.finish()
}

/// One safetensors file.
pub(super) fn safetensors(
    contents: &Contents,
    path: &Path,
    done: &AtomicU64,
) -> Result<Sums, FormatError> {
    let names: Vec<&str> = contents.tensors.keys().map(String::as_str).collect();
    let mut sums = Sums::new();
    shard(contents, &names, path.to_owned(), done, &mut sums)?;
    Ok(sums)
}

/// Shards and their index.
pub(super) fn hf(
    contents: &Contents,
    path: &Path,
    limit: u64,
    done: &AtomicU64,
) -> Result<Sums, FormatError> {
    folder(path)?;
    let shards = hf_format::shards(&contents.tensors, limit);
    let mut sums = Sums::new();
    for (place, names) in shards.iter().enumerate() {
        let name = hf_format::shard_name(place, shards.len());
        shard(contents, names, path.join(name), done, &mut sums)?;
    }
    let mut out = Output::create(path.join(hf_format::INDEX))?;
    out.write(&hf_format::index(&contents.tensors, &shards))?;
    out.finish()?;
    sync(path)?;
    Ok(sums)
}

/// A folder that `torch.distributed.checkpoint` reads: one file of items, and the metadata.
pub(super) fn dcp(
    contents: &Contents,
    path: &Path,
    done: &AtomicU64,
    left_out: &mut Vec<String>,
) -> Result<Sums, FormatError> {
    const FILE: &str = "__0_0.distcp";
    folder(path)?;
    let mut out = Output::create(path.join(FILE))?;
    let mut items = Vec::new();
    let mut paths: BTreeMap<String, Vec<Key>> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for (path, node) in contents.state.iter().flat_map(tree::leaves) {
        let name = tree::joined(&path);
        if let Some(tensor) = tree::tensor_name(&node) {
            if tensor == name {
                paths.insert(name, path);
            }
            continue;
        }
        let item = match item(&node) {
            Ok(item) => item,
            Err(why) => {
                left_out.push(format!("`{name}`: {why}"));
                continue;
            }
        };
        if name.is_empty() || contents.tensors.contains_key(&name) || !known.insert(name.clone()) {
            left_out.push(format!("`{name}`: its name is empty or taken"));
            continue;
        }
        let start = out.at;
        out.write(&item)?;
        items.push(dcp_format::Written {
            name,
            tensor: None,
            path,
            start,
            length: out.at - start,
        });
    }
    let others = contents.other_state.len();
    if others > 0 {
        left_out.push(format!(
            "{others} values that belong to ranks, such as random numbers"
        ));
    }
    let mut sums = Sums::new();
    for (name, tensor) in &contents.tensors {
        let start = out.at;
        let item = torch::Item::new(tensor.dtype, &tensor.shape, tensor.bytes());
        out.write(&item.head)?;
        let mut sum = Checksum::default();
        let mut crc = crc32fast::Hasher::new();
        blocks(contents, name, &mut |bytes| {
            sum.add(bytes);
            crc.update(bytes);
            done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            out.write(bytes)
        })?;
        out.write(&item.tail(crc.finalize()))?;
        sums.insert(name.clone(), sum.finish());
        let path = paths.remove(name);
        items.push(dcp_format::Written {
            name: name.clone(),
            tensor: Some((tensor.dtype, tensor.shape.clone())),
            path: path.unwrap_or_else(|| vec![Key::Name(name.clone())]),
            start,
            length: out.at - start,
        });
    }
    out.finish()?;
    let metadata = dcp_format::MetadataWriter {
        file: FILE,
        items: &items,
    };
    let mut out = Output::create(path.join(dcp_format::METADATA))?;
    out.write(&metadata.bytes())?;
    out.finish()?;
    sync(path)?;
    Ok(sums)
}

/// The bytes of an object.
fn item(node: &Json) -> Result<Vec<u8>, String> {
    if let Some(text) = node.get(OPAQUE).and_then(Json::as_str) {
        return base64::decode(text).ok_or_else(|| "it is not base64".into());
    }
    let mut out = Writer::new(2);
    tree::write(&mut out, node, MAX_DEPTH)?;
    Ok(torch::object_item(&out.finish()))
}

/// A store with one step of one rank.
pub(super) fn trainyard(
    contents: &Arc<Contents>,
    path: &Path,
    step: u64,
    done: &Arc<AtomicU64>,
    left_out: &mut Vec<String>,
) -> Result<(), FormatError> {
    let bad = |why: String| FormatError::new(path.display().to_string(), why);
    folder(path)?;
    let files = Files::open(path).map_err(|error| bad(error.to_string()))?;
    let random = token::seed().map_err(|error| FormatError::io(path, &error))?;
    let clock = SystemClock::start();
    let store = Store::create(Arc::new(files), Arc::clone(&clock), None, random)
        .map_err(|error| bad(error.to_string()))?;
    let id = store
        .fence(Some(1), "trainyard checkpoints convert", |_| None)
        .map_err(|error| bad(error.to_string()))?;
    let (layout, images) = images(contents, done).map_err(bad)?;
    let session = Session {
        store: Arc::new(store),
        clock,
        id,
        rank: 0,
        world: 1,
        limits: Limits {
            // However long it takes: nobody waits for the commit.
            deadline: Duration::from_secs(u64::from(u32::MAX)),
            ..Limits::default()
        },
        keep: Policy::default(),
    };
    let state = State {
        images,
        layout: Some(layout),
        objects: Some(objects(contents, left_out)),
        ..State::default()
    };
    let saved = session
        .save(step, &state)
        .map_err(|error| bad(error.to_string()))?;
    let seen = session
        .store
        .view()
        .map_err(|error| bad(error.to_string()))?
        .commits();
    let commit = seen
        .iter()
        .find(|seen| seen.folder == saved.commit.folder)
        .ok_or_else(|| bad("the step that was saved is not there".into()))?;
    let verified = verify(
        &session.store,
        &commit.folder,
        &commit.commit.document,
        true,
    );
    done.fetch_add(contents.bytes(), Ordering::Relaxed);
    match verified.problems.first() {
        Some(problem) => Err(bad(problem.why.clone())),
        None => Ok(()),
    }
}

/// The small state of the only rank.
fn objects(contents: &Contents, left_out: &mut Vec<String>) -> Map<String, Json> {
    let state = contents.state.clone().unwrap_or_else(|| {
        let tensors: Map<String, Json> = contents
            .tensors
            .keys()
            .map(|name| (name.clone(), json!({"$tensor": name})))
            .collect();
        json!({"model": tensors})
    });
    let mut objects = Map::new();
    objects.insert("state".into(), state);
    let mut others = 0;
    for (place, value) in &contents.other_state {
        match place.strip_prefix("rank 0: ") {
            Some(name) => {
                objects.insert(name.to_owned(), value.clone());
            }
            None => others += 1,
        }
    }
    if others > 0 {
        left_out.push(format!(
            "{others} values of small state of ranks other than 0"
        ));
    }
    objects
}

/// The layout, and the files of the rank as sources of bytes.
fn images(contents: &Arc<Contents>, done: &Arc<AtomicU64>) -> Result<(Layout, Vec<Image>), String> {
    let mut layout = Layout {
        version: VERSION,
        mesh: Vec::new(),
        tensors: Vec::new(),
        other: Map::new(),
    };
    let mut files: Vec<Vec<(u64, u64, String)>> = vec![Vec::new()];
    let (mut file, mut start) = (0, 0);
    for name in file_format::order(&contents.tensors) {
        let tensor = &contents.tensors[name];
        if start > 0 && start + tensor.bytes() > FILE_BYTES {
            files.push(Vec::new());
            file += 1;
            start = 0;
        }
        let mut entry = Entry::whole(name, tensor.dtype, tensor.shape.clone(), start);
        entry.file = file;
        layout.tensors.push(entry);
        if let Some(list) = files.last_mut() {
            list.push((start, tensor.bytes(), name.to_owned()));
        }
        start += tensor.bytes();
    }
    let mut images = Vec::new();
    for (file, tensors) in (0..).zip(files) {
        let head = header(&layout, &[], file)?;
        images.push(Image {
            data: head.len() as u64,
            source: Arc::new(Streamed {
                head,
                tensors,
                contents: Arc::clone(contents),
                done: Arc::clone(done),
            }),
        });
    }
    Ok((layout, images))
}

/// A file image that is read from the source while it is written.
#[derive(Debug)]
struct Streamed {
    head: Vec<u8>,
    /// First byte behind the header, length and name.
    tensors: Vec<(u64, u64, String)>,
    contents: Arc<Contents>,
    done: Arc<AtomicU64>,
}

impl Input for Streamed {
    fn size(&self) -> io::Result<u64> {
        let end = self
            .tensors
            .last()
            .map_or(0, |(start, length, _)| start + length);
        Ok(self.head.len() as u64 + end)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let head = self.head.len() as u64;
        let end = offset + buffer.len() as u64;
        if end > self.size()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let place = |at: u64| usize::try_from(at - offset).unwrap_or(usize::MAX);
        if offset < head {
            let last = end.min(head);
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let to = usize::try_from(last).unwrap_or(usize::MAX);
            buffer[..place(last)].copy_from_slice(&self.head[from..to]);
        }
        let first = self
            .tensors
            .partition_point(|(start, length, _)| head + start + length <= offset);
        for (start, length, name) in &self.tensors[first..] {
            let (from, to) = ((head + start).max(offset), (head + start + length).min(end));
            if head + start >= end {
                break;
            }
            if from < to {
                let part = &mut buffer[place(from)..place(to)];
                self.contents
                    .read(name, from - head - start, part)
                    .map_err(io::Error::other)?;
            }
        }
        self.done.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
