//! What is drained, what stays for it, and what a deadline leaves time for.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn held(step: u64, state: &str) -> HeldStep {
    HeldStep {
        folder: name(step, 1),
        bytes: 1_000,
        is_safe: state == "safe",
        has_failed: state == "failed",
    }
}

fn steps_of(folders: &[StepName]) -> Vec<u64> {
    folders.iter().map(|folder| folder.step).collect()
}

#[test]
fn newest_is_drained_and_others_skipped() {
    type Case<'a> = (&'a [(u64, &'a str)], DrainPolicy, &'a str);
    let all = DrainPolicy::default();
    let tenth = DrainPolicy { every: Some(10) };
    let cases: [Case<'_>; 9] = [
        (&[], all, "nothing to copy"),
        (&[(1, "safe")], all, "nothing to copy"),
        (&[(1, "safe"), (2, "")], all, "step 2 is copied next"),
        (
            &[(1, "safe"), (2, ""), (3, ""), (4, "")],
            all,
            "step 4 is copied next; steps 2, 3 were skipped because storage is slower than saves",
        ),
        (&[(9, ""), (11, "")], tenth, "nothing to copy"),
        (
            &[(10, ""), (11, ""), (20, ""), (21, "")],
            tenth,
            "step 20 is copied next; step 10 was skipped because storage is slower than saves",
        ),
        (&[(10, "failed"), (11, "")], tenth, "nothing to copy"),
        (&[(1, ""), (2, "safe")], all, "nothing to copy"),
        (
            &[(0, "")],
            DrainPolicy { every: Some(0) },
            "nothing to copy",
        ),
    ];
    for (given, policy, wanted) in cases {
        let steps: Vec<HeldStep> = given.iter().map(|(step, at)| held(*step, at)).collect();
        let next = drain_next(&steps, policy, None);
        assert_eq!(next.to_string(), wanted, "{given:?}");
    }
}

#[test]
fn deadline_takes_the_newest_if_there_is_time() {
    let tenth = DrainPolicy { every: Some(10) };
    let steps = [held(10, "safe"), held(11, ""), held(12, "failed")];
    let left = |seconds, bytes_per_second| {
        Some(TimeLeft {
            seconds,
            bytes_per_second,
        })
    };
    for (left, wanted) in [
        (left(30.0, Some(100.0)), "step 12 is copied next"),
        (
            left(12.0, Some(100.0)),
            "step 12 is not copied: it takes 10 s, 12 s are left",
        ),
        // What was never measured is tried: the deadline ends it.
        (left(1.0, None), "step 12 is copied next"),
        (
            left(f64::NAN, Some(100.0)),
            "step 12 is not copied: it takes 10 s, NaN s are left",
        ),
        (None, "nothing to copy"),
    ] {
        let next = drain_next(&steps, tenth, left);
        assert_eq!(next.to_string(), wanted, "{left:?}");
    }
}

#[test]
fn restore_names_tiers_and_their_steps() {
    let (old, new) = (seen(1100, 1, 0), seen(1200, 1, 0));
    let history = lineage(RUN, &[record(1, 0, &[])], &[old.clone(), new.clone()]);
    let view = |tier, place: &str, seen: &CommitSeen, ranks: &[u32]| TierView {
        tier,
        place: place.into(),
        pieces: BTreeMap::from([(
            seen.folder.clone(),
            (whole(seen).into_iter())
                .filter(|piece| ranks.contains(&piece.rank))
                .collect(),
        )]),
    };
    let wanted = Wanted {
        world: 2,
        homes: [(0, "a".to_owned()), (1, "c".to_owned())].into(),
        ..Wanted::default()
    };
    let said = |views: &[TierView], local: &[CommitSeen]| {
        let Selection::Choice(choice) = select(&history, views, &wanted, &BTreeMap::new()) else {
            panic!("nothing is selected");
        };
        let tiers = [
            TierHas::of(Tier::Local, &history, local),
            TierHas::of(Tier::Shared, &history, std::slice::from_ref(&old)),
        ];
        let lost = choice.passed.iter().map(|passed| format!("; {passed}"));
        format!(
            "{}{}",
            restored_from(&choice, &tiers),
            lost.collect::<String>()
        )
    };
    let shared = || view(Tier::Shared, "volume", &old, &[0, 1]);
    let own = view(Tier::Local, "a", &new, &[0]);
    let both = [old.clone(), new.clone()];
    assert_eq!(
        said(
            &[shared(), own.clone(), view(Tier::Local, "c", &new, &[1])],
            &both
        ),
        "from local, step 1200; shared has 1100"
    );
    // Node c is new: its piece comes from the peer of the lost node.
    assert_eq!(
        said(
            &[shared(), own.clone(), view(Tier::Local, "b", &new, &[1])],
            &both
        ),
        "from local and peer, step 1200; shared has 1100"
    );
    // Node and partner are lost: the whole step from shared, not a mix.
    assert_eq!(
        said(&[shared(), own], &both),
        format!(
            "from shared, step 1100; local has 1200; step 1200 (`{}`): no tier has the piece of rank 1 in full",
            new.folder
        )
    );
    assert_eq!(
        said(&[shared()], &[]).split("; step").next(),
        Some("from shared, step 1100; local has none")
    );
}

/// Two tiers and a drain between them, cut at will.
#[derive(Debug, Default)]
struct Model {
    local: Vec<u64>,
    shared: Vec<u64>,
    under_way: Option<u64>,
    failed: BTreeSet<u64>,
    step: u64,
}

impl Model {
    fn held(&self) -> Vec<HeldStep> {
        let state = |step: &u64| {
            if self.shared.contains(step) {
                "safe"
            } else if self.failed.contains(step) {
                "failed"
            } else {
                ""
            }
        };
        self.local
            .iter()
            .map(|step| held(*step, state(step)))
            .collect()
    }

    fn protected(&self, policy: DrainPolicy) -> BTreeSet<u64> {
        let under_way = self.under_way.map(|step| name(step, 1));
        let kept = not_drained(&self.held(), policy, under_way);
        kept.into_iter().map(|folder| folder.step).collect()
    }

    fn happen(&mut self, event: u8, policy: DrainPolicy) {
        match event {
            // Saves are the most frequent.
            0..=3 => {
                self.step += 1;
                self.local.push(self.step);
                let kept = self.protected(policy);
                let newest: Vec<u64> = self.local.iter().rev().take(2).copied().collect();
                self.local
                    .retain(|step| newest.contains(step) || kept.contains(step));
            }
            // One at a time.
            4 if self.under_way.is_some() => {}
            4 => match drain_next(&self.held(), policy, None) {
                DrainNext::Begin { folder, skipped } => {
                    assert!(steps_of(&skipped).iter().all(|step| *step < folder.step));
                    self.under_way = Some(folder.step);
                }
                other => assert_eq!(other, DrainNext::Idle),
            },
            5 => {
                if let Some(step) = self.under_way.take() {
                    assert!(
                        self.local.contains(&step),
                        "it was removed while it was copied"
                    );
                    assert!(self.shared.last().is_none_or(|last| *last < step));
                    self.shared.push(step);
                }
            }
            6 => self.failed.extend(self.under_way.take()),
            // A kill: nothing is known but what the tiers hold.
            7 => {
                self.under_way = None;
                self.failed.clear();
            }
            // The local tier is lost; the run continues from what shared has.
            _ => {
                *self = Self {
                    shared: std::mem::take(&mut self.shared),
                    step: self.step,
                    ..Self::default()
                };
            }
        }
    }
}

proptest! {
    #[test]
    fn drains_lose_nothing_and_stay_bounded(
        events in prop::collection::vec(0_u8..9, 1..120),
        every in prop::option::of(1_u64..5),
    ) {
        let policy = DrainPolicy { every };
        let mut model = Model::default();
        for event in events {
            let before = model.shared.last().copied();
            model.happen(event, policy);
            prop_assert!(model.protected(policy).len() <= 2, "{:?}", model);
            prop_assert!(model.local.len() <= 4, "{:?}", model);
            prop_assert!(model.shared.last().copied() >= before);
            if event <= 3 {
                prop_assert_eq!(model.local.last(), Some(&model.step));
            }
        }
        // Left alone, the newest due step that is held gets there.
        model.failed.clear();
        for _ in 0..4 {
            model.happen(4, policy);
            model.happen(5, policy);
        }
        let due = model.local.iter().rev().find(|step| step.is_multiple_of(every.unwrap_or(1)));
        if let Some(due) = due {
            prop_assert!(model.shared.last() >= Some(due), "{:?}", model);
        }
    }
}
