//! What is copied from a fast tier to the next, safer one (**drain**), what stays for it, and what a deadline leaves time for.
//!
//! A save commits on its first tier. The drain publishes the same commit on the next one, in the background. It may be slower than
//! saves come: then the one under way is finished, those in between are skipped, and never more than one waits. All follows from what
//! the tiers hold, so a process that was killed continues where the tiers say.

use std::{collections::BTreeSet, fmt};

use super::{
    lineage::{CommitSeen, Lineage},
    names::StepName,
    select::{Choice, Tier},
};

/// The share of a deadline that is planned for; the rest is for what was measured on a quieter day.
const USED_SHARE: f64 = 0.8;

/// Which commits reach the next tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DrainPolicy {
    /// Only steps that this divides; all without it. A deadline takes the newest, whatever its number.
    pub every: Option<u64>,
}

impl DrainPolicy {
    fn is_due(self, folder: &StepName) -> bool {
        self.every
            .is_none_or(|every| every > 0 && folder.step.is_multiple_of(every))
    }
}

/// A commit of the history that the fast tier holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldStep {
    /// Its folder.
    pub folder: StepName,
    /// The bytes that this process copies for it.
    pub bytes: u64,
    /// Whether the next tier has its commit.
    pub is_safe: bool,
    /// Whether this process has tried to copy it and failed.
    pub has_failed: bool,
}

/// What the end of a process leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeLeft {
    /// Seconds until then.
    pub seconds: f64,
    /// Bytes that this process copies in a second, where measured.
    pub bytes_per_second: Option<f64>,
}

/// What a drain does next.
#[derive(Clone, Debug, PartialEq)]
pub enum DrainNext {
    /// Nothing.
    Idle,
    /// Begins this one.
    Begin {
        /// The newest.
        folder: StepName,
        /// Older ones that were due and are not copied any more, oldest first.
        skipped: Vec<StepName>,
    },
    /// Nothing, because the time is too short.
    TooLate {
        /// The newest.
        folder: StepName,
        /// Seconds that it takes.
        needed: f64,
        /// Seconds that are left.
        left: f64,
    },
}

impl fmt::Display for DrainNext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => out.write_str("nothing to copy"),
            Self::Begin { folder, skipped } if skipped.is_empty() => {
                write!(out, "step {} is copied next", folder.step)
            }
            Self::Begin { folder, skipped } => write!(
                out,
                "step {} is copied next; {} skipped because storage is slower than saves",
                folder.step,
                steps_named(skipped)
            ),
            Self::TooLate {
                folder,
                needed,
                left,
            } => write!(
                out,
                "step {} is not copied: it takes {needed:.0} s, {left:.0} s are left",
                folder.step
            ),
        }
    }
}

fn steps_named(folders: &[StepName]) -> String {
    let named: Vec<String> = (folders.iter().take(3))
        .map(|folder| folder.step.to_string())
        .collect();
    let more = if folders.len() > named.len() {
        ", …"
    } else {
        ""
    };
    let (noun, verb) = if folders.len() == 1 {
        ("step", "was")
    } else {
        ("steps", "were")
    };
    format!("{noun} {}{more} {verb}", named.join(", "))
}

/// The steps that may still be copied: those after the newest one that the next tier has. An older one would not be restored.
fn candidates(held: &[HeldStep]) -> &[HeldStep] {
    let first = held.iter().rposition(|step| step.is_safe);
    held.get(first.map_or(0, |place| place + 1)..)
        .unwrap_or_default()
}

/// What is copied next when none is under way. `held` is in the order of the history, oldest first. With `left` the process is about to end.
pub fn drain_next(held: &[HeldStep], policy: DrainPolicy, left: Option<TimeLeft>) -> DrainNext {
    let candidates = candidates(held);
    let is_due = |step: &&HeldStep| policy.is_due(&step.folder) && !step.has_failed;
    let newest = match left {
        Some(_) => candidates.last(),
        None => candidates.iter().rfind(is_due),
    };
    let Some(newest) = newest else {
        return DrainNext::Idle;
    };
    if let Some(left) = left
        && let Some(rate) = left.bytes_per_second.filter(|rate| *rate > 0.0)
    {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let needed = newest.bytes as f64 / rate;
        // A time that is not a number fits nothing.
        if needed.partial_cmp(&(left.seconds * USED_SHARE)) != Some(std::cmp::Ordering::Less) {
            return DrainNext::TooLate {
                folder: newest.folder.clone(),
                needed,
                left: left.seconds,
            };
        }
    }
    let skipped = (candidates.iter())
        .take_while(|step| step.folder != newest.folder)
        .filter(is_due);
    DrainNext::Begin {
        folder: newest.folder.clone(),
        skipped: skipped.map(|step| step.folder.clone()).collect(),
    }
}

/// The steps that the fast tier keeps because the next one does not have them yet: those under way, of which a drain has one at a time, and
/// the one after them, so that a slow tier cannot fill a fast one. They are `not_drained` of [`super::Uses`].
pub fn not_drained(
    held: &[HeldStep],
    policy: DrainPolicy,
    under_way: impl IntoIterator<Item = StepName>,
) -> BTreeSet<StepName> {
    let mut kept: BTreeSet<StepName> = under_way.into_iter().collect();
    if let DrainNext::Begin { folder, .. } = drain_next(held, policy, None) {
        kept.insert(folder);
    }
    kept
}

/// The newest commit of the history that a tier has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierHas {
    /// The tier.
    pub tier: Tier,
    /// Its newest step.
    pub newest: Option<u64>,
}

impl TierHas {
    /// Of the commits that were found on a tier.
    pub fn of(tier: Tier, history: &Lineage, commits: &[CommitSeen]) -> Self {
        let found: BTreeSet<_> = commits.iter().map(CommitSeen::reference).collect();
        let newest = (history.commits.iter().rev()).find(|seen| found.contains(&seen.reference()));
        Self {
            tier,
            newest: newest.map(|seen| seen.folder.step),
        }
    }
}

/// Where a restore comes from and what the other tiers have, such as `from local, step 1200; shared has 1100`.
pub fn restored_from(choice: &Choice, tiers: &[TierHas]) -> String {
    let mut used = BTreeSet::new();
    for of_piece in &choice.sources {
        used.extend(of_piece.first().map(|source| source.tier));
    }
    let names: Vec<&str> = used.iter().map(|tier| tier.name()).collect();
    let mut text = format!(
        "from {}, step {}",
        names.join(" and "),
        choice.commit.folder.step
    );
    let mut said = BTreeSet::new();
    for other in tiers {
        if used.contains(&other.tier) || !said.insert(other.tier) {
            continue;
        }
        let name = other.tier.name();
        let step = other.newest.map(|step| step.to_string());
        text += "; ";
        text += name;
        text += " has ";
        text += step.as_deref().unwrap_or("none");
    }
    text
}
