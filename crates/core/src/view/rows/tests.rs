use super::*;
use crate::{
    chronicle::What,
    job::LastFailure,
    reason::StoredReason,
    view::testing::{chronicle, failed, span, time, verdict},
};

/// A status, its state, the newest verdict, and what the sentence is.
type Case<'a> = (
    &'a JobStatus,
    RowState,
    Option<&'a VerdictSummary>,
    Option<(LineKind, &'a str)>,
);

fn in_phase(phase: Phase) -> JobStatus {
    let mut status = JobStatus::default();
    status.trainyard.ledger.enter(1, phase, time(1_000));
    status
}

#[test]
fn row_state_follows_end_and_phase() {
    let cases = [
        (
            "ended well",
            Some(Ending::Succeeded),
            false,
            None,
            RowState::Succeeded,
        ),
        (
            "ended badly",
            Some(Ending::Failed),
            false,
            None,
            RowState::Failed,
        ),
        (
            "was stopped",
            Some(Ending::Stopped),
            false,
            None,
            RowState::Stopped,
        ),
        (
            "engine died",
            None,
            false,
            Some(Phase::Training),
            RowState::Unknown,
        ),
        ("not begun", None, true, None, RowState::Waiting),
        (
            "trains",
            None,
            true,
            Some(Phase::Training),
            RowState::Running,
        ),
        (
            "starts",
            None,
            true,
            Some(Phase::Starting),
            RowState::Running,
        ),
        ("pulls", None, true, Some(Phase::Pulling), RowState::Waiting),
        ("hangs", None, true, Some(Phase::Stalled), RowState::Stalled),
        (
            "restarts",
            None,
            true,
            Some(Phase::Restarting),
            RowState::Restarting,
        ),
        (
            "suspended",
            None,
            true,
            Some(Phase::Suspended),
            RowState::Suspended,
        ),
    ];
    for (name, ending, live, phase, want) in cases {
        let status = phase.map_or_else(JobStatus::default, in_phase);
        assert_eq!(state(ending, live, &status), want, "{name}");
        assert_eq!(
            serde_json::to_value(want).unwrap(),
            serde_json::json!(want.name())
        );
    }
}

#[test]
fn line_says_why_a_job_does_not_train() {
    let now = time(61_000);
    let mut waits = in_phase(Phase::Placing);
    waits.trainyard.waiting = Some(StoredReason {
        code: Code::WaitingForSeats,
        message: "needs 4 nodes".to_owned(),
        params: None,
    });
    let mut fails = in_phase(Phase::Restarting);
    fails.trainyard.last_failure = Some(LastFailure {
        attempt: 1,
        pod: "j-worker-0".to_owned(),
        account: Account::User,
        message: "exit code 1".to_owned(),
        cause: None,
        step: None,
        since_attempt: None,
        verdict: None,
    });
    let known = verdict(1, "cuda_oom", None);
    let headline = known.headline();
    let stalled = in_phase(Phase::Stalled);
    let cases: [Case<'_>; 6] = [
        (
            &waits,
            RowState::Waiting,
            None,
            Some((LineKind::Waiting, "needs 4 nodes")),
        ),
        (&waits, RowState::Running, None, None),
        (
            &stalled,
            RowState::Stalled,
            None,
            Some((LineKind::Stalled, "no step for 60 s")),
        ),
        (
            &fails,
            RowState::Restarting,
            None,
            Some((LineKind::Failure, "pod `j-worker-0`: exit code 1")),
        ),
        (
            &fails,
            RowState::Failed,
            Some(&known),
            Some((LineKind::Verdict, &headline)),
        ),
        (
            &waits,
            RowState::Failed,
            None,
            Some((LineKind::Failure, "the end")),
        ),
    ];
    for (status, state, verdict, want) in cases {
        let got = line(state, status, verdict, Some("the end"), now);
        let got = got.as_ref().map(|line| (line.kind, line.text.as_str()));
        assert_eq!(got, want, "{state:?}");
    }
}

#[test]
fn day_has_cells_that_add_up() {
    let hour = 3_600_000;
    let long = chronicle([
        (0, What::Began),
        span(0, 10 * hour, 1, Phase::Training),
        failed(10 * hour),
        span(10 * hour, 40 * hour, 2, Phase::Queued),
        (
            40 * hour,
            What::Ended {
                outcome: crate::chronicle::Outcome::Failed,
            },
        ),
    ]);
    let short = chronicle([
        (0, What::Began),
        span(0, 900, 1, Phase::Starting),
        span(900, 1_000, 1, Phase::Training),
        (
            1_000,
            What::Ended {
                outcome: crate::chronicle::Outcome::Succeeded,
            },
        ),
    ]);
    for (name, history, length) in [("long", &long, 24 * hour), ("short", &short, 1_000)] {
        let cells = day(history, time(50 * hour));
        let sum: u64 = cells.iter().map(|(_, millis)| millis).sum();
        assert_eq!(sum, u64::try_from(length).unwrap(), "{name}");
        assert_eq!(cells.len(), CELLS as usize, "{name}");
    }
    let cells = day(&short, time(0));
    assert_eq!(cells.first().unwrap().0, State::Starting.number());
    assert_eq!(cells.last().unwrap().0, State::Training.number());
    assert_eq!(day(&Chronicle::default(), time(0)), []);
    let tiny = chronicle([(0, What::Began), span(0, 5, 1, Phase::Training)]);
    assert_eq!(day(&tiny, time(5)), [(State::Training.number(), 1); 5]);
}

#[test]
fn attempts_are_bounded_where_every_account_is() {
    let all = Account::ALL
        .into_iter()
        .map(|account| (account, 2))
        .collect();
    assert_eq!(attempts_max(&all), Some(9));
    let one = [(Account::User, 2)].into();
    assert_eq!(attempts_max(&one), None);
}
