//! What the doctor says about programs that fail: in some worlds that a retry does not help, for the same reason each
//! time or for another one.

use trainyard_core::{
    diagnose::{Confidence, Depth, Retry, VerdictSummary},
    job::{self, Account, JudgedEnd, ObservedPod},
};

use super::World;
use crate::{coverage::Mark, dice::Dice};

/// The stream that says what doctors of this world are like.
const STREAM: u64 = 5 << 41;

/// What programs of a world fail for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// Logs are not read.
    Unread,
    /// The same each time, and a retry does not help.
    Same,
    /// By exit code: one that a retry may help, others that it does not.
    ByCode,
    /// Another one each time; a retry of none helps.
    Other,
}

impl World {
    /// What programs of this world fail for.
    fn mistake(&self) -> Mistake {
        match Dice::new(self.seed, STREAM).below(100) {
            0..=19 => Mistake::Same,
            20..=39 => Mistake::ByCode,
            40..=49 => Mistake::Other,
            _ => Mistake::Unread,
        }
    }

    /// Asks the doctor about the failures that a controller sees and has not answered.
    pub(super) fn consult(&mut self, number: usize) {
        let mistake = self.mistake();
        if mistake == Mistake::Unread {
            return;
        }
        let adapter = &self.controllers.adapters[number];
        let (job, view) = (&adapter.job, &adapter.view);
        let attempt = view.status.trainyard.attempt;
        let first = job::failed_first(job, view);
        let verdict = first.and_then(|pod| verdict_of(mistake, attempt, pod));
        let judged: Vec<JudgedEnd> = job::unjudged_ends(job, view)
            .into_iter()
            .map(|pod| JudgedEnd {
                uid: pod.uid.clone(),
                ends: pod.ends,
                verdict: verdict_of(mistake, attempt, pod),
            })
            .collect();
        if verdict.is_some() || judged.iter().any(|judged| judged.verdict.is_some()) {
            self.coverage.mark(Mark::Judged);
        }
        let view = &mut self.controllers.adapters[number].view;
        (view.verdict, view.judged) = (verdict, judged);
    }
}

fn verdict_of(mistake: Mistake, attempt: u32, pod: &ObservedPod) -> Option<VerdictSummary> {
    let exit = pod.exit?;
    let (retry, signature) = match (mistake, exit.code) {
        (Mistake::Unread, _) => return None,
        (Mistake::Same, _) => (Retry::DoesNotHelp, "the same".to_owned()),
        (Mistake::ByCode, 143) => (Retry::MayHelp, "143".to_owned()),
        (Mistake::ByCode, code) => (Retry::DoesNotHelp, code.to_string()),
        (Mistake::Other, _) => (Retry::DoesNotHelp, format!("{} of {}", pod.ends, pod.uid)),
    };
    let label = if exit.out_of_memory {
        "host_oom_killed"
    } else {
        "data_path_missing"
    };
    Some(VerdictSummary {
        attempt,
        label: label.to_owned(),
        sentence: "it cannot work".to_owned(),
        ranks: Vec::new(),
        nodes: Vec::new(),
        account: Account::User,
        retry,
        confidence: Confidence::High,
        depth: Depth::Cause,
        place: None,
        exception: None,
        signature: Some(signature),
        next: "correct it".to_owned(),
    })
}
