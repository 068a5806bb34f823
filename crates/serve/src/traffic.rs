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

/// The counters of all servers of a process; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    connections: Family<Server, Gauge>,
    closed: Family<Event, Counter>,
    refused: Family<Event, Counter>,
    waiting: Gauge,
}

impl Traffic {
    /// Names the counters, but for [`Traffic::waiting`]: what waits is the caller's to name.
    pub fn register(&self, registry: &mut Registry) {
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
    }

    /// Sets how many connections of a server are open.
    pub fn connections(&self, server: &'static str, open: usize) {
        let gauge = self.connections.get_or_create(&Server { server });
        gauge.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// A server closed a connection.
    pub fn closed(&self, server: &'static str, reason: &'static str) {
        self.closed.get_or_create(&Event { server, reason }).inc();
    }

    /// A server refused a request.
    pub fn refused(&self, server: &'static str, reason: &'static str) {
        self.refused.get_or_create(&Event { server, reason }).inc();
    }

    /// A request waits for others until the value is dropped.
    pub fn waits(&self) -> Waits {
        self.waiting.inc();
        Waits(self.waiting.clone())
    }

    /// How many connections a server closed for this reason.
    pub fn closed_so_far(&self, server: &'static str, reason: &'static str) -> u64 {
        self.closed.get_or_create(&Event { server, reason }).get()
    }

    /// How many requests a server refused for this reason.
    pub fn refused_so_far(&self, server: &'static str, reason: &'static str) -> u64 {
        self.refused.get_or_create(&Event { server, reason }).get()
    }

    /// How many connections of a server are open.
    pub fn open_now(&self, server: &'static str) -> i64 {
        self.connections.get_or_create(&Server { server }).get()
    }

    /// How many requests wait for others.
    pub fn waiting_now(&self) -> i64 {
        self.waiting.get()
    }

    /// The gauge of requests that wait for others.
    pub fn waiting(&self) -> Gauge {
        self.waiting.clone()
    }
}

/// One request that waits.
#[derive(Debug)]
pub struct Waits(Gauge);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.dec();
    }
}
