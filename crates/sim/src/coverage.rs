//! How often each fault and each ending happened, so that a path that the simulation never
//! took is found.

use std::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)*) => {
        /// Something a run may meet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mark { $($(#[$doc])* $name,)* }

        impl Mark {
            /// Every mark with its words, in the order of the table.
            pub const ALL: &'static [(Self, &'static str)] = &[$((Self::$name, $words),)*];
        }
    };
}

marks! {
    /// Controller killed before it wrote.
    CrashBeforeWrite = "controller: crash before the write",
    /// Controller killed after it wrote, before its first action.
    CrashAfterWrite = "controller: crash after the write",
    /// Controller killed between two actions.
    CrashBetweenActions = "controller: crash between actions",
    /// Two controllers at once.
    Failover = "controller: two at once",
    /// A write on top of a status that is no longer the last.
    Conflict = "controller: write conflict",
    /// A write that was done while its answer got lost.
    WriteTimeout = "controller: write done, answer lost",
    /// A status in which only progress changed, and that was written later.
    WritePutOff = "controller: write put off",
    /// A view refused because the status was decided on a newer one.
    StaleViewRefused = "controller: stale view refused",
    /// Watch held back.
    StalledPods = "watch: pods held back",
    /// Watch held back.
    StalledStatus = "watch: status held back",
    /// Watch held back.
    StalledSpec = "watch: spec held back",
    /// Watch held back.
    StalledNodes = "watch: nodes held back",
    /// Watch held back.
    StalledObjects = "watch: services held back",
    /// Watch event delivered twice.
    Repeated = "watch: event delivered twice",
    /// Action that never arrived.
    ActionLost = "action: lost",
    /// Action that arrived late.
    ActionDelayed = "action: delayed",
    /// Action that arrived twice.
    ActionTwice = "action: applied twice",
    /// Action that was refused.
    ActionRefused = "action: refused",
    /// Action on an object that is gone.
    ActionMissed = "action: nothing to act on",
    /// Ranks that use another transport than the job requires.
    WrongTransport = "transport: not the required one",
    /// Seats that were given to a gang.
    SeatsGiven = "seats: given",
    /// Gang that has to create its pods before it requests seats.
    PodsFirst = "seats: pods first",
    /// Gang that found no seats.
    SeatsRefused = "seats: refused",
    /// Seats that were released.
    SeatsReleased = "seats: released",
    /// Seats that a gang has to release for another.
    SeatsTaken = "seats: gang evicted for another",
    /// Preflight that all nodes passed.
    PreflightPassed = "preflight: passed",
    /// Preflight that found a bad node.
    PreflightFailed = "preflight: found a bad node",
    /// Preflight whose report was lost.
    PreflightLost = "preflight: no result",
    /// Preflight that never ends.
    PreflightSilent = "preflight: never ends",
    /// Node that fell silent and came back.
    NodeSilent = "node: silent for a while",
    /// Node that fell silent for good.
    NodeLost = "node: silent forever",
    /// Node deleted.
    NodeDeleted = "node: deleted",
    /// Process that outlived its object.
    Zombie = "node: zombie process",
    /// Pod taken for one of higher priority.
    Preempted = "pod: preempted",
    /// Pod evicted.
    Evicted = "pod: evicted",
    /// Pod ended by its kubelet.
    Pressured = "pod: node pressure or shutdown",
    /// Pod deleted by a user.
    UserDeletedPod = "pod: deleted by a user",
    /// Pod force-deleted by a user.
    UserForcedPod = "pod: force-deleted by a user",
    /// Pod that was made to fail.
    Failed = "pod: made to fail",
    /// All pods that fail together.
    BlowUp = "pod: all fail together",
    /// Finished pod collected.
    Collected = "pod: collected after its end",
    /// Container restarted in its pod.
    RestartInPlace = "pod: restarted in place",
    /// Failure that the doctor explains.
    Judged = "doctor: a failure explained",
    /// Job that ended because a retry does not help.
    EndInVain = "end: Failed, a retry does not help",
    /// Attempts reached no later step, and the job failed.
    EndWithoutProgress = "end: Failed, attempts reached no later step",
    /// Program that reports steps.
    Trains = "training: steps",
    /// Program that reports steps again.
    Redoes = "training: steps of an earlier attempt",
    /// Program that falls silent.
    Stalls = "training: stalled",
    /// Replicas edited.
    Scaled = "user: scaled",
    /// Limit edited.
    LimitEdited = "user: edited backoffLimit",
    /// Deadline edited.
    DeadlineEdited = "user: edited activeDeadlineSeconds",
    /// Suspended.
    Suspended = "user: suspended",
    /// Resumed.
    Resumed = "user: resumed",
    /// Asked for a restart.
    RestartAsked = "user: asked for a restart",
    /// Job deleted with its object gone at once.
    DeletedAtOnce = "user: deleted the job, object gone at once",
    /// Job deleted with its object waiting for its pods.
    DeletedInForeground = "user: deleted the job, object waits for pods",
    /// Ended well.
    EndSucceeded = "end: Succeeded",
    /// Ended badly.
    EndFailed = "end: Failed",
    /// Ended by its deadline.
    EndDeadline = "end: Failed by the deadline",
    /// Deleted after its time to live.
    EndTtl = "end: deleted after its TTL",
    /// Deleted by its user.
    EndDeleted = "end: deleted by its user",
    /// Still suspended.
    EndSuspended = "end: still suspended",
    /// Runs forever.
    EndRuns = "end: runs forever",
    /// Waits forever.
    EndWaits = "end: waits forever",
    /// Another controller's.
    EndForeign = "end: another controller's",
    /// More than one attempt.
    SeveralAttempts = "job: more than one attempt",
    /// More than three attempts.
    ManyAttempts = "job: more than three attempts",
}

/// Counts of every mark.
#[derive(Clone, Debug)]
pub struct Coverage {
    counts: [u64; Mark::ALL.len()],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            counts: [0; Mark::ALL.len()],
        }
    }
}

impl Coverage {
    /// Counts one more.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.counts[mark as usize] += 1;
    }

    /// How often `mark` was met.
    pub fn count(&self, mark: Mark) -> u64 {
        self.counts[mark as usize]
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
    }

    /// The marks that no run has met.
    pub fn missing(&self) -> Vec<&'static str> {
        Mark::ALL
            .iter()
            .filter(|(mark, _)| self.count(*mark) == 0)
            .map(|(_, words)| *words)
            .collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mark, words) in Mark::ALL {
            writeln!(f, "  {words:<46} {:>10}", self.count(*mark))?;
        }
        Ok(())
    }
}
