//! Sums and failures survive whatever is observed, stored, read and merged.

use proptest::prelude::*;

use super::*;
use crate::ledger::{ATTEMPTS_KEPT, SPANS_KEPT, Timeline};

/// One change of a ledger.
#[derive(Clone, Debug)]
enum Step {
    Enter { next_attempt: bool, phase: Phase },
    Back { attempt: u32 },
    Stalled { millis: u64 },
    End,
}

fn step() -> impl Strategy<Value = (Step, i64, bool)> {
    let enter = (
        prop::bool::weighted(0.3),
        prop::sample::select(&Phase::ALL[..]),
    )
        .prop_map(|(next_attempt, phase)| Step::Enter {
            next_attempt,
            phase,
        });
    let step = prop_oneof![
        12 => enter,
        3 => (0_u64..5_000).prop_map(|millis| Step::Stalled { millis }),
        1 => (0_u32..3).prop_map(|attempt| Step::Back { attempt }),
        1 => Just(Step::End),
    ];
    // Clocks step back now and then.
    (step, -400_i64..4_000, prop::bool::weighted(0.8))
}

fn take(ledger: &mut Ledger, attempt: &mut u32, step: &Step, now: Timestamp) {
    match step {
        Step::Enter {
            next_attempt,
            phase,
        } => {
            *attempt += u32::from(*next_attempt);
            ledger.enter(*attempt, *phase, now);
        }
        Step::Back { attempt } => ledger.enter(*attempt, Phase::Starting, now),
        Step::Stalled { millis } => ledger.stalled(*attempt, *millis, now),
        Step::End => ledger.end(now),
    }
}

/// Phases that took time.
fn taken(mut sums: PhaseMillis) -> PhaseMillis {
    sums.retain(|_, millis| *millis > 0);
    sums
}

fn check(chronicle: &Chronicle, ledger: &Ledger, now: Timestamp) -> Result<(), TestCaseError> {
    prop_assert!(adds_up(chronicle, ledger, now), "{chronicle:?}\n{ledger:?}");
    let mut end = chronicle.began;
    for stretch in &chronicle.stretches {
        prop_assert_eq!(Some(stretch.from), end, "no gap and no overlap");
        prop_assert!(stretch.adds_up() && stretch.millis() > 0);
        end = Some(stretch.to);
    }
    let closed = ledger.open.map(|open| open.since).or(ledger.ended);
    prop_assert_eq!(end, closed.map(Timestamp::as_millisecond));
    prop_assert_eq!(chronicle.open, ledger.open.map(whole_millis));
    Ok(())
}

fn whole_millis(open: OpenSpan) -> OpenSpan {
    let since = Timestamp::from_millisecond(open.since.as_millisecond()).unwrap();
    OpenSpan { since, ..open }
}

proptest! {
    /// Every account of the ledger, at every moment, also where observations were missed.
    #[test]
    fn spans_are_the_accounts(steps in prop::collection::vec(step(), 1..200)) {
        let (mut ledger, mut seen) = (Ledger::default(), Ledger::default());
        let mut chronicle = Chronicle::default();
        let mut facts = Vec::new();
        let (mut attempt, mut now, mut first) = (1, 0, true);
        for (step, passes, observed) in &steps {
            now += passes;
            take(&mut ledger, &mut attempt, step, ms(now));
            if !observed {
                continue;
            }
            let (old, new) = (status(&seen), status(&ledger));
            let old = Seen { status: &old, pods: &[] };
            let new = Seen { status: &new, pods: &[] };
            let before = (!first).then_some(&old);
            facts.extend(chronicle.record(before, &new, &Places::new(), ms(now)));
            check(&chronicle, &ledger, ms(now))?;
            check(&chronicle, &ledger, ms(now + 777))?;
            // Attempts one by one, where all of their time is known to be theirs.
            let is_certain = chronicle.stretches.iter().flat_map(Stretch::booked).all(|part| part.attempt.is_some());
            let single = ledger.attempts.windows(2).all(|pair| pair[0].attempt < pair[1].attempt);
            if is_certain && single && ledger.earlier.is_empty() {
                for spans in &ledger.attempts {
                    let mut want = spans.millis.clone();
                    if let Some(open) = ledger.open.filter(|open| open.attempt == spans.attempt) {
                        let millis = ms(now).as_millisecond() - open.since.as_millisecond();
                        *want.entry(open.phase).or_default() += u64::try_from(millis).unwrap_or(0);
                    }
                    let sums = chronicle.attempt_totals(spans.attempt, ms(now));
                    prop_assert_eq!(taken(sums), taken(want));
                }
            }
            seen = ledger.clone();
            first = false;
        }
        // As stored, twice, and compacted.
        let lines: Vec<String> = facts.iter().map(Fact::line).collect();
        let read: Vec<Fact> = lines.iter().map(|line| Fact::read(line.as_bytes()).unwrap()).collect();
        prop_assert_eq!(&read, &facts);
        prop_assert_eq!(&Chronicle::of_facts(read.iter().chain(&read)), &chronicle);
        let again = Chronicle::of_facts(&chronicle.facts());
        prop_assert_eq!(&again, &Chronicle { next: again.next, ..chronicle.clone() });
        prop_assert!(again.next <= chronicle.next.max(1));
    }

    /// The same from the last status alone.
    #[test]
    fn stored_run_adds_up(steps in prop::collection::vec(step(), 1..200)) {
        let mut ledger = Ledger::default();
        let (mut attempt, mut now) = (1, 0);
        for (step, passes, _) in &steps {
            now += passes;
            take(&mut ledger, &mut attempt, step, ms(now));
        }
        let status = status(&ledger);
        let seen = Seen { status: &status, pods: &[] };
        let chronicle = Chronicle::of_stored(&seen, &[], &Places::new(), ms(now));
        check(&chronicle, &ledger, ms(now))?;
        if ledger.timeline.0.len() < SPANS_KEPT && ledger.attempts.len() < ATTEMPTS_KEPT {
            prop_assert_eq!(chronicle.not_observed_millis(), 0, "nothing was merged");
        }
        // An earlier version stored no timeline.
        let mut without = ledger.clone();
        without.timeline = Timeline::default();
        let status = self::status(&without);
        let seen = Seen { status: &status, pods: &[] };
        let chronicle = Chronicle::of_stored(&seen, &[], &Places::new(), ms(now));
        check(&chronicle, &without, ms(now))?;
    }

    /// Less detail never changes a sum.
    #[test]
    fn compaction_keeps_sums(
        parts in prop::collection::vec((0_u32..9, 0_usize..11, 1_u64..900, prop::bool::weighted(0.2)), 1..300),
        most in 1_usize..40,
    ) {
        let mut stretches = Vec::new();
        let mut end = 0;
        for (attempt, phase, millis, unseen) in parts {
            let phase = Phase::ALL[phase];
            let booked = vec![Booked { attempt: Some(attempt), phase, millis }];
            let content = if unseen { Content::NotObserved(booked) } else { Content::Phase { attempt, phase } };
            let to = end + i64::try_from(millis).unwrap();
            stretch::push(&mut stretches, Stretch { from: end, to, content });
            end = to;
        }
        let whole = Chronicle { stretches: stretches.clone(), ..Chronicle::default() };
        stretch::compact(&mut stretches, most);
        prop_assert!(stretches.len() <= most);
        let short = Chronicle { stretches, ..Chronicle::default() };
        prop_assert_eq!(short.totals(ms(0)), whole.totals(ms(0)));
        prop_assert!(short.stretches.iter().all(Stretch::adds_up));
        prop_assert!(short.stretches.iter().all(|it| it.booked().len() <= BOOKED_MAX));
        prop_assert!(short.not_observed_millis() >= whole.not_observed_millis());
    }

    /// A merged failure covers the failures of its slot, and of no other one.
    #[test]
    fn merged_failures_cover_all(
        all in prop::collection::vec((0_u32..5, 0_i64..10_000), 1..200),
        most in 5_usize..40,
    ) {
        let mut failures: Vec<Failure> = all.iter().map(|(slot, at)| Failure::one(Some(worker(*slot)), 1, *at)).collect();
        lane::merge_failures(&mut failures, most);
        prop_assert!(failures.len() <= most);
        let count: u64 = failures.iter().map(|it| it.count).sum();
        prop_assert_eq!(count, u64::try_from(all.len()).unwrap());
        for (slot, at) in all {
            let covers = |it: &Failure| it.slot == Some(worker(slot)) && it.at <= at && at <= it.until;
            prop_assert!(failures.iter().any(covers));
        }
    }
}
