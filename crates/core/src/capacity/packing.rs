//! Arithmetic over pods that ask for the same: how many of them fit on nodes that exist, and how many nodes of one kind hold the
//! rest.

use std::collections::BTreeMap;

use super::candidate::Candidate;
use crate::{
    gang::{Gang, Resources, Shape, Snapshot},
    resources::{CPU, MEMORY, PODS, is_host_port},
};

/// Pods of a gang that ask for the same.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// One of the shapes of the gang that it stands for.
    pub(super) shape: Shape,
    /// How many pods have no seat.
    pub(super) pods: u64,
    /// How many of them nodes that exist could hold, if no other class wanted any.
    pub(super) fits_now: u64,
    /// How many are left when all classes are put on nodes that exist, the largest first.
    pub(super) left: u64,
}

/// The classes of `gang`, the largest pods first.
pub(super) fn classes(snapshot: &Snapshot, gang: &Gang) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let mut class_of: Vec<Option<usize>> = vec![None; gang.shapes.len()];
    for at in gang.unseated() {
        let number = gang.pods[at].shape;
        let Some(shape) = gang.shapes.get(number) else {
            continue;
        };
        let known = class_of[number].or_else(|| {
            classes.iter().position(|class| {
                class.shape.requests == shape.requests
                    && class.shape.constraints == shape.constraints
            })
        });
        if let Some(known) = known {
            class_of[number] = Some(known);
            classes[known].pods += 1;
            continue;
        }
        class_of[number] = Some(classes.len());
        classes.push(Class {
            shape: shape.clone(),
            pods: 1,
            fits_now: 0,
            left: 0,
        });
    }
    classes.sort_by_key(|class| std::cmp::Reverse(size(&class.shape.requests)));
    count_now(snapshot, &mut classes);
    classes
}

fn size(requests: &Resources) -> (i64, i64, i64) {
    (
        requests.accelerators(),
        requests.get(MEMORY),
        requests.get(CPU),
    )
}

/// Fills in what nodes that exist hold.
fn count_now(snapshot: &Snapshot, classes: &mut [Class]) {
    let mut used: BTreeMap<&str, Resources> = BTreeMap::new();
    for pod in snapshot.pods.values() {
        used.entry(&pod.node).or_default().add(&pod.requests);
    }
    for class in classes.iter_mut() {
        class.left = class.pods;
    }
    for (name, node) in &snapshot.nodes {
        let before = used.remove(name.as_str()).unwrap_or_default();
        let mut taken = before.clone();
        for class in classes.iter_mut() {
            if !class.shape.constraints.admits(name, node) {
                continue;
            }
            let requests = &class.shape.requests;
            let fits = |taken: &Resources| {
                let all = requests.iter().filter(|(_, asks)| *asks > 0);
                let fits = all.map(|(resource, asks)| {
                    let has = has(&node.allocatable, resource);
                    has.saturating_sub(taken.get(resource)).max(0) / asks
                });
                u64::try_from(fits.min().unwrap_or(i64::from(u32::MAX))).unwrap_or(0)
            };
            let alone = fits(&before);
            class.fits_now = class.fits_now.saturating_add(alone);
            let given = fits(&taken).min(class.left);
            class.left -= given;
            let amounts = requests.iter().map(|(resource, asks)| {
                let given = i64::try_from(given).unwrap_or(i64::MAX);
                (resource.to_owned(), asks.saturating_mul(given))
            });
            taken.add(&amounts.collect());
        }
    }
}

fn has(allocatable: &Resources, resource: &str) -> i64 {
    match allocatable.get(resource) {
        0 if resource == PODS => i64::from(u32::MAX),
        0 if is_host_port(resource) => 1,
        amount => amount,
    }
}

/// Fewer nodes of `candidate` than this are not enough, whatever is done; none where no number is.
pub(super) fn at_least(classes: &[Class], candidate: &Candidate) -> Option<u64> {
    let mut nodes = 1;
    for class in classes {
        let rest = class.pods.saturating_sub(class.fits_now);
        if rest == 0 {
            continue;
        }
        if !candidate.obstacles(&class.shape).is_empty() {
            return None;
        }
        nodes = nodes.max(rest.div_ceil(candidate.holds(&class.shape).max(1)));
    }
    Some(nodes)
}

/// So many nodes of `candidate` hold what is left, one class after the other; none where a class may not be on it.
pub(super) fn estimate(classes: &[Class], candidate: &Candidate) -> Option<u64> {
    let left: Vec<&Class> = classes.iter().filter(|class| class.left > 0).collect();
    match left.as_slice() {
        [] => Some(1),
        [only] => {
            let is_free = candidate.obstacles(&only.shape).is_empty();
            is_free.then(|| only.left.div_ceil(candidate.holds(&only.shape).max(1)))
        }
        several => {
            let mut open = Opened::default();
            for class in several {
                if !candidate.obstacles(&class.shape).is_empty() {
                    return None;
                }
                let rest = open.fill(&class.shape, class.left);
                open.open(candidate, &class.shape, rest, u64::MAX);
            }
            Some(open.nodes)
        }
    }
}

/// Nodes that were opened for a plan, in stacks of equal ones.
#[derive(Default)]
pub(super) struct Opened {
    stacks: Vec<Stack>,
    nodes: u64,
}

/// Equal nodes with as much free.
struct Stack {
    candidate: Candidate,
    free: Resources,
    nodes: u64,
}

impl Opened {
    /// Puts pods of `shape` on what is open; the number that is left.
    pub(super) fn fill(&mut self, shape: &Shape, mut pods: u64) -> u64 {
        let mut split = Vec::new();
        for stack in &mut self.stacks {
            if pods == 0 {
                break;
            }
            if !stack.candidate.obstacles(shape).is_empty() {
                continue;
            }
            let each = fits(&stack.free, &stack.candidate, shape);
            if each == 0 {
                continue;
            }
            let nodes = stack.nodes.min(pods.div_ceil(each));
            let given = pods.min(nodes.saturating_mul(each));
            pods -= given;
            stack.nodes -= nodes;
            // The last node may be filled less; it is counted as full.
            split.push(Stack {
                candidate: stack.candidate.clone(),
                free: less(&stack.free, &stack.candidate, shape, each),
                nodes,
            });
        }
        self.stacks.retain(|stack| stack.nodes > 0);
        self.stacks.extend(split);
        pods
    }

    /// Opens as many nodes as `pods` pods of `shape` need, at most `room`; the number of nodes and of pods that are left.
    pub(super) fn open(
        &mut self,
        candidate: &Candidate,
        shape: &Shape,
        pods: u64,
        room: u64,
    ) -> (u64, u64) {
        let each = candidate.holds(shape);
        if each == 0 || pods == 0 {
            return (0, pods);
        }
        let nodes = pods.div_ceil(each).min(room);
        let held = nodes.saturating_mul(each).min(pods);
        self.nodes = self.nodes.saturating_add(nodes);
        let full = held / each;
        let free = &candidate.node.allocatable;
        for (count, pods) in [(full, each), (nodes.saturating_sub(full), held % each)] {
            if count > 0 {
                self.stacks.push(Stack {
                    candidate: candidate.clone(),
                    free: less(free, candidate, shape, pods),
                    nodes: count,
                });
            }
        }
        (nodes, pods - held)
    }
}

fn fits(free: &Resources, candidate: &Candidate, shape: &Shape) -> u64 {
    let all = shape.requests.iter().filter(|(_, asks)| *asks > 0);
    let fits = all.map(|(resource, asks)| left_of(free, candidate, resource).max(0) / asks);
    u64::try_from(fits.min().unwrap_or(i64::from(u32::MAX))).unwrap_or(0)
}

/// A resource that the node does not state is unlimited, or there once.
fn left_of(free: &Resources, candidate: &Candidate, resource: &str) -> i64 {
    if candidate.node.allocatable.get(resource) == 0 {
        candidate.has(resource)
    } else {
        free.get(resource)
    }
}

fn less(free: &Resources, candidate: &Candidate, shape: &Shape, pods: u64) -> Resources {
    let pods = i64::try_from(pods).unwrap_or(i64::MAX);
    let mut rest = free.clone();
    for (resource, asks) in shape.requests.iter() {
        if candidate.node.allocatable.get(resource) > 0 {
            let left = free.get(resource).saturating_sub(asks.saturating_mul(pods));
            rest.set(resource, left.max(0));
        }
    }
    rest
}
