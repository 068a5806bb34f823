//! The store: every test opens a real file.

mod broken;
mod guide;
mod idempotent;
mod kept;
mod questions;
mod retention;

use rusqlite::Connection;

use crate::{End, Store, testing::*};

/// One number that a query gives, read by a connection of its own.
fn number(place: &Place, sql: &str) -> i64 {
    let connection = Connection::open(&place.path).unwrap();
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Every row of every table and view, as text.
fn dump(place: &Place) -> Vec<String> {
    let connection = Connection::open(&place.path).unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name";
    let mut names = connection.prepare(names).unwrap();
    let names: Vec<String> = (names.query_map([], |row| row.get(0)).unwrap())
        .collect::<Result<_, _>>()
        .unwrap();
    let mut all = Vec::new();
    for name in names {
        let mut statement = connection
            .prepare(&format!("SELECT * FROM {name}"))
            .unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let values: Vec<String> = (0..columns)
                .map(|at| format!("{:?}", row.get::<_, rusqlite::types::Value>(at).unwrap()))
                .collect();
            all.push(format!("{name}: {}", values.join(", ")));
        }
    }
    all
}

/// `phase_day` is the sum of `run_day`, and `run_day` of what has detail the sum of spans.
fn sums_hold(place: &Place) {
    let differ = "SELECT COUNT(*) FROM (SELECT run_day.day, run.namespace, run.team, run_day.phase, SUM(run_day.ms) AS ms, SUM(run_day.gpu_ms) AS gpu_ms \
                  FROM run_day JOIN run ON run.id = run_day.run GROUP BY 1, 2, 3, 4) AS added \
                  FULL OUTER JOIN phase_day USING (day, namespace, team, phase) \
                  WHERE added.ms IS NOT phase_day.ms OR added.gpu_ms IS NOT phase_day.gpu_ms";
    assert_eq!(number(place, differ), 0, "{:#?}", dump(place));
    let differ = "SELECT COUNT(*) FROM (SELECT run, phase, SUM(ms) AS ms FROM span GROUP BY 1, 2) AS spans \
                  FULL OUTER JOIN (SELECT run_day.run, run_day.phase, SUM(ms) AS ms FROM run_day JOIN run ON run.id = run_day.run \
                  WHERE detail = 1 GROUP BY 1, 2) AS days USING (run, phase) WHERE spans.ms IS NOT days.ms";
    assert_eq!(number(place, differ), 0, "{:#?}", dump(place));
}

fn succeeded(ended: i64) -> End {
    End {
        ended,
        outcome: "succeeded".to_owned(),
        cause: None,
        sentence: "done".to_owned(),
        attempts: 2,
        last_step: Some(500),
    }
}

/// A run that has ended.
fn write_whole(store: &mut Store, uid: &str) {
    let run = run(uid);
    store.write(&run, &two_attempts(), START).unwrap();
    let ended = START + 30 * HOUR;
    store.end(&run, &succeeded(ended), START).unwrap();
}

#[test]
fn facts_are_rows_with_their_sums() {
    let place = Place::new();
    let mut store = place.open();
    write_whole(&mut store, "a");
    sums_hold(&place);
    let hours = |phase: &str, day: &str| {
        let sql = format!(
            "SELECT ms / 3600000 FROM v1_phase_day WHERE phase = '{phase}' AND day = '{day}' AND team = 'vision'"
        );
        number(&place, &sql)
    };
    assert_eq!(hours("training", "2026-01-02"), 21);
    assert_eq!(hours("training", "2026-01-03"), 6);
    assert_eq!(hours("queued", "2026-01-02"), 1);
    let gpu = "SELECT SUM(gpu_ms) / 3600000 FROM v1_phase_day";
    assert_eq!(number(&place, gpu), 29 * 4, "a queued job holds none");
    let attempts = "SELECT COUNT(*) FROM v1_attempt WHERE node = 'node-a' AND attempt = 1 AND message = 'exit code 1'";
    assert_eq!(number(&place, attempts), 1);
    let second = format!("SELECT ended - {START} FROM v1_attempt WHERE attempt = 2");
    assert_eq!(number(&place, &second), 30 * HOUR);
    assert_eq!(
        number(&place, "SELECT COUNT(*) FROM v1_span WHERE exact = 1"),
        5
    );
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM v1_node_fact WHERE kind = 'failed' AND node = 'node-a'"
        ),
        1
    );
    assert_eq!(
        number(
            &place,
            "SELECT COUNT(*) FROM v1_run WHERE outcome = 'succeeded' AND last_step = 500"
        ),
        1
    );
}

/// Whose eyes the file is for.
#[test]
fn only_its_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    drop(place.open());
    let folder = place.path.parent().unwrap();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700);
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}
