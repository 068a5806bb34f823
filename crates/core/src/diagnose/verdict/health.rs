//! A log without a failure: healthy where something shows that the job got far, inconclusive elsewhere.
//!
//! Invariant: `healthy` rests on a step, an end, results at the end of a log, a start of NCCL, or the runtime's report
//! that the job succeeded.

use super::{Case, Confidence, Evidence, Judge, Stage, Strength, Verdict};

impl Judge<'_> {
    /// The conclusion where nothing failed.
    pub(super) fn healthy(&self) -> Vec<Verdict> {
        let trained = self
            .sources
            .iter()
            .any(|source| source.marks.continue_after(0));
        let nccl = self.group.recorded
            || self.group.starts.complete > 0
            || self.group.ranks.iter().any(|facts| {
                !facts.nccl.transports.is_empty()
                    || facts.nccl.network.is_some()
                    || facts.nccl.channels.is_some()
            });
        let results = self
            .sources
            .iter()
            .any(|source| source.ends_with_results(0));
        let confidence = if trained || self.succeeded {
            Confidence::High
        } else {
            Confidence::Medium
        };
        let sockets = self.facts.contains("socket_fallback");
        let found = if sockets && self.group.net.rdma_meant {
            vec![self.without_lines("socket_fallback", Confidence::High)]
        } else if !trained && !results && !nccl && !self.succeeded {
            vec![self.inconclusive()]
        } else if sockets {
            vec![
                self.without_lines("healthy", confidence),
                self.without_lines("socket_fallback", Confidence::Medium),
            ]
        } else {
            vec![self.without_lines("healthy", confidence)]
        };
        found.into_iter().flatten().collect()
    }

    fn without_lines(&self, name: &str, confidence: Confidence) -> Option<Verdict> {
        let label = self.rules.label(name)?;
        let case = Case::new(label, note(confidence), (0, 0), None);
        Some(self.verdict(case))
    }

    /// No failure and no sign of health: the last line that stands out, and what is missing.
    fn inconclusive(&self) -> Option<Verdict> {
        let label = self.rules.label("inconclusive")?;
        let mut case = Case::new(label, note(Confidence::Low), (0, 0), None);
        let lines: u64 = self.sources.iter().map(|source| source.lines).sum();
        let mut odd = self.sources.iter().enumerate();
        let odd = odd.find_map(|(index, source)| Some((index, source.errors.odd.clone()?)));
        case.detail = Some(match (&odd, lines) {
            (_, 0) => "they are empty".to_owned(),
            (Some((_, evidence)), _) => format!(
                "no training step, no end, no results and no start of NCCL; the last line that stands out: {}",
                evidence.text
            ),
            (None, _) => "no training step, no end, no results and no start of NCCL".to_owned(),
        });
        if let Some((source, evidence)) = odd {
            case.place = (source, evidence.line);
            case.evidence.push((None, case.place, evidence));
        }
        Some(self.verdict(case))
    }

    /// A job that the runtime reports as succeeded got past what its lines say; a result that is wrong stays wrong.
    pub(super) fn survived(&mut self) {
        const STAY: [&str; 3] = ["nan_loss", "result_invalid", "socket_fallback"];
        if !self.succeeded {
            return;
        }
        let cases = std::mem::take(&mut self.cases);
        for (name, case) in cases {
            if STAY.contains(&name) || case.fact.is_some() {
                self.cases.insert(name, case);
            } else {
                self.facts.insert(name);
            }
        }
    }

    /// A log that ends with an error, or in which one stands with no progress behind it, is not that of a healthy job;
    /// what it means is not known where nothing else was found.
    pub(super) fn unknown_last_error(&mut self) {
        if !self.cases.is_empty() || self.succeeded {
            return;
        }
        let cut = self.sources.iter().find_map(|source| {
            let last = source.errors.cut_trace.as_ref()?;
            (!source.marks.continue_after(last.line)).then(|| last.clone())
        });
        if let Some(evidence) = cut {
            let strength = Strength {
                stage: Stage::Symptom,
                weight: 5,
                ..note(Confidence::Low)
            };
            let detail = "the log ends within its traceback".to_owned();
            self.add_at("user_code_error", strength, evidence, Some(detail));
            return;
        }
        let unresolved =
            |evidence: &Evidence, source: &super::Source| !source.is_past(evidence.line);
        let found = self.sources.iter().find_map(|source| {
            let level = source
                .errors
                .level
                .as_ref()
                .filter(|level| unresolved(level, source));
            Some((
                level.or(source.errors.last.as_ref())?.clone(),
                source.errors.last.clone(),
            ))
        });
        let Some((first, last)) = found else { return };
        let detail = match &last {
            Some(last) if last.line == first.line => {
                "the log ends with an error that no rule matches"
            }
            _ => "an error that no rule matches, and no progress after it",
        };
        let detail = format!("{detail}: {}", first.text);
        let last = last.filter(|last| last.line != first.line);
        self.add_at("inconclusive", note(Confidence::Low), first, Some(detail));
        if let Some(last) = last {
            self.add_at("inconclusive", note(Confidence::Low), last, None);
        }
    }
}

fn note(confidence: Confidence) -> Strength {
    Strength {
        stage: Stage::Note,
        weight: 0,
        confidence,
        rule: usize::MAX,
    }
}
