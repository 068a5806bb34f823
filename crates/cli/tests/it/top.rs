//! `trainyard top`, on a terminal of its own.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    process::Child,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use nix::{
    pty::{Winsize, openpty},
    sys::termios::{Termios, tcgetattr},
};

use crate::{
    call::Call,
    run::{job, run},
};

/// How long anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a terminal of 80 by 24 shows after `sent`: only cells that change are sent, so what is on it is in no single piece.
fn screen_of(sent: &str) -> String {
    let mut cells = vec![vec![' '; 80]; 24];
    let (mut x, mut y) = (0, 0);
    let mut parts = sent.split("\u{1b}[");
    let mut put = |x: &mut usize, y: usize, text: &str| {
        for letter in text.chars() {
            if let Some(cell) = cells.get_mut(y).and_then(|line| line.get_mut(*x)) {
                *cell = letter;
            }
            *x += 1;
        }
    };
    put(&mut x, y, parts.next().unwrap_or_default());
    for part in parts {
        let Some(end) = part.find(|it: char| it.is_ascii_alphabetic()) else {
            continue;
        };
        let (numbers, rest) = part.split_at(end);
        if rest.starts_with('H') {
            let (row, column) = numbers.split_once(';').unwrap_or(("1", "1"));
            let place = |text: &str| text.parse::<usize>().map_or(0, |it| it - 1);
            (x, y) = (place(column), place(row));
        }
        put(&mut x, y, rest.get(1..).unwrap_or_default());
    }
    let lines = cells.into_iter().map(String::from_iter);
    lines.collect::<Vec<String>>().join("\n")
}

/// Waits until `text` is on the screen.
fn wait_for(text: &str, pieces: &Receiver<String>, shown: &mut String) {
    let end = Instant::now() + PATIENCE;
    while !screen_of(shown).contains(text) {
        let left = end.saturating_duration_since(Instant::now());
        let piece = pieces.recv_timeout(left);
        assert!(piece.is_ok(), "waited for {text:?}: {}", screen_of(shown));
        shown.extend(piece);
    }
}

/// A program that ends with the test, also where that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The modes that programs change.
fn modes(terminal: &File) -> impl PartialEq + std::fmt::Debug {
    let Termios {
        input_flags,
        output_flags,
        control_flags,
        local_flags,
        ..
    } = tcgetattr(terminal).expect("a terminal has modes");
    (input_flags, output_flags, control_flags, local_flags)
}

#[test]
fn top_shows_a_run_and_restores_modes() {
    let failed = run(&["-q"], &job(2, "echo boom >&2; exit 3"));
    assert_eq!(failed.run().code, Some(1));
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pair = openpty(Some(&size), None).expect("a terminal can be made");
    let mut keyboard = File::from(pair.master);
    let terminal = File::from(pair.slave);
    let before = modes(&terminal);
    let same = || terminal.try_clone().expect("a descriptor is left");
    let child = failed
        .again(&["top", "--color", "never"])
        .command()
        .stdin(same())
        .stdout(same())
        .stderr(same())
        .spawn()
        .expect("sh can be started");
    let mut child = Ended(child);
    let mut screen = keyboard.try_clone().expect("a descriptor is left");
    let (sender, pieces) = mpsc::channel();
    // Ends with the test, which has the other end, too.
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut buffer) {
            let piece = String::from_utf8_lossy(&buffer[..count]).into_owned();
            if sender.send(piece).is_err() {
                break;
            }
        }
    });
    let mut shown = String::new();
    wait_for("1 failed", &pieces, &mut shown);
    assert_ne!(modes(&terminal), before, "keys are read as they are typed");
    keyboard.write_all(b"\r").expect("a terminal takes keys");
    wait_for("boom", &pieces, &mut shown);
    keyboard.write_all(b"q").expect("a terminal takes keys");
    let status = child.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{shown}");
    assert_eq!(modes(&terminal), before);
    // The screen as it was is shown again.
    let end = Instant::now() + PATIENCE;
    while !shown.contains("\u{1b}[?1049l") {
        let left = end.saturating_duration_since(Instant::now());
        shown.push_str(&pieces.recv_timeout(left).expect("the last piece"));
    }
}

#[test]
fn top_needs_a_terminal() {
    let outcome = Call::new(&["top"]).run();
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("top --once"), "{outcome:?}");
}

#[test]
fn top_of_a_cluster_needs_its_kubeconfig() {
    let call = Call::new(&["top", "--once", "--kubeconfig", "missing.yaml"]).run();
    assert_eq!(call.code, Some(2), "{call:?}");
    assert!(call.stderr.contains("missing.yaml"), "{call:?}");
}

#[test]
fn top_once_prints_the_jobs() {
    let call = run(&["-q"], &job(1, "exit 0"));
    assert_eq!(call.run().code, Some(0));
    let outcome = call.again(&["top", "--once"]).run();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("\n succeeded  j "), "{outcome:?}");
}
