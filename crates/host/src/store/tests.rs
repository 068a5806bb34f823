use std::io::Read as _;

use super::{log::HEAD_BYTES, ring::KEPT_BYTES, *};

fn text(log: &LogFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    log.open(0).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_log_keeps_its_beginning_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(folder.path(), "pytorch").unwrap();
    writer.write(b"first line\n").unwrap();
    let block = vec![b'x'; 1 << 20];
    let total = HEAD_BYTES + 5 * KEPT_BYTES;
    for _ in 0..(total >> 20) {
        writer.write(&block).unwrap();
    }
    let last = b"\nthe cause\nlast line\n";
    writer.write(last).unwrap();

    let check = |when: &str| {
        let logs = LogFile::list(folder.path(), 1, "j-worker-0").unwrap();
        assert_eq!(logs.len(), 1, "{when}: parts are not logs of their own");
        let bytes = text(&logs[0]);
        assert!(bytes.starts_with(b"first line\n"), "{when}");
        assert!(bytes.ends_with(last), "{when}");
        let left_out = 11 + total + last.len() as u64 - HEAD_BYTES - KEPT_BYTES;
        let marker = format!("\n[{left_out} bytes left out]\n");
        let at = usize::try_from(HEAD_BYTES).unwrap();
        assert!(bytes[at..].starts_with(marker.as_bytes()), "{when}");
        let kept = usize::try_from(HEAD_BYTES + KEPT_BYTES).unwrap();
        assert_eq!(bytes.len(), kept + marker.len(), "{when}");
        assert_eq!(logs[0].last_lines(2).unwrap(), ["the cause", "last line"]);
    };
    check("while it is written, and after its writer was killed");
    writer.finish().unwrap();
    check("after the end");
    let files = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 3, "beginning, end and times: the ring is gone");
}

#[test]
fn a_log_can_be_followed_from_where_one_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(folder.path(), "c").unwrap();
    writer.write(b"one\n").unwrap();
    let log = LogFile::list(folder.path(), 1, "p").unwrap().remove(0);
    let mut reader = log.open(0).unwrap();
    let mut bytes = String::new();
    reader.read_to_string(&mut bytes).unwrap();
    writer.write(b"two\n").unwrap();
    let mut more = String::new();
    log.open(reader.offset())
        .unwrap()
        .read_to_string(&mut more)
        .unwrap();
    assert_eq!((bytes.as_str(), more.as_str()), ("one\n", "two\n"));
}

/// Names and sizes of files are whatever whoever made the folder wanted.
#[test]
fn parts_that_do_not_fit_are_read_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::File::create(at("c.log"))
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    let log = LogFile::list(folder.path(), 1, "p").unwrap().remove(0);
    for part in ["c.log.5", "c.log.18446744073709551615"] {
        fs::write(at(part), "x\ny\n").unwrap();
        let lines = log.last_lines(3).unwrap();
        let shown: usize = lines.iter().map(String::len).sum();
        assert!(shown < 1 << 20, "{part}: {shown} bytes");
        log.last_offset(1).unwrap();
        let mut reader = log.open(u64::MAX - 2).unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes.len() < 1 << 10, "{part}: {} bytes", bytes.len());
    }
    fs::write(
        at("c.log.times"),
        "0 -9223372036854775808\n5 9223372036854775807\n",
    )
    .unwrap();
    log.offset_since(jiff::Timestamp::UNIX_EPOCH).unwrap();
}

#[test]
fn a_log_is_read_at_any_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = LogWriter::create(folder.path(), "pytorch").unwrap();
    // Every line says where it begins.
    let mut written = 0_u64;
    let mut block = Vec::new();
    while written < HEAD_BYTES + 2 * KEPT_BYTES {
        let line = format!("{written:015}\n");
        block.extend_from_slice(line.as_bytes());
        written += line.len() as u64;
        if block.len() >= 1 << 20 {
            writer.write(&block).unwrap();
            block.clear();
        }
    }
    writer.write(&block).unwrap();
    let check = |when: &str| {
        let log = LogFile::list(folder.path(), 1, "j-worker-0")
            .unwrap()
            .remove(0);
        let view = log.view().unwrap();
        assert_eq!(view.size(), written, "{when}");
        let kept = [(0, HEAD_BYTES), (written - KEPT_BYTES, written)];
        assert_eq!(view.kept(), kept, "{when}");
        let at = |offset: u64| {
            let mut buffer = [0; 16];
            let count = view.read_at(offset, &mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..count]).into_owned()
        };
        for offset in [
            0,
            4_096,
            HEAD_BYTES - 16,
            written - KEPT_BYTES + 16,
            written - 16,
        ] {
            let offset = offset / 16 * 16;
            assert_eq!(at(offset), format!("{offset:015}\n"), "{when}");
        }
        for offset in [HEAD_BYTES, written - KEPT_BYTES - 16, written, written + 5] {
            assert_eq!(at(offset), "", "{when}: {offset} is not kept");
        }
        let times = log.times();
        assert_eq!(times.first().map(|(offset, _)| *offset), Some(0), "{when}");
    };
    check("while it is written");
    writer.finish().unwrap();
    check("after the end");
}

#[test]
fn unreadable_folder_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join(".trainyard");
    assert!(
        Store::open(&root).unwrap().jobs().unwrap().is_empty(),
        "none yet is empty"
    );

    fs::create_dir_all(root.join("runs/j/1")).unwrap();
    let cases = [
        ("version", "seven", "it does not contain a number"),
        (
            "version",
            "2",
            "has version 2; this program supports up to 1",
        ),
    ];
    for (file, content, want) in cases {
        fs::write(root.join(file), content).unwrap();
        for result in [Store::open(&root), Store::create(&root)] {
            let error = result.unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
            assert!(error.hint().is_some());
        }
        assert_eq!(fs::read_to_string(root.join(file)).unwrap(), content);
        assert!(!root.join(VOLUMES).exists(), "nothing was made in it");
    }
    fs::write(root.join("version"), "1\n").unwrap();
    let run = Store::open(&root).unwrap().latest("j").unwrap();
    fs::write(run.path.join(STATUS), "{").unwrap();
    let error = run.status().unwrap_err().to_string();
    assert!(error.contains("status.json`: EOF"), "{error}");
    assert!(run.record().unwrap_err().to_string().contains("job.json"));
    assert!(!run.is_live());

    fs::remove_dir_all(&root).unwrap();
    fs::write(&root, "").unwrap();
    let error = Store::create(&root).unwrap_err().to_string();
    assert!(error.ends_with("is not a folder"), "{error}");
}

/// Only where nobody listens has the run ended.
#[test]
fn a_run_that_does_not_answer_is_not_called_ended() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder {
        path: folder.path().to_owned(),
        job: "mnist".to_owned(),
        id: "1".to_owned(),
    };
    let words = ["true".to_owned()];
    let ended = run.exec(0, None, &words).unwrap_err();
    assert!(matches!(ended, StoreError::NotRunning { .. }), "{ended:?}");

    let listener = crate::remote::serve(folder.path()).unwrap();
    let long = ["x".repeat(100_000)];
    let error = run.exec(0, None, &long).unwrap_err();
    assert!(matches!(error, StoreError::NoAnswer { .. }), "{error:?}");
    let request = Request::Stop { now: false };
    let limit = Duration::from_millis(20);
    let late = crate::remote::ask_within(folder.path(), &request, &[], Some(limit)).unwrap_err();
    assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{late}");
    let error = run.no_answer(late);
    assert_eq!(error.to_string(), "no answer from job `mnist`");
    assert!(error.hint().is_none());
    drop(listener);
    let ended = run.exec(0, None, &words).unwrap_err();
    assert!(matches!(ended, StoreError::NotRunning { .. }), "{ended:?}");
}

/// An answer to another request is no exit code.
#[test]
fn an_unexpected_answer_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let listener = crate::remote::serve(folder.path()).unwrap();
    let engine = std::thread::spawn(move || {
        let socket = crate::remote::accept(&listener).unwrap();
        let request: Option<(Request, _)> = crate::channel::receive(&socket).unwrap();
        assert!(request.is_some());
        crate::channel::send(&socket, &Answer::Done, &[]).unwrap();
    });
    let run = RunFolder {
        path: folder.path().to_owned(),
        job: "mnist".to_owned(),
        id: "1".to_owned(),
    };
    let error = run.exec(0, None, &["true".to_owned()]).unwrap_err();
    assert!(matches!(error, StoreError::NoAnswer { .. }), "{error:?}");
    engine.join().unwrap();
}
