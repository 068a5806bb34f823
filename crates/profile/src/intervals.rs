//! Sets of points in time, as disjoint intervals in order.
//!
//! Whole nanoseconds, so that sums of parts are exactly the whole.

/// From its first point to behind its last, in nanoseconds.
pub(crate) type Interval = (u64, u64);

/// A set of points in time. Invariant: its intervals are not empty, do not touch, and are in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set(Vec<Interval>);

impl Set {
    /// All points of `intervals` that lie in `window`.
    pub(crate) fn of(intervals: impl IntoIterator<Item = Interval>, window: Interval) -> Self {
        let clipped = intervals.into_iter();
        let clipped = clipped.map(|(from, to)| (from.max(window.0), to.min(window.1)));
        let mut all: Vec<Interval> = clipped.filter(|(from, to)| from < to).collect();
        all.sort_unstable();
        all.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1;
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        Self(all)
    }

    pub(crate) fn length(&self) -> u64 {
        self.0.iter().map(|(from, to)| to - from).sum()
    }

    pub(crate) fn intervals(&self) -> &[Interval] {
        &self.0
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let both = self.0.iter().chain(&other.0).copied();
        Self::of(both, (0, u64::MAX))
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            let common = (one.0.max(two.0), one.1.min(two.1));
            if common.0 < common.1 {
                both.push(common);
            }
            if one.1 <= two.1 {
                left.next();
            } else {
                right.next();
            }
        }
        Self(both)
    }

    /// The points of this set that `other` does not have.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut holes = other.0.iter().peekable();
        for (from, to) in &self.0 {
            let mut from = *from;
            while let Some(hole) = holes.peek() {
                if hole.1 <= from {
                    holes.next();
                    continue;
                }
                if hole.0 >= *to {
                    break;
                }
                if from < hole.0 {
                    rest.push((from, hole.0));
                }
                from = hole.1;
                if from >= *to {
                    break;
                }
            }
            if from < *to {
                rest.push((from, *to));
            }
        }
        Self(rest)
    }

    /// Whether `at` is one of the points.
    pub(crate) fn contains(&self, at: u64) -> bool {
        let next = self.0.partition_point(|(from, _)| *from <= at);
        let before = next.checked_sub(1).and_then(|index| self.0.get(index));
        before.is_some_and(|(_, to)| at < *to)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: Interval = (0, u64::MAX);

    fn set(intervals: &[Interval]) -> Set {
        Set::of(intervals.iter().copied(), ALL)
    }

    #[test]
    fn unions_and_clips() {
        let cases: [(&[Interval], Interval, &[Interval]); 5] = [
            (&[], ALL, &[]),
            (&[(5, 5), (7, 6)], ALL, &[]),
            (&[(5, 7), (1, 3), (3, 4)], ALL, &[(1, 4), (5, 7)]),
            (&[(0, 9), (2, 3), (8, 12)], (1, 10), &[(1, 10)]),
            (&[(0, 2), (9, 12)], (2, 9), &[]),
        ];
        for (intervals, window, want) in cases {
            let found = Set::of(intervals.iter().copied(), window);
            assert_eq!(found.intervals(), want, "{intervals:?}");
        }
    }

    #[test]
    fn contains_its_points() {
        let some = set(&[(2, 4), (6, 7)]);
        let inside: Vec<u64> = (0..9).filter(|at| some.contains(*at)).collect();
        assert_eq!(inside, [2, 3, 6]);
    }

    proptest! {
        /// Each operation as the points themselves would do it.
        #[test]
        fn operations_agree_with_points(
            one in prop::collection::vec((0_u64..60, 0_u64..60), 0..12),
            two in prop::collection::vec((0_u64..60, 0_u64..60), 0..12),
        ) {
            let (one, two) = (set(&one), set(&two));
            for (name, found, keeps) in [
                ("union", one.union(&two), (|a, b| a || b) as fn(bool, bool) -> bool),
                ("intersection", one.intersection(&two), |a, b| a && b),
                ("without", one.without(&two), |a, b| a && !b),
            ] {
                let want: Vec<u64> =
                    (0..60).filter(|at| keeps(one.contains(*at), two.contains(*at))).collect();
                let points: Vec<u64> = (0..60).filter(|at| found.contains(*at)).collect();
                prop_assert_eq!(&points, &want, "{}", name);
                prop_assert_eq!(found.length(), want.len() as u64, "{}", name);
            }
        }
    }
}
