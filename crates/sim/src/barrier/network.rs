//! Connections and what becomes of messages on them.

use trainyard_core::barrier::{
    Envelope, Hello, LeaderAction, LeaderMessage, MemberState, OperatorMessage, Summary,
};

use super::{
    coverage::Mark,
    invariants,
    world::{Happening, JOB, World, in_millis, leader_slot},
};

impl World {
    /// How long a message takes each time it arrives: not at all, once or twice.
    fn fates(&mut self) -> Vec<i64> {
        let usual = self.dice.within(1..=40);
        if self.quiet() {
            return vec![usual];
        }
        let (percent, until) = self.storm;
        let loss = if self.now < until { percent } else { 2 };
        match self.dice.below(100) {
            draw if draw < loss => {
                self.coverage.mark(Mark::MessageLost);
                Vec::new()
            }
            93..95 => vec![self.dice.within(1_000..=20_000)],
            95..98 => {
                self.coverage.mark(Mark::MessageTwice);
                vec![usual, usual + self.dice.within(1..=30_000)]
            }
            _ => vec![usual],
        }
    }

    /// The running leader that the Service resolves to.
    fn leader_now(&self) -> Option<u32> {
        let birth = self.api.pods.get(&leader_slot())?.birth;
        let container = self.containers.get(&birth)?;
        (container.up && !container.cut_off).then_some(birth)
    }

    fn dial_fails(&mut self) -> bool {
        !self.quiet() && self.dice.chance(8)
    }

    pub(super) fn dial(&mut self, birth: u32, number: u64) {
        let now = self.clock_of(birth);
        let fails = self.dial_fails();
        let leader = self.leader_now();
        let at = self.now;
        self.connections += 1;
        let connection = self.connections;
        let container = self.container(birth);
        if !container.up || container.dials != number {
            return;
        }
        let actions = match leader {
            Some(leader) if !fails && !container.cut_off => {
                container.connection = Some(connection);
                container.connected_at = at;
                container.half_open = false;
                self.routes.insert(connection, leader);
                self.container(birth).member.connected(now)
            }
            _ => container.member.disconnected(),
        };
        self.carry_out(birth, actions);
    }

    pub(super) fn send_hello(&mut self, birth: u32, hello: &Envelope<Hello>) {
        let container = self.container(birth);
        let (Some(connection), false, false) =
            (container.connection, container.half_open, container.cut_off)
        else {
            return;
        };
        let Some(leader) = self.routes.get(&connection).copied() else {
            return;
        };
        for delay in self.fates() {
            let message = Box::new(hello.clone());
            self.schedule(delay, Happening::ToLeader(leader, connection, message));
        }
    }

    pub(super) fn deliver_to_leader(
        &mut self,
        birth: u32,
        connection: u64,
        hello: &Envelope<Hello>,
    ) {
        let now = self.clock_of(birth);
        let container = self.container(birth);
        if !container.up || container.cut_off {
            return;
        }
        let Some(leader) = &mut container.leader else {
            return;
        };
        let actions = leader.receive_hello(connection, hello, now);
        self.carry_out_leader(birth, actions);
    }

    pub(super) fn deliver_to_member(&mut self, birth: u32, message: &Envelope<LeaderMessage>) {
        let now = self.clock_of(birth);
        let container = self.container(birth);
        if !container.up || container.cut_off || container.half_open {
            return;
        }
        let foreign = message.job != JOB;
        let fence = match message.message {
            LeaderMessage::Command(command) => Some(command.fence()),
            LeaderMessage::Ack => None,
        };
        let old = fence.is_some() && fence < container.delivered;
        let before = (
            container.member.attempt(),
            container.member.state(),
            container.member.fence(),
        );
        let actions = container.member.receive(message, now);
        let after = (
            container.member.attempt(),
            container.member.state(),
            container.member.fence(),
        );
        if !foreign {
            container.delivered = container.delivered.max(fence);
        }
        if old || foreign {
            self.coverage.mark(if foreign {
                Mark::Foreign
            } else {
                Mark::OldCommand
            });
            let verdict = invariants::unchanged(birth, message, before == after);
            self.judge(verdict);
        }
        self.carry_out(birth, actions);
    }

    pub(super) fn carry_out_leader(&mut self, birth: u32, actions: Vec<LeaderAction>) {
        for action in actions {
            match action {
                LeaderAction::ToMember {
                    connection,
                    message,
                } => self.send_to_member(connection, &message),
                LeaderAction::CloseMember { connection } => {
                    // The member notices, unless the connection is half-open.
                    let member = self
                        .containers
                        .iter()
                        .find(|(_, container)| container.connection == Some(connection))
                        .map(|(member, _)| *member);
                    if let Some(member) = member
                        && !self.container(member).half_open
                    {
                        let actions = self.container(member).member.disconnected();
                        self.carry_out(member, actions);
                    }
                }
                LeaderAction::ToOperator(summary) => self.send_summary(birth, &summary),
                LeaderAction::RedialOperator { after } => {
                    let container = self.container(birth);
                    container.operator_dials += 1;
                    let number = container.operator_dials;
                    self.schedule(in_millis(after), Happening::DialOperator(birth, number));
                    self.leader_link_ends(birth);
                }
            }
        }
        let now = self.now;
        let container = self.container(birth);
        let Some(leader) = &container.leader else {
            return;
        };
        let due = leader.wake_at().map(|at| container.born + in_millis(at));
        if let Some(due) =
            due.filter(|due| *due < container.leader_wake || container.leader_wake <= now)
        {
            container.leader_wake = due;
            let delay = (due - now).max(1);
            self.schedule(delay, Happening::LeaderTick(birth));
        }
    }

    fn send_to_member(&mut self, connection: u64, message: &Envelope<LeaderMessage>) {
        let member = self
            .containers
            .iter()
            .find(|(_, container)| container.connection == Some(connection))
            .map(|(member, _)| *member);
        let Some(member) = member else {
            return;
        };
        for delay in self.fates() {
            self.schedule(
                delay,
                Happening::ToMember(member, Box::new(message.clone())),
            );
        }
    }

    pub(super) fn tick_leader(&mut self, birth: u32) {
        let now = self.clock_of(birth);
        let millisecond = self.now;
        let container = self.container(birth);
        let up = container.up && container.leader_wake <= millisecond;
        let Some(leader) = container.leader.as_mut().filter(|_| up) else {
            return;
        };
        let actions = leader.tick(now);
        self.carry_out_leader(birth, actions);
        self.find_hang();
    }

    pub(super) fn dial_operator(&mut self, birth: u32, number: u64) {
        let now = self.clock_of(birth);
        let fails = self.dial_fails() || self.operator.is_none();
        let container = self.container(birth);
        if !container.up || container.operator_dials != number {
            return;
        }
        // The token of a pod that does not exist any more is refused.
        let cut_off = container.cut_off || container.ghost;
        let Some(leader) = &mut container.leader else {
            return;
        };
        let actions = if fails || cut_off {
            leader.operator_gone()
        } else {
            leader.operator_connected(now)
        };
        if !fails && !cut_off {
            self.leader_connects(birth);
        }
        self.carry_out_leader(birth, actions);
    }

    fn send_summary(&mut self, birth: u32, summary: &Envelope<Summary>) {
        if !self.reaches_operator(birth) {
            return;
        }
        for delay in self.fates() {
            let message = Box::new(summary.clone());
            self.schedule(delay, Happening::ToOperator(message));
        }
    }

    /// What the operator sends to the leader that is connected.
    pub(super) fn send_order(&mut self, message: &Envelope<OperatorMessage>) {
        let Some(leader) = self.operator.as_ref().and_then(|operator| operator.leader) else {
            return;
        };
        if !self.reaches_operator(leader) {
            return;
        }
        for delay in self.fates() {
            let message = Box::new(message.clone());
            self.schedule(delay, Happening::FromOperator(leader, message));
        }
    }

    pub(super) fn deliver_order(&mut self, birth: u32, message: &Envelope<OperatorMessage>) {
        let now = self.clock_of(birth);
        let container = self.container(birth);
        if !container.up || container.cut_off {
            return;
        }
        let Some(leader) = &mut container.leader else {
            return;
        };
        let fence = match &message.message {
            OperatorMessage::Order(order) => Some(order.command.fence()),
            OperatorMessage::Ack => None,
        };
        let before = leader.order().map(|order| order.command.fence());
        let actions = leader.receive_operator(message, now);
        let after = leader.order().map(|order| order.command.fence());
        let old = fence.is_some() && fence < container.ordered;
        container.ordered = container.ordered.max(fence);
        if old {
            self.coverage.mark(Mark::OldOrder);
            let verdict = invariants::unchanged(birth, message, before == after);
            self.judge(verdict);
        }
        self.carry_out_leader(birth, actions);
    }

    fn reaches_operator(&self, birth: u32) -> bool {
        let up = self
            .containers
            .get(&birth)
            .is_some_and(|container| !container.cut_off);
        let link = self
            .operator
            .as_ref()
            .is_some_and(|operator| operator.leader == Some(birth) && !operator.half_open);
        up && link
    }

    /// Both sides of a member's connection notice that it is cut, the leader perhaps later.
    pub(super) fn cut_member(&mut self, birth: u32) {
        let Some(connection) = self.container(birth).connection.take() else {
            return;
        };
        if self.dice.chance(60) {
            self.close(connection);
        }
        let actions = self.container(birth).member.disconnected();
        self.carry_out(birth, actions);
    }

    /// The leader's side of a connection ends.
    pub(super) fn close(&mut self, connection: u64) {
        if let Some(leader) = self.routes.remove(&connection)
            && let Some(container) = self.containers.get_mut(&leader)
            && let Some(leader) = &mut container.leader
        {
            leader.member_gone(connection);
        }
    }

    /// All connections of a container end.
    pub(super) fn links_end(&mut self, birth: u32) {
        if let Some(connection) = self.container(birth).connection.take()
            && !self.container(birth).cut_off
        {
            self.close(connection);
        }
        let leads = self.container(birth).leader.is_some();
        if !leads {
            return;
        }
        self.leader_link_ends(birth);
        let gone: Vec<u64> = self
            .routes
            .iter()
            .filter(|(_, leader)| **leader == birth)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in gone {
            self.routes.remove(&connection);
            let member = self
                .containers
                .iter()
                .find(|(_, container)| container.connection == Some(connection) && container.up)
                .map(|(member, _)| *member);
            if let Some(member) = member {
                let container = self.container(member);
                // A node that is lost says nothing more.
                if !container.half_open && container.member.state() != MemberState::CannotStop {
                    let actions = container.member.disconnected();
                    self.carry_out(member, actions);
                }
            }
        }
    }
}
