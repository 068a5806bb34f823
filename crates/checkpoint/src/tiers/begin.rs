//! The begin of an attempt over tiers: one choice for all ranks, with the reason.

use std::{cell::RefCell, collections::BTreeMap};

use trainyard_core::checkpoint::{
    Claimant, Passed, Policy, Selection, StepName, Tier, TierHas, TierView, Wanted, lineage,
    restored_from,
};

use super::{NodeHolds, Tiers};
use crate::{
    begin::{BeginError, Begun, begin_seeing, suspected},
    choose,
    store::View,
};

/// An attempt that has its record on the shared tier.
#[derive(Clone, Debug, PartialEq)]
pub struct TierBegun {
    /// The attempt.
    pub begun: Begun,
    /// Where it restores from and what the other tiers have; `None` for a start at step 0.
    pub from: Option<String>,
    /// Why the local tier was not looked at.
    pub failure: Option<String>,
}

impl Tiers {
    /// Begins an attempt as its rank 0: the newest commit of the history that both tiers, and the local tiers of other nodes, have in
    /// full. `nodes` is what these hold ([`Self::holds`]), by a name of the node.
    ///
    /// Every other rank copies the record with [`Self::adopt`]; this one has done so.
    pub fn begin(
        &self,
        claimant: &Claimant,
        wanted: &Wanted,
        unreadable: &BTreeMap<StepName, String>,
        keep: &Policy,
        nodes: &BTreeMap<String, Vec<NodeHolds>>,
    ) -> Result<TierBegun, BeginError> {
        let (from, failure) = (RefCell::new(None), RefCell::new(None));
        let look = || {
            let (view, failed) = self.view()?;
            *failure.borrow_mut() = failed;
            Ok(view)
        };
        let choose = |view: &View| {
            let attempt = claimant.store_attempt(&view.records);
            let (selection, reason) = self.choose(view, attempt, wanted, unreadable, nodes);
            *from.borrow_mut() = reason;
            selection
        };
        let begun = begin_seeing(&self.shared, claimant, keep, &look, &choose)?;
        self.adopt(begun.id)?;
        let from = from.into_inner().filter(|_| begun.resumes_from.is_some());
        Ok(TierBegun {
            begun,
            from,
            failure: failure.into_inner(),
        })
    }

    /// The selection over all tiers, and the sentence about it.
    fn choose(
        &self,
        view: &View,
        attempt: Option<u32>,
        wanted: &Wanted,
        unreadable: &BTreeMap<StepName, String>,
        nodes: &BTreeMap<String, Vec<NodeHolds>>,
    ) -> (Selection, Option<String>) {
        let commits = view.commits();
        let history = lineage(self.shared.run(), &view.records, &commits);
        let mut known = suspected(view, &commits, attempt);
        known.extend(unreadable.clone());
        let tiers = self.stores();
        let mut views: Vec<TierView> = (tiers.iter())
            .map(|tier| TierView {
                tier: tier.tier,
                place: tier.place.clone(),
                pieces: BTreeMap::new(),
            })
            .collect();
        views.extend(nodes.iter().map(|(place, holds)| {
            TierView {
                tier: Tier::Peer,
                place: place.clone(),
                pieces: (holds.iter())
                    .map(|step| (step.folder.clone(), step.pieces.clone()))
                    .collect(),
            }
        }));
        let selection = choose::choose(&history, &mut views, wanted, &known, |number, seen| {
            // What other nodes hold is known.
            let tier = tiers.get(number)?;
            let is_there =
                tier.tier != Tier::Shared || matches!(self.is_shared(&seen.folder), Ok(true));
            is_there.then(|| tier.store.pieces_seen(&seen.folder, &seen.commit.document))
        });
        let reason = match &selection {
            Selection::Choice(choice) => {
                let has = tiers.iter().map(|tier| {
                    let found = tier.store.view().map(|view| view.commits());
                    TierHas::of(tier.tier, &history, &found.unwrap_or_default())
                });
                let mut text = restored_from(choice, &has.collect::<Vec<_>>());
                for passed in choice.passed.iter().take(1) {
                    text += &lost(passed, choice.commit.folder.step);
                }
                Some(text)
            }
            Selection::None { .. } => None,
        };
        (selection.with_unreadable(&history, &view.folders), reason)
    }
}

/// What is lost because a newer step was passed over.
fn lost(passed: &Passed, step: u64) -> String {
    let lost = match passed.folder.step.saturating_sub(step) {
        1 => "1 step is".to_owned(),
        steps => format!("{steps} steps are"),
    };
    format!("; {lost} lost: {passed}")
}
