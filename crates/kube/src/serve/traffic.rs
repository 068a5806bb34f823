//! What is counted of connections and requests.
//!
//! Invariant: no label holds anything that a client sent.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Event {
    server: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Server {
    server: &'static str,
}

/// The counters of all servers of an operator; clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    connections: Family<Server, Gauge>,
    closed: Family<Event, Counter>,
    refused: Family<Event, Counter>,
    waiting: Gauge,
}

impl Traffic {
    /// Names the counters.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "server_connections",
            "Open connections, by server",
            self.connections.clone(),
        );
        registry.register(
            "server_connections_closed",
            "Connections that a server closed: to make room, or because the client was silent or read too slowly",
            self.closed.clone(),
        );
        registry.register(
            "server_requests_refused",
            "Requests that a server refused, by reason",
            self.refused.clone(),
        );
        registry.register(
            "webhook_reviews_waiting",
            "Reviews that wait for others to finish",
            self.waiting.clone(),
        );
    }

    pub(crate) fn connections(&self, server: &'static str, open: usize) {
        let gauge = self.connections.get_or_create(&Server { server });
        gauge.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    pub(crate) fn closed(&self, server: &'static str, reason: &'static str) {
        self.closed.get_or_create(&Event { server, reason }).inc();
    }

    pub(crate) fn refused(&self, server: &'static str, reason: &'static str) {
        self.refused.get_or_create(&Event { server, reason }).inc();
    }

    /// A review waits until the value is dropped.
    pub(crate) fn waits(&self) -> Waits {
        self.waiting.inc();
        Waits(self.waiting.clone())
    }

    #[cfg(test)]
    pub(crate) fn closed_so_far(&self, server: &'static str, reason: &'static str) -> u64 {
        self.closed.get_or_create(&Event { server, reason }).get()
    }

    #[cfg(test)]
    pub(crate) fn refused_so_far(&self, server: &'static str, reason: &'static str) -> u64 {
        self.refused.get_or_create(&Event { server, reason }).get()
    }

    #[cfg(test)]
    pub(crate) fn waiting_now(&self) -> i64 {
        self.waiting.get()
    }
}

/// One review that waits.
#[derive(Debug)]
pub(crate) struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.dec();
    }
}
