use super::*;
use crate::{
    barrier::message::{Group, ProgramExit, Stage, StopHow},
    spec::Role,
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn slot(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn slots(indices: &[u32]) -> SlotSet {
    indices.iter().copied().map(slot).collect()
}

/// An operator with a gang of three.
struct Gang {
    coordinator: Coordinator,
    stored: Stored,
    slots: BTreeSet<Slot>,
    pods: BTreeMap<Slot, SeenPod>,
    wish: Wish,
    hold: Option<Duration>,
}

impl Gang {
    fn new(stored: Stored, label: u32) -> Self {
        let pod = |index| SeenPod {
            uid: format!("pod-{index}"),
            attempt: label,
            health: PodHealth::Well,
        };
        Self {
            coordinator: Coordinator::new("job".to_owned(), Limits::default()),
            stored,
            slots: (0..3).map(slot).collect(),
            pods: (0..3).map(|index| (slot(index), pod(index))).collect(),
            wish: Wish::Run,
            hold: None,
        }
    }

    fn stopping() -> Self {
        let how = StopHow::Grace(at(5));
        let barrier = Barrier::begin(1, how, "rank 1 failed", SlotSet::default());
        let stored = Stored {
            attempt: 1,
            barrier: Some(barrier),
        };
        Self::new(stored, 1)
    }

    fn preparing(label: u32) -> Self {
        let mut gang = Self::stopping();
        gang.stored.attempt = 2;
        if let Some(barrier) = &mut gang.stored.barrier {
            barrier.attempt = 2;
            barrier.phase = Phase::Preparing;
        }
        for pod in gang.pods.values_mut() {
            pod.attempt = label;
        }
        gang
    }

    fn step(&mut self, now: u64) -> Step {
        let seen = SeenJob {
            stored: &self.stored,
            slots: &self.slots,
            leader: slot(0),
            pods: &self.pods,
            wish: self.wish,
            hold: self.hold,
        };
        self.coordinator.step(&seen, at(now))
    }

    /// The leader reports these members about the current order.
    fn report(&mut self, attempt: u32, state: StateName, indices: &[u32]) {
        let order = self.coordinator.order().expect("an order was sent");
        let summary = Summary {
            fence: Some(order.command.fence()),
            roster: order.roster.digest(),
            groups: vec![Group {
                attempt,
                state,
                slots: slots(indices),
            }],
            ended: Vec::new(),
            hang: None,
            store: None,
        };
        self.receive(summary);
    }

    fn receive(&mut self, message: Summary) {
        let job = "job".to_owned();
        self.coordinator.receive(&Envelope { job, message });
    }

    fn pod(&mut self, index: u32) -> &mut SeenPod {
        self.pods.get_mut(&slot(index)).expect("it has a pod")
    }
}

fn command(step: &Step) -> Option<Command> {
    match &step.send.as_ref()?.message {
        OperatorMessage::Order(order) => Some(order.command),
        OperatorMessage::Ack => None,
    }
}

fn reason(step: &Step) -> Option<(u32, &NewPodsReason)> {
    match step.outcome.as_ref()? {
        Outcome::NewPods { attempt, reason } => Some((*attempt, reason)),
        Outcome::Go { .. } | Outcome::NoPods { .. } => None,
    }
}

#[test]
fn whole_restart_in_order() {
    let mut gang = Gang::stopping();
    let how = StopHow::Grace(at(5));
    assert_eq!(
        command(&gang.step(0)),
        Some(Command::Stop { attempt: 1, how })
    );
    gang.report(1, StateName::Stopped, &[0, 2]);
    let step = gang.step(1);
    assert_eq!((step.store, step.waiting), (None, slots(&[1])));
    gang.report(1, StateName::Stopped, &[0, 1, 2]);

    let step = gang.step(4);
    let stored = step.store.expect("all have stopped");
    assert!(step.relabel.is_empty() && step.outcome.is_none());
    assert_eq!(stored.attempt, 2);
    let barrier = stored.barrier.as_ref().expect("it is prepared");
    assert_eq!((barrier.phase, barrier.spent), (Phase::Preparing, at(4)));
    gang.stored = stored;

    let step = gang.step(5);
    let labels: Vec<(u32, u32)> = step
        .relabel
        .iter()
        .map(|one| (one.from, one.attempt))
        .collect();
    assert_eq!(labels, [(1, 2); 3]);
    assert!(command(&step).is_none() && step.store.is_none());
    gang.pod(0).attempt = 2;
    assert!(command(&gang.step(5)).is_none(), "two labels are old");
    gang.pod(1).attempt = 2;
    gang.pod(2).attempt = 2;
    assert_eq!(
        command(&gang.step(6)),
        Some(Command::Prepare { attempt: 2 })
    );
    gang.report(2, StateName::Ready, &[0, 1]);
    let step = gang.step(7);
    assert_eq!((command(&step), step.outcome), (None, None));
    gang.report(2, StateName::Ready, &[0, 1, 2]);

    let step = gang.step(8);
    assert_eq!(command(&step), Some(Command::Go { attempt: 2 }));
    assert_eq!(step.outcome, Some(Outcome::Go { attempt: 2 }));
    gang.stored = step.store.expect("the barrier is over");
    assert_eq!(gang.stored.barrier, None);
    assert_eq!(command(&gang.step(9)), None, "Go was sent");
}

#[test]
fn members_are_lost_in_their_time() {
    let mut gang = Gang::stopping();
    drop(gang.step(0));
    gang.report(1, StateName::Stopped, &[0, 2]);
    assert_eq!(gang.step(34).store, None);
    assert_eq!(gang.step(34).wake_at, Some(at(35)));
    let step = gang.step(35);
    let stored = step
        .store
        .expect("one of three is lost, and the others have stopped");
    assert_eq!(
        stored.barrier.as_ref().map(|one| one.lost.clone()),
        Some(slots(&[1]))
    );
    assert_eq!(stored.attempt, 2);
    gang.stored = stored;
    // Its pod is replaced and never relabelled.
    let step = gang.step(36);
    let replaced: Vec<Slot> = step.replace.iter().map(|lost| lost.slot).collect();
    assert_eq!((replaced, step.relabel.len()), (vec![slot(1)], 2));
    gang.pod(0).attempt = 2;
    gang.pod(2).attempt = 2;
    gang.pods.remove(&slot(1));
    let step = gang.step(37);
    let create = CreateWaiting {
        slot: slot(1),
        attempt: 2,
    };
    assert_eq!((step.create, step.replace.len()), (vec![create], 0));
    // A new pod has until the end of the barrier, as its image may take minutes.
    let pod = SeenPod {
        uid: "new".to_owned(),
        attempt: 2,
        health: PodHealth::Starting,
    };
    gang.pods.insert(slot(1), pod);
    gang.report(2, StateName::Ready, &[0, 2]);
    let step = gang.step(300);
    assert!(step.replace.is_empty() && step.outcome.is_none());
    gang.pod(1).health = PodHealth::Well;
    drop(gang.step(301));
    gang.report(2, StateName::Ready, &[0, 2]);
    assert!(gang.step(360).replace.is_empty());
    let step = gang.step(361);
    assert_eq!(
        step.replace.first().map(|lost| lost.why),
        Some(LostWhy::NotReady)
    );
    assert_eq!(step.replace.len(), 1);
}

#[test]
fn each_loss_while_stopping() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Change); 5] = [
        ("gone", |gang| drop(gang.pods.remove(&slot(1)))),
        ("failed", |gang| gang.pod(1).health = PodHealth::Failed),
        ("node lost", |gang| gang.pod(1).health = PodHealth::NodeLost),
        ("terminating", |gang| {
            gang.pod(1).health = PodHealth::Terminating;
        }),
        ("cannot stop", |gang| {
            gang.report(1, StateName::CannotStop, &[1]);
        }),
    ];
    for (name, change) in cases {
        let mut gang = Gang::stopping();
        drop(gang.step(0));
        gang.report(1, StateName::Running, &[0, 2]);
        change(&mut gang);
        let step = gang.step(1);
        let barrier = step.store.and_then(|stored| stored.barrier);
        let barrier = barrier.expect("the loss is stored");
        assert_eq!(
            (barrier.phase, barrier.lost),
            (Phase::Stopping, slots(&[1])),
            "{name}"
        );
        assert_eq!(step.waiting, slots(&[0, 2]), "{name}");
        assert!(step.replace.is_empty(), "{name}: not before it is stored");
    }
}

#[test]
fn ends_in_new_pods_or_none() {
    type Change = fn(&mut Gang);
    let bound = Limits::default().start_within;
    let resized = NewPodsReason::Resized;
    let cases: [(&str, Change, u64, NewPodsReason); 6] = [
        (
            "leader lost",
            |gang| gang.pod(0).health = PodHealth::Failed,
            1,
            NewPodsReason::LeaderLost,
        ),
        ("leader silent", |_| {}, 35, NewPodsReason::LeaderSilent),
        (
            "nobody stops",
            |gang| gang.report(1, StateName::Running, &[0]),
            35,
            NewPodsReason::NobodyKept,
        ),
        (
            "all pods gone",
            |gang| gang.pods.clear(),
            1,
            NewPodsReason::NobodyKept,
        ),
        ("too long", |_| {}, 900, NewPodsReason::TooLong { bound }),
        (
            "resized",
            |gang| gang.wish = Wish::Resize,
            1,
            resized.clone(),
        ),
    ];
    for (name, change, now, want) in cases {
        let mut gang = Gang::stopping();
        drop(gang.step(0));
        change(&mut gang);
        let step = gang.step(now);
        assert_eq!(reason(&step), Some((2, &want)), "{name}");
    }
    // An attempt that was prepared is left.
    let mut gang = Gang::preparing(2);
    gang.wish = Wish::Resize;
    let step = gang.step(1);
    assert_eq!(reason(&step), Some((3, &resized)));
    for wish in [Wish::Suspend, Wish::Delete, Wish::Fail] {
        for mut gang in [Gang::stopping(), Gang::preparing(2)] {
            gang.wish = wish;
            let step = gang.step(1);
            assert_eq!(step.outcome, Some(Outcome::NoPods { wish }));
            assert!(step.store.is_some_and(|stored| stored.barrier.is_none()));
            assert!(step.send.is_none());
        }
    }
}

#[test]
fn restarted_operator_continues() {
    // Between the stored attempt and the labels.
    let mut gang = Gang::preparing(1);
    assert_eq!(gang.step(0).relabel.len(), 3);
    // Between the labels and Go.
    let mut gang = Gang::preparing(2);
    assert_eq!(
        command(&gang.step(0)),
        Some(Command::Prepare { attempt: 2 })
    );
    // After Go, which the leader has.
    gang.receive(Summary {
        fence: Some(Fence::new(2, Stage::Go)),
        ..Summary::default()
    });
    assert_eq!(gang.step(1).outcome, Some(Outcome::Go { attempt: 2 }));
    // After Go, which a new leader does not have.
    let mut gang = Gang::preparing(2);
    drop(gang.step(0));
    gang.report(2, StateName::Running, &[1]);
    assert_eq!(gang.step(1).outcome, Some(Outcome::Go { attempt: 2 }));
    // The time that was stored counts.
    let mut gang = Gang::preparing(2);
    if let Some(barrier) = &mut gang.stored.barrier {
        barrier.spent = at(890);
    }
    assert_eq!(gang.step(1_000).outcome, None);
    assert!(reason(&gang.step(1_010)).is_some());
}

#[test]
fn reports_of_replaced_pods_do_not_count() {
    let mut gang = Gang::preparing(2);
    drop(gang.step(0));
    let order = gang.coordinator.order().cloned().expect("Prepare was sent");
    gang.pod(1).uid = "new".to_owned();
    drop(gang.step(1));
    let late = Summary {
        fence: Some(order.command.fence()),
        roster: order.roster.digest(),
        groups: vec![Group {
            attempt: 2,
            state: StateName::Ready,
            slots: slots(&[0, 1, 2]),
        }],
        ended: Vec::new(),
        hang: None,
        store: None,
    };
    gang.receive(late.clone());
    let step = gang.step(2);
    assert_eq!((step.outcome, step.waiting), (None, slots(&[0, 1, 2])));
    let foreign = Envelope {
        job: "other".to_owned(),
        message: Summary {
            fence: Some(Fence::new(2, Stage::Go)),
            ..late
        },
    };
    gang.coordinator.receive(&foreign);
    assert_eq!(gang.step(3).outcome, None);
}

#[test]
fn running_gang_reports_ended_programs_of_its_attempt() {
    let stored = Stored {
        attempt: 2,
        barrier: None,
    };
    let mut gang = Gang::new(stored, 2);
    assert_eq!(command(&gang.step(0)), Some(Command::Go { attempt: 2 }));
    let exit = ProgramExit {
        code: 1,
        signal: None,
    };
    let ended = |index, uid: &str, attempt| EndedMember {
        slot: slot(index),
        uid: uid.to_owned(),
        attempt,
        exit,
    };
    gang.receive(Summary {
        ended: vec![
            ended(1, "pod-1", 2),
            ended(2, "pod-2", 1),
            ended(0, "old-pod", 2),
        ],
        ..Summary::default()
    });
    let step = gang.step(1);
    assert_eq!(step.ended, [ended(1, "pod-1", 2)]);
    // The leader has no order yet, so it gets it again, and an acknowledgement once it has it.
    assert_eq!(command(&step), Some(Command::Go { attempt: 2 }));
    gang.report(2, StateName::Running, &[0, 1, 2]);
    let message = gang.step(2).send.map(|envelope| envelope.message);
    assert_eq!(message, Some(OperatorMessage::Ack));
    assert_eq!(gang.step(3).send, None);
}

#[test]
fn a_hang_of_this_attempt_and_no_other_is_passed_on() {
    let hang = |attempt, index| HangReport {
        attempt,
        slot: slot(index),
        rank: Some(index),
        label: "hang_cpu_side".to_owned(),
        sentence: "Rank 1 hangs".to_owned(),
    };
    // (what the leader reports, whether it counts)
    let cases = [
        (hang(1, 1), true),
        (hang(2, 1), false),
        (hang(1, 77), false),
    ];
    for (report, counts) in cases {
        let stored = Stored {
            attempt: 1,
            barrier: None,
        };
        let mut gang = Gang::new(stored, 1);
        drop(gang.step(0));
        gang.receive(Summary {
            hang: Some(report.clone()),
            ..Summary::default()
        });
        assert_eq!(gang.step(1).hang, counts.then_some(report));
    }
}

#[test]
fn what_is_left_of_a_gang_is_held() {
    let mut gang = Gang::new(
        Stored {
            attempt: 1,
            barrier: None,
        },
        1,
    );
    assert_eq!(command(&gang.step(0)), Some(Command::Go { attempt: 1 }));
    gang.hold = Some(at(60));
    let hold = Command::Hold {
        attempt: 1,
        within: at(60),
    };
    gang.pods.remove(&slot(2));
    assert_eq!(command(&gang.step(1)), Some(hold));
    assert_eq!(command(&gang.step(2)), None, "sent once");
    gang.wish = Wish::Suspend;
    let over = Command::Hold {
        attempt: 1,
        within: Duration::ZERO,
    };
    assert_eq!(command(&gang.step(3)), Some(over), "nobody looks any more");
    gang.hold = None;
    assert_eq!(command(&gang.step(4)), None);
}

/// A lost member that the leader reaches is stopped before its pod is deleted by force.
#[test]
fn lost_members_are_fenced() {
    let cases: [(&str, Option<StateName>, u64, bool); 6] = [
        ("it runs", Some(StateName::Running), 1, false),
        ("it stops", Some(StateName::Stopping), 1, false),
        ("it has stopped", Some(StateName::Stopped), 1, true),
        ("it cannot stop", Some(StateName::CannotStop), 1, true),
        ("it is not connected", None, 1, true),
        ("its time is over", Some(StateName::Running), 35, true),
    ];
    for (name, state, now, goes_on) in cases {
        let mut gang = Gang::stopping();
        if let Some(barrier) = &mut gang.stored.barrier {
            barrier.lost = slots(&[2]);
        }
        gang.pod(2).health = PodHealth::NodeLost;
        // The operator has just started, and does not know yet whom the leader reaches.
        let step = gang.step(0);
        assert_eq!(step.waiting, slots(&[0, 1, 2]), "{name}");
        assert!(step.replace.is_empty(), "{name}: {:?}", step.replace);
        let order = gang.coordinator.order().expect("an order was sent");
        assert!(order.roster.has(slot(2), "pod-2"), "{name}");
        let group = |state, indices: &[u32]| Group {
            attempt: 1,
            state,
            slots: slots(indices),
        };
        let mut groups = vec![group(StateName::Stopped, &[0, 1])];
        groups.extend(state.map(|state| group(state, &[2])));
        let summary = Summary {
            fence: Some(order.command.fence()),
            roster: order.roster.digest(),
            groups,
            ended: Vec::new(),
            hang: None,
            store: None,
        };
        gang.receive(summary);
        let step = gang.step(now);
        let attempt = step.store.map(|stored| stored.attempt);
        assert_eq!(attempt, goes_on.then_some(2), "{name}");
        assert_eq!(step.waiting.contains(slot(2)), !goes_on, "{name}");
        assert!(step.replace.is_empty(), "{name}: {:?}", step.replace);
    }
}
