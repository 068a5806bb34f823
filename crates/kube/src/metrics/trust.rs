//! What tenants report, and what the operator makes of it.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Came {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Trial {
    cause: &'static str,
    outcome: &'static str,
}

/// Counters of reports and trials.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    rejected: Family<Why, Counter>,
    blamed: Family<Came, Counter>,
    trials: Family<Trial, Counter>,
}

impl Trust {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "preflight_reports_rejected",
            "Preflight reports that were not used, by reason",
            self.rejected.clone(),
        );
        registry.register(
            "nodes_blamed",
            "Nodes that a preflight of a job blamed, by whether the operator runs a trial on them",
            self.blamed.clone(),
        );
        registry.register(
            "node_trials",
            "Trials of nodes in the operator's own image, by cause and outcome",
            self.trials.clone(),
        );
    }

    /// A report was not used.
    pub(crate) fn report_rejected(&self, reason: &'static str) {
        self.rejected.get_or_create(&Why { reason }).inc();
    }

    /// A job blamed a node.
    pub(crate) fn node_blamed(&self, result: &'static str) {
        self.blamed.get_or_create(&Came { result }).inc();
    }

    /// The operator tried a node.
    pub(crate) fn node_tried(&self, cause: &'static str, outcome: &'static str) {
        self.trials.get_or_create(&Trial { cause, outcome }).inc();
    }
}
