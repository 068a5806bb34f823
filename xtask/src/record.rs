//! `cargo xtask record`: the smoke job with a killed rank, as an animated SVG for the README.
//!
//! The lines and their times are those of a real run, made by this call. The picture has no script
//! and no outside font; where nothing moves it shows the end.

mod paint;

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::{Failure, report, step};

const PICTURE: &str = "docs/smoke.svg";
const COMMAND: &str = "trainyard run examples/smoke/pytorchjob.yaml --inject 'kill rank=2 at=3s'";
/// Lines that are seen at once.
const ROWS: usize = 24;
const COLUMNS: usize = 104;
const LINE_HEIGHT: usize = 18;
/// How long the end stays before the picture begins again.
const HOLD: Duration = Duration::from_secs(6);

/// One line and when it came.
struct Line {
    at: Duration,
    text: String,
}

/// Runs the job and writes the picture.
pub(crate) fn run() -> Result<(), Failure> {
    let lines = record()?;
    let path = step::root().join(PICTURE);
    fs::write(&path, picture(&lines))
        .map_err(|error| Failure::CouldNotRun(format!("cannot write `{PICTURE}`: {error}")))?;
    println!("wrote {PICTURE}: {} lines", lines.len());
    Ok(())
}

fn record() -> Result<Vec<Line>, Failure> {
    report::progress("recording");
    step::stream(
        &mut step::cargo(&["build", "--release", "--locked"]),
        |_| {},
    )?;
    let root = step::root();
    let lost = |error: std::io::Error| Failure::CouldNotRun(format!("cannot record: {error}"));
    let state = root.join("target/record");
    if state.exists() {
        fs::remove_dir_all(&state).map_err(lost)?;
    }
    let (reader, writer) = std::io::pipe().map_err(lost)?;
    let mut command = Command::new(root.join("target/release/trainyard"));
    command
        .args([
            "run",
            "examples/smoke/pytorchjob.yaml",
            "--inject",
            "kill rank=2 at=3s",
        ])
        .args(["--color", "always", "--state-dir", "target/record"])
        .current_dir(&root)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(lost)?)
        .stderr(writer);
    let start = Instant::now();
    let mut child = command.spawn().map_err(lost)?;
    // The command keeps its ends of the pipe, which would keep the reader waiting forever.
    drop(command);
    let prefix = format!("{}/", root.display());
    let mut lines = vec![Line {
        at: Duration::ZERO,
        text: format!("$ {COMMAND}"),
    }];
    for line in BufReader::new(reader).lines() {
        let text = line.map_err(lost)?.replace(&prefix, "");
        lines.push(Line {
            at: start.elapsed(),
            text,
        });
    }
    let status = child.wait().map_err(lost)?;
    if status.success() {
        Ok(lines)
    } else {
        Err(Failure::Failed(format!(
            "the smoke job ended with {status}"
        )))
    }
}

/// All lines stand below each other; the picture is a window onto them that moves down as they come.
fn picture(lines: &[Line]) -> String {
    let (width, height) = (COLUMNS * 8 + 32, ROWS * LINE_HEIGHT + 32);
    let end = lines.last().map_or(Duration::ZERO, |line| line.at);
    let total = (end + HOLD).as_secs_f64();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <title>{}</title>\n\
         <style>\ntext {{ white-space: pre; }}\n.l {{ animation: move {total:.2}s step-end infinite; }}\n@keyframes move {{\n",
        paint::escape(COMMAND)
    );
    for (at, line) in lines.iter().enumerate() {
        let percent = line.at.as_secs_f64() * 100.0 / total;
        writeln!(
            svg,
            "{percent:.2}% {{ transform: translateY({}px); }}",
            shift(at + 1)
        )
        .expect("a string takes everything");
    }
    writeln!(
        svg,
        "100% {{ transform: translateY({end}px); }}\n}}\n</style>\n\
         <clipPath id=\"w\"><rect x=\"0\" y=\"12\" width=\"{width}\" height=\"{}\"/></clipPath>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#16181d\"/>\n\
         <g clip-path=\"url(#w)\"><g class=\"l\" style=\"transform: translateY({end}px)\" \
         xml:space=\"preserve\">",
        ROWS * LINE_HEIGHT + 3,
        end = shift(lines.len()),
    )
    .expect("a string takes everything");
    for (at, line) in lines.iter().enumerate() {
        let y = 28 + at * LINE_HEIGHT;
        writeln!(
            svg,
            "<text x=\"16\" y=\"{y}\">{}</text>",
            paint::spans(&line.text, COLUMNS)
        )
        .expect("a string takes everything");
    }
    svg.push_str("</g></g>\n</svg>\n");
    svg
}

/// How far the lines are moved when `shown` of them have come: the newest is the lowest that is
/// seen, and those to come lie below the window.
fn shift(shown: usize) -> i64 {
    let rows = i64::try_from(ROWS).unwrap_or(i64::MAX);
    let shown = i64::try_from(shown).unwrap_or(i64::MAX);
    (rows - shown) * i64::try_from(LINE_HEIGHT).unwrap_or(1)
}
