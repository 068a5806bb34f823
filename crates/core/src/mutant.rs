//! Deliberate mistakes, to prove that the simulation would catch them.
//!
//! Without the feature `mutants` every question is answered `false` at compile time and nothing of
//! this is in the program. With it, one mistake at a time can be switched on for the current
//! thread. It is the one place where core depends on something other than its arguments.

/// One deliberate mistake in a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// Pods of older attempts are counted.
    CountsOldAttempts,
    /// The next attempt starts while pods of the last one are still there.
    StartsOverOldPods,
    /// A restart is not paid.
    ForgetsCharge,
    /// A restart is paid twice.
    ChargesTwice,
    /// One failure more than the limit is borne.
    LimitOffByOne,
    /// A dead node is paid on the user's account.
    UserPaysForNodes,
    /// An ended job makes its pods again.
    RestartsAfterEnd,
    /// A suspended job makes its pods.
    CreatesWhileSuspended,
    /// Pods are left when the job has ended.
    LeaksAtEnd,
    /// Every pod is deleted at the end, whatever the policy.
    CleansEverything,
    /// A view older than the status is acted upon.
    ActsOnStaleView,
    /// A failed pod is paid again until it is gone.
    ChargesUntilGone,
    /// The end has no time.
    ForgetsCompletionTime,
    /// One worker that is done is enough for every job.
    FirstWorkerSucceeds,
    /// A role without pods has succeeded.
    NothingSucceeds,
    /// Pods of dead nodes are waited for forever.
    WaitsForDeadNodes,
    /// A node that is silent for a moment is dead.
    GivesUpNodesAtOnce,
    /// No pass is scheduled for the deadline.
    SleepsThroughDeadline,
    /// No pass is scheduled to delete the job.
    SleepsThroughTtl,
    /// No pass is scheduled for the pods that still run after the success.
    LetsPodsRunOn,
    /// A pod that succeeded and is gone runs again.
    RerunsSucceeded,
    /// A job of another controller is touched.
    TouchesForeignJobs,
    /// A resumed job counts the pods of before its suspension.
    ResumesOldAttempt,
    /// Every job is running.
    AlwaysRunning,
    /// No reason is given for what a job waits for.
    WaitsInSilence,
    /// An exit code that means stop is restarted.
    RestartsPermanentFailures,
    /// A failure that a retry does not help is retried forever.
    RetriesInVain,
    /// A job that comes no further is retried forever.
    RetriesWithoutProgress,
    /// Time between two phases is lost.
    LedgerDropsSpan,
    /// A job trains as soon as its pods run.
    TrainsWithoutSteps,
    /// A restart that was asked for is never begun.
    IgnoresRestart,
    /// A restart that was asked for is begun in every pass.
    ForgetsRestart,
    /// Pods of a gang without seats are not gated.
    StartsHalfGangs,
    /// A gang that cannot start keeps its seats.
    KeepsSeats,
    /// Ranks may use any transport.
    IgnoresTransport,
    /// A gang starts on nodes without a preflight.
    StartsUnmeasured,
    /// A gang starts on nodes that failed their preflight.
    StartsOnUnfit,
    /// A preflight that never ends is waited for.
    WaitsForPreflight,
    /// Automation takes every node that fails.
    TakesEveryNode,
    /// Gangs are evicted for one whose pods do not exist.
    EvictsForUnadmitted,
    /// Gangs are evicted for one of no higher priority.
    EvictsEquals,
    /// Gangs of other namespaces are evicted whatever the scope of preemption.
    EvictsAnywhere,
    /// Nodes that jobs blame are tried only when no node on probation is due.
    ProbationFirst,
    /// A node on probation is tried before its time is over.
    TriesBeforeTime,
    /// Paths are measured with nodes that failed or are out of use.
    MeasuresWithUnfit,
    /// A trial without a result ends the probation of its nodes.
    ReleasesWithoutResult,
    /// A node that was only measured with is put on probation.
    JudgesPartners,
    /// A node that failed its trial leaves probation.
    ReleasesUnfit,
    /// A node that passed its trial stays on probation.
    ForgetsRelease,
    /// Taints that are being written do not count towards the cap.
    ForgetsTaints,
    /// Nodes that were assigned to pods which are not there yet are assigned again.
    ForgetsUnboundSeats,
    /// A gang keeps nodes that are closed by now.
    KeepsBadSeats,
    /// A gang leaves its nodes to one that does not wait any more.
    KeepsEvictions,
    /// A gang that waits too long keeps the nodes that it has.
    KeepsPartialSeats,
    /// A gang is given nodes again that did not serve it.
    GivesAvoidedNodes,
    /// A job that is gone keeps its nodes.
    KeepsForgottenGangs,
    /// A pod that is about to be bound takes no room once its gang has given its nodes back.
    ForgetsTiedPods,
    /// An operator that leads again goes by the nodes that it gave when it led before.
    RemembersOldGangs,
    /// Programs start in place before every member is ready.
    GoesBeforeReady,
    /// Programs start in place before their pods carry the attempt.
    LabelsAfterGo,
    /// A member that stopped an attempt starts it again.
    StopsWithoutFence,
    /// An order of an older attempt is obeyed.
    ObeysOlderAttempts,
    /// A member whose program ended waits for orders forever.
    HoldsForever,
    /// The next attempt is stored before every member has stopped.
    StoresBeforeStopped,
    /// Members that do not report are waited for forever.
    WaitsForLostMembers,
    /// A restart in place is charged when it begins and again when programs have stopped.
    ChargesHangTwice,
    /// A gang is held for inspection, and its supervisors do not know it.
    HoldsWithoutOrder,
    /// A gang is held for inspection without end.
    HoldsWithoutEnd,
    /// A lost member is replaced although its program runs and it could be stopped.
    ReplacesUnfenced,
    /// The members that were kept start before the one that replaces a lost one is there.
    GoesWithoutReplacement,
    /// A hang that is not certain is waited for without end.
    PatienceWithoutCeiling,
    /// Evidence is asked for as long as a silence lasts.
    AsksForever,
    /// A silent job hangs, whatever the evidence shows.
    HangsWithoutEvidence,
    /// The ranks that wait are named, not the one that they wait for.
    AccusesMajority,
    /// A line that is no step counts as progress.
    OutputIsProgress,
    /// Bytes that move excuse no silence.
    ForgetsBytes,
    /// A phase that was said excuses no silence.
    ForgetsPhases,
    /// Time in which the adapter did not look counts as silence.
    CountsAbsence,
    /// One loss that is NaN is enough.
    NanOnce,
}

impl Mutant {
    /// Every one.
    pub const ALL: [Self; 79] = [
        Self::CountsOldAttempts,
        Self::StartsOverOldPods,
        Self::ForgetsCharge,
        Self::ChargesTwice,
        Self::LimitOffByOne,
        Self::UserPaysForNodes,
        Self::RestartsAfterEnd,
        Self::CreatesWhileSuspended,
        Self::LeaksAtEnd,
        Self::CleansEverything,
        Self::ActsOnStaleView,
        Self::ChargesUntilGone,
        Self::ForgetsCompletionTime,
        Self::FirstWorkerSucceeds,
        Self::NothingSucceeds,
        Self::WaitsForDeadNodes,
        Self::GivesUpNodesAtOnce,
        Self::SleepsThroughDeadline,
        Self::SleepsThroughTtl,
        Self::LetsPodsRunOn,
        Self::RerunsSucceeded,
        Self::TouchesForeignJobs,
        Self::ResumesOldAttempt,
        Self::AlwaysRunning,
        Self::WaitsInSilence,
        Self::RestartsPermanentFailures,
        Self::RetriesInVain,
        Self::RetriesWithoutProgress,
        Self::LedgerDropsSpan,
        Self::TrainsWithoutSteps,
        Self::IgnoresRestart,
        Self::ForgetsRestart,
        Self::StartsHalfGangs,
        Self::KeepsSeats,
        Self::IgnoresTransport,
        Self::StartsUnmeasured,
        Self::StartsOnUnfit,
        Self::WaitsForPreflight,
        Self::TakesEveryNode,
        Self::EvictsForUnadmitted,
        Self::EvictsEquals,
        Self::EvictsAnywhere,
        Self::ProbationFirst,
        Self::TriesBeforeTime,
        Self::MeasuresWithUnfit,
        Self::ReleasesWithoutResult,
        Self::JudgesPartners,
        Self::ReleasesUnfit,
        Self::ForgetsRelease,
        Self::ForgetsTaints,
        Self::ForgetsUnboundSeats,
        Self::KeepsBadSeats,
        Self::KeepsEvictions,
        Self::KeepsPartialSeats,
        Self::GivesAvoidedNodes,
        Self::KeepsForgottenGangs,
        Self::ForgetsTiedPods,
        Self::RemembersOldGangs,
        Self::GoesBeforeReady,
        Self::LabelsAfterGo,
        Self::StopsWithoutFence,
        Self::ObeysOlderAttempts,
        Self::HoldsForever,
        Self::StoresBeforeStopped,
        Self::WaitsForLostMembers,
        Self::ChargesHangTwice,
        Self::HoldsWithoutOrder,
        Self::HoldsWithoutEnd,
        Self::ReplacesUnfenced,
        Self::GoesWithoutReplacement,
        Self::PatienceWithoutCeiling,
        Self::AsksForever,
        Self::HangsWithoutEvidence,
        Self::AccusesMajority,
        Self::OutputIsProgress,
        Self::ForgetsBytes,
        Self::ForgetsPhases,
        Self::CountsAbsence,
        Self::NanOnce,
    ];

    /// Those in how seats are given, which the cluster around `gang::place` has to catch.
    pub const OF_PLACEMENT: [Self; 3] = [
        Self::EvictsForUnadmitted,
        Self::EvictsEquals,
        Self::EvictsAnywhere,
    ];

    /// Those in what happens to nodes and in the wait queue for them, which the fleet has to catch.
    pub const OF_FLEET: [Self; 17] = [
        Self::TakesEveryNode,
        Self::ProbationFirst,
        Self::TriesBeforeTime,
        Self::MeasuresWithUnfit,
        Self::ReleasesWithoutResult,
        Self::JudgesPartners,
        Self::ReleasesUnfit,
        Self::ForgetsRelease,
        Self::ForgetsTaints,
        Self::ForgetsUnboundSeats,
        Self::KeepsBadSeats,
        Self::KeepsEvictions,
        Self::KeepsPartialSeats,
        Self::GivesAvoidedNodes,
        Self::KeepsForgottenGangs,
        Self::ForgetsTiedPods,
        Self::RemembersOldGangs,
    ];

    /// Those in a restart in place, which the world of one gang has to catch.
    pub const OF_BARRIER: [Self; 12] = [
        Self::GoesBeforeReady,
        Self::LabelsAfterGo,
        Self::StopsWithoutFence,
        Self::ObeysOlderAttempts,
        Self::HoldsForever,
        Self::StoresBeforeStopped,
        Self::WaitsForLostMembers,
        Self::ChargesHangTwice,
        Self::HoldsWithoutOrder,
        Self::HoldsWithoutEnd,
        Self::ReplacesUnfenced,
        Self::GoesWithoutReplacement,
    ];

    /// Those in how hangs, NaN and slow ranks are found, which the world of the watch has to catch.
    pub const OF_WATCH: [Self; 9] = [
        Self::PatienceWithoutCeiling,
        Self::AsksForever,
        Self::HangsWithoutEvidence,
        Self::AccusesMajority,
        Self::OutputIsProgress,
        Self::ForgetsBytes,
        Self::ForgetsPhases,
        Self::CountsAbsence,
        Self::NanOnce,
    ];
}

#[cfg(feature = "mutants")]
mod switch {
    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether `mutant` is switched on for this thread.
    pub(crate) fn is(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant)
    }

    /// Runs `body` with `mutant` switched on for this thread, or with none.
    pub fn with<R>(mutant: Option<Mutant>, body: impl FnOnce() -> R) -> R {
        let before = ACTIVE.replace(mutant);
        let result = body();
        ACTIVE.set(before);
        result
    }
}

#[cfg(feature = "mutants")]
pub(crate) use switch::is;
#[cfg(feature = "mutants")]
pub use switch::with;

/// Whether `mutant` is switched on: never, in a build without the feature.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}
