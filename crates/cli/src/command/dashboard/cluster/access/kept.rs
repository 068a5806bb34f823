//! Answers that are kept for a while. Pure: time is an argument.
//!
//! Invariants: at most so many are kept, whoever asks for whatever; of more, those that were put first go. Where the clock was set back, an answer is
//! not believed for longer: it is none.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

/// How much earlier than an answer a question may come: whoever asks notes the time first, and may wait meanwhile.
const EARLIER_MAX: SignedDuration = SignedDuration::from_mins(1);

/// Answers by what was asked.
#[derive(Debug)]
pub(super) struct Kept<K, V> {
    most: usize,
    /// Each with the time when it was put, and its end.
    known: BTreeMap<K, (V, Timestamp, Timestamp)>,
    /// In the order in which they were put; what was put again is here twice for a while.
    order: VecDeque<(K, Timestamp)>,
}

impl<K: Ord + Clone, V> Kept<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            known: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// What is known now.
    pub(super) fn get(&self, key: &K, now: Timestamp) -> Option<&V> {
        let (value, put_at, until) = self.known.get(key)?;
        let is_earlier = put_at.duration_since(now) > EARLIER_MAX;
        (now < *until && !is_earlier).then_some(value)
    }

    /// Keeps an answer until then.
    pub(super) fn put(&mut self, key: K, value: V, until: Timestamp, now: Timestamp) {
        self.known.insert(key.clone(), (value, now, until));
        self.order.push_back((key, until));
        let is_over = |kept: &Self| {
            let first = kept.order.front();
            first.is_some_and(|(_, until)| now >= *until)
                || kept.known.len() > kept.most
                || kept.order.len() > kept.most.saturating_mul(2)
        };
        while is_over(self)
            && let Some((key, until)) = self.order.pop_front()
        {
            // One that was put again is kept by its later entry.
            if self.known.get(&key).is_some_and(|(_, _, of)| *of == until) {
                self.known.remove(&key);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len().max(self.order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn answers_end() {
        let mut kept = Kept::new(10);
        kept.put("a", 1, at(30), at(0));
        kept.put("b", 2, at(5), at(0));
        let found = |kept: &Kept<_, _>, second| {
            [kept.get(&"a", at(second)), kept.get(&"b", at(second))].map(Option::<&i32>::copied)
        };
        assert_eq!(found(&kept, 4), [Some(1), Some(2)]);
        assert_eq!(found(&kept, 5), [Some(1), None]);
        assert_eq!(found(&kept, 30), [None, None]);
        kept.put("b", 3, at(60), at(31));
        assert_eq!(found(&kept, 31), [None, Some(3)]);
        assert_eq!(kept.len(), 1, "what has ended takes no memory for long");
    }

    #[test]
    fn memory_is_bounded() {
        let mut kept = Kept::new(100);
        for number in 0..10_000 {
            kept.put(number, (), at(1_000_000), at(0));
            kept.put(7, (), at(1_000_000 + number), at(0));
            assert!(kept.len() <= 201, "{}", kept.len());
        }
        assert_eq!(kept.get(&9_999, at(0)), Some(&()));
        assert_eq!(kept.get(&1, at(0)), None);
    }
}
