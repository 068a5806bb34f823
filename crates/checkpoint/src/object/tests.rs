//! Objects on a server that fails on purpose.

use std::{io, sync::Arc, time::Duration};

use trainyard_core::checkpoint::{
    AttemptId, Commit, Dtype, Entry, Layout, Policy, Selection, Wanted,
};

use super::{
    Address, Objects, Patience, Refused, Settings,
    server::{Fault, Server},
};
use crate::{
    clock::ManualClock,
    load::{Loader, Sink},
    remove,
    save::{Image, Limits, SaveError, Session, State},
    storage::{Kind, Storage, read_small},
    store::{Store, StoreError},
    token::Random,
    verify::verify_present,
};

/// Bytes of a part, and of a chunk: so a part has several chunks, and a file several parts.
const PART: u64 = 8 << 10;
const CHUNK: u64 = 3 << 10;

const SECRET: &str = "very-secret";

fn settings(server: &Server) -> Settings {
    let variables = [
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_ACCESS_KEY_ID", "KEY".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("AWS_REGION", "eu-central-1".to_owned()),
    ];
    let owned = variables.map(|(name, value)| (name.to_owned(), value));
    owned.into_iter().collect()
}

fn patience() -> Patience {
    Patience {
        tries: 4,
        connect: Duration::from_secs(5),
        each: Duration::from_millis(500),
        all: Duration::from_secs(10),
        first_pause: Duration::from_micros(100),
        longest_pause: Duration::from_millis(1),
    }
}

fn address() -> Address {
    "s3://bucket/runs/one".parse().unwrap()
}

fn objects(server: &Server) -> Objects {
    Objects::connect(&address(), &settings(server), patience(), PART).unwrap()
}

fn publish(objects: &Objects, name: &str, body: &[u8], token: u64) -> io::Result<()> {
    let temporary = format!("{name}.tmp-{token:016x}");
    let file = objects.create(&temporary)?;
    file.reserve(body.len() as u64)?;
    for (index, part) in body.chunks(5000).enumerate() {
        file.write_at(index as u64 * 5000, part)?;
    }
    file.sync()?;
    objects.publish(&temporary, name)
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..length.div_ceil(8))
        .flat_map(|_| random.draw().to_le_bytes())
        .take(length)
        .collect()
}

#[test]
fn files_appear_whole_and_once() {
    let server = Server::start();
    server.smallest_part(usize::try_from(PART).unwrap());
    let objects = objects(&server);
    for (number, length) in [0_usize, 1, 100, 8 << 10, (8 << 10) + 1, 70_000, 80_000]
        .into_iter()
        .enumerate()
    {
        let name = format!("steps/file-{number}.bin");
        let body = bytes(length, number as u64);
        publish(&objects, &name, &body, 1).unwrap();
        assert_eq!(
            server.body(&format!("runs/one/{name}")).as_ref(),
            Some(&body)
        );
        assert_eq!(objects.stat(&name).unwrap().bytes, length as u64);
        let second = publish(&objects, &name, &body, 2).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AlreadyExists, "{length}");
        objects.remove(&format!("{name}.tmp-{:016x}", 2)).unwrap();

        let input = objects.open(&name).unwrap();
        assert_eq!(input.size().unwrap(), length as u64);
        let mut read = vec![0; length];
        input.read_at(0, &mut read).unwrap();
        assert!(read == body, "{length}");
        let mut beyond = [0];
        let error = input.read_at(length as u64, &mut beyond).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        objects.remove(&name).unwrap();
        assert_eq!(
            objects.open(&name).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
    assert_eq!(server.keys(), Vec::<String>::new());
    assert_eq!(
        server.uploads(),
        Vec::<String>::new(),
        "an abandoned upload is ended"
    );
}

#[test]
fn listings_have_pages_and_folders() {
    let server = Server::start();
    server.page(3);
    for number in 0..10 {
        server.put(&format!("runs/one/steps/{number:02}/COMMIT.json"), b"x");
        server.put(&format!("runs/one/{number:02}.json"), b"x");
    }
    server.put("runs/other/x", b"x");
    let objects = objects(&server);
    let steps = objects.list("steps").unwrap();
    assert_eq!(steps.len(), 10);
    assert!(
        steps.iter().all(|entry| entry.kind == Kind::Folder),
        "{steps:?}"
    );
    let root = objects.list("").unwrap();
    assert_eq!(root.len(), 11);
    assert_eq!(root.last().unwrap().name, "steps");
    assert_eq!(objects.list("nothing").unwrap(), Vec::new());
    assert_eq!(objects.stat("steps/03").unwrap().kind, Kind::Folder);
    assert_eq!(objects.stat("steps").unwrap().kind, Kind::Folder);
    assert_eq!(
        objects.stat("steps/11").unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    for bad in ["../other/x", "a//b", ""] {
        assert_eq!(
            objects.open(bad).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}

#[test]
fn renames_replace_and_never_lose() {
    let server = Server::start();
    let objects = objects(&server);
    server.put("runs/one/a.json", b"one");
    server.put("runs/one/b.json", b"two");
    objects.rename("a.json", "b.json").unwrap();
    assert_eq!(server.body("runs/one/b.json").as_deref(), Some(&b"one"[..]));
    assert_eq!(server.keys(), ["runs/one/b.json"]);
    assert_eq!(
        objects.rename("a.json", "b.json").unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    // Cut after the copy: both names have it.
    server.plan(&[(2, Fault::Gone)]);
    objects.rename("b.json", "c.json").unwrap_err();
    assert_eq!(server.keys(), ["runs/one/b.json", "runs/one/c.json"]);
}

#[test]
fn replaced_object_is_an_error_and_never_a_mix() {
    let server = Server::start();
    let objects = objects(&server);
    server.put("runs/one/data.bin", &bytes(200_000, 1));
    server.plan(&[(1, Fault::Replaced)]);
    let input = objects.open("data.bin").unwrap();
    let mut part = vec![0; 100_000];
    let error = input.read_at(100_000, &mut part).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the object was replaced while it was read"
    );
}

#[test]
fn faults_pass_within_the_bound_and_not_beyond() {
    let server = Server::start();
    let objects = objects(&server);
    server.put("runs/one/x.json", b"text");
    let read = || read_small(&objects, "x.json", 100);
    for fault in [
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(429),
        Fault::Reset,
        Fault::DoneButReset,
        Fault::DoneButSlow,
        Fault::DoneButBusy,
        Fault::Truncated,
    ] {
        server.plan(&[(0, fault), (1, fault), (2, fault)]);
        assert_eq!(read().unwrap(), b"text", "{fault:?}");
        assert_eq!(server.requests(), 4, "{fault:?}");
        server.plan(&(0..10).map(|number| (number, fault)).collect::<Vec<_>>());
        let error = read().unwrap_err();
        assert_eq!(server.requests(), 4, "{fault:?}: {error}");
    }
    // What cannot pass is not repeated.
    server.plan(&[(0, Fault::Status(403))]);
    let error = read().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(
        error.to_string(),
        "the object store answered 403 (SlowDown)"
    );
    assert_eq!(server.requests(), 1);
}

#[test]
fn errors_and_logs_have_no_secrets() {
    let server = Server::start();
    let objects = objects(&server);
    assert!(!format!("{objects:?}").contains(SECRET));
    server.plan(
        &(0..1000)
            .map(|number| (number, Fault::Status(403)))
            .collect::<Vec<_>>(),
    );
    let errors = [
        objects.open("x").unwrap_err().to_string(),
        objects.list("").unwrap_err().to_string(),
        publish(&objects, "a.bin", &bytes(50_000, 1), 3)
            .unwrap_err()
            .to_string(),
        objects.end_uploads(&|_| true).unwrap_err().to_string(),
    ];
    for error in errors {
        assert_eq!(error, "the object store answered 403 (SlowDown)");
    }
    assert!(server.log().iter().all(|line| !line.contains(SECRET)));
}

#[test]
fn stores_that_cannot_publish_are_refused() {
    let server = Server::start();
    let open = |server: &Server| Objects::open(&address(), &settings(server), patience());
    drop(open(&server).unwrap());
    assert_eq!(server.keys(), Vec::<String>::new(), "the probe is removed");
    server.ignoring_conditions();
    let refused = open(&server).unwrap_err();
    assert!(
        refused.to_string().contains("ignores `If-None-Match`"),
        "{refused}"
    );
    assert_eq!(server.keys(), Vec::<String>::new());
    server.plan(&[(0, Fault::Status(403))]);
    let refused = open(&server).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot create an object in `s3://bucket/runs/one`: the object store answered 403 (SlowDown)"
    );
    let nobody: Settings = [("AWS_ENDPOINT_URL", "ftp://x")]
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .into_iter()
        .collect();
    let refused = Objects::open(&address(), &nobody, patience());
    assert!(matches!(refused, Err(Refused::Settings { .. })));
}

#[test]
fn store_without_conditional_end_of_uploads() {
    let server = Server::start();
    server.without_condition();
    let objects = objects(&server);
    let body = bytes(50_000, 3);
    publish(&objects, "a.bin", &body, 1).unwrap();
    assert_eq!(server.body("runs/one/a.bin"), Some(body.clone()));
    let error = publish(&objects, "a.bin", &body, 2).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn only_uploads_that_are_left_are_ended() {
    let server = Server::start();
    server.page(2);
    let objects = objects(&server);
    let mut outputs = Vec::new();
    for number in 0..7 {
        let file = objects
            .create(&format!("steps/{number}/a.bin.tmp-{number:016x}"))
            .unwrap();
        file.reserve(20_000).unwrap();
        file.write_at(0, &bytes(9_000, 1)).unwrap();
        outputs.push(file);
    }
    assert_eq!(server.uploads().len(), 7);
    let ended = objects
        .end_uploads(&|name| name != "steps/3/a.bin")
        .unwrap();
    assert_eq!(ended, 6);
    assert_eq!(server.uploads(), ["runs/one/steps/3/a.bin"]);
}

#[test]
fn misuse_is_an_error() {
    let server = Server::start();
    let objects = objects(&server);
    let file = objects.create("a.bin.tmp-0000000000000001").unwrap();
    assert!(objects.create("a.bin.tmp-0000000000000001").is_err());
    file.reserve(20_000).unwrap();
    assert!(file.write_at(19_000, &[0; 2_000]).is_err());
    file.write_at(0, &[0; 100]).unwrap();
    assert!(file.sync().is_err(), "most parts are missing");
    assert!(
        objects
            .publish("a.bin.tmp-0000000000000001", "b.bin")
            .is_err()
    );
    assert!(
        objects
            .publish("b.bin.tmp-0000000000000001", "b.bin")
            .is_err()
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let inside = runtime.block_on(async { objects.list("") });
    assert!(inside.unwrap_err().to_string().contains("asynchronous"));
}

// The whole protocol.

fn image(attempt: u32, step: u64) -> Vec<u8> {
    bytes(30_000, u64::from(attempt) << 32 | step)
}

fn wanted() -> Wanted {
    Wanted {
        world: 1,
        reshard: true,
        ..Wanted::default()
    }
}

/// Opens the store and takes the record of an attempt.
fn begin(server: &Server, attempt: u32) -> Result<Session, StoreError> {
    let seed = u64::from(attempt) << 8;
    let storage = Arc::new(objects(server));
    let store = Arc::new(Store::create(
        storage,
        ManualClock::start(),
        Some("run"),
        seed,
    )?);
    let loader = Loader::of(Arc::clone(&store));
    let mut failed = None;
    let id = store.fence(Some(attempt), &format!("h{attempt}"), |_| {
        match loader.choose(&wanted()) {
            Ok(Selection::Choice(choice)) => Some(choice.commit.folder),
            Ok(Selection::None { .. }) => None,
            Err(error) => {
                failed = Some(error);
                None
            }
        }
    })?;
    match failed {
        Some(error) => Err(error),
        None => Ok(Session {
            store,
            clock: ManualClock::start(),
            id,
            rank: 0,
            world: 1,
            limits: Limits {
                chunk_bytes: CHUNK,
                ..Limits::default()
            },
            keep: Policy {
                last: 2,
                ..Policy::default()
            },
        }),
    }
}

fn layout() -> Layout {
    Layout {
        version: 1,
        mesh: Vec::new(),
        tensors: vec![Entry::whole("w", Dtype::U8, vec![1], 0)],
        other: serde_json::Map::new(),
    }
}

fn save(session: &Session, step: u64) -> Result<(), SaveError> {
    let source = Arc::new(image(session.id.attempt, step));
    let state = State {
        images: vec![Image { source, data: 8 }],
        layout: Some(layout()),
        objects: Some(serde_json::Map::from_iter([(
            "step".to_owned(),
            step.into(),
        )])),
        ..State::default()
    };
    session.save(step, &state).map(drop)
}

/// An attempt that saves three steps, the last of which replaces the first; the newest that was acknowledged, and whether all were.
fn story(server: &Server, attempt: u32) -> (u64, Result<(), String>) {
    let mut newest = 0;
    let mut run = || {
        let session = begin(server, attempt).map_err(|error| error.to_string())?;
        for step in 1..=3 {
            save(&session, step).map_err(|error| error.to_string())?;
            newest = step;
        }
        Ok(())
    };
    let ended = run();
    (newest, ended)
}

#[derive(Default)]
struct Memory(Vec<u8>);

impl Sink for Memory {
    fn begin(&mut self, _: &Commit) -> io::Result<()> {
        self.0.clear();
        Ok(())
    }

    fn put(&mut self, _: u32, _: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[start..end].copy_from_slice(bytes);
        Ok(())
    }
}

/// The four invariants, and that nothing is left behind.
fn check(server: &Server, newest: u64, context: &str) {
    server.plan(&[]);
    let store = || Store::existing(Arc::new(objects(server)), ManualClock::start(), 1);
    if newest > 0 {
        let store = Arc::new(store().unwrap());
        let mut memory = Memory::default();
        let loaded = Loader::of(store)
            .load(&wanted(), &[0], &mut memory)
            .unwrap()
            .unwrap();
        assert!(
            loaded.step >= newest,
            "{context}: step {} after {newest}",
            loaded.step
        );
        assert!(memory.0 == image(1, loaded.step), "{context}: other bytes");
    }
    let session = begin(server, 2).unwrap_or_else(|error| panic!("{context}: {error}"));
    for step in 10..12 {
        save(&session, step).unwrap_or_else(|error| panic!("{context}: {error}"));
    }
    let store = store().unwrap();
    let pruned = remove::prune(&store, None, &session.keep, false).unwrap();
    assert_eq!(pruned.failures, Vec::<String>::new(), "{context}");
    assert_eq!(server.uploads(), Vec::<String>::new(), "{context}");
    let view = store.whole_view().unwrap();
    assert_eq!(view.foreign, Vec::<String>::new(), "{context}");
    let commits = view.commits();
    let kept: Vec<u64> = commits.iter().map(|seen| seen.folder.step).collect();
    assert!(kept.ends_with(&[10, 11]), "{context}: {kept:?}");
    assert_eq!(
        view.folders.len(),
        commits.len(),
        "{context}: a folder without commit is left"
    );
    for seen in commits {
        let verified = verify_present(&store, &seen.folder, &seen.commit.document, true).unwrap();
        assert_eq!(verified.problems, Vec::new(), "{context}");
    }
    assert!(
        !server.keys().iter().any(|key| key.contains(".tmp-")),
        "{context}"
    );
}

/// Places of faults in a story: every eighth request, which is one more than there are faults, so that they take turns.
fn places(requests: u64, first: u64) -> impl Iterator<Item = u64> {
    (first..requests).step_by(8)
}

#[test]
fn requests_of_a_save_may_fail_once() {
    let faults = [
        Fault::DoneButReset,
        Fault::Status(503),
        Fault::DoneButBusy,
        Fault::Truncated,
        Fault::Reset,
        Fault::Status(500),
        Fault::DoneButSlow,
    ];
    let server = Server::start();
    let (newest, ended) = story(&server, 1);
    assert_eq!((newest, ended), (3, Ok(())));
    let requests = server.requests();
    check(&server, newest, "no fault");
    for number in places(requests, 0) {
        let place = usize::try_from(number).unwrap();
        let fault = faults[place % faults.len()];
        let server = Server::start();
        server.page(2 + place % 5);
        server.plan(&[(number, fault)]);
        let context = format!("{fault:?} at request {number}");
        let (newest, ended) = story(&server, 1);
        assert_eq!((newest, ended), (3, Ok(())), "{context}");
        check(&server, newest, &context);
    }
}

#[test]
fn killed_at_a_request_nothing_is_lost() {
    let server = Server::start();
    story(&server, 1).1.unwrap();
    let requests = server.requests();
    for number in places(requests, 1) {
        let server = Server::start();
        server.plan(&[(number, Fault::Gone)]);
        let (newest, ended) = story(&server, 1);
        let context = format!("killed at request {number}: {ended:?}");
        check(&server, newest, &context);
    }
}

#[test]
fn fenced_attempt_ends_and_is_not_seen() {
    let server = Server::start();
    let first = begin(&server, 1).unwrap();
    save(&first, 1).unwrap();
    let second = begin(&server, 2).unwrap();
    assert_eq!(
        second.id,
        AttemptId {
            attempt: 2,
            restart: 0
        }
    );
    let error = save(&first, 2).unwrap_err();
    assert!(error.to_string().contains("fenced"), "{error}");
    save(&second, 5).unwrap();
    assert!(matches!(begin(&server, 1), Err(StoreError::Fenced { .. })));
}
