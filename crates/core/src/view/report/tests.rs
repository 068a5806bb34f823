use proptest::prelude::*;

use super::*;
use crate::{
    account::Account,
    chronicle::{Headline, Places, Seen, What},
    job::JobStatus,
    ledger::Ledger,
    view::testing::{self, span, time, verdict},
};

const MINUTE: i64 = 60_000;

fn spans(parts: &[(u32, Phase, i64)]) -> Vec<(i64, What)> {
    let mut whats = vec![(0, What::Began)];
    let mut end = 0;
    for (attempt, phase, minutes) in parts {
        let (from, to) = (end, end + minutes * MINUTE);
        whats.push(span(from, to, *attempt, *phase));
        end = to;
    }
    whats
}

fn failed(minute: i64, attempt: u32, account: Option<Account>) -> (i64, What) {
    let headline = Headline {
        attempt,
        pod: "p".to_owned(),
        slot: None,
        account,
        message: format!("attempt {attempt}: exit code 1"),
        step: None,
    };
    (minute * MINUTE, What::Failed(headline))
}

fn run(chronicle: &Chronicle, accelerators: Option<u32>, until: i64) -> RunTime<'_> {
    RunTime {
        id: "r",
        job: "j",
        state: RowState::Succeeded,
        chronicle,
        accelerators,
        until: time(until * MINUTE),
    }
}

fn report(chronicle: &Chronicle, since: Option<i64>, until: i64) -> Report {
    let since = since.map(|minute| time(minute * MINUTE));
    let mut tally = Tally::new(since, time(until * MINUTE));
    tally.add(&run(chronicle, Some(8), until));
    tally.report()
}

/// Minutes by account.
fn accounts(report: &Report) -> Vec<(Charge, u64, u64)> {
    let accounts = report.accounts.iter();
    accounts
        .map(|it| (it.account, it.failures, it.millis / 60_000))
        .collect()
}

/// A name, the phases of attempts in minutes, failures, and what is on which account.
type Case = (
    &'static str,
    Vec<(u32, Phase, i64)>,
    Vec<(i64, What)>,
    Vec<(Charge, u64, u64)>,
);

#[test]
fn lost_time_is_on_one_account() {
    use Phase::{Creating, Placing, Queued, Redoing, Restarting, Saving, Starting, Training};
    let first = [(1, Queued, 7), (1, Starting, 10), (1, Training, 100)];
    let then = [
        (2, Restarting, 3),
        (2, Placing, 5),
        (2, Starting, 10),
        (2, Redoing, 20),
        (2, Training, 50),
    ];
    let cases: Vec<Case> = vec![
        (
            "the first start is nobody's",
            first.to_vec(),
            vec![],
            vec![(Charge::NoFailure, 0, 17)],
        ),
        (
            "what follows a failure is on its account",
            [&first[..], &then].concat(),
            vec![failed(117, 1, Some(Account::Infrastructure))],
            vec![(Charge::Infrastructure, 1, 38), (Charge::NoFailure, 0, 17)],
        ),
        (
            "the verdict counts where the failure has no account",
            [&first[..], &then].concat(),
            vec![
                failed(117, 1, None),
                (
                    117 * MINUTE,
                    What::Verdict(Box::new(verdict(1, "oom", None).into())),
                ),
            ],
            vec![(Charge::User, 1, 38), (Charge::NoFailure, 0, 17)],
        ),
        (
            "no failure was recorded",
            [&first[..], &then].concat(),
            vec![],
            vec![(Charge::NoFailure, 0, 17), (Charge::Unknown, 0, 38)],
        ),
        (
            "a resumed job is nobody's",
            [
                &first[..],
                &[
                    (1, Phase::Suspended, 60),
                    (2, Creating, 4),
                    (2, Training, 9),
                ],
            ]
            .concat(),
            vec![],
            vec![(Charge::NoFailure, 0, 21)],
        ),
        (
            "saves and stalls are nobody's, also after a failure",
            [
                &first[..],
                &[(2, Saving, 2), (2, Phase::Stalled, 3), (2, Training, 9)],
            ]
            .concat(),
            vec![failed(117, 1, Some(Account::User))],
            vec![(Charge::User, 1, 0), (Charge::NoFailure, 0, 22)],
        ),
        (
            "a gang stops before its next attempt begins",
            [
                &first[..],
                &[(1, Restarting, 1), (2, Starting, 1), (2, Training, 9)],
            ]
            .concat(),
            vec![failed(117, 1, Some(Account::Preemption))],
            vec![(Charge::Preemption, 1, 2), (Charge::NoFailure, 0, 17)],
        ),
    ];
    for (name, parts, more, want) in cases {
        let minutes = parts.iter().map(|(_, _, minutes)| minutes).sum();
        let whats = spans(&parts).into_iter().chain(more);
        let report = report(&testing::chronicle(whats), None, minutes);
        assert_eq!(accounts(&report), want, "{name}");
    }
}

#[test]
fn failures_are_listed_with_their_cost() {
    use Phase::{Redoing, Restarting, Training};
    let parts = [
        (1, Training, 60),
        (2, Restarting, 5),
        (2, Training, 60),
        (3, Restarting, 5),
        (3, Redoing, 30),
        (3, Training, 10),
    ];
    let more = [
        failed(60, 1, Some(Account::User)),
        failed(125, 2, Some(Account::Infrastructure)),
        failed(170, 3, Some(Account::User)),
    ];
    let whats = spans(&parts).into_iter().chain(more);
    let chronicle = testing::chronicle(whats);
    let whole = report(&chronicle, None, 170);
    assert_eq!(
        (whole.failures.count, whole.failures.millis),
        (3, 40 * 60_000)
    );
    assert_eq!(whole.failures.gpu_millis, 8 * 40 * 60_000);
    let costs = |report: &Report| -> Vec<(u32, u64, String)> {
        let costs = report.failures.costliest.iter();
        costs
            .map(|it| (it.attempt, it.millis / 60_000, it.why.clone()))
            .collect()
    };
    let want = [
        (2, 35, "attempt 2: exit code 1".to_owned()),
        (1, 5, "attempt 1: exit code 1".to_owned()),
    ];
    assert_eq!(costs(&whole), want, "the last one cost no restart");
    // The window begins in the second restart: what it still cost is in it, the failure before is not counted.
    let part = report(&chronicle, Some(127), 170);
    assert_eq!((part.failures.count, part.wall), (1, 43 * 60_000));
    assert_eq!(costs(&part), [(2, 33, want[0].2.clone())]);
}

#[test]
fn ratio_has_bounds_where_the_window_cuts_unseen_time() {
    let unseen = |from: i64, to: i64, trained: i64| {
        let millis = |minutes: i64| u64::try_from(minutes * MINUTE).unwrap();
        let booked = vec![
            (Some(1), Phase::Training, millis(trained)).into(),
            (Some(1), Phase::Stalled, millis(to - from - trained)).into(),
        ];
        let (from, to) = (from * MINUTE, to * MINUTE);
        (from, What::Unseen { from, to, booked })
    };
    let mut whats = spans(&[(1, Phase::Training, 100)]);
    whats.extend([
        unseen(100, 200, 40),
        span(200 * MINUTE, 300 * MINUTE, 1, Phase::Training),
    ]);
    let chronicle = testing::chronicle(whats);
    let ratio = |report: &Report| report.ettr.all.map(|it| (it.at_least, it.at_most));
    let whole = report(&chronicle, None, 300);
    assert_eq!((whole.not_placed, ratio(&whole)), (0, Some((0.8, 0.8))));
    let cut = report(&chronicle, Some(150), 300);
    assert_eq!((cut.not_placed, cut.wall), (50 * 60_000, 150 * 60_000));
    assert_eq!(ratio(&cut), Some((100.0 / 150.0, 1.0)));
    // An hour at the end cuts nothing.
    let hour = cut.ettr.last_hour.unwrap();
    assert_eq!((hour.at_least, hour.at_most), (1.0, 1.0));
}

#[test]
fn runs_without_step_are_in_no_ratio() {
    let trains = testing::chronicle(spans(&[(1, Phase::Starting, 10), (1, Phase::Training, 30)]));
    let silent = testing::chronicle(spans(&[(1, Phase::Starting, 90)]));
    let old = testing::chronicle(spans(&[(1, Phase::Training, 5)]));
    let now = 200;
    let mut tally = Tally::new(Some(time(20 * MINUTE)), time(now * MINUTE));
    assert!(tally.add(&run(&trains, None, 40)));
    assert!(tally.add(&run(&silent, Some(2), 90)));
    assert!(
        !tally.add(&run(&old, Some(2), 5)),
        "it ended before the window"
    );
    let report = tally.report();
    let ettr = report.ettr;
    assert_eq!((report.run_count, report.unknown_accelerators), (2, 1));
    assert_eq!(ettr.all.map(|it| it.at_least), Some(1.0));
    assert_eq!(ettr.last_hour, None, "both ended more than an hour ago");
    assert_eq!(
        (ettr.runs_without_step, ettr.millis_without_step),
        (1, 70 * 60_000)
    );
    let rows: Vec<(u64, Option<u64>)> = report
        .runs
        .iter()
        .map(|row| (row.lost / 60_000, row.gpu_millis))
        .collect();
    assert_eq!(
        rows,
        [(70, Some(2 * 70 * 60_000)), (0, None)],
        "most lost first"
    );
    let nothing = Tally::new(None, time(0)).report();
    assert_eq!(
        (nothing.run_count, nothing.wall, nothing.ettr),
        (0, 0, EttrOf::default())
    );
}

#[test]
fn losses_name_the_run_that_lost_most() {
    let small = testing::chronicle(spans(&[(1, Phase::Starting, 10), (1, Phase::Training, 30)]));
    let large = testing::chronicle(spans(&[(1, Phase::Starting, 30), (1, Phase::Training, 30)]));
    let mut tally = Tally::new(None, time(100 * MINUTE));
    tally.add(&run(&small, Some(1), 40));
    tally.add(&RunTime {
        id: "big",
        ..run(&large, Some(1), 60)
    });
    let report = tally.report();
    let [loss] = &report.losses[..] else {
        panic!("one")
    };
    assert_eq!((loss.phase, loss.millis), (Phase::Starting, 40 * 60_000));
    assert_eq!((&*loss.most.run, loss.most.millis), ("big", 30 * 60_000));
    let help = loss.most.would_win.as_ref().unwrap();
    assert_eq!(help.change, "half the time to the first step");
}

#[test]
fn lists_are_bounded() {
    let parts: Vec<(u32, Phase, i64)> = (1..40)
        .flat_map(|attempt| {
            [
                (attempt, Phase::Restarting, 1),
                (attempt, Phase::Training, 1),
            ]
        })
        .collect();
    let fails = (1..40).map(|attempt| failed(i64::from(2 * attempt), attempt, None));
    let chronicle = testing::chronicle(spans(&parts).into_iter().chain(fails));
    let mut tally = Tally::new(None, time(100 * MINUTE));
    for _ in 0..(2 * RUNS_MAX + 7) {
        tally.add(&run(&chronicle, Some(1), 78));
    }
    let report = tally.report();
    assert_eq!(report.runs.len(), RUNS_MAX);
    assert_eq!(report.runs_left_out, u64::try_from(RUNS_MAX + 7).unwrap());
    assert_eq!(report.failures.costliest.len(), FAILURES_MAX);
    assert_eq!(report.failures.count, 39 * report.run_count);
}

/// A ledger in which these phases followed each other, each of the next attempt or of the same.
fn ledger(steps: &[(bool, usize, i64)], ends: bool) -> (Ledger, i64) {
    let mut ledger = Ledger::default();
    let (mut attempt, mut now) = (1, 1_000);
    for (next, phase, millis) in steps {
        attempt += u32::from(*next);
        ledger.enter(attempt, Phase::ALL[*phase], time(now));
        now += millis;
    }
    if ends {
        ledger.end(time(now));
    }
    (ledger, now)
}

fn of_ledger(ledger: &Ledger, now: i64) -> Chronicle {
    let mut status = JobStatus::default();
    status.trainyard.ledger = ledger.clone();
    let seen = Seen {
        status: &status,
        pods: &[],
    };
    Chronicle::of_stored(&seen, &[], &Places::new(), time(now))
}

fn sums(report: &Report) -> PhaseMillis {
    let phases = report.phases.iter();
    phases.map(|it| (it.phase, it.millis)).collect()
}

proptest! {
    /// The sums of a report are those of the ledgers, and every millisecond that did not train is on one account.
    #[test]
    fn report_adds_up(
        runs in prop::collection::vec((prop::collection::vec((prop::bool::weighted(0.3), 0_usize..11, 1_i64..900), 1..120), any::<bool>()), 1..6),
        since in 0_i64..40_000,
    ) {
        let mut want = PhaseMillis::new();
        let (mut all, mut part) = (Tally::new(None, time(200_000)), Tally::new(Some(time(since)), time(200_000)));
        let mut inside = 0;
        for (steps, ends) in &runs {
            let (ledger, now) = ledger(steps, *ends);
            for (phase, millis) in ledger.totals(time(now)) {
                *want.entry(phase).or_default() += millis;
            }
            let chronicle = of_ledger(&ledger, now);
            let run = RunTime { until: time(now), ..run(&chronicle, Some(3), 0) };
            all.add(&run);
            part.add(&run);
            inside += u64::try_from((now - since.max(1_000)).max(0)).unwrap();
        }
        want.retain(|_, millis| *millis > 0);
        let (all, part) = (all.report(), part.report());
        prop_assert_eq!(sums(&all), want);
        prop_assert_eq!(all.not_placed, 0);
        prop_assert_eq!(part.wall, inside, "the window has the time since then");
        for report in [&all, &part] {
            let sums = sums(report);
            let whole: u64 = sums.values().sum();
            prop_assert_eq!(whole + report.not_placed, report.wall);
            let of = |phase| sums.get(&phase).copied().unwrap_or(0);
            let charged: u64 = report.accounts.iter().map(|it| it.millis).sum();
            prop_assert_eq!(charged, whole - of(Phase::Training) - of(Phase::Suspended));
            let held: u64 = report.phases.iter().map(|it| it.gpu_millis).sum();
            let free = of(Phase::Queued) + of(Phase::Placing) + of(Phase::Suspended);
            prop_assert_eq!(held, 3 * (whole - free));
            let rows: u64 = report.runs.iter().map(|row| row.wall).sum();
            prop_assert_eq!(rows, report.wall);
        }
    }
}
