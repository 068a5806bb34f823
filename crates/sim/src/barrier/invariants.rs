//! What must hold, on the truth.

use std::{collections::BTreeSet, fmt::Debug};

use trainyard_core::{
    barrier::{Command, Fence, MemberState, Order, Phase, Stage, StateName},
    job::{self, Action, Decision, Observed},
    spec::Slot,
};

use super::{
    faults::LONGEST_HOLD,
    job::{Write, charges},
    operator::birth_of,
    world::{World, in_millis, is_held, limits, worker},
};
use crate::violation::{Verdict, ensure};

/// After this a connection is known to the leader, also where the first reports on it are lost, in milliseconds.
const KNOWN_WITHIN: i64 = 25_000;

/// What the checks remember.
#[derive(Default)]
pub(super) struct Known {
    /// The newest attempt that was started: by Go in place, or by a new pod.
    gone: u32,
    /// Attempts that were prepared in place.
    prepared: BTreeSet<u32>,
    /// Charges since programs last ran as an attempt without a barrier.
    charges: u32,
    /// Since when a barrier is stored.
    barrier_since: Option<i64>,
    /// Operators that crashed since then.
    pub(super) crashes: u32,
    /// Since when a hold is stored.
    hold_since: Option<i64>,
    /// Operators that crashed since then.
    pub(super) crashes_in_hold: u32,
}

/// A member never goes back.
pub(super) fn backwards(birth: u32, before: (u32, StateName), after: (u32, StateName)) -> Verdict {
    ensure!(
        "a member never goes back",
        after >= before,
        "p{birth} was at {before:?} and is at {after:?}"
    );
    Ok(())
}

/// A program has started.
pub(super) fn started(world: &mut World, birth: u32, attempt: u32) -> Verdict {
    for (other, container) in &world.containers {
        let Some(runs) = container.program.filter(|_| !container.ghost) else {
            continue;
        };
        ensure!(
            "one attempt runs at a time",
            runs == attempt,
            "p{birth} starts attempt {attempt} while p{other} runs attempt {runs}"
        );
    }
    ensure!(
        "no program of an attempt after Go of a later one",
        attempt >= world.known.gone,
        "p{birth} starts attempt {attempt} after Go of attempt {}",
        world.known.gone
    );
    ensure!(
        "programs run only as stored attempts",
        attempt <= world.api.status.trainyard.attempt,
        "p{birth} starts attempt {attempt}, stored is {}",
        world.api.status.trainyard.attempt
    );
    world.known.gone = attempt;
    Ok(())
}

/// A pod that waits for Go is created in `slot`. The one that it replaces was stopped before it was deleted by force, where the leader
/// reached it all the time and it could be stopped in its time.
pub(super) fn replaced(world: &World, slot: Slot) -> Verdict {
    let Some(since) = world.known.barrier_since else {
        return Ok(());
    };
    let in_time = world.now - since < in_millis(limits().stop_within);
    for (birth, container) in &world.containers {
        let replaced = container.slot == slot && container.ghost && container.forced_at >= since;
        let reached = container.up
            && !container.cut_off
            && !container.half_open
            && !container.stuck
            && container.frozen_until == 0
            && container.connection.is_some()
            && container.connected_at + KNOWN_WITHIN < since;
        ensure!(
            "a lost member is fenced before it is replaced",
            !(replaced && reached && in_time) || container.program.is_none(),
            "{slot} is created while p{birth} runs {:?}",
            container.program
        );
    }
    Ok(())
}

/// A pass: while a barrier is stored nobody creates a pod that runs at once, and a job that has ended or is suspended has no barrier.
pub(super) fn decided(observed: &Observed, decision: &Decision) -> Verdict {
    let status = &decision.status;
    let runs = |action: &Action| matches!(action, Action::CreatePod { waits: false, .. });
    let created = decision.actions.iter().find(|action| runs(action));
    ensure!(
        "pods created inside a barrier wait",
        status.trainyard.barrier.is_none() || created.is_none(),
        "{created:?} is decided with {:?}",
        status.trainyard.barrier
    );
    ensure!(
        "a job that has ended has no barrier",
        !job::has_ended(status) || status.trainyard.barrier.is_none(),
        "{:?} is stored with it",
        status.trainyard.barrier
    );
    if is_held(&observed.status) && is_held(status) {
        let touches = |action: &&Action| {
            matches!(action, Action::CreatePod { .. } | Action::DeletePod { .. })
        };
        let one = decision.actions.iter().find(touches);
        ensure!(
            "a gang that is held keeps its pods",
            one.is_none(),
            "{one:?} is decided"
        );
        let gang = decision.gang.as_ref();
        let order = gang.and_then(|gang| gang.coordinator.order());
        let attempt = status.trainyard.attempt;
        ensure!(
            "supervisors are ordered to hold",
            order.is_some_and(|order| order.command.fence() == Fence::new(attempt, Stage::Hold)),
            "the order is {order:?}"
        );
    }
    ensure!(
        "every pass gives a reason",
        !decision.reasons.is_empty(),
        "none for {:?}",
        observed.status.trainyard.barrier
    );
    Ok(())
}

/// The operator sends an order.
pub(super) fn ordered(world: &mut World, order: &Order) -> Verdict {
    let fence = order.command.fence();
    ensure!(
        "orders follow the stored status",
        fence.attempt <= world.api.status.trainyard.attempt,
        "{:?} is sent while attempt {} is stored",
        order.command,
        world.api.status.trainyard.attempt
    );
    let Command::Go { attempt } = order.command else {
        return Ok(());
    };
    if attempt <= world.known.gone || !world.known.prepared.contains(&attempt) {
        return Ok(());
    }
    world.known.gone = attempt;
    ensure!(
        "a restart is charged once before Go",
        world.known.charges == 1,
        "Go of attempt {attempt} with {} charges",
        world.known.charges
    );
    for index in 0..world.api.stored_size() {
        let slot = worker(index);
        let Some(uid) = order.roster.get(slot) else {
            ensure!(
                "Go only when all are ready",
                false,
                "Go of attempt {attempt} without {slot}"
            );
            continue;
        };
        let birth = birth_of(uid);
        let reached = world.containers.get(&birth).map(|found| found.reached);
        ensure!(
            "Go only when all are ready",
            reached >= Some((attempt, StateName::Ready)),
            "Go of attempt {attempt} while {slot} (p{birth}) is at {reached:?}"
        );
        let label = world.api.pods.get(&slot).filter(|pod| pod.birth == birth);
        ensure!(
            "labels are patched before Go",
            label.is_none_or(|pod| pod.attempt == attempt),
            "Go of attempt {attempt} while the label of {slot} (p{birth}) is {:?}",
            label.map(|pod| pod.attempt)
        );
    }
    Ok(())
}

/// The status is written.
pub(super) fn stored(world: &mut World, write: &Write) -> Verdict {
    let before = world.api.stored();
    let status = &write.decision.status;
    let record = &status.trainyard;
    let (old, new) = (before.attempt, record.attempt);
    ensure!(
        "attempts grow by one",
        new == old || new == old + 1,
        "attempt {new} is stored after {old}"
    );
    let prepares = record
        .barrier
        .as_ref()
        .is_some_and(|barrier| barrier.phase == Phase::Preparing);
    let begun = before.barrier.is_none() && record.barrier.is_some();
    let ended = before.barrier.is_some() && record.barrier.is_none();
    if begun {
        world.known.barrier_since = Some(world.now);
        world.known.crashes = 0;
        world.known.charges = 0;
    }
    match (is_held(&world.api.status), is_held(status)) {
        (false, true) => {
            world.known.hold_since = Some(world.now);
            world.known.crashes_in_hold = 0;
        }
        (true, false) => world.known.hold_since = None,
        _ => {}
    }
    ensure!(
        "nothing is charged or restarted while a gang is held",
        !is_held(status) || charges(world, write) == 0 && new == old && record.barrier.is_none(),
        "attempt {new} after {old}, with {} charges and {:?}",
        charges(world, write),
        record.barrier
    );
    world.known.charges += charges(world, write);
    if prepares && new > old {
        world.known.prepared.insert(new);
        for index in 0..world.api.stored_size() {
            let Some(pod) = world.api.pods.get(&worker(index)) else {
                continue;
            };
            let lost = record
                .barrier
                .as_ref()
                .is_some_and(|barrier| barrier.lost.contains(worker(index)));
            let Some(container) = world.containers.get(&pod.birth).filter(|_| !lost) else {
                continue;
            };
            ensure!(
                "the next attempt is stored once all have stopped",
                container.program.is_none(),
                "attempt {new} is stored while p{} runs {:?}",
                pod.birth,
                container.program
            );
        }
    }
    if ended {
        world.known.barrier_since = None;
        let charges = world.known.charges;
        let ended = format!("the barrier ends in attempt {new} with {charges} charges");
        ensure!("a restart is charged once", charges == 1, "{ended}");
    }
    Ok(())
}

/// A message of an older attempt or of another job was received.
pub(super) fn unchanged<M: Debug>(birth: u32, message: &M, unchanged: bool) -> Verdict {
    ensure!(
        "older and foreign messages change nothing",
        unchanged,
        "p{birth} obeyed {message:?}"
    );
    Ok(())
}

/// Now and then: nothing waits for longer than its bound.
pub(super) fn audit(world: &World) -> Verdict {
    audit_hold(world)?;
    let limits = limits();
    let slack = 2_000;
    for (birth, container) in &world.containers {
        if !container.up || container.member.has_exited() {
            continue;
        }
        let bound = match container.member.state() {
            MemberState::Running => continue,
            // The order to hold may arrive at the end of the time without it.
            MemberState::Ended(_) if container.member.fence().stage == Stage::Hold => {
                limits.hold * 2 + LONGEST_HOLD
            }
            MemberState::Ended(_) => limits.hold,
            MemberState::Stopping => limits.stop_within,
            MemberState::CannotStop => limits.farewell,
            MemberState::Ready | MemberState::Stopped => limits.idle_within(),
        };
        let since = container.state_since.max(container.frozen_until);
        let waited = world.now - since;
        ensure!(
            "members wait within their bounds",
            waited <= in_millis(bound) + slack,
            "p{birth} is {:?} for {waited} ms",
            container.member.state()
        );
    }
    if let Some(since) = world
        .known
        .barrier_since
        .filter(|_| !world.api.being_deleted)
    {
        // An operator that starts does not know how long the one before it waited since its last write.
        let lives = i64::from(world.known.crashes) + 1;
        let down = i64::from(world.known.crashes) * 47_000;
        let waited = world.now - since;
        ensure!(
            "a barrier ends within its bound",
            waited <= lives * in_millis(limits.start_within) + down + slack,
            "{:?} for {waited} ms",
            world.barrier()
        );
    }
    Ok(())
}

/// A hold ends within its bound, whatever happens to operators.
fn audit_hold(world: &World) -> Verdict {
    let Some(since) = world.known.hold_since.filter(|_| !world.api.being_deleted) else {
        return Ok(());
    };
    let down = i64::from(world.known.crashes_in_hold) * 47_000;
    let waited = world.now - since;
    ensure!(
        "a hold ends within its bound",
        waited <= in_millis(LONGEST_HOLD) + down + 8_000,
        "{:?} for {waited} ms",
        world.api.status.trainyard.hold
    );
    Ok(())
}

/// The world has settled: no barrier, and all programs run as the stored attempt, or the job has no pods.
pub(super) fn settled(world: &World) -> Verdict {
    let name = "the world settles";
    if world.api.being_deleted {
        ensure!(
            name,
            world.api.pods.is_empty(),
            "{:?} are left",
            world.api.pods
        );
        return Ok(());
    }
    ensure!(
        name,
        !is_held(&world.api.status),
        "{:?} is stored",
        world.api.status.trainyard.hold
    );
    ensure!(
        name,
        world.barrier().is_none(),
        "{:?} is stored",
        world.barrier()
    );
    let attempt = world.api.status.trainyard.attempt;
    ensure!(
        name,
        world.api.stored_size() == world.api.size,
        "{} pods, {} are wanted",
        world.api.stored_size(),
        world.api.size
    );
    for index in 0..world.api.size {
        let slot = worker(index);
        let pod = world.api.pods.get(&slot);
        let container = pod.and_then(|pod| world.containers.get(&pod.birth));
        let runs = container.and_then(|container| container.program);
        let well = pod
            .is_some_and(|pod| pod.terminating.is_none() && pod.failed.is_none() && !pod.node_lost);
        let cut_off =
            container.is_some_and(|container| container.cut_off || container.kubelet_gone);
        ensure!(
            name,
            well && !cut_off && runs == Some(attempt),
            "{slot} of attempt {attempt} is {pod:?} and runs {runs:?}"
        );
    }
    let hung = world.api.hangs == Some(attempt);
    ensure!(name, !hung, "attempt {attempt} hangs");
    Ok(())
}
