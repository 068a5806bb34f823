use proptest::prelude::*;

use super::*;

fn key(line: &str) -> String {
    let mut template = Template::default();
    template.set(line.as_bytes());
    template.text()
}

#[test]
fn lines_that_differ_in_numbers_are_equal() {
    let cases = [
        ("loss 1.25 at step 12", "loss 0.5 at step 4711", true),
        (
            "peer 10.0.0.1:4242 closed",
            "peer 10.11.12.13:80 closed",
            true,
        ),
        ("at 0x7fff12ab in f", "at 0xdead in f", true),
        (
            "id 3f2b9c1d-aa11-4b2c-8d3e-112233445566 gone",
            "id 00000000-0000-4000-8000-000000000000 gone",
            true,
        ),
        ("open /data/rank12/x", "open /data/rank3/x", true),
        ("no module named a", "no module named b", false),
        ("  a\t b ", "a b", true),
        ("step - done", "step done", false),
    ];
    for (one, other, same) in cases {
        assert_eq!(
            key(one) == key(other),
            same,
            "{} | {}",
            key(one),
            key(other)
        );
    }
}

#[test]
fn equal_tracebacks_are_one_row_with_exact_ranks() {
    let mut folder = Folder::default();
    for rank in 0..128 {
        let line =
            format!("[rank{rank}]: Watchdog caught collective operation timeout: SeqNum={rank}");
        folder.push(Some(0), Some(10_000 + i64::from(rank)), line.as_bytes());
    }
    folder.push(
        Some(17),
        Some(9_000),
        b"NVRM: Xid (PCI:0000:a1:00): 79, GPU has fallen off the bus",
    );
    folder.push(Some(0), Some(8_000), b"step 12 loss 1.5");
    folder.push(
        Some(0),
        Some(12_000),
        b"torch.distributed.elastic: ChildFailedError",
    );
    let before: Vec<String> = (0..40).map(|line| format!("line {line}")).collect();
    let answer = folder.finish(
        &["NVRM: Xid (PCI:0000:b2:00): 80, GPU has fallen off the bus"],
        &before,
    );
    let first = answer.first_failure.unwrap();
    assert_eq!((first.rank, first.at), (Some(17), Some(9_000)));
    assert_eq!(
        (first.before.len(), first.before[11].as_str()),
        (CONTEXT_MAX, "line 39")
    );
    let rows: Vec<(u64, &str, Role, Severity)> = answer
        .groups
        .iter()
        .map(|it| (it.count, it.ranks.as_str(), it.role, it.severity))
        .collect();
    let want = [
        (1, "0", Role::Progress, Severity::Info),
        (1, "17", Role::Cause, Severity::Error),
        (128, "0-127", Role::Symptom, Severity::Error),
        (1, "0", Role::Wrapper, Severity::Error),
    ];
    assert_eq!(rows, want);
}

#[test]
fn equal_lines_far_apart_are_two_rows() {
    let mut folder = Folder::default();
    for at in [0, 1_999, 2_000, 2_001, 3_000] {
        folder.push(None, Some(at), b"the same");
    }
    let answer = folder.finish(&[], &[]);
    let rows: Vec<(u64, Option<i64>, Option<i64>)> = answer
        .groups
        .iter()
        .map(|it| (it.count, it.first_at, it.last_at))
        .collect();
    assert_eq!(
        rows,
        [(3, Some(0), Some(2_000)), (2, Some(2_001), Some(3_000))]
    );
}

#[test]
fn a_traceback_is_an_error_as_a_whole() {
    let lines = [
        (0, "step 7 loss 0.1"),
        (0, "Traceback (most recent call last):"),
        (1, "step 8 loss 0.1"),
        (0, "  File \"train.py\", line 9, in main"),
        (0, "    loss.backward()"),
        (0, "    ~~~~^^"),
        (1, "  a table of rank 1"),
        (0, "KeyboardInterrupt"),
        (0, "step 9 loss 0.1"),
        (1, "Traceback (most recent call last):"),
        (1, "saved 3 files: a, b, c"),
        (1, "  not a frame any more"),
    ];
    let mut folder = Folder::default();
    for (at, (rank, text)) in (0..).zip(lines) {
        folder.push(Some(rank), Some(at * 10_000), text.as_bytes());
    }
    let answer = folder.finish(&[], &[]);
    let first = answer.first_failure.unwrap();
    assert_eq!(
        (first.rank, first.at, first.text.as_str()),
        (Some(0), Some(10_000), "KeyboardInterrupt")
    );
    let rows = answer.groups.iter();
    let bad: Vec<i64> = rows
        .filter(|it| it.severity == Severity::Error)
        .filter_map(|it| it.first_at.map(|at| at / 10_000))
        .collect();
    assert_eq!(bad, [1, 3, 4, 5, 7, 9]);
}

#[test]
fn lines_that_come_for_weeks_fit() {
    let mut folder = Folder::default();
    let days = 30;
    for at in 0..days * 8_640 {
        folder.push(Some(0), Some(at * 10_000), b"step 12 loss 0.5");
    }
    let answer = folder.finish(&[], &[]);
    assert_eq!(answer.left_out, 0);
    assert!(answer.groups.len() < 1_000, "{}", answer.groups.len());
    let counted: u64 = answer.groups.iter().map(|it| it.count).sum();
    assert_eq!(counted, days.unsigned_abs() * 8_640);
}

#[test]
fn error_behind_the_end_of_a_template_is_a_failure() {
    let line = |level: &str| {
        let state = "weights and moments ".repeat(40);
        format!(r#"{{"state":"{state}","level":"{level}"}}"#)
    };
    let mut folder = Folder::default();
    for (at, level) in [(0, "INFO"), (10, "ERROR"), (20, "INFO"), (30, "ERROR")] {
        folder.push(Some(0), Some(at), line(level).as_bytes());
    }
    let answer = folder.finish(&[], &[]);
    assert_eq!(answer.first_failure.unwrap().at, Some(10));
    let rows: Vec<(u64, Severity)> = answer
        .groups
        .iter()
        .map(|it| (it.count, it.severity))
        .collect();
    assert_eq!(rows, [(2, Severity::Info), (2, Severity::Error)]);
}

#[test]
fn answer_is_bounded_and_keeps_errors() {
    let mut folder = Folder::default();
    folder.push(Some(3), Some(0), b"RuntimeError: first of all");
    let mut name = String::new();
    for line in 0..30_000_u32 {
        name.clear();
        let letters =
            (0..4).map(|at| char::from(b'g' + u8::try_from(line >> (4 * at) & 15).unwrap()));
        name.extend(letters);
        folder.push(Some(line), Some(i64::from(line)), name.as_bytes());
    }
    assert!(folder.closed.len() <= 2 * GROUPS_MAX + OPEN_MAX + 1);
    let answer = folder.finish(&[], &[]);
    assert_eq!(answer.groups.len(), GROUPS_MAX);
    let counted: u64 = answer.groups.iter().map(|it| it.count).sum();
    assert_eq!(counted + answer.left_out, 30_001);
    assert_eq!(answer.groups[0].severity, Severity::Error);
    assert_eq!(
        answer.first_failure.unwrap().text,
        "RuntimeError: first of all"
    );
}

proptest! {
    /// Any bytes are answer; every line that is not empty is counted once, and the earliest error is on top.
    #[test]
    fn every_line_is_counted(
        lines in prop::collection::vec((0_u32..9, 0_i64..9_000, prop::collection::vec(any::<u8>(), 0..40), prop::bool::weighted(0.1)), 0..60),
    ) {
        let mut folder = Folder::default();
        let mut earliest: Option<i64> = None;
        for (rank, at, bytes, fails) in &lines {
            if *fails {
                folder.push(Some(*rank), Some(*at), b"ValueError: wrong");
                earliest = Some(earliest.map_or(*at, |known| known.min(*at)));
            } else {
                folder.push(Some(*rank), Some(*at), bytes);
            }
        }
        let read = folder.lines;
        let answer = folder.finish(&[], &[]);
        let counted: u64 = answer.groups.iter().map(|it| it.count).sum();
        prop_assert_eq!(counted, read);
        // Random bytes may hold a stamp or a word of an error only by chance far below the number of cases.
        let first = answer.first_failure.and_then(|failure| failure.at);
        prop_assert_eq!(first, earliest);
    }
}
