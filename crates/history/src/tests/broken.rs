//! Files that cannot be used, a second writer, and no room.

use std::{
    fs,
    os::unix::fs::{FileExt as _, symlink},
};

use super::*;
use crate::{HistoryError, Options, Reader, schema};

#[test]
fn a_second_writer_is_refused_by_name() {
    let place = Place::new();
    let first = place.open();
    let error = Store::open(&place.path, &options()).unwrap_err();
    let text = error.to_string();
    assert!(text.ends_with("is being written by a test"), "{text}");
    assert!(matches!(error, HistoryError::Held { .. }) && error.hint().is_some());
    // Readers are not in its way, nor it in theirs.
    place.reader();
    drop(first);
    place.open();
}

/// A history may lie in a folder that others write to.
#[test]
fn links_beside_a_store_lead_nowhere() {
    for ending in ["lock", "reserve"] {
        let place = Place::new();
        let folder = place.path.parent().unwrap();
        fs::create_dir_all(folder).unwrap();
        let victim = folder.join("victim");
        fs::write(&victim, "precious").unwrap();
        let link = folder.join(format!("history.db.{ending}"));
        symlink(&victim, &link).unwrap();
        let opened = Store::open(&place.path, &options());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious", "{ending}");
        match opened {
            Ok(store) => assert!(ending == "reserve" && store.is_full()),
            Err(error) => {
                let cause = std::error::Error::source(&error).unwrap().to_string();
                assert!(
                    ending == "lock" && cause.contains("is a symbolic link"),
                    "{cause}"
                );
            }
        }
    }
}

#[test]
fn a_newer_version_is_refused_unharmed() {
    let place = Place::new();
    write_whole(&mut place.open(), "a");
    let connection = Connection::open(&place.path).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    connection
        .pragma_update(None, "wal_checkpoint", "TRUNCATE")
        .unwrap_or(());
    drop(connection);
    let before = fs::read(&place.path).unwrap();
    for error in [
        Store::open(&place.path, &options()).unwrap_err(),
        Reader::open(&place.path).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(
            text.ends_with("has version 99; this program reads versions up to 1"),
            "{text}"
        );
    }
    assert_eq!(fs::read(&place.path).unwrap(), before);
    assert_eq!(number(&place, "SELECT COUNT(*) FROM run"), 1);
}

#[test]
fn what_is_not_history_is_refused_unharmed() {
    let place = Place::new();
    drop(place.open());
    let folder = place.path.parent().unwrap();
    let foreign = folder.join("foreign.db");
    let connection = Connection::open(&foreign).unwrap();
    connection.execute_batch("CREATE TABLE a (b)").unwrap();
    drop(connection);
    let text = folder.join("text.db");
    fs::write(&text, "x".repeat(5_000)).unwrap();
    let cut = folder.join("cut.db");
    fs::write(&cut, &fs::read(&foreign).unwrap()[..700]).unwrap();
    let cases = [
        (
            "another program's",
            &foreign,
            "is a database of another program",
        ),
        ("text", &text, "the file is damaged, or is not a database"),
        ("cut", &cut, "the file is damaged, or is not a database"),
        ("folder", &folder.to_owned(), "cannot open history"),
    ];
    for (name, path, want) in cases {
        let before = fs::read(path).ok();
        let write = Store::open(path, &options()).unwrap_err().to_string();
        let read = Reader::open(path).unwrap_err().to_string();
        assert!(write.contains(want), "{name}: {write}");
        assert!(read.contains(want), "{name}: {read}");
        assert_eq!(fs::read(path).ok(), before, "{name}");
    }
    let missing = Reader::open(&folder.join("none.db")).unwrap_err();
    assert!(
        missing.to_string().starts_with("there is no history at"),
        "{missing}"
    );
    assert!(missing.hint().unwrap().contains("history sync"));
    // An empty file is a store that was never begun.
    fs::write(folder.join("empty.db"), "").unwrap();
    assert!(matches!(
        Reader::open(&folder.join("empty.db")),
        Err(HistoryError::Missing { .. })
    ));
    open(&folder.join("empty.db"));
}

#[test]
fn damage_is_reported() {
    let place = Place::new();
    let mut store = place.open();
    for at in 0..40 {
        write_whole(&mut store, &format!("run-{at}"));
    }
    drop(store);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&place.path)
        .unwrap();
    let length = file.metadata().unwrap().len();
    // All but the first page, which says what the file is.
    for page in 1..length / 4_096 {
        file.write_all_at(&[0xA5; 4_096], page * 4_096).unwrap();
    }
    let filter = crate::Filter {
        limit: 10,
        ..crate::Filter::default()
    };
    let read = Reader::open(&place.path).and_then(|reader| reader.list(&filter));
    let error = read.unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains(".recover"));
}

/// Opened by one that allows `pages_max` pages.
fn small(place: &Place, pages_max: u32) -> Store {
    let options = Options {
        pages_max: Some(pages_max),
        ..options()
    };
    Store::open(&place.path, &options).unwrap()
}

#[test]
fn without_room_ends_are_kept() {
    let place = Place::new();
    drop(place.open());
    let pages = number(&place, "PRAGMA page_count");
    let mut store = small(&place, u32::try_from(pages).unwrap() + 6);
    let mut whole = 0;
    for at in 0..100 {
        write_whole(&mut store, &format!("run-{at:03}"));
        whole += i64::from(!store.is_full());
    }
    assert!(store.is_full() && whole > 0 && whole < 100, "{whole}");
    // Each has its end and its attempts; those for which there was no room have no more.
    let ends = "SELECT COUNT(*) FROM v1_run WHERE outcome = 'succeeded' AND ended IS NOT NULL";
    assert_eq!(number(&place, ends), 100);
    assert_eq!(number(&place, "SELECT COUNT(*) FROM v1_attempt"), 200);
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM v1_attempt WHERE message = 'exit code 1'"
        ),
        100
    );
    assert_eq!(
        number(&place, "SELECT COUNT(DISTINCT run) FROM span"),
        whole
    );
    sums_hold(&place);
    drop(store);
    // With room, what is missing is written.
    let mut store = place.open();
    for at in 0..100 {
        write_whole(&mut store, &format!("run-{at:03}"));
    }
    assert!(!store.is_full());
    assert_eq!(number(&place, "SELECT COUNT(DISTINCT run) FROM span"), 100);
    assert_eq!(
        number(&place, "SELECT COUNT(*) FROM run WHERE complete = 1"),
        100
    );
    sums_hold(&place);
    assert_eq!(
        place
            .reader()
            .rows("check", "PRAGMA integrity_check", [], |row| row
                .get::<_, String>(0))
            .unwrap(),
        ["ok"]
    );
}

/// A step that a later version may have, for the mechanism.
const NEXT: &str = "ALTER TABLE run ADD COLUMN note TEXT";
const WRONG: &str = "CREATE TABLE half (a INTEGER); INSERT INTO nowhere VALUES (1);";

#[test]
fn an_older_file_is_copied_and_raised() {
    assert_eq!(i64::try_from(schema::STEPS.len()), Ok(schema::VERSION));
    let place = Place::new();
    write_whole(&mut place.open(), "a");
    let before = dump(&place);
    let first = schema::STEPS[0];
    let mut connection = Connection::open(&place.path).unwrap();
    // Half a copy of one who was killed.
    let part = place.path.with_file_name("history.db.v1.part");
    fs::write(&part, "half").unwrap();
    // A step that fails changes nothing.
    schema::migrate(&mut connection, &place.path, &[first, WRONG]).unwrap_err();
    assert_eq!(dump(&place), before);
    assert!(!part.exists());
    schema::migrate(&mut connection, &place.path, &[first, NEXT]).unwrap();
    assert_eq!(number(&place, "PRAGMA user_version"), 2);
    assert_eq!(
        number(&place, "SELECT COUNT(*) FROM run WHERE note IS NULL"),
        1
    );
    drop(connection);
    let copy = place.path.with_file_name("history.db.v1");
    let copied = Connection::open(&copy).unwrap();
    let version: i64 = copied
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 1);
}

/// What version 1 wrote is read by this version and by every later one.
#[test]
fn a_file_of_version_1_is_read() {
    let text = include_str!("../../testdata/version-1.sql");
    let place = Place::new();
    fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    let connection = Connection::open(&place.path).unwrap();
    connection.execute_batch(text).unwrap();
    drop(connection);
    let mut store = place.open();
    assert_eq!(number(&place, "SELECT COUNT(*) FROM v1_span"), 5);
    sums_hold(&place);
    let report = place
        .reader()
        .report(crate::By::Team, START, START + 40 * HOUR)
        .unwrap();
    assert_eq!(report.total.runs, 1);
    assert_eq!(report.total.failed_attempts, 1);
    write_whole(&mut store, "b");
    sums_hold(&place);
}
