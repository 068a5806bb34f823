//! The pods of a job in the order in which they are likely to report steps.

use crate::{
    pod::PodUid,
    spec::{Role, Slot},
};

/// A pod that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodToRead {
    /// Its incarnation.
    pub uid: PodUid,
    /// Its slot.
    pub slot: Slot,
    /// Its node, where it is known.
    pub node: Option<String>,
}

/// The pod to try when `tried` were tried before: the one that reported in an earlier attempt or rank 0, then the last rank, which
/// reports under Megatron-LM, then these two in turn with all the others.
pub(super) fn candidate(
    pods: &[PodToRead],
    reported: Option<Slot>,
    tried: u32,
) -> Option<&PodToRead> {
    let mut sorted: Vec<&PodToRead> = pods.iter().collect();
    sorted.sort_by_key(|pod| (reported != Some(pod.slot), order(pod.slot)));
    let mut sorted = sorted.into_iter();
    let first = sorted.next()?;
    let mut others: Vec<&PodToRead> = sorted.collect();
    // The last of those that train; parameter servers and evaluators come behind them.
    let last = others.iter().rposition(|pod| trains(pod.slot.role));
    let Some(last) = last.map(|at| others.remove(at)).or_else(|| others.pop()) else {
        return Some(first);
    };
    let likely = |turn: u32| if turn.is_multiple_of(2) { first } else { last };
    // 0 and 1 are the likely ones; from then on every second turn is one of the others'.
    match tried {
        0 | 1 => Some(likely(tried)),
        _ if others.is_empty() || tried.is_multiple_of(2) => Some(likely(if others.is_empty() {
            tried
        } else {
            tried / 2 - 1
        })),
        _ => {
            let turn = usize::try_from((tried - 3) / 2).unwrap_or(0);
            others.get(turn % others.len()).copied()
        }
    }
}

fn trains(role: Role) -> bool {
    !matches!(role, Role::Ps | Role::Evaluator) && !role.is_initializer()
}

/// Rank 0 first.
fn order(slot: Slot) -> (u8, u32) {
    let role = match slot.role {
        Role::Launcher => 0,
        Role::Chief => 1,
        Role::Master => 2,
        Role::Worker | Role::Node => 3,
        Role::Evaluator => 4,
        Role::Ps => 5,
        Role::DatasetInitializer | Role::ModelInitializer => 6,
    };
    (role, slot.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(slots: &[Slot]) -> Vec<PodToRead> {
        let pod = |slot: &Slot| PodToRead {
            uid: format!("{slot:?}"),
            slot: *slot,
            node: None,
        };
        slots.iter().map(pod).collect()
    }

    /// A name, the pods that are there, the one that reported, and whom the first reads ask.
    type Case = (&'static str, Vec<Slot>, Option<Slot>, Vec<Slot>);

    #[test]
    fn likely_pods_come_first_and_all_in_the_end() {
        use Role::{Chief, Evaluator, Launcher, Master, Ps, Worker};
        let workers: Vec<Slot> = (0..4).map(|index| Slot::new(Worker, index)).collect();
        let with = |roles: &[Role]| {
            let mut slots: Vec<Slot> = workers.clone();
            slots.extend(roles.iter().map(|role| Slot::new(*role, 0)));
            slots
        };
        let worker = |index| Slot::new(Worker, index);
        let one = |role| Slot::new(role, 0);
        let cases: [Case; 7] = [
            ("one pod", vec![worker(0)], None, vec![worker(0); 4]),
            (
                "two pods",
                workers[..2].to_vec(),
                None,
                vec![worker(0), worker(1), worker(0), worker(1)],
            ),
            (
                "workers",
                workers.clone(),
                None,
                vec![
                    worker(0),
                    worker(3),
                    worker(0),
                    worker(1),
                    worker(3),
                    worker(2),
                    worker(0),
                    worker(1),
                ],
            ),
            (
                "a master",
                with(&[Master]),
                None,
                vec![one(Master), worker(3), one(Master), worker(0)],
            ),
            (
                "a launcher",
                with(&[Launcher]),
                None,
                vec![one(Launcher), worker(3)],
            ),
            (
                "parameter servers",
                with(&[Ps, Evaluator, Chief]),
                None,
                vec![one(Chief), worker(3), one(Chief), worker(0)],
            ),
            (
                "one that reported before",
                workers.clone(),
                Some(worker(2)),
                vec![worker(2), worker(3), worker(2), worker(0)],
            ),
        ];
        for (name, slots, reported, want) in cases {
            let pods = pods(&slots);
            let found: Vec<Slot> = (0..u32::try_from(want.len()).unwrap())
                .map(|tried| candidate(&pods, reported, tried).unwrap().slot)
                .collect();
            assert_eq!(found, want, "{name}");
            let all = (0..40).map(|tried| candidate(&pods, reported, tried).unwrap().slot);
            let all: std::collections::BTreeSet<Slot> = all.collect();
            assert_eq!(all.len(), pods.len(), "{name}: every pod has its turn");
        }
        assert_eq!(candidate(&[], None, 0), None);
    }
}
