//! Frames as they are, and that nothing is drawn outside of one.

use std::{fs, path::PathBuf};

use proptest::prelude::*;
use ratatui_core::{
    buffer::{Buffer, Cell},
    layout::Rect,
};

use super::{draw, lines_of, once};
use crate::{
    keys::Key::{self, Char, Down, End, Enter, Esc, Tab, Up},
    look::{Depth, Look},
    state::{
        Event, State,
        testing::{NOW, after, after_in_cluster, answered, settle, source},
    },
};

fn frame(state: &State) -> Buffer {
    let (columns, rows) = state.size;
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    draw(state, &mut buffer);
    buffer
}

fn text(size: (u16, u16), keys: &[Key]) -> String {
    let mut text = lines_of(&frame(&after(size, Look::PLAIN, keys))).join("\n");
    text.push('\n');
    text
}

/// Compares with `tests/golden/<name>.txt`, or writes it where `UPDATE` is set.
fn check(name: &str, got: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let path = folder.join(format!("{name}.txt"));
    #[expect(
        clippy::disallowed_methods,
        reason = "whether snapshots are rewritten is the caller's word to the test, not the program's"
    )]
    let update = std::env::var_os("UPDATE").is_some();
    if update {
        fs::create_dir_all(&folder).expect("the folder can be made");
        fs::write(&path, got).expect("the file can be written");
        return;
    }
    let want = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        got == want,
        "`{name}` differs\n--- wanted\n{want}\n--- got\n{got}\nhint: if this is right, run `UPDATE=1 cargo test -p trainyard-tui`"
    );
}

#[test]
fn frames_are_as_they_were() {
    check("jobs-80x24", &text((80, 24), &[Down]));
    check("jobs-200x12", &text((200, 12), &[]));
    check("jobs-40x10", &text((40, 10), &[]));
    check("job-80x24", &text((80, 24), &[Enter]));
    check(
        "job-mark-80x24",
        &text((80, 24), &[Enter, Char('n'), Char('n')]),
    );
    check("job-40x10", &text((40, 10), &[Enter]));
    check("job-verdict-100x40", &text((100, 40), &[Enter, Char('d')]));
    check("job-time-80x24", &text((80, 24), &[Enter, Char('t')]));
    check("job-events-80x24", &text((80, 24), &[Enter, Char('e')]));
    check("failures-80x24", &text((80, 24), &[Char('2')]));
    check("queue-80x24", &text((80, 24), &[Char('4')]));
    let cluster = |size, page, keys: &[Key]| {
        let frame = frame(&after_in_cluster(size, page, keys));
        format!("{}\n", lines_of(&frame).join("\n"))
    };
    check("nodes-80x24", &cluster((80, 24), Char('3'), &[]));
    check("nodes-140x8", &cluster((140, 8), Char('3'), &[End]));
    check("cluster-queue-80x24", &cluster((80, 24), Char('4'), &[]));
    check(
        "cluster-queue-140x24",
        &cluster((140, 24), Char('4'), &[Down]),
    );
    check("help-80x24", &text((80, 24), &[Char('?')]));
    check("once", &once(&after((120, 24), Look::PLAIN, &[]), 120));
}

#[test]
fn colours_only_add_to_words() {
    let look = Look {
        depth: Depth::True,
        is_light: false,
    };
    // Twenty lines leave room for two lines of ranks, which four rows share.
    let mut state = after((80, 20), look, &[Enter]);
    let strip = state.known.strip.value.as_mut().expect("it was answered");
    // The second row starts all the time.
    strip.rows[1] = vec![21_039, 5];
    let shared = frame(&state);
    let symbols: String = shared.content().iter().map(Cell::symbol).collect();
    assert!(symbols.contains('▀'), "{symbols}");
    assert!(symbols.contains('╳'), "{symbols}");
    let plain = frame(&after((80, 20), Look::PLAIN, &[Enter]));
    assert!(plain.content().iter().all(|cell| cell.symbol() != "▀"));
}

#[test]
fn documents_cannot_reach_the_terminal() {
    let pages = [&[][..], &[Down], &[Enter], &[Enter, Char('d')]];
    let states = pages.map(|keys| after((120, 40), Look::PLAIN, keys));
    let of_cluster = [Char('3'), Char('4')].map(|page| after_in_cluster((120, 40), page, &[]));
    for state in states.into_iter().chain(of_cluster) {
        let buffer = frame(&state);
        for cell in buffer.content() {
            let obeyed = |it: char| it.is_control() || it == '\u{202e}';
            assert!(!cell.symbol().contains(obeyed), "{:?}", cell.symbol());
        }
    }
    let shown = text((120, 40), &[]);
    assert!(shown.contains("損失-\\u001b[2J\\u202e"), "{shown}");
}

fn key() -> impl Strategy<Value = Key> {
    let keys = "jkgGlndpetq?:/<>R[]1234xé損 ".chars().map(Char);
    let mut all: Vec<Key> = keys.collect();
    all.extend([
        Enter,
        Enter,
        Esc,
        Tab,
        Up,
        Down,
        End,
        Key::Backspace,
        Key::PageDown,
    ]);
    proptest::sample::select(all)
}

#[derive(Clone, Debug)]
enum Step {
    Key(Key),
    Size(u16, u16),
    Answer,
    Time(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => key().prop_map(Step::Key),
        2 => (0_u16..230, 0_u16..70).prop_map(|(x, y)| Step::Size(x, y)),
        3 => Just(Step::Answer),
        1 => any::<i64>().prop_map(Step::Time),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_events_fit_any_size(steps in proptest::collection::vec(step(), 1..40), depth in 0..2) {
        let depth = if depth == 0 { Depth::None } else { Depth::Indexed };
        let look = Look { depth, is_light: true };
        let mut state = State::new(source(), (80, 24), look, NOW, crate::measure);
        let mut asks = state.start().ask;
        for step in steps {
            let effects = match step {
                Step::Key(key) => state.update(Event::Key(key)),
                Step::Size(columns, rows) => state.update(Event::Resized(columns, rows)),
                Step::Time(now) => state.update(Event::Clock(now)),
                Step::Answer => {
                    settle(&mut state, asks.take());
                    continue;
                }
            };
            asks = effects.ask.or(asks);
            // A frame inside of a larger one: what is around it stays empty.
            let (columns, rows) = state.size;
            let mut buffer = Buffer::empty(Rect::new(3, 2, columns, rows));
            draw(&state, &mut buffer);
            prop_assert_eq!(buffer.content().len(), usize::from(columns) * usize::from(rows));
            prop_assert!(!once(&state, columns).is_empty());
        }
    }

    #[test]
    fn any_documents_are_drawn(numbers in proptest::collection::vec(any::<u64>(), 0..9), columns in 1_u16..120) {
        let mut state = after((columns, 24), Look::PLAIN, &[Enter]);
        let strip = state.known.strip.value.as_mut().expect("it was answered");
        strip.exact = numbers.len() % 2 == 0;
        strip.job.clone_from(&numbers);
        strip.of = numbers.iter().map(|it| usize::try_from(it % 5).unwrap_or(0)).collect();
        strip.rows = vec![numbers.clone(); 2];
        strip.from = numbers.first().map_or(0, |it| it.cast_signed());
        strip.to = numbers.last().map_or(0, |it| it.cast_signed());
        let ledger = state.known.ledger.value.as_mut().expect("it was answered");
        ledger.wall = numbers.first().copied().unwrap_or(0);
        for (phase, number) in ledger.phases.iter_mut().zip(&numbers) {
            phase.millis = *number;
        }
        frame(&state);
        let ask = crate::ask::Ask::Failures;
        state.update(answered(&ask));
    }
}
