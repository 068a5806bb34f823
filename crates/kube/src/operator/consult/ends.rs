//! Why the container of a pod ended that restarts alone: the end of its log, and what the doctor makes of it.
//!
//! A container that its kubelet has started again is asked about with `previous`. Which ends are asked about, and what
//! follows, is `trainyard_core::job`'s; how logs are read, and how often, the parent's.

use futures::future::join_all;
use tracing::debug;
use trainyard_core::{
    diagnose::Known,
    job::{self, JudgedEnd, Observed, ObservedPod},
    spec::Job,
};

use super::{Asked, container, report};
use crate::{
    keep::{self, Kept},
    key::JobKey,
    operator::Operator,
};

impl Operator {
    /// Adds what the doctor says about ends of pods that restart alone; whether a log was asked for, which takes time.
    pub(crate) async fn consult_ends(
        &self,
        key: &JobKey,
        uid: &str,
        job: &Job,
        observed: &mut Observed,
    ) -> bool {
        let ends = job::unjudged_ends(job, observed);
        if ends.is_empty() {
            return false;
        }
        let known = self.state.memory(key).judged;
        let is_known = |pod: &&ObservedPod| {
            let same = |judged: &JudgedEnd| judged.uid == pod.uid && judged.ends == pod.ends;
            known.iter().any(same)
        };
        let (old, new): (Vec<&ObservedPod>, Vec<&ObservedPod>) =
            ends.into_iter().partition(is_known);
        let mut judged: Vec<JudgedEnd> = known
            .iter()
            .filter(|judged| old.iter().any(|pod| pod.uid == judged.uid))
            .cloned()
            .collect();
        let asks = !new.is_empty();
        if asks {
            let attempt = observed.status.trainyard.attempt;
            let mut asked = Vec::new();
            for pod in new {
                asked.push(self.judge_end(key, job, attempt, pod.clone()));
            }
            let concluded = join_all(asked).await;
            let mut kept = None;
            for concluded in concluded.into_iter().flatten() {
                kept = kept.or(concluded.kept);
                judged.push(concluded.judged);
            }
            if kept.is_some() {
                let kept = Kept {
                    attempt,
                    first: kept,
                    others: Vec::new(),
                };
                self.keep(key, uid, kept);
            }
            self.state
                .remember(key, |memory| memory.judged.clone_from(&judged));
        }
        observed.judged = judged;
        asks
    }

    /// What the doctor says about the last end of `pod`; nothing where the pod is gone.
    async fn judge_end(
        &self,
        key: &JobKey,
        job: &Job,
        attempt: u32,
        pod: ObservedPod,
    ) -> Option<Concluded> {
        let name = self.state.store().pod_called(key, &pod.uid)?;
        let asked = |previous| Asked {
            namespace: &key.namespace,
            pod: &name,
            container: container(job, &pod),
            previous,
            since: None,
        };
        let runs_again = || self.state.store().runs_again(key, &pod.uid);
        let before = runs_again();
        let mut log = self.consultation.log(&self.caller, asked(before)).await;
        if !before && runs_again() {
            // It was started again meanwhile: what was read may be what the next one wrote.
            log = self.consultation.log(&self.caller, asked(true)).await;
        }
        let log = log.unwrap_or_else(|reason| {
            debug!(job = %key, pod = name, reason, "No log of the ended container");
            // How it ended is known all the same.
            Vec::new()
        });
        // What other pods ended with, earlier, does not explain this end.
        let end = Known::of_pod(&pod, name.clone(), None);
        let end = end.map(|end| end.limited_by(job, pod.slot.role));
        let report = report(&name, &pod, end.into_iter().collect(), &log);
        let first = report.verdicts.first();
        let cause_line = first.and_then(|first| Some(first.evidence.first()?.line));
        let container = container(job, &pod).unwrap_or_default();
        let kept = (!log.is_empty()).then(|| {
            (
                format!("{name}/{container}"),
                keep::excerpt(&log, cause_line),
            )
        });
        Some(Concluded {
            kept,
            judged: JudgedEnd {
                uid: pod.uid,
                ends: pod.ends,
                verdict: report.summary(attempt),
            },
        })
    }
}

/// What was concluded about one end.
struct Concluded {
    judged: JudgedEnd,
    /// `pod/container`, and what is kept of its log.
    kept: Option<(String, String)>,
}
