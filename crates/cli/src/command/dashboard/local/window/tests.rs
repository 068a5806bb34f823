use std::{fs, fs::File, path::Path};

use trainyard_host::store::LogFile;

use super::*;

/// The log at `path`, as it is now.
fn view(path: &Path) -> LogView {
    let log = LogFile {
        attempt: 1,
        pod: "p".to_owned(),
        container: "c".to_owned(),
        path: path.to_owned(),
    };
    log.view().unwrap()
}

#[test]
fn dashboard_hits_keep_only_what_is_shown() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("c.log");
    let line = format!("needle {}\n", "x".repeat(700 << 10));
    fs::write(&path, line.repeat(8)).unwrap();
    let view = view(&path);
    let found = Window::new(&view).search(Place::From(0), 100, "needle");
    let (lines, hits) = found.unwrap();
    assert_eq!((lines.len(), hits), (8, Hits::Exactly(8)));
    for line in lines {
        assert!(line.cut && line.text.len() == LINE_BYTES);
        assert!(line.text.capacity() < 2 * LINE_BYTES);
    }
}

#[test]
fn dashboard_hits_behind_long_lines_are_not_exact() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("c.log");
    let search = |text: String| {
        fs::write(&path, text).unwrap();
        let view = view(&path);
        let found = Window::new(&view).search(Place::From(0), 9, "needle");
        found.unwrap().1
    };
    let long = "x".repeat(SEARCHED_BYTES);
    assert_eq!(search(format!("{long}\nneedle\n")), Hits::Exactly(1));
    // It may be anywhere in what was not searched.
    assert_eq!(search(format!("{long}needle\n")), Hits::AtLeast(0));
    assert_eq!(search(format!("needle\n{long}y")), Hits::AtLeast(1));
}

#[test]
fn dashboard_line_without_end_costs_bounded_time() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("c.log");
    // Nobody reads a terabyte of it by accident.
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let view = view(&path);
    let window = Window {
        limit: Duration::ZERO,
        ..Window::new(&view)
    };
    let lines = window.lines(Place::From(0), 10).unwrap();
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert_eq!((line.end, line.cut), (BLOCK as u64, true));
    assert_eq!(line.text.len(), LINE_BYTES);
    let (_, hits) = window.search(Place::From(0), 10, "needle").unwrap();
    assert_eq!(hits, Hits::AtLeast(0));
    assert_eq!(window.offset_of_line(2).unwrap(), None);
    // What lies before the end is not shown with a gap.
    let error = window.lines(Place::Before(1 << 40), 10).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}
