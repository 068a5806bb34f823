//! Gangs that come, wait, run and end on a cluster that does not hold still.
//!
//! A round is one pass of an adapter: something happens, the cluster is seen (perhaps as it was some rounds ago),
//! seats are given, and the adapter creates the pods. A gang whose pods do not all find their seat free releases
//! all of them. The pods of a gang that waits come and go, too: while they do not exist, it asks with no more than the default
//! priority. After some rounds nothing goes wrong any more, and then every gang that fits must end.

use jiff::Timestamp;
use trainyard_core::gang::{self, Gang, GangKey, Placement, PodKey, Resident, Resources, Snapshot};

use super::{Place, check, draw};
use crate::{
    dice::Dice,
    violation::{Verdict, Violation},
};

/// Rounds in which things go wrong.
const CHAOS: i64 = 40;
/// Rounds that a gang runs at most.
const LONGEST: i64 = 8;
/// The stream of the dice that decides what happens.
const STREAM: u64 = 2;

/// What happened in a run, to see that a hunt met all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gangs that ran to their end.
    pub ended: u32,
    /// Nodes that went away under a gang.
    pub losses: u32,
    /// Gangs that got a lost seat back, or another for it.
    pub mended: u32,
    /// Gangs that released all seats because one was taken meanwhile.
    pub races: u32,
    /// Passes on an old view.
    pub stale: u32,
    /// Promises of seats.
    pub promises: u32,
    /// Gangs that ended for another.
    pub evictions: u32,
    /// Gangs that started with fewer pods than they have.
    pub partial: u32,
    /// Gangs that asked for preemption and waited without pods.
    pub unadmitted: u32,
    /// Gangs that the scope of preemption kept waiting.
    pub out_of_scope: u32,
}

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What broke.
    pub violation: Option<Violation>,
    /// What happened.
    pub counts: Counts,
    /// Digest of every placement.
    pub digest: u64,
}

/// Runs a seed to its end.
pub fn run(seed: u64, place: Place) -> Outcome {
    let (truth, gangs) = draw::drawn(seed);
    let mut world = World {
        dice: Dice::new(seed, STREAM),
        place,
        past: vec![truth.clone()],
        truth,
        until: vec![None; gangs.len()],
        done: vec![false; gangs.len()],
        gangs,
        now: 0,
        counts: Counts::default(),
        digest: 0,
        foreign: 0,
    };
    let violation = world.run().err();
    Outcome {
        violation,
        counts: world.counts,
        digest: world.digest,
    }
}

struct World {
    dice: Dice,
    place: Place,
    truth: Snapshot,
    /// What the cluster looked like, newest last.
    past: Vec<Snapshot>,
    gangs: Vec<Gang>,
    /// The round in which each gang ends, for those that run.
    until: Vec<Option<i64>>,
    done: Vec<bool>,
    now: i64,
    counts: Counts,
    digest: u64,
    foreign: u32,
}

impl World {
    fn run(&mut self) -> Verdict {
        let gangs = i64::try_from(self.gangs.len()).unwrap_or(i64::MAX);
        // In quiet, the gang at the head starts when those that run have ended, and so on.
        let last = CHAOS + (gangs + 1) * (LONGEST + 4);
        while self.now < last && !self.done.iter().all(|done| *done) {
            self.now += 1;
            if self.now <= CHAOS {
                self.misfortune();
            } else if self.now == CHAOS + 1 {
                self.calm();
            }
            self.ends();
            self.admit();
            self.pass()?;
            self.is_sound()?;
            self.past.push(self.truth.clone());
        }
        self.all_ended()
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_second(self.now * 60).unwrap_or_default()
    }

    /// Something goes wrong, or right again.
    fn misfortune(&mut self) {
        let names: Vec<String> = self.truth.nodes.keys().cloned().collect();
        let name = names[self.dice.below(u32::try_from(names.len()).unwrap_or(1)) as usize].clone();
        match self.dice.below(12) {
            0 | 1 => self.lose(&name),
            2..=4 => {
                for node in self.truth.nodes.values_mut() {
                    node.ready = true;
                }
            }
            5 | 6 => self.intrude(&name),
            7 => self.truth.pods.retain(|_, pod| pod.gang.is_some()),
            _ => {}
        }
    }

    /// A node goes away, and its pods with it; a gang loses them, or starts again as a whole.
    fn lose(&mut self, name: &str) {
        if let Some(node) = self.truth.nodes.get_mut(name) {
            node.ready = false;
        }
        for at in 0..self.gangs.len() {
            if !self.gangs[at].held.values().any(|node| node == name) {
                continue;
            }
            self.counts.losses += 1;
            self.until[at] = None;
            let whole = self.dice.chance(50);
            let gang = &mut self.gangs[at];
            let held = std::mem::take(&mut gang.held);
            for (pod, node) in held {
                if whole || node == name {
                    self.truth.pods.remove(&key(&gang.key, &pod));
                    gang.remembered.insert(pod, node);
                } else {
                    gang.held.insert(pod, node);
                }
            }
        }
    }

    /// A pod of no gang takes what is free on a node.
    fn intrude(&mut self, name: &str) {
        let free = self.free(name).get(draw::GPU);
        if free > 0 && self.truth.nodes[name].ready {
            self.foreign += 1;
            let gpus = self.dice.within(1..=free);
            draw::lodge(&mut self.truth, name, gpus);
            let own = key_of("other", &format!("other-{}", self.truth.pods.len() - 1));
            if let Some(pod) = self.truth.pods.remove(&own) {
                let unique = key_of("other", &format!("intruder-{}", self.foreign));
                self.truth.pods.insert(unique, pod);
            }
        }
    }

    /// From here on nothing goes wrong.
    fn calm(&mut self) {
        for node in self.truth.nodes.values_mut() {
            node.ready = true;
        }
        self.truth.pods.retain(|_, pod| pod.gang.is_some());
    }

    /// Gangs that are through, and those that had to go.
    fn ends(&mut self) {
        for at in 0..self.gangs.len() {
            let is_through = self.until[at].is_some_and(|until| until <= self.now);
            let gang = &mut self.gangs[at];
            if !is_through && !gang.leaving {
                continue;
            }
            for pod in std::mem::take(&mut gang.held).into_keys() {
                self.truth.pods.remove(&key(&gang.key, &pod));
            }
            gang.leaving = false;
            gang.remembered.clear();
            self.until[at] = None;
            if is_through {
                self.done[at] = true;
                self.counts.ended += 1;
            }
        }
    }

    /// The pods of gangs that wait are created, refused or deleted; in quiet all of them are created.
    fn admit(&mut self) {
        let quiet = self.now > CHAOS;
        for gang in &mut self.gangs {
            if gang.held.is_empty() && !quiet {
                let chance = if gang.admitted { 75 } else { 35 };
                gang.admitted = self.dice.chance(chance);
            } else {
                gang.admitted = true;
            }
            gang.claim = if gang.admitted {
                gang.priority
            } else {
                gang.priority.min(0)
            };
            let waits = gang.preempts && !gang.admitted;
            self.counts.unadmitted += u32::from(waits);
        }
    }

    /// One pass: see, place, check, act.
    fn pass(&mut self) -> Verdict {
        let quiet = self.now > CHAOS;
        let is_stale = !quiet && self.dice.chance(25);
        let view = if is_stale {
            self.counts.stale += 1;
            let back = 1 + self.dice.below(2) as usize;
            self.past[self.past.len().saturating_sub(back)].clone()
        } else {
            self.truth.clone()
        };
        let gangs: Vec<Gang> = (0..self.gangs.len())
            .filter(|at| !self.done[*at])
            .map(|at| self.gangs[at].clone())
            .collect();
        let placement = (self.place)(&view, &gangs, self.time());
        self.note(&placement);
        let out_of_scope = u32::try_from(placement.out_of_scope.len()).unwrap_or(u32::MAX);
        self.counts.out_of_scope += out_of_scope;
        check(&view, &gangs, &placement)?;
        if !quiet && self.dice.chance(15) {
            let names: Vec<String> = self.truth.nodes.keys().cloned().collect();
            let at = self.dice.below(u32::try_from(names.len()).unwrap_or(1));
            self.intrude(&names[at as usize].clone());
        }
        self.act(&placement);
        Ok(())
    }

    fn act(&mut self, placement: &Placement) {
        for at in 0..self.gangs.len() {
            let own = self.gangs[at].key.clone();
            let promised = placement.reservations.get(&own).into_iter().flatten();
            self.gangs[at].reserved = promised
                .map(|seat| (seat.pod.clone(), seat.node.clone()))
                .collect();
            self.counts.promises += u32::from(!self.gangs[at].reserved.is_empty());
            if placement.victims.contains_key(&own) {
                self.counts.evictions += 1;
                self.gangs[at].leaving = true;
            }
            if placement.seated.contains_key(&own) && !self.done[at] {
                self.bind(at, placement);
            }
        }
    }

    /// Creates the pods of a gang; if one finds its seat taken, all new ones go again.
    fn bind(&mut self, at: usize, placement: &Placement) {
        let gang = self.gangs[at].clone();
        let mut made = Vec::new();
        for seat in &placement.seated[&gang.key].seats {
            let Some(member) = gang.pods.iter().find(|member| member.name == seat.pod) else {
                continue;
            };
            let shape = &gang.shapes[member.shape];
            let free = self.free(&seat.node);
            let fits = shape
                .requests
                .iter()
                .all(|(name, amount)| free.get(name) >= amount);
            if !fits || !self.truth.nodes[&seat.node].ready {
                self.counts.races += 1;
                for own in made {
                    self.truth.pods.remove(&own);
                }
                return;
            }
            let own = key(&gang.key, &seat.pod);
            let resident = Resident {
                node: seat.node.clone(),
                gang: Some(gang.key.clone()),
                requests: shape.requests.clone(),
                priority: gang.priority,
                labels: shape.labels.clone(),
                leaving: false,
                anti_affinity: shape.constraints.anti_affinity.clone(),
                daemon: false,
            };
            self.truth.pods.insert(own.clone(), resident);
            made.push(own);
        }
        let now = self.time();
        let runs = 1 + self.dice.within(1..=LONGEST - 1);
        let own = &mut self.gangs[at];
        for seat in &placement.seated[&gang.key].seats {
            own.held.insert(seat.pod.clone(), seat.node.clone());
        }
        self.counts.mended += u32::from(!own.remembered.is_empty());
        self.counts.partial += u32::from(own.held.len() < own.pods.len());
        own.remembered.clear();
        own.safe_at = Some(now);
        if self.until[at].is_none() {
            self.until[at] = Some(self.now + runs);
        }
    }

    /// What is free on a node in truth.
    fn free(&self, name: &str) -> Resources {
        let mut free = self.truth.nodes[name].allocatable.clone();
        for pod in self.truth.pods.values().filter(|pod| pod.node == name) {
            for (resource, amount) in pod.requests.iter() {
                free.set(resource, free.get(resource) - amount);
            }
        }
        free
    }

    /// In truth, too, no node bears too much, and no gang that waits holds anything, unless it lost a part.
    fn is_sound(&self) -> Verdict {
        for name in self.truth.nodes.keys() {
            if let Some((resource, free)) = self.free(name).iter().find(|(_, free)| *free < 0) {
                let detail = format!("{name} lacks {} {resource}", -free);
                return Err(Violation::new("no node bears more than it has", detail));
            }
        }
        for (gang, until) in self.gangs.iter().zip(&self.until) {
            if until.is_none() && !gang.held.is_empty() && gang.remembered.is_empty() {
                let detail = format!("{} holds {:?}", gang.key, gang.held);
                return Err(Violation::new("a gang that waits holds nothing", detail));
            }
        }
        Ok(())
    }

    /// Every gang that fits the cluster when it is empty has ended.
    fn all_ended(&self) -> Verdict {
        let mut empty = self.truth.clone();
        empty.pods.clear();
        for (gang, _) in self
            .gangs
            .iter()
            .zip(&self.done)
            .filter(|(_, done)| !**done)
        {
            let mut alone = gang.clone();
            alone.held.clear();
            alone.remembered.clear();
            alone.reserved.clear();
            let fits = gang::place(&empty, &[alone], self.time());
            if fits.seated.contains_key(&gang.key) {
                let detail = format!("{} waits with {:?}", gang.key, gang.held);
                return Err(Violation::new("every gang that fits is seated", detail));
            }
        }
        Ok(())
    }

    fn note(&mut self, placement: &Placement) {
        for byte in format!("{placement:?}").bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

fn key(gang: &GangKey, pod: &str) -> PodKey {
    key_of(&gang.namespace, pod)
}

fn key_of(namespace: &str, name: &str) -> PodKey {
    PodKey {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
