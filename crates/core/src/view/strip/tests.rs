use proptest::prelude::*;

use super::*;
use crate::{
    chronicle::{Fact, Headline, PodState, What},
    ledger::Phase,
    spec::Role,
};

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

fn chronicle(facts: impl IntoIterator<Item = (i64, What)>) -> Chronicle {
    let facts: Vec<Fact> = (0..)
        .zip(facts)
        .map(|(seq, (at, what))| Fact {
            version: 1,
            seq,
            at,
            what,
        })
        .collect();
    Chronicle::of_facts(&facts)
}

fn span(from: i64, to: i64, phase: Phase) -> (i64, What) {
    (
        from,
        What::Span {
            from,
            to,
            attempt: 1,
            phase,
        },
    )
}

fn turn(at: i64, index: u32, state: PodState) -> (i64, What) {
    (
        at,
        What::Pod {
            attempt: 1,
            slot: worker(index),
            state,
        },
    )
}

fn seated(index: u32, ranks: u32, node: &str) -> (i64, What) {
    let what = What::Seated {
        attempt: 1,
        slot: worker(index),
        first_rank: Some(index * ranks),
        ranks,
        node: node.to_owned(),
    };
    (0, what)
}

fn ask(from: i64, to: i64, columns: u32) -> StripAsk {
    StripAsk {
        from,
        to,
        columns,
        rows: ROWS_MAX,
        by: By::Rank,
    }
}

/// The state of a row at a moment, as a reader of the document finds it.
fn at(strip: &Strip, row: &[u64], moment: i64) -> &'static str {
    let bucket = if strip.exact { 1 } else { strip.bucket_millis };
    let moment = moment.clamp(strip.from, strip.to - 1);
    let mut left = u64::try_from(moment - strip.from).unwrap() / bucket;
    for pair in row.chunks(2) {
        if left < pair[0] {
            return strip.states[usize::try_from(pair[1]).unwrap()];
        }
        left -= pair[0];
    }
    panic!("the row is too short: {row:?}")
}

fn row_of(strip: &Strip, row: usize) -> &[u64] {
    &strip.rows[strip.of[row] as usize]
}

/// A row as a terminal shows it.
fn text(strip: &Strip, row: &[u64]) -> String {
    let runs = row.chunks(2).map(|pair| {
        let state = State::ALL[usize::try_from(pair[1]).unwrap()];
        state
            .sign()
            .to_string()
            .repeat(usize::try_from(pair[0]).unwrap())
    });
    assert!(!strip.exact);
    runs.collect()
}

#[test]
fn strip_as_text() {
    let mut facts = vec![(0, What::Began)];
    facts.extend([
        span(0, 100, Phase::Starting),
        span(100, 600, Phase::Training),
        span(600, 700, Phase::Restarting),
        span(700, 1_000, Phase::Training),
    ]);
    for index in 0..4 {
        facts.push(seated(index, 8, "gpu"));
        facts.push(turn(0, index, PodState::Running));
    }
    facts.push(turn(590, 2, PodState::Failed));
    facts.push(turn(650, 2, PodState::Pulling));
    facts.push(turn(720, 2, PodState::Running));
    // Enough changes that no row is exact.
    facts.extend((0..20).map(|n| {
        (
            n,
            What::Failures {
                slot: None,
                attempt: 1,
                until: 0,
                count: 1,
            },
        )
    }));
    let chronicle = chronicle(facts);
    let strip = strip(&chronicle, &ask(0, 1_000, 20), time(1_000));
    assert!(!strip.exact);
    assert_eq!(strip.bucket_millis, 50);
    assert_eq!(strip.of, [0, 0, 1, 0], "equal rows are sent once");
    let lines: Vec<String> = strip.rows.iter().map(|row| text(&strip, row)).collect();
    assert_eq!(lines, ["▒▒██████████▒▒██████", "▒▒█████████╳╳▒██████"]);
    assert_eq!(text(&strip, &strip.job), "╳▒█████████╳▒▒██████");
    assert_eq!(
        (strip.labels[2].from, strip.labels[2].to),
        (Some(16), Some(23))
    );
    let failed: Vec<(i64, Option<u32>)> = strip
        .marks
        .iter()
        .filter(|mark| mark.kind == MarkKind::Failed && mark.row.is_some())
        .map(|mark| (mark.t, mark.rank))
        .collect();
    assert_eq!(failed, [(590, Some(16))]);
}

#[test]
fn few_changes_are_exact() {
    let chronicle = chronicle([
        (0, What::Began),
        span(0, 90_000, Phase::Starting),
        span(90_000, 3_600_000, Phase::Training),
        seated(0, 1, "a"),
        turn(0, 0, PodState::Running),
        turn(1_000_000, 0, PodState::Failed),
        turn(1_000_000, 0, PodState::Running),
    ]);
    let drawn = strip(&chronicle, &ask(0, 4_000_000, 1_600), time(3_600_000));
    assert!(drawn.exact);
    let (training, starting, failed, nothing) = (0, 5, 12, 16);
    let want = [
        90_000, starting, 910_000, training, 1, failed, 2_599_999, training, 400_000, nothing,
    ];
    assert_eq!(drawn.job, want);
    assert_eq!(row_of(&drawn, 0), want);
    assert_eq!(drawn.states[12], "failed");
    let by_node = strip(
        &chronicle,
        &StripAsk {
            by: By::Node,
            ..ask(0, 10, 5)
        },
        time(10),
    );
    assert_eq!(by_node.labels[0].node.as_deref(), Some("a"));
}

#[test]
fn merged_and_unseen_time() {
    let booked = vec![
        (Some(1), Phase::Saving, 40).into(),
        (Some(1), Phase::Training, 60).into(),
    ];
    let chronicle = chronicle([
        (0, What::Began),
        (
            0,
            What::Merged {
                from: 0,
                to: 100,
                booked: booked.clone(),
            },
        ),
        (
            100,
            What::Unseen {
                from: 100,
                to: 200,
                booked,
            },
        ),
    ]);
    let strip = strip(&chronicle, &ask(0, 200, 100), time(200));
    assert_eq!(strip.job, [100, 0, 100, 15], "{:?}", strip.states);
}

/// Turns of pods at random, with times in a job of `0..length`.
fn history() -> impl Strategy<Value = Chronicle> {
    let states = vec![
        PodState::Running,
        PodState::Pulling,
        PodState::Failed,
        PodState::Lost,
        PodState::Gone,
        PodState::Succeeded,
    ];
    let phases =
        prop::collection::vec((prop::sample::select(&Phase::ALL[..]), 1_i64..4_000), 1..60);
    let turns = prop::collection::vec(
        (0_u32..40, 0_i64..60_000, prop::sample::select(states)),
        0..120,
    );
    let headlines = prop::collection::vec(0_i64..60_000, 0..4);
    (phases, turns, headlines).prop_map(|(phases, mut turns, headlines)| {
        let mut facts = vec![(0, What::Began)];
        let mut end = 0;
        for (phase, millis) in phases {
            facts.push(span(end, end + millis, phase));
            end += millis;
        }
        turns.sort_by_key(|(_, at, _)| *at);
        facts.extend(
            turns
                .into_iter()
                .map(|(index, at, state)| turn(at, index, state)),
        );
        facts.extend(headlines.into_iter().map(|at| {
            let headline = Headline {
                attempt: 1,
                pod: "p".to_owned(),
                slot: None,
                account: None,
                message: String::new(),
                step: None,
            };
            (at, What::Failed(headline))
        }));
        chronicle(facts)
    })
}

proptest! {
    /// At any zoom, the cell of a failure shows it: in the row of its pod and in that of the job.
    #[test]
    fn no_zoom_hides_a_failure(
        chronicle in history(),
        from in -1_000_i64..70_000,
        length in 1_i64..70_000,
        columns in 1_u32..300,
        rows in 1_u32..50,
        by_node in any::<bool>(),
    ) {
        let by = if by_node { By::Node } else { By::Rank };
        let ask = StripAsk { from, to: from + length, columns, rows, by };
        let strip = strip(&chronicle, &ask, time(60_000));
        for failure in &chronicle.failures {
            if failure.at < strip.from || failure.at > strip.to {
                continue;
            }
            prop_assert_eq!(at(&strip, &strip.job, failure.at), "failed");
            let Some(slot) = failure.slot else { continue };
            let mark = strip.marks.iter().find(|mark| {
                mark.kind == MarkKind::Failed && mark.t == failure.at && mark.row.is_some()
            });
            prop_assert!(mark.is_some());
            // By rank, rows hold neighbours in order.
            if by == By::Rank {
                let each = chronicle.lanes.len().div_ceil(rows as usize);
                let lane = chronicle.lanes.keys().position(|known| *known == slot).unwrap();
                prop_assert_eq!(at(&strip, row_of(&strip, lane / each), failure.at), "failed");
            }
        }
        // Whole rows, and no more than asked for.
        let cells = if strip.exact { u64::try_from(length).unwrap() } else { u64::from(strip.columns) };
        for row in strip.rows.iter().chain([&strip.job]) {
            prop_assert_eq!(row.chunks(2).map(|pair| pair[0]).sum::<u64>(), cells);
        }
        prop_assert!(strip.columns <= columns && strip.of.len() <= rows as usize);
        prop_assert!(strip.labels.len() == strip.of.len());
    }

    /// A cell that has no failure shows a stall, or else the state that took most of it.
    #[test]
    fn cells_are_the_direct_computation(
        chronicle in history(),
        from in 0_i64..50_000,
        length in 500_i64..60_000,
        columns in 1_u32..12,
    ) {
        let drawn = strip(&chronicle, &ask(from, from + length, columns), time(60_000));
        prop_assume!(!drawn.exact);
        let bucket = i64::try_from(drawn.bucket_millis).unwrap();
        for cell in 0..i64::from(drawn.columns) {
            let begin = from + cell * bucket;
            let end = (begin + bucket).min(from + length);
            let failed = chronicle.failures.iter().any(|it| (begin..end).contains(&it.at) || (it.at == end && end == from + length));
            let mut sums = [0_i64; 17];
            let mut rest = end - begin;
            for stretch in &chronicle.stretches {
                let part = stretch.to.min(end) - stretch.from.max(begin);
                if part > 0 {
                    let phase = stretch.booked()[0].phase;
                    sums[usize::from(State::from(phase).number())] += part;
                    rest -= part;
                }
            }
            sums[16] += rest;
            let most = sums.iter().copied().max().unwrap();
            let want = if failed {
                "failed"
            } else if sums[7] > 0 {
                "stalled"
            } else {
                State::ALL[sums.iter().position(|sum| *sum == most).unwrap()].name()
            };
            prop_assert_eq!(at(&drawn, &drawn.job, begin), want);
        }
    }
}

/// 4,096 pods that differ in everything, over 30 days.
#[test]
fn answer_is_bounded() {
    let day = 86_400_000_i64;
    let mut facts = vec![(0, What::Began), span(0, 30 * day, Phase::Training)];
    let mut turns = Vec::new();
    for index in 0..4_096_u32 {
        for n in 0..12_i64 {
            let at = (n * 7_919 + i64::from(index) * 104_729) * 997 % (30 * day);
            turns.push((at, index));
        }
    }
    turns.sort_unstable();
    for (n, (at, index)) in turns.into_iter().enumerate() {
        let states = [PodState::Pulling, PodState::Running, PodState::Creating];
        facts.push(turn(at, index, states[n % 3]));
    }
    let chronicle = chronicle(facts);
    let ask = StripAsk {
        from: 0,
        to: 30 * day,
        columns: u32::MAX,
        rows: u32::MAX,
        by: By::Rank,
    };
    let strip = strip(&chronicle, &ask, time(30 * day));
    let runs: usize = strip.rows.iter().map(|row| row.len() / 2).sum();
    assert!(runs <= RUNS_MAX, "{runs}");
    assert_eq!(strip.of.len(), 512);
    assert!(strip.columns <= COLUMNS_MAX);
    assert_eq!(strip.labels[0].pods, 8);
}

#[test]
fn odd_windows_are_drawn() {
    let chronicle = chronicle([(0, What::Began), span(0, 10, Phase::Training)]);
    for (from, to) in [
        (5, 5),
        (9, -9),
        (i64::MAX, i64::MAX),
        (i64::MIN, i64::MAX),
        (i64::MIN, i64::MIN),
    ] {
        for columns in [0, 1, 7, u32::MAX] {
            let strip = strip(&chronicle, &ask(from, to, columns), time(10));
            assert!(!strip.job.is_empty());
        }
    }
    let empty = strip(&Chronicle::default(), &ask(0, 100, 10), time(100));
    assert_eq!((empty.job, empty.rows.len()), (vec![100, 16], 0));
}
