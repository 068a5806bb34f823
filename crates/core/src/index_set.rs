//! A set of pod indices as ranges, so that the status of a large gang stays small.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of indices, kept as sorted, disjoint, non-adjacent ranges (both ends included).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct IndexSet {
    ranges: Vec<(u32, u32)>,
}

impl TryFrom<Vec<(u32, u32)>> for IndexSet {
    type Error = &'static str;

    /// Ranges come from stored text; the arithmetic below relies on their order.
    fn try_from(ranges: Vec<(u32, u32)>) -> Result<Self, Self::Error> {
        let ordered = ranges.iter().all(|(first, last)| first <= last);
        let apart = |pair: &[(u32, u32)]| pair[0].1.checked_add(1) < Some(pair[1].0);
        if !ordered || !ranges.windows(2).all(apart) {
            return Err("ranges of indices must be ascending and apart");
        }
        if ranges.iter().any(|(_, last)| *last == u32::MAX) {
            return Err("an index is too large");
        }
        Ok(Self { ranges })
    }
}

impl From<IndexSet> for Vec<(u32, u32)> {
    fn from(set: IndexSet) -> Self {
        set.ranges
    }
}

impl IndexSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many indices are in it.
    pub fn len(&self) -> u32 {
        self.ranges
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum()
    }

    /// How many indices below `bound` are in it.
    pub fn len_below(&self, bound: u32) -> u32 {
        self.ranges
            .iter()
            .take_while(|(first, _)| *first < bound)
            .map(|(first, last)| (*last).min(bound - 1) - first + 1)
            .sum()
    }

    /// Whether `index` is in it.
    pub fn contains(&self, index: u32) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= index);
        after > 0 && index <= self.ranges[after - 1].1
    }

    /// Adds `index`; says whether it was new.
    pub fn insert(&mut self, index: u32) -> bool {
        let after = self.ranges.partition_point(|(first, _)| *first <= index);
        if after > 0 && index <= self.ranges[after - 1].1 {
            return false;
        }
        let joins_before = after > 0 && self.ranges[after - 1].1 + 1 == index;
        let joins_after = self
            .ranges
            .get(after)
            .is_some_and(|(first, _)| index.checked_add(1) == Some(*first));
        match (joins_before, joins_after) {
            (true, true) => {
                self.ranges[after - 1].1 = self.ranges[after].1;
                self.ranges.remove(after);
            }
            (true, false) => self.ranges[after - 1].1 = index,
            (false, true) => self.ranges[after].0 = index,
            (false, false) => self.ranges.insert(after, (index, index)),
        }
        true
    }

    /// The indices, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<T: IntoIterator<Item = u32>>(indices: T) -> Self {
        let mut set = Self::default();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_stay_sorted() {
        let cases: &[(&[u32], &str, u32)] = &[
            (&[], "", 0),
            (&[3], "3", 1),
            (&[0, 1, 2], "0-2", 3),
            (&[2, 0, 1], "0-2", 3),
            (&[0, 2, 4, 3, 1], "0-4", 5),
            (&[7, 1, 7, 9], "1,7,9", 3),
            (&[u32::MAX, 0, u32::MAX - 1], "0,4294967294-4294967295", 3),
        ];
        for (indices, want, len) in cases {
            let set: IndexSet = indices.iter().copied().collect();
            assert_eq!(
                (set.to_string().as_str(), set.len()),
                (*want, *len),
                "{indices:?}"
            );
            for index in *indices {
                assert!(set.contains(*index), "{index} in {set}");
            }
            assert!(!set.contains(5), "5 in {set}");
        }
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_a_plain_set(indices in proptest::collection::vec(0u32..40, 0..60)) {
            let plain: std::collections::BTreeSet<u32> = indices.iter().copied().collect();
            let set: IndexSet = indices.into_iter().collect();
            proptest::prop_assert_eq!(set.iter().collect::<Vec<_>>(), plain.iter().copied().collect::<Vec<_>>());
            for index in 0..41 {
                proptest::prop_assert_eq!(set.contains(index), plain.contains(&index));
                let below = plain.range(..index).count();
                proptest::prop_assert_eq!(set.len_below(index) as usize, below);
            }
        }
    }
}
