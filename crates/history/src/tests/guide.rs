//! The queries of the guide are true.

use rusqlite::types::Value;

use super::*;

/// What is between the fences of a language.
fn blocks(text: &str) -> Vec<&str> {
    let parts = text.split("```sql\n").skip(1);
    parts.filter_map(|part| part.split("```").next()).collect()
}

#[test]
fn queries_of_the_guide() {
    let place = Place::new();
    questions::filled(&place);
    let guide = include_str!("../../../../docs/guides/history.md");
    // The first row of each, over the runs of the other tests.
    let want = [
        "gpu_lost, 1, 1, ",
        "node-a, 2, 2",
        "live, 2026-01, 0",
        "starting, 8",
        ", 7200",
        "default, asr, failed, gpu_lost, done, 2026-01-03 06:00:00",
    ];
    let blocks = blocks(guide);
    assert_eq!(blocks.len(), want.len());
    let connection = Connection::open(&place.path).unwrap();
    for (sql, want) in blocks.into_iter().zip(want) {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = statement.query_row([], |row| {
            let values = (0..columns).map(|at| row.get::<_, Value>(at).unwrap());
            let text = values.map(|value| match value {
                Value::Text(text) => text,
                Value::Integer(number) => number.to_string(),
                Value::Real(number) => number.to_string(),
                other => format!("{other:?}"),
            });
            Ok(text.collect::<Vec<_>>().join(", "))
        });
        let row = row.unwrap_or_else(|error| panic!("{sql}\n{error}"));
        assert!(row.contains(want), "{sql}\n{row}");
    }
}
