use super::*;
use crate::view::testing::{time, verdict};

fn judged(run: &str, job: &str, at: i64, verdict: VerdictSummary) -> Judged {
    Judged {
        run: run.to_owned(),
        job: job.to_owned(),
        namespace: "team".to_owned(),
        at: time(at),
        verdict,
    }
}

#[test]
fn equal_failures_are_one_cause() {
    let at = Some("KeyError at train.py:7");
    let all = [
        judged("r1", "a", 1_000, verdict(1, "exception", at)),
        judged("r1", "a", 2_000, verdict(2, "exception", at)),
        judged("r2", "b", 9_000, verdict(1, "exception", at)),
        judged("r3", "a", 3_000, verdict(1, "exception", Some("elsewhere"))),
        judged("r3", "a", 4_000, verdict(2, "cuda_oom", None)),
        // A later verdict on the same attempt.
        judged("r3", "a", 5_000, verdict(2, "cuda_oom", None)),
    ];
    let causes = causes(&all);
    let short: Vec<(&str, usize, usize)> = causes
        .iter()
        .map(|it| (it.label.as_str(), it.times, it.jobs))
        .collect();
    assert_eq!(
        short,
        [("exception", 3, 2), ("cuda_oom", 1, 1), ("exception", 1, 1)]
    );
    let first = &causes[0];
    assert_eq!((first.first_at, first.last_at), (time(1_000), time(9_000)));
    assert_eq!((first.newest.run.as_str(), first.newest.attempt), ("r2", 1));
    assert_eq!(
        first.nodes,
        [CauseNode {
            node: "n-1".to_owned(),
            times: 3
        }]
    );
    assert_eq!(causes[1].fingerprint, "cuda_oom");
    assert_ne!(causes[0].fingerprint, causes[2].fingerprint);
}
