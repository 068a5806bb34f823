//! The leader of a gang: one connection to the operator, one from every member.
//!
//! Owns the newest order and what connected members report. It knows nothing at its start and decides nothing: it forwards orders to the pods
//! that they name, and sums up reports. Sockets belong to the adapter, which numbers connections of members as they are accepted; the
//! leader's own supervisor is one of them.
//!
//! Invariant: a report of a pod is replaced only by a newer one of the same pod; an order only by one that is not older.

use std::{collections::BTreeMap, time::Duration};

use super::{
    limits::{Limits, MAX_ENDED, MAX_GROUPS, MAX_MEMBERS},
    message::{
        Command, EndedMember, Envelope, Fence, Group, HangReport, Hello, LeaderMessage,
        MemberState, OperatorMessage, Order, Stage, StateName, StopHow, StoreReport, Summary,
    },
    redial::Redial,
    slots::SlotSet,
};
use crate::{
    mutant::{self, Mutant},
    pod::PodUid,
};

/// The number of a member's connection. A later connection has a larger number.
pub type ConnectionId = u64;

/// What the adapter of a leader is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderAction {
    /// Send this to a member.
    ToMember {
        /// On this connection.
        connection: ConnectionId,
        /// The message.
        message: Envelope<LeaderMessage>,
    },
    /// Close a member's connection: there are too many members, or it has another one.
    CloseMember {
        /// Which.
        connection: ConnectionId,
    },
    /// Send this to the operator, if there is a connection.
    ToOperator(Envelope<Summary>),
    /// Close the connection to the operator, and dial it after this pause.
    RedialOperator {
        /// The pause.
        after: Duration,
    },
}

#[derive(Clone, Debug)]
struct Peer {
    connection: ConnectionId,
    hello: Hello,
    received_at: Duration,
}

/// The state machine of a gang's leader.
#[derive(Clone, Debug)]
pub struct Leader {
    job: String,
    limits: Limits,
    order: Option<Order>,
    digest: u64,
    peers: BTreeMap<PodUid, Peer>,
    connected: bool,
    received_at: Duration,
    sent_at: Duration,
    changed: bool,
    redial: Redial,
    /// What its watch found; dropped with the attempt that it is about.
    hang: Option<HangReport>,
    /// What was seen in the store of checkpoints.
    store: Option<StoreReport>,
}

impl Leader {
    /// A leader of `job` as its process starts.
    pub fn new(job: String, limits: Limits, now: Duration) -> Self {
        Self {
            job,
            limits,
            order: None,
            digest: 0,
            peers: BTreeMap::new(),
            connected: false,
            received_at: now,
            sent_at: now,
            changed: false,
            redial: Redial::default(),
            hang: None,
            store: None,
        }
    }

    /// What was seen in the store of checkpoints. The same again is not reported again.
    pub fn report_store(&mut self, store: StoreReport, now: Duration) -> Vec<LeaderAction> {
        let mut actions = Vec::new();
        if self.store.as_ref() != Some(&store) {
            self.store = Some(store);
            self.changed = true;
            self.report_if_due(now, &mut actions);
        }
        actions
    }

    /// The watch over the programs found that they do not train any more.
    pub fn report_hang(&mut self, hang: HangReport, now: Duration) -> Vec<LeaderAction> {
        let mut actions = Vec::new();
        let fence = self.order.as_ref().map(|order| order.command.fence());
        if fence.is_some_and(|fence| fence >= Fence::new(hang.attempt, Stage::Stop)) {
            return actions;
        }
        self.hang = Some(hang);
        self.changed = true;
        self.report_if_due(now, &mut actions);
        actions
    }

    /// The newest order.
    pub fn order(&self) -> Option<&Order> {
        self.order.as_ref()
    }

    /// A report that came in on `connection`.
    pub fn receive_hello(
        &mut self,
        connection: ConnectionId,
        envelope: &Envelope<Hello>,
        now: Duration,
    ) -> Vec<LeaderAction> {
        let mut actions = Vec::new();
        if envelope.job != self.job {
            return actions;
        }
        let hello = &envelope.message;
        let room = self.peers.len() < MAX_MEMBERS as usize;
        match self.peers.get_mut(&hello.uid) {
            Some(peer) => {
                peer.received_at = now;
                if connection > peer.connection {
                    let old = std::mem::replace(&mut peer.connection, connection);
                    actions.push(LeaderAction::CloseMember { connection: old });
                }
                if hello.is_newer_than(&peer.hello) {
                    peer.hello = hello.clone();
                    self.changed = true;
                }
            }
            None if room => {
                let peer = Peer {
                    connection,
                    hello: hello.clone(),
                    received_at: now,
                };
                self.peers.insert(hello.uid.clone(), peer);
                self.changed = true;
            }
            None => return vec![LeaderAction::CloseMember { connection }],
        }
        let response = self.response(hello);
        actions.push(self.to_member(connection, response));
        self.report_if_due(now, &mut actions);
        actions
    }

    /// The order, where it names the member. One that it does not name and whose attempt is over is to stop: its pod was replaced, and its
    /// program may still run on a node whose kubelet does not respond.
    fn response(&self, hello: &Hello) -> LeaderMessage {
        let Some(order) = &self.order else {
            return LeaderMessage::Ack;
        };
        let attempt = hello.attempt;
        let over = Fence::new(attempt, Stage::Go) < order.command.fence();
        let runs = matches!(hello.state, MemberState::Running | MemberState::Ended(_));
        if order.roster.has(hello.slot, &hello.uid) {
            LeaderMessage::Command(order.command)
        } else if over && runs {
            let how = StopHow::Hang;
            LeaderMessage::Command(Command::Stop { attempt, how })
        } else {
            LeaderMessage::Ack
        }
    }

    /// The connection of a member has ended.
    pub fn member_gone(&mut self, connection: ConnectionId) {
        let before = self.peers.len();
        self.peers.retain(|_, peer| peer.connection != connection);
        self.changed |= self.peers.len() < before;
    }

    /// There is a connection to the operator.
    pub fn operator_connected(&mut self, now: Duration) -> Vec<LeaderAction> {
        self.connected = true;
        self.received_at = now;
        let mut actions = Vec::new();
        self.report(now, &mut actions);
        actions
    }

    /// The connection to the operator has ended, or could not be made.
    pub fn operator_gone(&mut self) -> Vec<LeaderAction> {
        self.connected = false;
        let after = self.redial.pause();
        vec![LeaderAction::RedialOperator { after }]
    }

    /// A message of the operator.
    pub fn receive_operator(
        &mut self,
        envelope: &Envelope<OperatorMessage>,
        now: Duration,
    ) -> Vec<LeaderAction> {
        let mut actions = Vec::new();
        if envelope.job != self.job {
            return actions;
        }
        self.received_at = now;
        self.redial.reset();
        let OperatorMessage::Order(order) = &envelope.message else {
            return actions;
        };
        let fence = order.command.fence();
        let known = self.order.as_ref().map(|order| order.command.fence());
        if known.is_some_and(|known| fence < known) && !mutant::is(Mutant::ObeysOlderAttempts) {
            return actions;
        }
        if self.order.as_ref() != Some(order) {
            self.digest = order.roster.digest();
            self.order = Some(order.clone());
            self.changed = true;
            self.hang
                .take_if(|hang| fence >= Fence::new(hang.attempt, Stage::Stop));
        }
        let meant = self.peers.values().filter(|peer| {
            let Hello { slot, uid, .. } = &peer.hello;
            order.roster.has(*slot, uid)
        });
        let command = LeaderMessage::Command(order.command);
        actions.extend(meant.map(|peer| self.to_member(peer.connection, command)));
        self.report_if_due(now, &mut actions);
        actions
    }

    /// When [`Leader::tick`] has something to do, at the latest.
    pub fn wake_at(&self) -> Option<Duration> {
        let silent = self.limits.silent_after;
        let operator = self.connected.then(|| {
            let due = self.sent_at + self.report_pause();
            due.min(self.received_at + silent)
        });
        let peers = self.peers.values().map(|peer| peer.received_at + silent);
        peers.chain(operator).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<LeaderAction> {
        let mut actions = Vec::new();
        let silent = self.limits.silent_after;
        let gone: Vec<ConnectionId> = self
            .peers
            .values()
            .filter(|peer| now.saturating_sub(peer.received_at) >= silent)
            .map(|peer| peer.connection)
            .collect();
        for connection in gone {
            self.member_gone(connection);
            actions.push(LeaderAction::CloseMember { connection });
        }
        if self.connected && now.saturating_sub(self.received_at) >= silent {
            actions.extend(self.operator_gone());
        }
        self.report_if_due(now, &mut actions);
        actions
    }

    /// All members in one message.
    pub fn summary(&self) -> Summary {
        let mut groups: BTreeMap<(u32, StateName), SlotSet> = BTreeMap::new();
        let mut ended = Vec::new();
        for peer in self.peers.values() {
            let hello = &peer.hello;
            if let MemberState::Ended(exit) = hello.state {
                ended.push(EndedMember {
                    slot: hello.slot,
                    uid: hello.uid.clone(),
                    attempt: hello.attempt,
                    exit,
                });
            }
            let order = self.order.as_ref();
            if order.is_some_and(|order| order.roster.has(hello.slot, &hello.uid)) {
                groups
                    .entry(hello.position())
                    .or_default()
                    .insert(hello.slot);
            }
        }
        ended.sort_by(|a, b| (b.attempt, a.slot).cmp(&(a.attempt, b.slot)));
        ended.truncate(MAX_ENDED);
        // The newest come first, so that those beyond the bound are the ones that are waited for anyway.
        let groups = groups.into_iter().rev().take(MAX_GROUPS);
        let groups = groups.map(|((attempt, state), slots)| Group {
            attempt,
            state,
            slots,
        });
        Summary {
            fence: self.order.as_ref().map(|order| order.command.fence()),
            roster: self.digest,
            groups: groups.collect(),
            ended,
            hang: self.hang.clone(),
            store: self.store.clone(),
        }
    }

    /// How long after the last summary the next one is due.
    fn report_pause(&self) -> Duration {
        if self.changed {
            return self.limits.summary_gap;
        }
        let runs = self
            .order
            .as_ref()
            .is_some_and(|order| matches!(order.command.fence().stage, Stage::Go | Stage::Hold));
        if runs {
            self.limits.report_every
        } else {
            self.limits.report_in_barrier
        }
    }

    fn report_if_due(&mut self, now: Duration, actions: &mut Vec<LeaderAction>) {
        if self.connected && now.saturating_sub(self.sent_at) >= self.report_pause() {
            self.report(now, actions);
        }
    }

    fn report(&mut self, now: Duration, actions: &mut Vec<LeaderAction>) {
        self.sent_at = now;
        self.changed = false;
        actions.push(LeaderAction::ToOperator(Envelope {
            job: self.job.clone(),
            message: self.summary(),
        }));
    }

    fn to_member(&self, connection: ConnectionId, message: LeaderMessage) -> LeaderAction {
        LeaderAction::ToMember {
            connection,
            message: Envelope {
                job: self.job.clone(),
                message,
            },
        }
    }
}

#[cfg(test)]
mod tests;
