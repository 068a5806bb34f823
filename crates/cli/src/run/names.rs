//! How pods are called on the screen: `worker-1`, its column and its colour.

use std::collections::BTreeMap;

use trainyard_core::spec::{Job, Replicas, Role, Slot};

/// Colours of ranks, as numbers of the 256-colour palette. Each has a contrast of at least 3 to
/// both black and white, so that names can be read on either; red is left to failures.
const COLOURS: [u8; 10] = [32, 28, 166, 134, 30, 168, 136, 67, 64, 97];
/// Most pods that are named one by one in front of a line they share.
const NAMED_MAX: usize = 3;
/// The name in front of trainyard's own messages.
pub(crate) const OWN: &str = "[trainyard]";

/// The names of the pods of one job.
#[derive(Debug)]
pub(crate) struct Names {
    /// How many pods each role has.
    replicas: Replicas,
    /// The containers that train; others are named in front of their lines.
    training: BTreeMap<Role, String>,
    /// Width of the column of names.
    column: usize,
}

impl Names {
    /// The names of the pods of `job`.
    pub(crate) fn new(job: &Job) -> Self {
        let training = job.roles.iter().filter_map(|(role, spec)| {
            let containers = &spec.template.spec.as_ref()?.containers;
            let name = &containers.get(job.training_container(*role)?)?.name;
            Some((*role, name.clone()))
        });
        let mut names = Self {
            training: training.collect(),
            replicas: job.replicas(),
            column: 0,
        };
        let last = |role: &Role| Slot::new(*role, job.role_replicas(*role).saturating_sub(1));
        let longest = job.roles.keys().map(|role| short(last(role)).len() + 2);
        let all = names.all().chars().count() + 2;
        names.column = longest.chain([all, OWN.len()]).max().unwrap_or(0);
        names
    }

    /// How many pods there are.
    pub(crate) fn count(&self) -> usize {
        self.replicas.values().map(|count| *count as usize).sum()
    }

    /// Width of the column of names.
    pub(crate) fn column(&self) -> usize {
        self.column
    }

    /// What stands in front of a line that `slots` (sorted, at least one) wrote.
    pub(crate) fn of(&self, slots: &[Slot], container: &str) -> String {
        let mut name = match slots {
            [slot] => short(*slot),
            slots if slots.len() == self.count() => self.all(),
            slots => by_role(slots),
        };
        if let Some(slot) = slots.first()
            && self
                .training
                .get(&slot.role)
                .is_some_and(|name| name != container)
        {
            name.push('/');
            name.push_str(container);
        }
        name
    }

    fn all(&self) -> String {
        format!("all × {}", self.count())
    }
}

/// Every pod in listing order.
pub(crate) fn slots(replicas: &Replicas) -> impl Iterator<Item = Slot> + '_ {
    let roles = replicas.iter();
    roles.flat_map(|(role, count)| (0..*count).map(|index| Slot::new(*role, index)))
}

/// The pod of `job` called `name`, in its short form or whole. The work is the same however many pods there are.
pub(crate) fn slot_called(job: &str, replicas: &Replicas, name: &str) -> Option<Slot> {
    let rest = name
        .strip_prefix(job)
        .and_then(|rest| rest.strip_prefix('-'));
    let of_role = |name: &str, role: Role, count: u32| {
        let index = match name.rsplit_once('-') {
            Some((_, index)) => index.parse().ok()?,
            None => 0,
        };
        let slot = Slot::new(role, index);
        (index < count && short(slot) == name).then_some(slot)
    };
    let called = |name: &str| {
        let mut roles = replicas.iter();
        roles.find_map(|(role, count)| of_role(name, *role, *count))
    };
    called(name).or_else(|| called(rest?))
}

/// The name of the pod in `slot`, without the job's.
pub(crate) fn short(slot: Slot) -> String {
    match slot.role {
        Role::Launcher => "launcher".to_owned(),
        role => format!("{}-{}", role.lower(), slot.index),
    }
}

/// The colour of the pod in `slot`, as the numbers of an SGR sequence.
pub(crate) fn colour(slot: Slot) -> String {
    let first = match slot.role {
        Role::Chief | Role::Launcher | Role::Master | Role::DatasetInitializer => 0,
        Role::Worker | Role::Node => 1,
        Role::Ps | Role::ModelInitializer => 4,
        Role::Evaluator => 7,
    };
    let at = (first + slot.index as usize) % COLOURS.len();
    format!("38;5;{}", COLOURS[at])
}

/// `worker-0,2,5`, or `worker × 7` where there are more.
fn by_role(slots: &[Slot]) -> String {
    let mut roles: BTreeMap<Role, Vec<Slot>> = BTreeMap::new();
    for slot in slots {
        roles.entry(slot.role).or_default().push(*slot);
    }
    let parts: Vec<String> = roles
        .into_iter()
        .map(|(role, slots)| match slots.as_slice() {
            [slot] => short(*slot),
            slots if slots.len() <= NAMED_MAX => {
                let indices: Vec<String> =
                    slots.iter().map(|slot| slot.index.to_string()).collect();
                format!("{}-{}", role.lower(), indices.join(","))
            }
            slots => format!("{} × {}", role.lower(), slots.len()),
        })
        .collect();
    parts.join(" + ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing;

    fn slots(parts: &[(Role, &[u32])]) -> Vec<Slot> {
        parts
            .iter()
            .flat_map(|(role, indices)| indices.iter().map(|index| Slot::new(*role, *index)))
            .collect()
    }

    #[test]
    fn pods_are_named_while_few_and_counted_when_many() {
        type Parts<'a> = &'a [(Role, &'a [u32])];
        let cases: [(Parts<'_>, &str, &str); 7] = [
            (&[(Role::Worker, &[3])], "pytorch", "worker-3"),
            (&[(Role::Master, &[0])], "pytorch", "master-0"),
            (&[(Role::Worker, &[3])], "sidecar", "worker-3/sidecar"),
            (&[(Role::Worker, &[0, 2, 10])], "pytorch", "worker-0,2,10"),
            (&[(Role::Worker, &[0, 1, 2, 3])], "pytorch", "worker × 4"),
            (
                &[(Role::Master, &[0]), (Role::Worker, &[0, 1, 2, 3])],
                "pytorch",
                "master-0 + worker × 4",
            ),
            (
                &[
                    (Role::Master, &[0]),
                    (Role::Worker, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
                ],
                "pytorch",
                "all × 12",
            ),
        ];
        let names = Names::new(&testing::job(1, 11));
        for (parts, container, want) in cases {
            assert_eq!(names.of(&slots(parts), container), want);
        }
        assert_eq!(names.column(), "[worker-10]".len());
    }

    #[test]
    fn pods_are_found_by_name_however_many() {
        let replicas = Replicas::from([(Role::Launcher, 1), (Role::Worker, u32::MAX)]);
        let last = Slot::new(Role::Worker, u32::MAX - 1);
        let cases = [
            ("worker-0", Some(Slot::new(Role::Worker, 0))),
            ("j-worker-7", Some(Slot::new(Role::Worker, 7))),
            ("j-worker-4294967294", Some(last)),
            ("j-launcher", Some(Slot::new(Role::Launcher, 0))),
            ("launcher", Some(Slot::new(Role::Launcher, 0))),
            ("worker-4294967295", None),
            ("worker-07", None),
            ("worker-+7", None),
            ("launcher-0", None),
            ("j-master-0", None),
            ("jworker-0", None),
            ("worker", None),
            ("", None),
        ];
        for (name, want) in cases {
            assert_eq!(slot_called("j", &replicas, name), want, "{name}");
        }
    }

    #[test]
    fn colours_can_be_read_on_black_and_on_white() {
        for colour in COLOURS {
            let channel = |step: u8| {
                let value = if step == 0 {
                    0.0
                } else {
                    f64::from(55 + 40 * step) / 255.0
                };
                if value <= 0.03928 {
                    value / 12.92
                } else {
                    ((value + 0.055) / 1.055_f64).powf(2.4)
                }
            };
            let cube = colour - 16;
            let luminance = 0.2126 * channel(cube / 36)
                + 0.7152 * channel(cube / 6 % 6)
                + 0.0722 * channel(cube % 6);
            let (on_black, on_white) = ((luminance + 0.05) / 0.05, 1.05 / (luminance + 0.05));
            assert!(
                on_black >= 3.0 && on_white >= 3.0,
                "{colour}: {on_black:.1} on black, {on_white:.1} on white"
            );
        }
    }

    #[test]
    fn a_rank_keeps_its_colour_and_neighbours_differ() {
        let of = |index| colour(Slot::new(Role::Worker, index));
        assert_eq!(of(3), of(3));
        for index in 0..9 {
            assert_ne!(of(index), of(index + 1));
        }
        assert_ne!(of(0), colour(Slot::new(Role::Master, 0)));
    }
}
