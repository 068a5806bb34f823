//! Sets of slots as ranges, and the pods that an order is meant for.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::limits::{MAX_MEMBERS, MAX_TEXT};
use crate::{
    index_set::IndexSet,
    pod::PodUid,
    spec::{Role, Slot},
};

/// Slots of a job, as ranges of each role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<Role, IndexSet>")]
pub struct SlotSet(BTreeMap<Role, IndexSet>);

impl TryFrom<BTreeMap<Role, IndexSet>> for SlotSet {
    type Error = String;

    /// Ranges are cheap to send and expensive to walk, so their sum is bounded where they arrive.
    fn try_from(roles: BTreeMap<Role, IndexSet>) -> Result<Self, Self::Error> {
        let count: u64 = roles.values().map(|indices| u64::from(indices.len())).sum();
        if count > u64::from(MAX_MEMBERS) {
            return Err(format!(
                "a set of {count} slots is larger than {MAX_MEMBERS}"
            ));
        }
        Ok(Self(roles))
    }
}

impl SlotSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(IndexSet::is_empty)
    }

    /// How many slots are in it.
    pub fn len(&self) -> u32 {
        self.0.values().map(IndexSet::len).sum()
    }

    /// Whether `slot` is in it.
    pub fn contains(&self, slot: Slot) -> bool {
        self.0
            .get(&slot.role)
            .is_some_and(|indices| indices.contains(slot.index))
    }

    /// Adds `slot`; says whether it was new.
    pub fn insert(&mut self, slot: Slot) -> bool {
        self.0.entry(slot.role).or_default().insert(slot.index)
    }

    /// The slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0
            .iter()
            .flat_map(|(role, indices)| indices.iter().map(|index| Slot::new(*role, index)))
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<T: IntoIterator<Item = Slot>>(slots: T) -> Self {
        let mut set = Self::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles = self.0.iter().filter(|(_, indices)| !indices.is_empty());
        for (at, (role, indices)) in roles.enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{role} {indices}")?;
        }
        Ok(())
    }
}

/// The pods that an order is meant for, by slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "BTreeMap<Role, BTreeMap<u32, PodUid>>",
    into = "BTreeMap<Role, BTreeMap<u32, PodUid>>"
)]
pub struct Roster(BTreeMap<Slot, PodUid>);

impl TryFrom<BTreeMap<Role, BTreeMap<u32, PodUid>>> for Roster {
    type Error = String;

    fn try_from(roles: BTreeMap<Role, BTreeMap<u32, PodUid>>) -> Result<Self, Self::Error> {
        let count: usize = roles.values().map(BTreeMap::len).sum();
        if count > MAX_MEMBERS as usize {
            return Err(format!(
                "a roster of {count} pods is larger than {MAX_MEMBERS}"
            ));
        }
        let pods = roles.into_iter().flat_map(|(role, pods)| {
            let slot = move |(index, uid)| (Slot::new(role, index), uid);
            pods.into_iter().map(slot)
        });
        let pods: BTreeMap<Slot, PodUid> = pods.collect();
        if let Some(uid) = pods.values().find(|uid| uid.len() > MAX_TEXT) {
            let length = uid.len();
            return Err(format!(
                "a pod uid of {length} bytes is longer than {MAX_TEXT}"
            ));
        }
        Ok(Self(pods))
    }
}

impl From<Roster> for BTreeMap<Role, BTreeMap<u32, PodUid>> {
    fn from(roster: Roster) -> Self {
        let mut roles: Self = Self::new();
        for (slot, uid) in roster.0 {
            roles.entry(slot.role).or_default().insert(slot.index, uid);
        }
        roles
    }
}

impl Roster {
    /// The pod of `slot`.
    pub fn get(&self, slot: Slot) -> Option<&PodUid> {
        self.0.get(&slot)
    }

    /// Whether the pod `uid` in `slot` is meant.
    pub fn has(&self, slot: Slot, uid: &str) -> bool {
        self.get(slot).is_some_and(|meant| meant == uid)
    }

    /// Its pods by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &PodUid)> {
        self.0.iter().map(|(slot, uid)| (*slot, uid))
    }

    /// How many pods it names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number by which both sides see that they mean the same pods, without sending all uids each time. FNV-1a: uids come from
    /// the API server, not from an attacker.
    pub fn digest(&self) -> u64 {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let mut digest = OFFSET;
        let mut add = |byte: u8| digest = (digest ^ u64::from(byte)).wrapping_mul(PRIME);
        for (slot, uid) in &self.0 {
            slot.role.name().bytes().for_each(&mut add);
            slot.index.to_be_bytes().into_iter().for_each(&mut add);
            uid.bytes().chain([0]).for_each(&mut add);
        }
        digest
    }
}

impl FromIterator<(Slot, PodUid)> for Roster {
    fn from_iter<T: IntoIterator<Item = (Slot, PodUid)>>(pods: T) -> Self {
        Self(pods.into_iter().collect())
    }
}
