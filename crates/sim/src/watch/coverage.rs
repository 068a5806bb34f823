//! What a run met, so that a hunt shows whether its jobs were interesting.

use std::fmt;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that can happen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark { $($(#[$doc])* $name,)* }

        impl Mark {
            /// Every mark.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

marks! {
    /// An attempt finished.
    Finished,
    /// A hang was found before `hang-after`.
    FoundSure,
    /// A hang was found at `hang-after` or later.
    FoundAtCeiling,
    /// A hang was found inside of a phase that was said.
    FoundInPhase,
    /// A hang was found before the first step.
    FoundBeforeFirstStep,
    /// A hang was found behind a helper process that moves bytes.
    FoundBehindBytes,
    /// A hang that nothing distinguishes from work was left alone.
    LeftAlone,
    /// A hang was reported by a job that only reports.
    Reported,
    /// A job was not watched.
    Off,
    /// A finding that was not sure was followed by progress.
    Refuted,
    /// Evidence was asked for, and progress came.
    SuspectedAndTrained,
    /// Evidence was asked for as often as it may.
    AskedMost,
    /// Evidence arrived after progress.
    LateEvidence,
    /// A piece of evidence was missing.
    MissingEvidence,
    /// The clock stepped forward.
    ClockStepped,
    /// NaN was found.
    Nan,
    /// NaN ended the attempt.
    NanActed,
    /// A slow rank was found.
    Straggler,
    /// A second attempt went by the rhythm of the first.
    SecondAttempt,
}

/// How often each was met.
#[derive(Clone, Default)]
pub struct Coverage(Vec<u64>);

impl Coverage {
    pub(super) fn mark(&mut self, mark: Mark) {
        self.0.resize(Mark::ALL.len(), 0);
        if let Some(count) = self.0.get_mut(mark as usize) {
            *count += 1;
        }
    }

    /// How often `mark` was met.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0.get(mark as usize).copied().unwrap_or(0)
    }

    /// Adds what another run has met.
    pub fn add(&mut self, other: &Self) {
        self.0.resize(Mark::ALL.len(), 0);
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count += more;
        }
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Mark::ALL.iter().map(|mark| (mark, self.count(*mark)));
        f.debug_map().entries(counts).finish()
    }
}
