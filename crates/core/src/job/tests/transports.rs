//! What ranks talk over, and jobs that require something.

use super::*;
use crate::{diagnose::TransportSeen, spec::RequiredTransport};

const GDR: &str = "NET/IB/GDRDMA";

/// Two ranks of a world of two use these.
fn both<'a>(names: &'a [&'a str]) -> Vec<(u32, &'a [&'a str])> {
    vec![(0, names), (1, names)]
}

fn report(world: &mut World, size: Option<u32>, ranks: &[(u32, &[&str])]) -> Decision {
    let ranks = ranks.iter().map(|(rank, names)| TransportSeen {
        rank: Some(*rank),
        host: Some(format!("j-worker-{rank}")),
        source: format!("j-worker-{rank}/pytorch"),
        world: size,
        transports: names.iter().map(|name| (*name).to_owned()).collect(),
    });
    world.observed.transports = Some(ReportedTransports {
        attempt: world.observed.status.trainyard.attempt,
        ranks: ranks.collect(),
    });
    world.pass()
}

fn requires(text: &str) -> World {
    let mut job = policy(job(Kind::PyTorch), RestartPolicy::Never);
    if !text.is_empty() {
        job.settings.require_transport = RequiredTransport::parse_list(text).unwrap();
    }
    let mut world = World::new(job);
    world.run_all();
    world
}

fn condition(world: &World) -> Option<(ConditionStatus, &str)> {
    let mut conditions = world.observed.status.conditions.iter();
    let found = conditions.find(|condition| condition.kind == ConditionType::TransportVerified)?;
    Some((found.status, &found.message))
}

#[test]
fn transport_condition_follows_reports() {
    use ConditionStatus::{True, Unknown};
    type Case<'a> = (
        &'a str,
        Option<u32>,
        &'a [(u32, &'a [&'a str])],
        ConditionStatus,
        &'a str,
    );
    let cases: [Case<'_>; 6] = [
        (
            "all the same",
            Some(2),
            &[(0, &[GDR]), (1, &[GDR, "P2P/CUMEM"])],
            True,
            "2 of 2 ranks use NET/IB with GDRDMA",
        ),
        (
            "some are missing",
            Some(4),
            &[(0, &[GDR]), (1, &["NET/Socket"])],
            Unknown,
            "1 of 4 ranks uses NET/IB with GDRDMA, 1 uses NET/Socket so far",
        ),
        (
            "world size is unknown",
            None,
            &[(1, &["NET/Socket"])],
            Unknown,
            "1 rank uses NET/Socket so far (world size not reported yet)",
        ),
        (
            "within a node",
            Some(2),
            &[(0, &["P2P/CUMEM", "SHM"]), (1, &["P2P/CUMEM", "SHM"])],
            True,
            "2 of 2 ranks use P2P/CUMEM and SHM",
        ),
        (
            "both within and between",
            Some(3),
            &[(0, &["P2P/IPC"]), (1, &["NET/IB", GDR]), (2, &["P2P/IPC"])],
            True,
            "2 of 3 ranks use P2P/IPC, 1 uses NET/IB and NET/IB with GDRDMA",
        ),
        (
            "a rank without channels does not count",
            Some(2),
            &[(0, &["NET/IB"]), (1, &[])],
            Unknown,
            "1 of 2 ranks uses NET/IB so far",
        ),
    ];
    for (name, size, ranks, status, message) in cases {
        let mut world = requires("");
        assert_eq!(condition(&world), None, "no rank has reported");
        report(&mut world, size, ranks);
        assert_eq!(condition(&world), Some((status, message)), "{name}");
        assert_eq!(world.state(), "Running", "{name}: it is never the state");
        let event = "PyTorchJobTransportVerified".to_owned();
        assert_eq!(world.events.contains(&event), status == True, "{name}");
        let again = world.pass();
        assert_eq!(again.status, world.observed.status, "{name}: once");
        assert_eq!(again.events, [], "{name}: once");
    }
}

#[test]
fn required_transport_is_enforced_on_first_report() {
    use ConditionStatus::{False, True, Unknown};
    // Required, reported by ranks of a world of two, what the condition says, and the attempt after that.
    type Case<'a> = (&'a str, Vec<(u32, &'a [&'a str])>, ConditionStatus, u32);
    let cases: [Case<'_>; 12] = [
        ("NET/IB", both(&[GDR, "P2P/CUMEM"]), True, 1),
        ("NET/IB", both(&["NET/IBext/GDRDMA"]), True, 1),
        ("NET/IB", both(&["NET/Socket", "P2P/CUMEM"]), False, 2),
        ("NET/IB", vec![(1, &["NET/Socket"])], False, 2),
        ("NET/IB", vec![(0, &[GDR]), (1, &["NET/Socket"])], False, 2),
        ("NET/IB,NET/Socket", both(&["NET/Socket"]), True, 1),
        ("NET/IB", both(&["P2P/CUMEM"]), Unknown, 1),
        ("NET/IB", both(&["NET/Unknown"]), False, 2),
        ("NET/IB/GDRDMA", both(&["NET/IB"]), False, 2),
        ("NET/IB/GDRDMA", vec![(0, &["NET/IB"])], Unknown, 1),
        // It receives directly and sends from the host's memory.
        (
            "NET/IB/GDRDMA",
            vec![(0, &["NET/IB"]), (1, &[GDR])],
            True,
            1,
        ),
        ("NET/IB/GDRDMA,NET/IB", both(&["NET/IB"]), True, 1),
    ];
    for (required, reported, want, attempt) in cases {
        let mut world = requires(required);
        assert_eq!(
            condition(&world).map(|(status, _)| status),
            Some(Unknown),
            "{required}: it is awaited"
        );
        report(&mut world, Some(2), &reported);
        let found = condition(&world).map(|(status, _)| status);
        assert_eq!(found, Some(want), "{required}: {reported:?}");
        let record = &world.observed.status.trainyard;
        assert_eq!(record.attempt, attempt, "{required}: {reported:?}");
        assert_eq!(
            record.spent.platform,
            attempt - 1,
            "{required}: {reported:?}"
        );
        assert_eq!(record.spent.user, 0, "{required}: {reported:?}");
        let event = "PyTorchJobTransportMismatch".to_owned();
        assert_eq!(world.events.contains(&event), attempt == 2, "{required}");
    }
}

#[test]
fn a_mismatch_says_what_was_found_and_what_to_do() {
    let mut world = requires("NET/IB,NET/OFI");
    let decision = report(
        &mut world,
        Some(3),
        &[(0, &[GDR]), (1, &["NET/Socket"]), (2, &["NET/Socket"])],
    );
    let sentence =
        "2 of 3 ranks of attempt 1 use NET/Socket, but the job requires NET/IB or NET/OFI";
    assert_eq!(
        condition(&world),
        Some((ConditionStatus::False, sentence)),
        "it stays until the next attempt reports"
    );
    let event = &decision.events[0];
    assert_eq!(
        event.message,
        format!("{sentence}. Failure budget (platform): 1 of 100 used.")
    );
    let last = world.observed.status.trainyard.last_failure.clone();
    let last = last.expect("a failure");
    assert_eq!((last.attempt, last.pod.as_str()), (1, "j-worker-1"));
    assert_eq!(last.account, Account::Platform);
    let verdict = last.verdict.expect("a verdict");
    assert_eq!(verdict.label, "socket_fallback");
    assert_eq!(verdict.sentence, sentence);
    assert_eq!(verdict.ranks, [1, 2]);
    assert_eq!(verdict.nodes, ["node-1"], "of the pods that are there");
    world.settle();
    assert_eq!(world.state(), "Restarting");
}

#[test]
fn the_same_transport_twice_in_a_row_ends_the_job() {
    type Case<'a> = (&'a str, [&'a [&'a str]; 2], bool);
    let cases: [Case<'_>; 3] = [
        ("the same", [&["NET/Socket"], &["NET/Socket"]], true),
        ("another", [&["NET/Socket"], &["NET/Other"]], false),
        ("as required", [&["NET/Socket"], &["NET/IB"]], false),
    ];
    for (name, [first, second], ends) in cases {
        let mut world = requires("NET/IB");
        report(&mut world, Some(2), &both(first));
        world.run_all();
        assert_eq!(world.observed.status.trainyard.attempt, 2, "{name}");
        report(&mut world, Some(2), &both(second));
        assert_eq!(world.state() == "Failed", ends, "{name}");
        if ends {
            assert_eq!(
                world.message(),
                "Job j has failed because attempts 1 and 2 used the same transport: 2 of 2 ranks of attempt 2 use \
                 NET/Socket, but the job requires NET/IB"
            );
            assert_eq!(world.observed.status.trainyard.spent.platform, 2);
            let (status, message) = condition(&world).expect("a condition");
            assert_eq!(status, ConditionStatus::False);
            assert!(message.contains("attempt 2"), "{message}");
        }
    }
}

#[test]
fn silent_node_does_not_delay_next_attempt() {
    let mut world = requires("NET/IB");
    let node = world.pod(worker(0)).node.clone().expect("it has a node");
    let silent = NodeHealth::SilentSince(at(0));
    world.observed.nodes.insert(node, silent);
    assert_eq!(world.pass().reasons[0].code(), Code::NodeSilent);
    let decision = report(&mut world, Some(2), &both(&["NET/Socket"]));
    assert_eq!(decision.status.trainyard.attempt, 2);
    assert_eq!(decision.reasons[0].code(), Code::WaitingForOldPods);
}

#[test]
fn a_budget_that_is_spent_ends_the_job_at_once() {
    let mut world = requires("NET/IB");
    world.job.settings.budget.platform = Some(crate::spec::Limit::At(1));
    report(&mut world, Some(2), &both(&["NET/Socket"]));
    assert_eq!(world.state(), "Failed");
    let sentence = "its platform budget of 1 failures is spent";
    assert!(world.message().contains(sentence), "{}", world.message());
}

#[test]
fn earlier_report_does_not_end_next_attempt() {
    let mut world = requires("NET/IB");
    report(&mut world, Some(2), &both(&["NET/Socket"]));
    world.run_all();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    report(&mut world, Some(2), &both(&["NET/IB"]));
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    let holds = condition(&world).map(|(status, _)| status);
    assert_eq!(holds, Some(ConditionStatus::True));
}

#[test]
fn next_attempt_has_no_report_yet() {
    let mut world = requires("NET/IB");
    report(&mut world, Some(2), &both(&["NET/IB"]));
    let pod = world.pod(worker(0));
    pod.phase = PodPhase::Failed;
    pod.disruption = Some(Disruption::NodeGone);
    world.pass();
    assert_eq!(world.observed.status.trainyard.attempt, 2);
    let (status, message) = condition(&world).expect("a condition");
    assert_eq!(status, ConditionStatus::Unknown);
    assert!(
        message.starts_with("no rank of attempt 2 has reported"),
        "{message}"
    );
    // An adapter that starts again and has no report yet changes nothing.
    world.run_all();
    report(&mut world, Some(2), &both(&["NET/IB"]));
    world.observed.transports = None;
    world.pass();
    let holds = condition(&world).map(|(status, _)| status);
    assert_eq!(holds, Some(ConditionStatus::True));
}

#[test]
fn pods_that_restart_one_by_one_are_one_gang_here() {
    let mut world = requires("NET/IB");
    world.job.settings.restart_scope = Some(RestartScope::Pod);
    report(&mut world, Some(2), &both(&["NET/Socket"]));
    let record = &world.observed.status.trainyard;
    assert_eq!((record.attempt, record.spent.platform), (2, 1));
}

#[test]
fn who_asks_for_it() {
    use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};
    let with = |value: &str| {
        let mut job = job(Kind::PyTorch);
        let role = job.roles.get_mut(&Role::Worker).unwrap();
        role.template.spec = Some(PodSpec {
            containers: vec![Container {
                env: Some(vec![EnvVar {
                    name: "NCCL_DEBUG".to_owned(),
                    value: Some(value.to_owned()),
                    ..EnvVar::default()
                }]),
                ..Container::default()
            }],
            ..PodSpec::default()
        });
        job
    };
    assert!(!asks_for_transport(&job(Kind::PyTorch)));
    assert!(asks_for_transport(&with("INFO")));
    assert!(asks_for_transport(&with("info")));
    assert!(!asks_for_transport(&with("WARN")));
    assert!(asks_for_transport(&requires("NET/IB").job));
}

#[test]
fn what_a_fabric_is_expected_to_give_is_a_warning() {
    let mut world = requires("");
    world.observed.status.trainyard.fabric = Some(FabricInUse {
        name: "roce-a".to_owned(),
        spec: Some(Box::new(crate::fabric::FabricSpec {
            expects: Some(crate::fabric::Expected {
                transport: Some("roce".to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        })),
    });
    let warned = |world: &World| {
        let events = world.events.iter();
        events
            .filter(|event| event.ends_with("TransportUnexpected"))
            .count()
    };
    for _ in 0..2 {
        report(&mut world, Some(2), &both(&["NET/Socket"]));
        let sentence = "2 of 2 ranks of attempt 1 use NET/Socket, but the fabric `roce-a` is expected to provide `roce`";
        assert_eq!(condition(&world), Some((ConditionStatus::False, sentence)));
        assert_eq!(world.observed.status.trainyard.attempt, 1, "it continues");
        assert_eq!(warned(&world), 1, "it is said once");
    }
    report(&mut world, Some(2), &both(&[GDR]));
    let found = condition(&world).unwrap().0;
    assert_eq!(found, ConditionStatus::True);
}
