use std::fmt::Write as _;

use trainyard_core::{
    job::{Event, JobRecord, Progress, ProgressRecord},
    ledger::Phase,
    progress::Figure,
    reason::StoredReason,
    spec::Role,
};

use super::*;
use crate::run::testing;

const PLAIN: Look = Look {
    ranks: Paint::Plain,
    own: Paint::Plain,
    verbosity: Verbosity::Normal,
};

/// Events at their milliseconds, and the lines they become: `o` for ranks, `e` for trainyard, `=`
/// for the live line at the end of each second and at the very end.
fn transcript(job: &Job, look: Look, width: usize, events: Vec<(u64, RunEvent)>) -> String {
    let mut view = View::new(job, look, testing::at(0));
    view.width_is(Some(width));
    let mut text = String::new();
    let last = events.last().map_or(0, |(millis, _)| *millis);
    let mut events = events.into_iter().peekable();
    let mut print = |said: Vec<Said>| {
        for line in said {
            match line {
                Said::Rank(line) => writeln!(text, "o {}", visible(&line)),
                Said::Own(line) => writeln!(text, "e {}", visible(&line)),
            }
            .unwrap();
        }
    };
    for millis in (0..=last).step_by(10) {
        let now = Duration::from_millis(millis);
        let mut batch = Batch::default();
        while let Some((_, event)) = events.next_if(|(at, _)| *at <= millis) {
            batch.events.push_back((now, event));
        }
        view.take(batch);
        print(view.due(now));
        if millis > 0 && millis % 1_000 == 0 {
            let live = view.live_line(now);
            print(vec![Said::Own(format!("= {live}"))]);
        }
    }
    print(view.finish());
    let live = view.live_line(Duration::from_millis(last));
    print(vec![Said::Own(format!("= {live}"))]);
    text
}

/// Escape sequences that an editor shows too.
fn visible(line: &str) -> String {
    line.replace('\u{1b}', "␛")
}

fn worker(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn output(slot: Slot, stream: Stream, bytes: &[u8]) -> RunEvent {
    RunEvent::Output {
        slot,
        attempt: 1,
        container: "pytorch".into(),
        stream,
        bytes: bytes.to_vec(),
        left_out: 0,
    }
}

fn status(attempt: u32, waiting: Option<(Code, &str)>) -> RunEvent {
    RunEvent::Status(Box::new(JobStatus {
        trainyard: JobRecord {
            attempt,
            retry_at: waiting
                .filter(|(code, _)| *code == Code::WaitingToRetry)
                .map(|_| testing::at(3)),
            waiting: waiting.map(|(code, message)| StoredReason {
                code,
                message: message.to_owned(),
                params: None,
            }),
            ..JobRecord::default()
        },
        ..JobStatus::default()
    }))
}

fn ended(slot: Slot, attempt: u32, code: i32, stopped: bool) -> RunEvent {
    RunEvent::PodEnded {
        slot,
        attempt,
        exit: Some(Exit {
            code,
            out_of_memory: false,
            at: None,
        }),
        stopped,
    }
}

/// A master and three workers that train, lose one, and train again.
fn sample_run() -> Vec<(u64, RunEvent)> {
    let slots = [Slot::new(Role::Master, 0), worker(0), worker(1), worker(2)];
    let mut events = vec![
        (
            0,
            RunEvent::Prepared {
                run_id: "20250101T000000Z".to_owned(),
                folder: "/home/ada/.trainyard/runs/mnist/20250101T000000Z".into(),
                pods: 4,
            },
        ),
        (
            0,
            RunEvent::Note(
                "image `train:1` is ignored: the programs of this machine run".to_owned(),
            ),
        ),
        (
            10,
            status(1, Some((Code::WaitingForPods, "waits for 4 of 4 pods"))),
        ),
    ];
    for (at, slot) in (20..).step_by(10).zip(slots) {
        let pid = 4_000 + u32::try_from(at).unwrap();
        events.push((
            at,
            RunEvent::PodStarted {
                slot,
                attempt: 1,
                pid,
            },
        ));
        events.push((at + 40, RunEvent::PodRunning { slot, attempt: 1 }));
    }
    events.push((110, status(1, Some((Code::Training, "4 of 4 pods run")))));
    for (at, slot) in (300..).step_by(30).zip(slots) {
        events.push((
            at,
            output(slot, Stream::Out, b"joined the group, world size 4\n"),
        ));
    }
    events.push((
        450,
        output(
            worker(1),
            Stream::Err,
            b"warning: \x1b[33mslow disk\x1b[0m\n",
        ),
    ));
    for step in 1..=20_u32 {
        let at = 500 + u64::from(step) * 100;
        let loss = 2.5 - 0.05 * f64::from(step);
        for slot in slots {
            events.push((
                at,
                RunEvent::Progress {
                    slot,
                    attempt: 1,
                    step: step.into(),
                    loss: Some(loss),
                },
            ));
        }
        if step % 10 == 0 {
            let line = format!("step {step} loss {loss:.3}\n");
            events.push((at, output(slots[0], Stream::Out, line.as_bytes())));
        }
    }
    events.extend([
        (
            2_600,
            RunEvent::Injected(
                "injecting fault `kill rank=2 at=2s` into `mnist-worker-1`".to_owned(),
            ),
        ),
        (2_610, ended(worker(1), 1, 137, false)),
        (
            2_620,
            RunEvent::Event(Event {
                kind: EventKind::Warning,
                reason: "PyTorchJobRestarting".to_owned(),
                message: "job mnist is restarting because Worker replica(s) failed. Pod \
                          `mnist-worker-1`: it ended with exit code 137."
                    .to_owned(),
            }),
        ),
        (2_640, output(slots[0], Stream::Err, b"SIGTERM: saving\n")),
        (2_650, output(worker(0), Stream::Err, b"SIGTERM: saving\n")),
        (2_700, ended(slots[0], 1, 143, true)),
        (2_710, ended(worker(0), 1, 143, true)),
        (2_720, ended(worker(2), 1, 1, false)),
        (
            2_730,
            status(
                2,
                Some((Code::WaitingToRetry, "attempt 2 begins after a pause")),
            ),
        ),
        (3_100, status(2, Some((Code::Training, "4 of 4 pods run")))),
    ]);
    for slot in slots {
        events.push((
            3_000,
            RunEvent::PodStarted {
                slot,
                attempt: 2,
                pid: 5_000,
            },
        ));
    }
    for slot in slots {
        events.push((3_100, RunEvent::PodRunning { slot, attempt: 2 }));
        events.push((3_200, output(slot, Stream::Out, b"resumed at step 10\n")));
    }
    // The order of equal times is the order above.
    events.sort_by_key(|(at, _)| *at);
    events
}

#[test]
fn a_run_with_a_lost_rank() {
    let job = testing::job(1, 3);
    let styled = Look {
        ranks: Paint::Styled,
        own: Paint::Styled,
        ..PLAIN
    };
    let verbose = Look {
        verbosity: Verbosity::Verbose,
        ..PLAIN
    };
    let quiet = Look {
        verbosity: Verbosity::Quiet,
        ..PLAIN
    };
    let cases = [
        ("view-80.txt", PLAIN, 80),
        ("view-120-colour.txt", styled, 120),
        ("view-120-verbose.txt", verbose, 120),
        ("view-quiet.txt", quiet, 80),
    ];
    for (name, look, width) in cases {
        testing::golden(name, &transcript(&job, look, width, sample_run()));
    }
}

#[test]
fn pieces_of_a_line_are_one_line() {
    let job = testing::job(0, 1);
    let long = vec![b'x'; 64 << 10];
    let mut ending = long.clone();
    ending.extend(b"\nnext\n");
    let text = transcript(
        &job,
        PLAIN,
        80,
        vec![
            (0, output(worker(0), Stream::Out, &long)),
            (10, output(worker(0), Stream::Out, &long)),
            (20, output(worker(0), Stream::Out, &ending)),
            (30, output(worker(0), Stream::Out, b"last, without newline")),
        ],
    );
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].ends_with("x … (cut; the log has the whole line)"));
    assert_eq!(lines[1], "o [worker-0]  next");
    assert_eq!(lines[2], "o [worker-0]  last, without newline");
}

#[test]
fn containers_beside_the_one_that_trains_are_named() {
    let mut event = output(worker(0), Stream::Out, b"ready\n");
    if let RunEvent::Output { container, .. } = &mut event {
        *container = "sidecar".into();
    }
    let text = transcript(&testing::job(0, 1), PLAIN, 80, vec![(0, event)]);
    assert!(text.starts_with("o [worker-0/sidecar] ready\n"), "{text}");
}

#[test]
fn left_out_lines_counted_when_quiet() {
    let quiet = Look {
        verbosity: Verbosity::Quiet,
        ..PLAIN
    };
    let mut view = View::new(&testing::job(0, 8), quiet, testing::at(0));
    let mut left_out = |counts: &[(u32, u64)], now| {
        view.take(Batch {
            left_out: counts
                .iter()
                .map(|(at, lines)| (worker(*at), *lines))
                .collect(),
            ..Batch::default()
        });
        view.due(Duration::from_millis(now))
    };
    let message = |text: &str| vec![Said::Rank(format!("[trainyard] {text}"))];
    assert_eq!(
        left_out(&[(3, 12_000)], 0),
        message(
            "12,000 lines left out (12,000 of worker-3): output too fast; the log has all lines"
        )
    );
    assert_eq!(left_out(&[(3, 1_000)], 500), [], "at most once a second");
    assert_eq!(
        left_out(&[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], 1_000),
        message(
            "1,015 lines left out (1,004 of worker-3, 5 of worker-4, 3 of worker-2, and 2 more \
             ranks): output too fast; the log has all lines"
        )
    );
}

#[test]
fn stopping_says_what_happens_and_how_to_force_it() {
    let mut view = View::new(&testing::job(0, 1), PLAIN, testing::at(0));
    view.stop_requested(1);
    view.stop_requested(2);
    let said = view.finish();
    assert_eq!(
        said,
        [
            Said::Own(
                "[trainyard] stopping: pods get SIGTERM and their grace period to save; press \
                 Ctrl-C again to kill them"
                    .to_owned()
            ),
            Said::Own("[trainyard] killing all pods".to_owned()),
        ]
    );
}

#[test]
fn first_failure_printed_before_other_end() {
    let mut failed = testing::failed_rank();
    failed.code = 137;
    failed.signal = Some("SIGKILL".to_owned());
    let events = vec![
        (0, RunEvent::FailedFirst(Box::new(failed))),
        (10, ended(worker(0), 1, 1, false)),
        (20, ended(worker(1), 1, 137, false)),
    ];
    let got = transcript(&testing::job(0, 2), PLAIN, 100, events);
    let lines: Vec<&str> = got.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "e [trainyard] worker-1 failed first in attempt 1: killed by signal 9 (SIGKILL)",
            "e [trainyard] worker-0 failed too: exit code 1",
        ]
    );
    assert!(lines[2].starts_with("e = "), "it is printed once: {got}");
}

#[test]
fn pods_failing_together_listed_once() {
    let failed = testing::failed_rank();
    let events = vec![
        (0, ended(worker(0), 1, 1, false)),
        (0, ended(worker(1), 1, 1, false)),
        (0, RunEvent::FailedFirst(Box::new(failed))),
    ];
    let got = transcript(&testing::job(0, 2), PLAIN, 100, events);
    let lines: Vec<&str> = got.lines().filter(|line| line.contains("failed")).collect();
    assert_eq!(lines.len(), 2, "{got}");
    assert!(
        lines[0].contains("worker-1 failed first in attempt 1"),
        "{got}"
    );
    assert!(lines[1].contains("worker-0 failed too"), "{got}");
}

/// A status of attempt 1 in `phase` since second `since`, whose program reported `record`.
fn reported(phase: Phase, since: i64, record: ProgressRecord) -> RunEvent {
    let mut status = JobStatus::default();
    status.trainyard.attempt = 1;
    status.trainyard.ledger.enter(1, phase, testing::at(since));
    status.trainyard.progress = Some(record);
    RunEvent::Status(Box::new(status))
}

#[test]
fn stalls_and_nan_are_printed_once() {
    let progress = |step, second| ProgressRecord {
        step_seconds: Some(Figure(0.1)),
        ..ProgressRecord::from(&Progress::new(1, step, testing::at(second)))
    };
    let diverged = ProgressRecord {
        loss: Some(Figure(f64::NAN)),
        nan_since: Some(20),
        ..progress(21, 3)
    };
    let events = vec![
        (100, reported(Phase::Training, 0, progress(5, 0))),
        (1_000, reported(Phase::Stalled, 0, progress(5, 0))),
        (1_500, reported(Phase::Stalled, 0, progress(5, 0))),
        (2_000, reported(Phase::Training, 2, progress(6, 2))),
        (3_000, reported(Phase::Training, 2, diverged.clone())),
        (3_100, reported(Phase::Training, 2, diverged)),
    ];
    let text = transcript(&testing::job(0, 1), PLAIN, 120, events);
    let own: Vec<&str> = text.lines().filter(|line| !line.contains("= ")).collect();
    let want = [
        "stalled: no step for 1.0 s; steps took 0.1 s",
        "step reports resumed",
        "warning: loss is NaN since step 20",
    ];
    assert_eq!(own.len(), want.len(), "{text}");
    for (line, want) in own.iter().zip(want) {
        assert!(line.ends_with(want), "{line}");
    }
    assert!(text.contains("no step for 1.0s"), "{text}");
    assert!(
        text.trim_end().ends_with("loss is NaN since step 20"),
        "{text}"
    );
}
