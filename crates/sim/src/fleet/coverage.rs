//! What a run has met: a world in which nothing happens proves nothing.

use std::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something a run may meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark { $($(#[$doc])* $name,)* }

        impl Mark {
            /// Every mark.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

marks! {
    /// A gang was assigned nodes.
    Assigned,
    /// A gang was refused nodes, with a reason.
    Refused,
    /// A gang was evicted for one of higher priority.
    Evicted,
    /// A gang gave its nodes back.
    GivenBack,
    /// A gang was assigned nodes again after it was evicted.
    EvictedReturned,
    /// A job with `preemptionPolicy`, scope or missing pods in the way of evictions.
    OutOfScope,
    /// The scheduler did not bind a pod to the node it is tied to.
    NotBound,
    /// All pods of a job ran at once.
    RanWhole,
    /// A job succeeded.
    Succeeded,
    /// A job failed.
    Failed,
    /// A job was suspended.
    Suspended,
    /// A job was resumed.
    Resumed,
    /// The number of workers of a job was changed.
    Scaled,
    /// A job was deleted.
    JobDeleted,
    /// A job was created again under the name of one that was deleted.
    JobRecreated,
    /// A pod failed.
    PodFailed,
    /// A pod was deleted by a user.
    PodDeleted,
    /// A node stopped responding.
    NodeSilent,
    /// A node was deleted.
    NodeDeleted,
    /// A node was cordoned.
    NodeCordoned,
    /// A fit node became bad.
    NodeBroke,
    /// A bad node was repaired.
    NodeRepaired,
    /// An operator crashed before its first action.
    CrashedBeforeActions,
    /// An operator crashed between two actions.
    CrashedBetweenActions,
    /// An operator crashed between two changes of nodes.
    CrashedBetweenNodeWrites,
    /// Another operator took over.
    TookOver,
    /// A write of a deposed or dead operator arrived.
    LateWrite,
    /// A deposed operator did not make its next call.
    Fenced,
    /// A watch was late.
    Stalled,
    /// A status was decided on an old version of the job, and not written.
    Conflict,
    /// A job was processed while a watch had not delivered everything.
    OldView,
    /// A pod of somebody else took GPUs.
    ForeignPod,
    /// A preflight of a job passed.
    PreflightPassed,
    /// A preflight of a job failed.
    PreflightFailed,
    /// A preflight of a job produced no result.
    PreflightNoResult,
    /// A preflight of a job blamed a node that is fit.
    Forged,
    /// A job blamed a node.
    Blamed,
    /// A trial of a node that a job blamed.
    TrialOfBlamed,
    /// A trial of nodes on probation.
    TrialOfProbation,
    /// A trial produced no result.
    TrialNoResult,
    /// A trial did not end within its limit.
    TrialLate,
    /// A partner of a trial turned out to be bad.
    BadPartner,
    /// A node was put on probation.
    Tainted,
    /// A node stayed on probation.
    Extended,
    /// A node left probation.
    Untainted,
    /// A node failed its trial and stays in use, because of the cap.
    CapReached,
}

/// How often each mark was met.
#[derive(Clone, PartialEq, Eq)]
pub struct Coverage([u32; Mark::ALL.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; Mark::ALL.len()])
    }
}

impl Coverage {
    pub(super) fn mark(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    /// How often `mark` was met.
    pub fn count(&self, mark: Mark) -> u32 {
        self.0[mark as usize]
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for mark in Mark::ALL {
            map.entry(mark, &self.count(*mark));
        }
        map.finish()
    }
}
