//! Speed of the checkpoint engine on files; `cargo xtask bench checkpoints` reads the figures.
//!
//! `checkpoint-bench FOLDER BINARY` measures below FOLDER, which should be on the disk of interest: a save and a load beside plain direct
//! writes and reads of the same disk, in turns; the commit of many ranks; `BINARY checkpoints ls`; and the bytes that a load by another
//! number of ranks reads. `checkpoint-bench index` makes, reads and plans with the index of a large run, in a process of its own, so that
//! its memory is that of the index.
#![expect(clippy::print_stdout, reason = "the figures are the program's output")]
#![expect(
    clippy::cast_precision_loss,
    reason = "figures are read to three digits"
)]

use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    process::Command,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ScopedJoinHandle},
    time::Instant,
};

use rustix::fs::{Advice, FallocateFlags, OFlags};
use trainyard_checkpoint_engine::{
    Arena, Files, Loader, Session, Store,
    buffer::Aligned,
    clock::SystemClock,
    load::Sink,
    save::{Image, Limits, Progress, State},
    token::{self, Random},
};
use trainyard_core::checkpoint::{
    Axis, Commit, CommitFile, CommitPiece, Crc32c, Dtype, Entry, Index, Layout, LayoutRef, Nonce,
    Other, Policy, Region, Seconds, Split, VERSION, Wanted, WantedRegion, decode, encode, open,
    reshard,
};

/// Bytes of one save.
const BYTES: u64 = 1 << 30;
/// Bytes of one write or read.
const CHUNK: usize = 16 << 20;
/// Turns of every measurement.
const TURNS: usize = 5;
/// Ranks that commit together.
const RANKS: u32 = 64;
/// Steps that are listed.
const STEPS: u64 = 1_000;
/// Threads that write directly for the figure of the disk.
const WRITERS: [u64; 3] = [1, 2, 4];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["index"] => index(),
        [folder, binary] => {
            let folder = Path::new(folder);
            files(folder)?;
            many_ranks(folder)?;
            list(folder, binary)?;
            other_ranks()
        }
        _ => Err("needs a folder and the path of the program, or the word `index`".into()),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn session(root: &Path, rank: u32, world: u32, last: u32) -> Outcome<Session> {
    fs::create_dir_all(root)?;
    let files = Arc::new(Files::open(root)?);
    let store = Store::create(files, SystemClock::start(), Some("bench"), token::seed()?)?;
    let id = store.fence(Some(1), "bench", |_| None)?;
    let keep = Policy {
        last,
        ..Policy::default()
    };
    Ok(Session {
        store: Arc::new(store),
        clock: SystemClock::start(),
        id,
        rank,
        world,
        limits: Limits::default(),
        keep,
    })
}

/// A save and a load beside direct writes and reads of the same disk.
fn files(folder: &Path) -> Outcome<()> {
    let arena = Arena::create(BYTES)?;
    fill(&arena)?;
    let root = folder.join("files");
    let session = session(&root, 0, 1, 2)?;
    let state = State {
        images: vec![Image {
            source: Arc::new(arena.image(BYTES)?),
            data: 4_096,
        }],
        ..State::default()
    };
    let plain = folder.join("plain");
    let [mut saves, mut writes, mut loads, mut reads] = [const { Vec::new() }; 4];
    for turn in 1..=TURNS {
        let begin = Instant::now();
        session.save(turn as u64, &state)?;
        saves.push(begin.elapsed().as_secs_f64());
        let mut best = f64::INFINITY;
        for writers in WRITERS {
            best = best.min(write(&plain, writers)?);
        }
        writes.push(best);
        forget(&root)?;
        let mut sink = Count(0);
        let begin = Instant::now();
        let wanted = Wanted {
            world: 1,
            ..Wanted::default()
        };
        let mut loader = Loader::of(Arc::clone(&session.store));
        loader
            .load(&wanted, &[0], &mut sink)?
            .ok_or("nothing was found to load")?;
        loads.push(begin.elapsed().as_secs_f64());
        if sink.0 != BYTES {
            return Err(format!("{} of {BYTES} bytes were read", sink.0).into());
        }
        reads.push(read(&plain)?);
    }
    fs::remove_dir_all(&root)?;
    fs::remove_file(&plain)?;
    let bytes = BYTES as f64;
    for (name, ours, disk) in [("write", saves, writes), ("load", loads, reads)] {
        let (ours, disk) = (median(ours), median(disk));
        println!("{name}\t{:.0}\t{:.0}", bytes / ours, bytes / disk);
    }
    Ok(())
}

fn fill(arena: &Arena) -> Outcome<()> {
    let mut random = Random::new(7);
    let words = (0..CHUNK / 8).flat_map(|_| random.draw().to_le_bytes());
    let chunk: Vec<u8> = words.collect();
    for offset in (0..BYTES).step_by(CHUNK) {
        arena.write_at(offset, &chunk)?;
    }
    Ok(())
}

/// Seconds of a durable write past the page cache by so many threads: what the disk can do.
fn write(path: &Path, writers: u64) -> Outcome<f64> {
    drop(fs::remove_file(path));
    let mut chunk = Aligned::new(CHUNK);
    let mut random = Random::new(9);
    chunk.chunks_exact_mut(8).for_each(|word| {
        word.copy_from_slice(&random.draw().to_le_bytes());
    });
    let begin = Instant::now();
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(i32::try_from(OFlags::DIRECT.bits())?)
        .open(path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES)?;
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let work = || -> io::Result<()> {
            loop {
                let offset = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                if offset >= BYTES {
                    return Ok(());
                }
                file.write_all_at(&chunk, offset)?;
            }
        };
        let started: Vec<_> = (0..writers).map(|_| scope.spawn(work)).collect();
        let mut ended = started.into_iter().map(ScopedJoinHandle::join);
        ended.try_for_each(|end| end.map_err(|_| io::Error::other("a thread panicked"))?)
    })?;
    file.sync_data()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Seconds of a read past the page cache.
fn read(path: &Path) -> Outcome<f64> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(OFlags::DIRECT.bits())?)
        .open(path)?;
    let begin = Instant::now();
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        let work = || -> io::Result<()> {
            let mut chunk = Aligned::new(CHUNK);
            loop {
                let offset = next.fetch_add(CHUNK as u64, Ordering::Relaxed);
                if offset >= BYTES {
                    return Ok(());
                }
                file.read_exact_at(&mut chunk, offset)?;
            }
        };
        let started = [scope.spawn(work), scope.spawn(work)];
        let mut ended = started.into_iter().map(ScopedJoinHandle::join);
        ended.try_for_each(|end| end.map_err(|_| io::Error::other("a thread panicked"))?)
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Drops the files of a store from the page cache.
fn forget(root: &Path) -> Outcome<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            forget(&entry.path())?;
        } else {
            rustix::fs::fadvise(File::open(entry.path())?, 0, None, Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Counts what is restored.
struct Count(u64);

impl Sink for Count {
    fn begin(&mut self, _: &Commit) -> io::Result<()> {
        self.0 = 0;
        Ok(())
    }

    fn put(&mut self, _: u32, _: u32, _: u64, bytes: &[u8]) -> io::Result<()> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

/// The time from the last piece to the last rank that knows of the commit.
fn many_ranks(folder: &Path) -> Outcome<()> {
    let root = folder.join("ranks");
    let sessions: Vec<Session> = (0..RANKS)
        .map(|rank| session(&root, rank, RANKS, 3))
        .collect::<Outcome<_>>()?;
    let mut waits = Vec::new();
    for step in 1..=TURNS as u64 {
        let together = Barrier::new(sessions.len());
        let begin = Instant::now();
        let work = |session: &Session| -> Result<(f64, f64), String> {
            let image: Vec<u8> = vec![session.rank.to_le_bytes()[0]; 100_000];
            let state = State {
                images: vec![Image {
                    source: Arc::new(image),
                    data: 8,
                }],
                ..State::default()
            };
            together.wait();
            let saved = session.save(step, &state).map_err(|why| why.to_string())?;
            let end = begin.elapsed().as_secs_f64();
            Ok((end - saved.wait, end))
        };
        let work = &work;
        let times: Vec<(f64, f64)> = thread::scope(|scope| -> Outcome<Vec<(f64, f64)>> {
            let started: Vec<_> = sessions
                .iter()
                .map(|session| scope.spawn(move || work(session)))
                .collect();
            let ended = started.into_iter().map(ScopedJoinHandle::join);
            ended
                .map(|end| Ok(end.map_err(|_| "a thread panicked")??))
                .collect()
        })?;
        let last = |of: fn(&(f64, f64)) -> f64| times.iter().map(of).fold(0.0, f64::max);
        waits.push(last(|times| times.1) - last(|times| times.0));
    }
    fs::remove_dir_all(&root)?;
    println!("commit\t{RANKS}\t{:.4}", median(waits));
    Ok(())
}

/// `checkpoints ls` of many steps.
fn list(folder: &Path, binary: &str) -> Outcome<()> {
    let root = folder.join("list");
    let session = session(&root, 0, 1, u32::try_from(STEPS)? + 1)?;
    for step in 1..=STEPS {
        let state = State {
            images: vec![Image {
                source: Arc::new(vec![7; 64]),
                data: 8,
            }],
            ..State::default()
        };
        // Without retention, which looks at every step.
        let folder = session.folder(step);
        let deadline = session.clock.now() + session.limits.deadline;
        session.write_piece(&folder, &state, deadline, &mut Progress::default())?;
        session.finish(&folder, deadline)?;
    }
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let begin = Instant::now();
        let out = Command::new(binary)
            .args(["checkpoints", "ls"])
            .arg(&root)
            .output()?;
        times.push(begin.elapsed().as_secs_f64());
        let lines = String::from_utf8(out.stdout)?.lines().count() as u64;
        if !out.status.success() || lines < STEPS {
            return Err(format!("`checkpoints ls` printed {lines} lines").into());
        }
    }
    fs::remove_dir_all(&root)?;
    println!("ls\t{STEPS}\t{:.4}", median(times));
    Ok(())
}

/// Tensors of a large run, its mesh, and the rows that each axis splits.
struct Run {
    tensors: u64,
    mesh: Vec<Axis>,
    /// The dimension that each axis splits.
    dims: Vec<u32>,
}

impl Run {
    fn new(tensors: u64, sizes: &[u32], dims: &[u32]) -> Self {
        let mesh = sizes.iter().zip(["dp", "tp"]);
        Self {
            tensors,
            mesh: mesh
                .map(|(size, name)| Axis {
                    name: name.to_owned(),
                    size: *size,
                })
                .collect(),
            dims: dims.to_vec(),
        }
    }

    /// Name and shape; every tenth has rows that the mesh does not divide.
    fn tensor(number: u64) -> (String, Vec<u64>) {
        let rows = if number.is_multiple_of(10) {
            3_000
        } else {
            4_096
        };
        let (layer, block) = (number / 10, number % 10);
        (
            format!("model.layers.{layer}.block.{block}.weight"),
            vec![rows, 1_024],
        )
    }

    fn layout(&self, at: &[u32]) -> Outcome<Layout> {
        let mut start = 0;
        let mut tensors = Vec::new();
        for number in 0..self.tensors {
            let (name, shape) = Self::tensor(number);
            let split = (0_u32..).zip(&self.dims);
            let mut entry = Entry {
                name,
                key: None,
                dtype: Dtype::BF16,
                shape,
                local: Vec::new(),
                within: None,
                split: split.map(|(axis, dim)| Split { dim: *dim, axis }).collect(),
                file: 0,
                shared: None,
                start,
            };
            entry.local = entry.region(&self.mesh, at).sizes;
            start += entry.bytes().ok_or("a tensor that is too large")?;
            tensors.push(entry);
        }
        Ok(Layout {
            version: VERSION,
            mesh: self.mesh.clone(),
            tensors,
            other: Other::new(),
        })
    }

    /// The coordinates of every rank, the last axis first.
    fn ranks(&self) -> Vec<Vec<u32>> {
        let mut all = vec![Vec::new()];
        for axis in &self.mesh {
            let with = |at: &Vec<u32>| {
                let at = at.clone();
                (0..axis.size).map(move |place| [at.as_slice(), &[place]].concat())
            };
            all = all.iter().flat_map(with).collect();
        }
        all
    }

    /// The commit and the layouts that ranks share, as they are written.
    fn commit(&self) -> Outcome<(Commit, Vec<Vec<u8>>)> {
        let mut layouts = BTreeMap::new();
        let mut files = Vec::new();
        let mut pieces = Vec::new();
        // Ranks with the same local shapes have the same layout.
        let mut known = BTreeMap::new();
        for (rank, at) in (0..).zip(self.ranks()) {
            let (even, odd) = (self.region(1, &at), self.region(0, &at));
            let shapes = (even.sizes, odd.sizes);
            let (id, bytes) = if let Some(found) = known.get(&shapes) {
                *found
            } else {
                let layout = self.layout(&at)?;
                let last = layout.tensors.last().ok_or("no tensors")?;
                let bytes = last.start + last.bytes().ok_or("a tensor that is too large")?;
                let file = encode(&layout)?;
                let id = layout.id();
                let reference = LayoutRef {
                    id,
                    bytes: file.len() as u64,
                    crc32c: open(&file)?.1,
                };
                layouts.insert(id, reference);
                files.push(file);
                known.insert(shapes, (id, bytes));
                (id, bytes)
            };
            pieces.push(CommitPiece {
                rank,
                crc32c: Crc32c(rank),
                files: vec![CommitFile {
                    bytes: 4_096 + bytes,
                    data: 4_096,
                }],
                layout: Some(id),
                at,
                objects: None,
            });
        }
        let commit = Commit {
            version: VERSION,
            run: "bench".to_owned(),
            step: 1,
            attempt: 1,
            restart: 0,
            nonce: Nonce::from_random(7),
            world: u32::try_from(pieces.len())?,
            pieces,
            layouts: layouts.into_values().collect(),
            shared: Vec::new(),
            finite: None,
            seconds: Seconds::default(),
            saved_at: None,
            other: Other::new(),
        };
        Ok((commit, files))
    }

    /// The part of a tensor that the rank at these coordinates has.
    fn region(&self, number: u64, at: &[u32]) -> Region {
        let (name, shape) = Self::tensor(number);
        let split = (0_u32..).zip(&self.dims);
        let entry = Entry {
            name,
            key: None,
            dtype: Dtype::BF16,
            shape,
            local: Vec::new(),
            within: None,
            split: split.map(|(axis, dim)| Split { dim: *dim, axis }).collect(),
            file: 0,
            shared: None,
            start: 0,
        };
        entry.region(&self.mesh, at)
    }

    fn wanted(&self, at: &[u32]) -> Vec<WantedRegion> {
        let wanted = |number| WantedRegion {
            tensor: Self::tensor(number).0,
            region: self.region(number, at),
        };
        (0..self.tensors).map(wanted).collect()
    }
}

fn read_index(commit: &[u8], layouts: &[Vec<u8>]) -> Outcome<Index> {
    let commit = decode::<Commit>(commit)?;
    let mut known = BTreeMap::new();
    for file in layouts {
        let layout = decode::<Layout>(file)?.document;
        known.insert(layout.id(), layout);
    }
    Ok(Index::new(&commit.document, known)?)
}

/// The index of 1,024 ranks and 10,000 tensors, and a plan for one rank of another mesh.
fn index() -> Outcome<()> {
    let run = Run::new(10_000, &[128, 8], &[0, 1]);
    let begin = Instant::now();
    let (commit, layouts) = run.commit()?;
    let file = encode(&commit)?;
    let made = begin.elapsed().as_secs_f64();
    let bytes = file.len() + layouts.iter().map(Vec::len).sum::<usize>();
    drop(commit);
    let begin = Instant::now();
    let index = read_index(&file, &layouts)?;
    let loaded = begin.elapsed().as_secs_f64();
    let other = Run::new(10_000, &[96, 4], &[0, 1]);
    let wanted = other.wanted(&[7, 1]);
    let begin = Instant::now();
    reshard(&index, &wanted, None)?;
    let planned = begin.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .ok_or("no peak of the memory in /proc/self/status")?;
    println!("index\t{bytes}\t{made:.4}\t{loaded:.4}\t{planned:.4}\t{peak}");
    Ok(())
}

/// Bytes read for bytes wanted when two ranks saved and four load, and when four saved and three load, split by rows.
fn other_ranks() -> Outcome<()> {
    let mut worst = 0.0_f64;
    for (saved, loads) in [(2, 4), (4, 3), (2, 3)] {
        let (commit, layouts) = Run::new(500, &[saved], &[0]).commit()?;
        let index = read_index(&encode(&commit)?, &layouts)?;
        let other = Run::new(500, &[loads], &[0]);
        for at in other.ranks() {
            let plan = reshard(&index, &other.wanted(&at), None)?;
            worst = worst.max(plan.bytes() as f64 / plan.wanted as f64);
        }
    }
    println!("reshard\t{worst:.4}");
    Ok(())
}
