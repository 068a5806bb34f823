//! The fence rule: which commits an attempt sees.

use proptest::prelude::*;

use super::*;

fn why(lineage: &Lineage, step: u64) -> String {
    let found = lineage
        .side
        .iter()
        .find(|(seen, _)| seen.folder.step == step);
    found.map(|(_, why)| why.to_string()).unwrap_or_default()
}

#[test]
fn zombie_is_invisible() {
    let (a, b, zombie, own) = (
        seen(100, 6, 0),
        seen(200, 6, 0),
        seen(300, 6, 0),
        seen(250, 7, 0),
    );
    let records = [record(6, 0, &[]), record(7, 0, &[&a, &b])];
    let all = [zombie.clone(), own, b, a];
    let lineage = lineage(RUN, &records, &all);
    assert_eq!(steps(&lineage), [100, 200, 250]);
    assert_eq!(
        why(&lineage, 300),
        "attempt 6.0 committed it after attempt 7.0 had begun without it"
    );
    // The next attempt does not acknowledge it either.
    let id = AttemptId::first(8);
    let fence = lineage.fence(RUN, id, &Claimant::new(None, "pod"), Some(&name(250, 7)));
    assert!(!fence.acknowledged.contains(&zombie.reference()));
    assert_eq!(fence.acknowledged.len(), 3);
    fence.check().unwrap();
}

#[test]
fn restarts_fence_like_attempts() {
    let (first, late, second) = (seen(10, 7, 0), seen(30, 7, 0), seen(20, 7, 1));
    let records = [record(7, 0, &[]), record(7, 1, &[&first])];
    let lineage = lineage(RUN, &records, &[first, late, second]);
    assert_eq!(steps(&lineage), [10, 20]);
    assert_eq!(lineage.side.len(), 1);
}

#[test]
fn history_ends_where_it_resumed() {
    let (a, b, c, own) = (seen(1, 1, 0), seen(2, 1, 0), seen(3, 1, 0), seen(2, 2, 0));
    let RecordSeen::Fence(mut fence) = record(2, 0, &[&a, &b, &c]) else {
        panic!("a record");
    };
    fence.resumes_from = Some(a.reference());
    let all = [a, b, c, own.clone()];
    let back = lineage(RUN, &[RecordSeen::Fence(fence.clone())], &all);
    assert_eq!(steps(&back), [1, 2]);
    assert_eq!(back.newest(), Some(&own));
    assert_eq!(why(&back, 3), "attempt 2.0 resumed from an earlier step");
    fence.resumes_from = None;
    let fresh = lineage(RUN, &[RecordSeen::Fence(fence)], &all);
    assert_eq!(fresh.commits, [own]);
}

#[test]
fn foreign_commits_do_not_count() {
    let ours = seen(1, 1, 0);
    let mut other = seen(2, 1, 0);
    other.commit.document.run = "run-2".into();
    let mut moved = seen(3, 1, 0);
    moved.folder = name(4, 1);
    let mut swapped = seen(5, 0, 0);
    let records = [record(1, 0, &[&swapped])];
    swapped.commit.crc32c = Crc32c(1);
    let ahead = seen(6, 2, 0);
    let all = [ours, other, moved, swapped, ahead];
    let lineage = lineage(RUN, &records, &all);
    assert_eq!(steps(&lineage), [1]);
    let whys: Vec<String> = lineage
        .side
        .iter()
        .map(|(_, why)| why.to_string())
        .collect();
    assert_eq!(
        whys,
        [
            "it is of another run, `run-2`",
            "its `COMMIT.json` is of another folder",
            "attempt 1.0 acknowledged another commit of this folder",
            "attempt 2.0 saved it, and the highest record is that of attempt 1.0",
        ]
    );
    assert_eq!(counts(None, RUN, &all[0]), Err(NotCounted::NoRecord));
}

#[test]
fn unreadable_record_still_fences() {
    let (a, b) = (seen(1, 1, 0), seen(2, 2, 0));
    let broken = |attempt| RecordSeen::Unreadable {
        id: AttemptId::first(attempt),
        why: "damaged".into(),
    };
    let records = [record(1, 0, &[]), broken(2)];
    assert_eq!(
        steps(&lineage(RUN, &records, &[b.clone(), a.clone()])),
        [1, 2]
    );
    assert_eq!(
        fenced_by(AttemptId::first(1), &records),
        Some(AttemptId::first(2))
    );
    // A good copy of the record on another tier decides.
    let copies = [broken(2), record(2, 0, &[])];
    let lineage = lineage(RUN, &copies, &[a, b]);
    assert_eq!(steps(&lineage), [2]);
    assert_eq!(lineage.head.unwrap().unreadable, None);
}

#[test]
fn exclusive_create_decides_a_tie() {
    let take = |attempt, restart| Claim::Take(AttemptId { attempt, restart });
    let records = [record(6, 0, &[]), record(7, 0, &[])];
    let seven = AttemptId::first(7);
    for (attempt, holder, records, expected) in [
        (Some(7), "new", &records[..0], take(7, 0)),
        (Some(7), "new", &records[..1], take(7, 0)),
        (Some(7), "pod-7-0", &records[..], Claim::Mine(seven)),
        (Some(7), "new", &records[..], take(7, 1)),
        (Some(6), "pod-6-0", &records[..], Claim::Fenced(seven)),
        (Some(6), "new", &records[..], Claim::Fenced(seven)),
        (None, "new", &records[..], take(8, 0)),
        (None, "new", &records[..0], take(0, 0)),
        (None, "pod-7-0", &records[..], Claim::Mine(seven)),
        (None, "pod-6-0", &records[..], Claim::Fenced(seven)),
    ] {
        let claimant = Claimant::new(attempt, holder);
        assert_eq!(claim(&claimant, records), expected, "{claimant:?}");
    }
}

#[test]
fn attempts_of_a_job_follow_on_those_before_it() {
    let take = |attempt, restart| Claim::Take(AttemptId { attempt, restart });
    let of = |uid: &str, attempt: u32, number: u32| {
        let RecordSeen::Fence(fence) = record(number, 0, &[]) else {
            panic!("a record");
        };
        let job = Some(JobAttempt {
            uid: uid.to_owned(),
            attempt,
        });
        RecordSeen::Fence(Fence { job, ..fence })
    };
    // Attempts 1 and 2 of a job, then attempts 1 and 2 of another one in its folder.
    let records = [of("a", 1, 1), of("a", 2, 2), of("b", 1, 3), of("b", 2, 4)];
    let four = AttemptId::first(4);
    for (job, attempt, holder, seen, expected) in [
        ("a", 1, "new", 0, take(1, 0)),
        ("a", 2, "new", 1, take(2, 0)),
        ("b", 1, "new", 2, take(3, 0)),
        ("b", 2, "new", 3, take(4, 0)),
        ("b", 2, "new", 4, take(4, 1)),
        ("b", 2, "pod-4-0", 4, Claim::Mine(four)),
        ("b", 3, "new", 4, take(5, 0)),
        // The job before is gone, whatever still runs of it.
        ("a", 3, "new", 4, Claim::Fenced(four)),
        ("a", 9, "new", 4, Claim::Fenced(four)),
        // Two attempts of this one ended before they began anything.
        ("c", 3, "new", 4, take(7, 0)),
    ] {
        let claimant = Claimant {
            attempt: Some(attempt),
            job: Some(job.to_owned()),
            holder: holder.to_owned(),
        };
        assert_eq!(claim(&claimant, &records[..seen]), expected, "{claimant:?}");
    }
}

#[test]
fn two_deaths_make_a_suspect() {
    let (old, bad) = (seen(1, 1, 0), seen(2, 1, 0));
    let commits = [old.clone(), bad.clone()];
    let with = |attempt| record(attempt, 0, &[&old, &bad]);
    let restored = |attempt| {
        RecordSeen::Restored(Restored {
            version: VERSION,
            run: RUN.into(),
            attempt,
            restart: 0,
            folder: bad.folder.clone(),
            other: Other::new(),
        })
    };
    // The highest one may be restoring now.
    assert!(suspects(&[with(2), with(3)], &commits).is_empty());
    let twice = suspects(&[with(2), with(3), with(4)], &commits);
    assert_eq!(
        twice.into_iter().collect::<Vec<_>>(),
        [(
            bad.folder.clone(),
            "2 attempts ended while they restored it (2.0, 3.0)".to_owned()
        )]
    );
    assert!(suspects(&[with(2), restored(2), with(3), with(4)], &commits).is_empty());
    // Who committed had restored.
    let more = [old.clone(), bad.clone(), seen(3, 3, 0)];
    assert!(suspects(&[with(2), with(3), with(4)], &more).is_empty());
}

#[test]
fn removed_commits_still_show_that_an_attempt_restored() {
    let (old, good) = (seen(1, 1, 0), seen(2, 1, 0));
    let (of_two, of_three, of_restart) = (seen(3, 2, 0), seen(4, 3, 0), seen(5, 4, 1));
    let resuming = |attempt, restart, acknowledged: &[&CommitSeen]| {
        let RecordSeen::Fence(mut fence) = record(attempt, restart, acknowledged) else {
            panic!("a record");
        };
        fence.resumes_from = Some(good.reference());
        RecordSeen::Fence(fence)
    };
    let two = resuming(2, 0, &[&old, &good]);
    let three = resuming(3, 0, &[&old, &good, &of_two]);
    let four = resuming(4, 0, &[&old, &good, &of_three]);
    // The commits of attempts 2 and 3 were removed, and neither wrote a `restored` file.
    let left = [old.clone(), good.clone()];
    let records = [two, three, four.clone()];
    assert!(suspects(&records, &left).is_empty());
    // Two restarts of one attempt that committed nothing are not excused by a third that did.
    let records = [
        four,
        resuming(4, 1, &[&old, &good]),
        resuming(4, 2, &[&old, &good]),
        resuming(5, 0, &[&old, &good, &of_restart]),
    ];
    let found = suspects(&records, &left);
    assert_eq!(
        found[&good.folder],
        "2 attempts ended while they restored it (4.0, 4.1)"
    );
}

/// What happens in a store: an attempt starts, or one of those that ever started commits.
#[derive(Clone, Debug)]
enum Event {
    Start {
        back: usize,
    },
    Commit {
        by: prop::sample::Index,
        forward: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => (0_usize..3).prop_map(|back| Event::Start { back }),
        3 => (any::<prop::sample::Index>(), 1_u64..4)
            .prop_map(|(by, forward)| Event::Commit { by, forward }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Attempts start from any commit that counts, and every attempt may be a zombie that commits later. The history of the highest one
    /// is always the one that it began with and its own commits, whatever the others do.
    #[test]
    fn histories_never_mix(events in prop::collection::vec(event(), 1..40)) {
        let mut records: Vec<RecordSeen> = Vec::new();
        let mut commits: Vec<CommitSeen> = Vec::new();
        // For each attempt: the history it would write by itself.
        let mut own: Vec<Vec<StepName>> = Vec::new();
        for event in events {
            match event {
                Event::Start { back } => {
                    let now = lineage(RUN, &records, &commits);
                    let kept = now.commits.len().saturating_sub(back);
                    let resume = kept.checked_sub(1).map(|place| now.commits[place].folder.clone());
                    let id = AttemptId::first(u32::try_from(own.len()).unwrap());
                    let fence = now.fence(RUN, id, &Claimant::new(None, "pod"), resume.as_ref());
                    prop_assert!(fence.check().is_ok());
                    own.push(now.commits[..kept].iter().map(|seen| seen.folder.clone()).collect());
                    records.push(RecordSeen::Fence(fence));
                }
                Event::Commit { by, forward } if !own.is_empty() => {
                    let attempt = by.index(own.len());
                    let step = own[attempt].last().map_or(0, |name| name.step) + forward;
                    let commit = seen(step, u32::try_from(attempt).unwrap(), 0);
                    own[attempt].push(commit.folder.clone());
                    commits.push(commit);
                }
                Event::Commit { .. } => {}
            }
            let now = lineage(RUN, &records, &commits);
            let folders: Vec<StepName> = now.commits.iter().map(|seen| seen.folder.clone()).collect();
            prop_assert_eq!(folders, own.last().cloned().unwrap_or_default());
            prop_assert_eq!(now.commits.len() + now.side.len(), commits.len());
        }
    }
}
