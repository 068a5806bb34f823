//! Gangs that a scheduler of others starts.

use super::*;

fn waits(world: &mut World) -> (Code, usize) {
    let decision = world.pass();
    let creates = decision
        .actions
        .iter()
        .filter(|action| matches!(action, Action::CreatePod { .. }))
        .count();
    (decision.reasons[0].code(), creates)
}

#[test]
fn pods_wait_for_the_pod_group() {
    let there = |current: bool, wait: Option<&str>| Grouping::There {
        current,
        wait: wait.map(str::to_owned),
    };
    for (name, grouping, applies, code, pods) in [
        (
            "not looked up yet",
            Grouping::Unknown,
            false,
            Code::WaitingForSeats,
            0,
        ),
        (
            "not served",
            Grouping::Unable("no such API".to_owned()),
            false,
            Code::Refused,
            0,
        ),
        (
            "another owner's",
            Grouping::Taken(Refusal::new(
                "create PodGroup `j`",
                "it belongs to TFJob `j`",
            )),
            false,
            Code::Refused,
            0,
        ),
        (
            "no group yet",
            Grouping::Missing,
            true,
            Code::WaitingForSeats,
            0,
        ),
        (
            "not let in yet",
            there(true, Some("Volcano waits")),
            false,
            Code::WaitingForSeats,
            0,
        ),
        ("let in", there(true, None), false, Code::WaitingForPods, 3),
        (
            "let in, and edited since",
            there(false, None),
            true,
            Code::WaitingForPods,
            3,
        ),
    ] {
        let mut world = World::new(job(Kind::PyTorch));
        world.observed.grouping = grouping;
        let decision = decide(&world.job, &world.observed, at(0));
        let applied = decision.actions.contains(&Action::ApplyGroup);
        assert_eq!(applied, applies, "{name}");
        assert_eq!(waits(&mut world), (code, pods), "{name}");
    }
}

#[test]
fn a_gang_that_waits_writes_its_status_once() {
    let mut world = World::new(job(Kind::PyTorch));
    world.observed.grouping = Grouping::There {
        current: true,
        wait: Some("Volcano waits".to_owned()),
    };
    world.pass();
    let written = world.observed.status.clone();
    world.now = 1;
    let decision = world.settle();
    assert_eq!(decision.status, written);
    assert_eq!(decision.wake_at, None, "its news wakes it");
}

#[test]
fn pod_group_is_deleted_with_the_pods() {
    let mut world = World::new(job(Kind::PyTorch));
    world.observed.grouping = Grouping::Missing;
    world.run_all();
    assert_eq!(world.state(), "Running");
    world.job.run_policy.suspend = true;
    assert!(world.pass().actions.contains(&Action::DeleteGroup));
    world.settle();
    assert_eq!(world.observed.grouping, Grouping::Missing);
    world.job.run_policy.suspend = false;
    world.run_all();
    assert_eq!(world.state(), "Running");
    world.exit(MASTER, 0);
    assert!(world.pass().actions.contains(&Action::DeleteGroup));
    world.settle();
    assert_eq!(world.observed.grouping, Grouping::Missing);
}
