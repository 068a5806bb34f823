//! Lines of real programs, and logs without any step.

use proptest::prelude::*;

use super::*;

const PROGRAMS: &str = include_str!("../../../../testdata/progress/programs.txt");
const NONE: &str = include_str!("../../../../testdata/progress/none.txt");

/// One log and what is read of it.
struct Log {
    name: &'static str,
    output: Vec<u8>,
    readings: Vec<&'static str>,
}

fn logs(text: &'static str) -> Vec<Log> {
    let mut logs: Vec<Log> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            logs.push(Log {
                name,
                output: Vec::new(),
                readings: Vec::new(),
            });
        } else if let Some(output) = line.strip_prefix("| ") {
            let output = output
                .replace("\\t", "\t")
                .replace("\\e", "\u{1b}")
                .replace("\\b", "\u{8}")
                .replace("\\r", "\r");
            let log = logs.last_mut().unwrap();
            log.output.extend_from_slice(output.as_bytes());
            if !output.ends_with(['\r', '\u{8}']) {
                log.output.push(b'\n');
            }
        } else if let Some(reading) = line.strip_prefix("> ") {
            logs.last_mut().unwrap().readings.push(reading);
        }
    }
    logs
}

/// A reading as the test data writes it.
fn shown(reading: &Reading) -> String {
    let mut parts = Vec::new();
    match (reading.step, reading.last_step) {
        (Some(step), Some(last)) => parts.push(format!("step {step}/{last}")),
        (Some(step), None) => parts.push(format!("step {step}")),
        (None, Some(last)) => parts.push(format!("step ?/{last}")),
        (None, None) => {}
    }
    let values = [
        ("epoch", reading.epoch),
        ("loss", reading.loss),
        ("lr", reading.learning_rate),
        ("norm", reading.grad_norm),
        ("tokens/s", reading.tokens_per_second),
        ("samples/s", reading.samples_per_second),
        ("time", reading.step_seconds),
    ];
    for (name, value) in values {
        parts.extend(value.map(|value| format!("{name} {value}")));
    }
    parts.extend(
        reading
            .event
            .map(|event| format!("{event:?}").to_lowercase()),
    );
    parts.join(" ")
}

/// What is read of `output` in pieces of at most `size` bytes.
fn read(output: &[u8], size: usize) -> Vec<String> {
    let mut reader = Reader::new();
    let mut readings = Vec::new();
    for piece in output.chunks(size) {
        reader.bytes(piece, |reading| readings.push(shown(&reading)));
    }
    reader.end(|reading| readings.push(shown(&reading)));
    readings
}

#[test]
fn programs() {
    let logs = logs(PROGRAMS);
    assert!(logs.len() >= 30);
    let mut wrong = Vec::new();
    for log in logs {
        for size in [1, 7, 4096] {
            let readings = read(&log.output, size);
            if readings != log.readings {
                wrong.push(format!(
                    "{} in pieces of {size}:\n  read     {readings:#?}\n  expected {:#?}",
                    log.name, log.readings
                ));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn logs_without_a_step() {
    let logs = logs(NONE);
    assert!(logs.len() >= 40, "{}", logs.len());
    let mut wrong = Vec::new();
    for log in logs {
        for reading in read(&log.output, 4096) {
            if reading.contains("step") || reading.contains("loss") {
                wrong.push(format!("{}: {reading}", log.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn only_the_end_of_a_long_piece_is_read() {
    let mut long = b"step 1 loss 0.1\n".to_vec();
    long.resize(Reader::WINDOW * 2, b'x');
    long.extend(b"\nstep 2 loss 0.2\nstep 3 lo");
    let mut reader = Reader::new();
    let mut steps = Vec::new();
    reader.bytes(&long, |reading| steps.extend(reading.step));
    reader.bytes(b"ss 0.3\n", |reading| steps.extend(reading.step));
    assert_eq!(steps, [2, 3]);
}

#[test]
fn a_bar_counts_before_its_line_ends() {
    let mut reader = Reader::new();
    let mut steps = Vec::new();
    let bar = "\r 20%|██        | 20/100 [00:10<00:40,  2.00it/s]";
    reader.bytes(bar.as_bytes(), |reading| steps.extend(reading.step));
    assert_eq!(steps, [20]);
    reader.bytes(b"   \r", |reading| steps.extend(reading.step));
    assert_eq!(steps, [20]);
}

#[test]
fn a_line_without_an_end_takes_no_more_than_its_room() {
    let mut reader = Reader::new();
    for _ in 0..1000 {
        reader.bytes(&[b'x'; 4096], |reading| panic!("{reading:?}"));
    }
    assert!(format!("{reader:?}").len() < 100_000);
    let mut steps = Vec::new();
    reader.bytes(b"\nstep 5 loss 0.1\n", |reading| steps.extend(reading.step));
    assert_eq!(steps, [5]);
}

/// Pieces of lines that the reader has a meaning for.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        "step",
        "iteration",
        "loss",
        "epoch",
        ":",
        "=",
        " ",
        "12",
        "/",
        "100",
        "nan",
        "-",
        "[",
        "]",
        "%|",
        "| ",
        " [00:01<00:02, ",
        "2.00it/s",
        "\r",
        "\n",
        "\u{8}",
        "\u{1b}[3",
        "1m",
        "━",
        ".",
        "#",
        ",",
        "e",
        "\t",
        "Epoch 1/3\n",
        "global_step",
        "18446744073709551616",
        "it [",
    ])
    .prop_map(|text| text.as_bytes().to_vec());
    let any = prop::collection::vec(any::<u8>(), 0..8);
    prop::collection::vec(prop_oneof![8 => known, 1 => any], 0..200)
        .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn cuts_change_nothing(output in text(), size in 1_usize..64) {
        prop_assert_eq!(read(&output, size), read(&output, Reader::WINDOW));
    }
}

#[test]
fn text_behind_a_progress_bar() {
    let cases = [
        (
            "35%|##  | 35/100 [00:35<01:00, 1.72it/s, loss=0.3]Killed",
            Some("Killed"),
        ),
        (
            "35%|##  | 35/100 [00:35<01:00, 17.2s/it] [1]+ Killed",
            Some("[1]+ Killed"),
        ),
        ("35%|##  | 35/100 [00:35<01:00, 1.72it/s]", None),
        (
            "35%|##  | 35/100 [00:35<01:00, 1.72it/s, lr=[0.1, 0.2]]Killed",
            Some("Killed"),
        ),
        (
            "35%|##  | 35/100 [00:35<01:00, 1.72it/s]36%|##  | 36/100 [00:36<01:00, 1.72it/s]Killed",
            Some("Killed"),
        ),
        ("speed [1.72it/s] Killed", None),
        ("35%|##  | 35/100 [00:35<01:00, 1.72it/s", None),
    ];
    for (text, want) in cases {
        assert_eq!(
            text_after_bar(text.as_bytes()),
            want.map(str::as_bytes),
            "{text}"
        );
    }
}
