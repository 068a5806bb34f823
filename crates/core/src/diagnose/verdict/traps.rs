//! Launcher pitfalls that only show in several lines or logs together.

use super::{BTreeSet, Confidence, Evidence, Judge, Source, Stage, Strength};

/// The rules of an address that refused a rank which starts.
const REFUSED: [&str; 2] = ["gloo-full-mesh", "gloo-loopback"];

fn cause() -> Strength {
    Strength {
        stage: Stage::Cause,
        weight: 50,
        confidence: Confidence::High,
        rule: usize::MAX,
    }
}

impl Judge<'_> {
    /// Every process runs as rank 0.
    pub(super) fn launcher(&mut self) {
        let rows = self.sources.iter().filter_map(|source| {
            let (count, line, size) = source.first_ranks.of_lightning()?;
            Some((source, count, line, size))
        });
        let rows: Vec<(&Source, u32, u64, u32)> = rows.collect();
        let alone = rows.iter().find(|(_, count, ..)| *count > 1);
        // Logs of different ranks or hosts; of the same one there may be several attempts.
        let known = |source: &Source| Some((source.rank, source.node.clone()));
        let owners: BTreeSet<_> = rows
            .iter()
            .filter_map(|(source, ..)| known(source))
            .filter(|(rank, node)| rank.is_some() || node.is_some())
            .collect();
        let Some((source, _, line, size)) =
            alone.or(rows.first().filter(|_| owners.len() > 1)).copied()
        else {
            return;
        };
        let claims = rows
            .iter()
            .map(|(_, count, ..)| (*count).max(1))
            .sum::<u32>();
        let evidence = Evidence {
            file: source.name.clone(),
            line,
            text: format!("GLOBAL_RANK: 0, MEMBER: 1/{size}"),
            rank: source.rank,
            node: source.node.clone(),
        };
        let detail = format!("{claims} processes claim to be rank 0 of {size}");
        // Two that are rank 0 both open the store: the second finds its port taken.
        self.weaken(&["rendezvous_port_in_use"]);
        self.add_at("launcher_missing", cause(), evidence, Some(detail));
    }

    /// Ranks that `torchrun` restarted and owners connections are refused at once have read stale addresses.
    pub(super) fn stale_store(&mut self) {
        let refused = self.sources.iter().find_map(|source| {
            let failed_at = source
                .exits
                .iter()
                .filter(|exit| exit.evidence.text.contains("local_rank:"))
                .map(|exit| exit.evidence.line)
                .min()?;
            let mut seen = source.seen.iter();
            seen.find_map(|(rule, seen)| {
                let rule = self.rules.rule(*rule);
                let mut evidence = seen.evidence.iter();
                let evidence = evidence.find(|evidence| {
                    evidence.line > failed_at && evidence.text.contains("Connection refused")
                })?;
                let early = seen.first_line < failed_at;
                (REFUSED.contains(&rule.id.as_str()) && !early).then(|| evidence.clone())
            })
        });
        let Some(evidence) = refused else { return };
        self.weaken(&["wrong_interface", "rendezvous_timeout"]);
        self.add_at("rendezvous_store_stale", cause(), evidence, None);
    }

    /// What follows from a trap is not its cause.
    fn weaken(&mut self, labels: &[&str]) {
        for label in labels {
            if let Some(case) = self.cases.get_mut(*label) {
                case.stage = Stage::Symptom;
                case.weight = 30;
            }
        }
    }
}
