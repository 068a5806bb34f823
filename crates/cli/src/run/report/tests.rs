use trainyard_core::{
    job::{JobStatus, Progress, ProgressRecord},
    ledger::Phase,
    progress::Figure,
};

use super::*;
use crate::run::testing;

fn limits() -> Limits {
    [(Account::User, 3), (Account::Infrastructure, 1_000)].into()
}

#[test]
fn reports() {
    let failed = FailedRank {
        code: 137,
        signal: Some("SIGKILL".to_owned()),
        injected: Some("kill rank=2 at=5s".to_owned()),
        last_lines: vec![
            "step 10 loss 2.31".to_owned(),
            "\u{1b}[31mstep 11\u{1b}[2J".to_owned(),
            String::new(),
        ],
        ..testing::failed_rank()
    };
    let recovered = RunReport {
        failures: vec![failed.clone()],
        ..testing::report()
    };
    let spent = RunReport {
        outcome: Outcome::Failed,
        message: "Job mnist has failed because it has reached the specified backoff limit"
            .to_owned(),
        attempts: 9,
        spent: Spent {
            user: 3,
            infrastructure: 6,
            ..Spent::default()
        },
        failures: std::iter::once(failed)
            .chain((2..=9).map(|attempt| FailedRank {
                attempt,
                ..testing::failed_rank()
            }))
            .collect(),
        ..testing::report()
    };
    let out_of_memory = RunReport {
        outcome: Outcome::Failed,
        attempts: 1,
        failures: vec![FailedRank {
            code: 137,
            out_of_memory: true,
            rank: None,
            last_lines: (0..40).map(|line| format!("line {line}")).collect(),
            ..testing::failed_rank()
        }],
        last_step: None,
        last_loss: None,
        ..testing::report()
    };
    let same_error = RunReport {
        outcome: Outcome::Failed,
        message:
            "Job mnist has failed because attempts 1 and 2 ended with the same error at the same \
                  place: the program raised an exception: KeyError: 'rate'"
                .to_owned(),
        failures: vec![
            FailedRank {
                verdict: Some(testing::verdict()),
                ..testing::failed_rank()
            },
            FailedRank {
                attempt: 2,
                ..testing::failed_rank()
            },
        ],
        verdict: Some(testing::verdict()),
        ..testing::report()
    };
    let stopped = RunReport {
        outcome: Outcome::Stopped,
        attempts: 1,
        spent: Spent::default(),
        failures: Vec::new(),
        ledger: [(Phase::Training, 5_000)].into(),
        trained_ratio: Some(1.0),
        // An earlier version kept no order.
        status: JobStatus::default(),
        ..testing::report()
    };
    let diverged = RunReport {
        last_step: Some(200),
        last_loss: None,
        progress: Some(ProgressRecord {
            loss: Some(Figure(f64::NAN)),
            nan_since: Some(20),
            ..ProgressRecord::from(&Progress::new(2, 200, testing::at(187)))
        }),
        failures: Vec::new(),
        ..testing::report()
    };
    let silent = RunReport {
        outcome: Outcome::Failed,
        attempts: 1,
        ledger: [(Phase::Creating, 100), (Phase::Starting, 500)].into(),
        trained_ratio: None,
        last_step: None,
        last_loss: None,
        ended_at: testing::at(1),
        status: JobStatus::default(),
        ..testing::report()
    };
    let mut text = String::new();
    for (name, report) in [
        ("succeeded after a failure", &recovered),
        ("failed", &spent),
        ("out of memory", &out_of_memory),
        ("the same error twice", &same_error),
        ("stopped", &stopped),
        ("succeeded with NaN", &diverged),
        ("failed before its first step", &silent),
    ] {
        write!(
            text,
            "### {name}\n{}\n",
            render(report, &limits(), Some(80), Paint::Plain)
        )
        .unwrap();
    }
    let styled = render(&recovered, &limits(), Some(120), Paint::Styled).replace('\u{1b}', "␛");
    write!(text, "### in colour\n{styled}").unwrap();
    testing::golden("reports.txt", &text);
}

#[test]
fn report_lines_fit_terminal() {
    for width in [60, 80, 120] {
        let text = render(&testing::report(), &limits(), Some(width), Paint::Plain);
        for line in text.lines().filter(|line| !line.contains("logs")) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}
