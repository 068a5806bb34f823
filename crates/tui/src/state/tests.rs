//! What keys and answers make of a state.

use super::{
    Ask, Event, Page, Source, State,
    page::Tab,
    testing::{NOW, after, after_in_cluster, answered},
};
use crate::{
    document::{Answer, Trouble},
    keys::Key::{self, Backspace, Char, Down, End, Enter, Esc, Interrupt, Up},
    look::Look,
};

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Char).collect()
}

fn state(keys: &[Key]) -> State {
    after((80, 24), Look::PLAIN, keys)
}

#[test]
fn keys_open_and_close_pages() {
    let open = |keys: &[Key]| match state(keys).page {
        Page::Jobs => "jobs".to_owned(),
        Page::Job(page) => format!("{}/{}", page.namespace, page.name),
        Page::Failures => "failures".to_owned(),
        Page::Nodes => "nodes".to_owned(),
        Page::Queue => "queue".to_owned(),
    };
    let to = |place: &str| {
        let mut keys = typed(&format!(":{place}"));
        keys.push(Enter);
        keys
    };
    let cases: [(Vec<Key>, &str); 13] = [
        (vec![], "jobs"),
        (vec![Enter], "research/pretrain"),
        (vec![Down, Down, Enter], "default/eval"),
        (vec![Enter, Esc], "jobs"),
        (typed("2"), "failures"),
        (typed("234"), "queue"),
        (vec![Char('2'), Enter], "team-a/sft"),
        (vec![Char('2'), Enter, Esc], "failures"),
        (to("nodes"), "nodes"),
        (to("eval"), "default/eval"),
        (to("pre"), "research/pretrain"),
        (to("team-b/x"), "team-b/x"),
        (to("none-such"), "jobs"),
    ];
    for (keys, want) in cases {
        assert_eq!(open(&keys), want, "{keys:?}");
    }
}

#[test]
fn only_quit_keys_quit() {
    let quits = |keys: &[Key], last: Key| state(keys).update(Event::Key(last)).quit;
    assert!(quits(&[], Char('q')));
    assert!(quits(&[Enter], Char('q')));
    assert!(quits(&typed("/"), Interrupt));
    assert!(quits(&typed(":q"), Enter));
    assert!(!quits(&typed("/"), Char('q')));
    assert!(!quits(&typed("?"), Char('q')));
    assert!(!quits(&[], Esc));
}

#[test]
fn sorting_asks_for_each_column() {
    let sort = |keys: &str| match state(&typed(keys)).wanted().remove(0) {
        Ask::Jobs { sort, .. } => sort,
        other => panic!("{other:?}"),
    };
    let cases = [
        ("", None),
        (">", Some("state")),
        (">R", Some("-state")),
        (">>>>>", Some("-ranks")),
        (">>>>>R", Some("ranks")),
        ("<", Some("-startedAt")),
        ("<<", Some("-trainedRatio")),
        ("><", None),
        (">>>>>>>>>>", None),
        ("R", None),
    ];
    for (keys, want) in cases {
        assert_eq!(sort(keys).as_deref(), want, "{keys}");
    }
}

#[test]
fn a_filter_is_asked_as_it_is_typed() {
    let text = |keys: &[Key]| match state(keys).wanted().remove(0) {
        Ask::Jobs { text, .. } => text.unwrap_or_default(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text(&typed("/oom")), "oom");
    let mut keys = typed("/oom");
    keys.extend([Backspace, Enter, Down]);
    assert_eq!(text(&keys), "oo");
    keys.push(Esc);
    assert_eq!(text(&keys), "");
    assert_eq!(text(&typed(&format!("/{}", "x".repeat(500)))).len(), 100);
}

#[test]
fn a_page_ends_where_the_next_begins() {
    let mut state = State::new(
        Source::default(),
        (80, 24),
        Look::PLAIN,
        NOW,
        crate::measure,
    );
    let ask = state.start().ask.unwrap().remove(0);
    let page = r#"{"rows":[{"id":"a"},{"id":"b"}],"total":4,"cursor":"2.b"}"#;
    let answer = Answer::read(&ask, page.as_bytes()).map(Box::new);
    state.update(Event::Answered { ask, answer });
    assert_eq!(state.update(Event::Key(Down)).ask, None);
    let asks = state.update(Event::Key(Down)).ask.unwrap();
    let Ask::Jobs { cursor, .. } = &asks[0] else {
        panic!("{asks:?}");
    };
    assert_eq!(cursor.as_deref(), Some("2.b"));
    let asks = state.update(Event::Key(Up)).ask.unwrap();
    let Ask::Jobs { cursor, .. } = &asks[0] else {
        panic!("{asks:?}");
    };
    assert_eq!(*cursor, None);
    // The last row of the page before is selected.
    let answer = Answer::read(&asks[0], page.as_bytes()).map(Box::new);
    let ask = asks[0].clone();
    state.update(Event::Answered { ask, answer });
    assert_eq!(state.jobs.selected, 1);
}

#[test]
fn a_job_asks_for_what_is_shown() {
    let mut state = state(&[]);
    let asks = state.update(Event::Key(Enter)).ask.unwrap();
    assert_eq!(asks.len(), 1, "{asks:?}");
    let asks = state.update(answered(&asks[0])).ask.unwrap();
    let of = |asks: &[Ask]| asks.last().cloned();
    let run = "a.smoke".to_owned();
    let (columns, rows) = (80 - 11, 4);
    assert!(asks.contains(&Ask::Strip {
        run: run.clone(),
        columns,
        rows
    }));
    let newest = Ask::Logs {
        run: run.clone(),
        attempt: None,
    };
    assert_eq!(of(&asks), Some(newest.clone()));
    let asks = state.update(Event::Key(Char('['))).ask.unwrap();
    let first = Ask::Logs {
        run: run.clone(),
        attempt: Some(1),
    };
    assert_eq!(of(&asks), Some(first));
    assert_eq!(state.update(Event::Key(Char('['))).ask, None);
    let asks = state.update(Event::Key(Char(']'))).ask.unwrap();
    assert_eq!(of(&asks), Some(newest));
    let asks = state.update(Event::Key(Char('e'))).ask.unwrap();
    assert_eq!(of(&asks), Some(Ask::Events { run }));
}

#[test]
fn marks_are_walked_in_order_of_time() {
    let mark = |keys: &str| {
        let mut all = vec![Enter];
        all.extend(typed(keys));
        match state(&all).page {
            Page::Job(page) => page.mark,
            other => panic!("{other:?}"),
        }
    };
    // What is said of a rank and of the job at once is one mark.
    let cases = [
        ("", None),
        ("n", Some(0)),
        ("nnnn", Some(3)),
        ("nnnnn", Some(0)),
        ("p", Some(3)),
        ("np", Some(3)),
    ];
    for (keys, want) in cases {
        assert_eq!(mark(keys), want, "{keys}");
    }
}

#[test]
fn a_job_that_waits_is_opened_from_the_queue() {
    let state = after_in_cluster((80, 24), Char('4'), &[Down, Down, Enter]);
    let Page::Job(page) = &state.page else {
        panic!("{:?}", state.page);
    };
    assert_eq!(
        (page.namespace.as_str(), page.name.as_str()),
        ("default", "eval")
    );
}

#[test]
fn equal_answers_are_not_drawn_again() {
    let mut state = state(&[]);
    let ask = state.wanted().remove(0);
    assert!(!state.update(answered(&ask)).redraw);
    assert!(!state.update(Event::Resized(80, 24)).redraw);
    assert!(!state.update(Event::Clock(NOW + 1)).redraw);
    assert!(state.update(Event::Clock(NOW + 1_000)).redraw);
    let answer = Err(Trouble::default());
    assert!(state.update(Event::Answered { ask, answer }).redraw);
    assert!(state.known.jobs.value.is_some(), "the last answer stays");
    // Nobody asked for that.
    assert!(!state.update(answered(&Ask::Failures)).redraw);
    assert_eq!(state.known.failures.value, None);
}

#[test]
fn a_new_run_forgets_the_old_one() {
    let mut state = state(&[Enter]);
    assert!(state.known.strip.value.is_some());
    let ask = state.wanted().remove(0);
    let other = r#"{"run":"b.smoke","row":{"attempt":1}}"#;
    let answer = Answer::read(&ask, other.as_bytes()).map(Box::new);
    let effects = state.update(Event::Answered { ask, answer });
    assert_eq!(state.known.strip.value, None);
    assert!(effects.ask.is_some_and(|asks| asks.len() == 5));
}

#[test]
fn a_scroll_stops_at_the_last_line() {
    let mut state = state(&[Enter, Char('d'), End]);
    let Page::Job(page) = &state.page else {
        panic!("the page of a job");
    };
    assert_eq!(page.tab, Tab::Verdict);
    let last = page.scroll.0;
    assert!(last > 0);
    state.update(Event::Key(Up));
    let Page::Job(page) = &state.page else {
        panic!("the page of a job");
    };
    assert_eq!(page.scroll.0, last - 1);
}
