use super::*;
use crate::{
    barrier::{
        message::{Command, Fence, ProgramExit, StopHow},
        slots::Roster,
    },
    spec::{Role, Slot},
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn slot(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn hello(index: u32, attempt: u32, state: MemberState) -> Envelope<Hello> {
    Envelope {
        job: "job".to_owned(),
        message: Hello {
            uid: format!("pod-{index}"),
            slot: slot(index),
            attempt,
            state,
        },
    }
}

fn order(command: Command, indices: &[u32]) -> Envelope<OperatorMessage> {
    let pods = indices
        .iter()
        .map(|index| (slot(*index), format!("pod-{index}")));
    let roster: Roster = pods.collect();
    Envelope {
        job: "job".to_owned(),
        message: OperatorMessage::Order(Order { command, roster }),
    }
}

fn leader() -> Leader {
    Leader::new("job".to_owned(), Limits::default(), at(0))
}

/// Who gets a command, by connection.
fn commanded(actions: &[LeaderAction]) -> Vec<(ConnectionId, Command)> {
    let sent = actions.iter().filter_map(|action| match action {
        LeaderAction::ToMember {
            connection,
            message,
        } => match message.message {
            LeaderMessage::Command(command) => Some((*connection, command)),
            LeaderMessage::Ack => None,
        },
        _ => None,
    });
    sent.collect()
}

const GO: Command = Command::Go { attempt: 2 };
const PREPARE: Command = Command::Prepare { attempt: 2 };

#[test]
fn orders_reach_the_pods_that_they_name() {
    let mut leader = leader();
    for index in 0..3 {
        let connection = u64::from(index) + 10;
        let actions =
            leader.receive_hello(connection, &hello(index, 1, MemberState::Stopped), at(1));
        assert!(commanded(&actions).is_empty(), "there is no order yet");
    }
    let sent = leader.receive_operator(&order(PREPARE, &[0, 2]), at(2));
    assert_eq!(commanded(&sent), [(10, PREPARE), (12, PREPARE)]);
    // Who reports later gets it, too.
    let sent = leader.receive_hello(12, &hello(2, 2, MemberState::Ready), at(3));
    assert_eq!(commanded(&sent), [(12, PREPARE)]);
    let sent = leader.receive_hello(11, &hello(1, 1, MemberState::Stopped), at(3));
    assert!(commanded(&sent).is_empty());
}

#[test]
fn older_and_foreign_messages_change_nothing() {
    let mut leader = leader();
    drop(leader.receive_hello(1, &hello(0, 2, MemberState::Running), at(1)));
    drop(leader.receive_operator(&order(GO, &[0]), at(1)));
    let before = leader.summary();
    let old = leader.receive_operator(&order(PREPARE, &[0]), at(2));
    assert!(commanded(&old).is_empty());
    let foreign = Envelope {
        job: "other".to_owned(),
        ..order(Command::Go { attempt: 9 }, &[0])
    };
    assert!(leader.receive_operator(&foreign, at(2)).is_empty());
    let foreign = Envelope {
        job: "other".to_owned(),
        ..hello(1, 9, MemberState::Running)
    };
    assert!(leader.receive_hello(2, &foreign, at(2)).is_empty());
    drop(leader.receive_hello(1, &hello(0, 1, MemberState::Stopped), at(2)));
    drop(leader.receive_hello(1, &hello(0, 2, MemberState::Ready), at(2)));
    assert_eq!(leader.summary(), before);
}

#[test]
fn summary_groups_members_of_the_roster() {
    let mut leader = leader();
    let exit = ProgramExit {
        code: 3,
        signal: None,
    };
    let states = [
        MemberState::Stopped,
        MemberState::Stopped,
        MemberState::Ended(exit),
        MemberState::Stopping,
    ];
    for (index, state) in (0..).zip(states) {
        drop(leader.receive_hello(u64::from(index), &hello(index, 1, state), at(1)));
    }
    assert!(leader.summary().groups.is_empty(), "without an order");
    assert_eq!(leader.summary().ended.len(), 1);
    let stop = Command::Stop {
        attempt: 1,
        how: StopHow::Hang,
    };
    drop(leader.receive_operator(&order(stop, &[0, 1, 2]), at(1)));
    let summary = leader.summary();
    let groups: Vec<String> = summary
        .groups
        .iter()
        .map(|group| format!("{} {:?} {}", group.attempt, group.state, group.slots))
        .collect();
    assert_eq!(groups, ["1 Stopped Worker 0-1", "1 Ended Worker 2"]);
    assert_eq!(summary.fence, Some(Fence::new(1, Stage::Stop)));
    assert_eq!(
        leader.order().map(|order| order.roster.digest()),
        Some(summary.roster)
    );
}

#[test]
fn thousand_reports_are_few_summaries() {
    let mut leader = leader();
    drop(leader.operator_connected(at(1)));
    let mut summaries = 0;
    for index in 0..1_024 {
        let now = at(2) + Duration::from_micros(u64::from(index) * 400);
        let actions = leader.receive_hello(
            u64::from(index),
            &hello(index, 1, MemberState::Stopped),
            now,
        );
        let sent = |action: &&LeaderAction| matches!(action, LeaderAction::ToOperator(_));
        summaries += actions.iter().filter(sent).count();
    }
    assert!((1..=6).contains(&summaries), "{summaries}");
    let bytes = Envelope {
        job: "job".to_owned(),
        message: leader.summary(),
    };
    assert!(bytes.encode().unwrap().len() < 1_024);
}

#[test]
fn silent_members_are_not_counted() {
    let limits = Limits::default();
    let mut leader = leader();
    drop(leader.receive_operator(&order(PREPARE, &[0, 1]), at(0)));
    drop(leader.receive_hello(5, &hello(0, 2, MemberState::Ready), at(0)));
    drop(leader.receive_hello(6, &hello(1, 2, MemberState::Ready), at(3)));
    assert_eq!(leader.wake_at(), Some(limits.silent_after));
    let actions = leader.tick(limits.silent_after);
    assert_eq!(actions, [LeaderAction::CloseMember { connection: 5 }]);
    assert_eq!(leader.summary().groups[0].slots.to_string(), "Worker 1");
    leader.member_gone(6);
    assert!(leader.summary().groups.is_empty());
}

#[test]
fn newer_connection_of_a_pod_wins() {
    let mut leader = leader();
    drop(leader.receive_hello(5, &hello(0, 1, MemberState::Running), at(0)));
    let actions = leader.receive_hello(9, &hello(0, 1, MemberState::Running), at(1));
    assert!(actions.contains(&LeaderAction::CloseMember { connection: 5 }));
    leader.member_gone(5);
    let sent = leader.receive_operator(&order(GO, &[0]), at(2));
    assert_eq!(commanded(&sent), [(9, GO)]);
}

#[test]
fn silent_operator_is_dialed_again() {
    let limits = Limits::default();
    let mut leader = leader();
    drop(leader.operator_connected(at(0)));
    let actions = leader.tick(limits.silent_after);
    let after = at(1);
    assert_eq!(actions, [LeaderAction::RedialOperator { after }]);
    let after = at(2);
    assert_eq!(
        leader.operator_gone(),
        [LeaderAction::RedialOperator { after }]
    );
}

#[test]
fn hang_is_kept_while_the_gang_is_held() {
    let mut leader = leader();
    drop(leader.receive_operator(&order(Command::Go { attempt: 2 }, &[0, 1]), at(0)));
    let hang = HangReport {
        attempt: 2,
        slot: slot(1),
        rank: Some(1),
        label: "hang_cpu_side".to_owned(),
        sentence: "rank 1 sleeps".to_owned(),
    };
    drop(leader.report_hang(hang.clone(), at(1)));
    let within = at(600);
    let hold = Command::Hold { attempt: 2, within };
    drop(leader.receive_operator(&order(hold, &[0, 1]), at(2)));
    assert_eq!(leader.summary().hang, Some(hang.clone()));
    let how = StopHow::Hang;
    drop(leader.receive_operator(&order(Command::Stop { attempt: 2, how }, &[0, 1]), at(3)));
    assert_eq!(leader.summary().hang, None);
    drop(leader.report_hang(hang, at(4)));
    assert_eq!(leader.summary().hang, None, "it is over");
}

#[test]
fn store_is_reported_when_it_changes() {
    let mut leader = leader();
    drop(leader.operator_connected(at(1)));
    let report = |why: &str| StoreReport {
        attempt: 2,
        seen: None,
        why: why.to_owned(),
    };
    let sends = |actions: &[LeaderAction]| {
        let mut sent = actions.iter();
        sent.any(|action| matches!(action, LeaderAction::ToOperator(_)))
    };
    assert!(sends(&leader.report_store(report("it hangs"), at(10))));
    assert!(
        !sends(&leader.report_store(report("it hangs"), at(11))),
        "the same"
    );
    assert!(sends(&leader.report_store(report("it is gone"), at(20))));
    assert_eq!(leader.summary().store, Some(report("it is gone")));
}

/// A pod that was deleted by force may still run its program and reach the leader.
#[test]
fn member_of_a_replaced_pod_is_stopped() {
    let exit = ProgramExit {
        code: 1,
        signal: None,
    };
    let cases = [
        (1, MemberState::Running, true),
        (1, MemberState::Ended(exit), true),
        (1, MemberState::Stopped, false),
        (2, MemberState::Ready, false),
        (2, MemberState::Running, false),
        (3, MemberState::Running, false),
    ];
    for (attempt, state, stops) in cases {
        let mut leader = leader();
        leader.receive_operator(&order(PREPARE, &[0, 2]), at(1));
        let sent = leader.receive_hello(11, &hello(1, attempt, state), at(2));
        let how = StopHow::Hang;
        let want = stops.then_some((11, Command::Stop { attempt, how }));
        assert_eq!(
            commanded(&sent),
            want.into_iter().collect::<Vec<_>>(),
            "{attempt} {state:?}"
        );
    }
}
