//! Which events are sent when, and which can be sent again. Pure: time is an argument, in milliseconds since the hub began.
//!
//! # Rules
//! - A topic sends at most four times a second. What is published in between is held; of each kind of event and key the last one
//!   wins.
//! - A topic that holds too many different ones forgets them and sends `{"stale":true}`: its readers ask again.
//! - The last events are kept for readers that come back, bounded in number and bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::Topic;

/// Events that are kept for readers that come back.
pub(super) const KEPT: usize = 4096;
/// Bytes of all events that are kept.
const KEPT_BYTES: usize = 8 * 1024 * 1024;
/// Time between two sends of a topic.
pub(super) const PACE_MILLIS: u64 = 250;
/// Different events that a topic holds until it may send.
const HELD: usize = 32;
/// Bytes of the data of an event; one with more is sent as `{"stale":true}`.
pub(super) const DATA_BYTES: usize = 64 * 1024;
/// Data that asks readers to ask for everything again.
pub(super) const STALE: &[u8] = br#"{"stale":true}"#;

/// An event as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) topic: Topic,
    pub(super) frame: Bytes,
}

/// An event that waits for its topic.
#[derive(Clone, Debug)]
struct Held {
    event: &'static str,
    key: String,
    data: Bytes,
}

#[derive(Debug, Default)]
struct Pace {
    /// When the topic may send again.
    next: u64,
    held: Vec<Held>,
    /// It held too many.
    stale: bool,
}

/// The events of all topics.
#[derive(Debug)]
pub(super) struct Ring {
    /// The number of the last event.
    last: u64,
    /// The number before the oldest event that is kept.
    floor: u64,
    kept: VecDeque<Sent>,
    kept_bytes: usize,
    topics: BTreeMap<Topic, Pace>,
}

impl Ring {
    /// No event yet. Numbers begin behind `first`, which must be larger than any number that an earlier process sent.
    pub(super) fn new(first: u64) -> Self {
        Self {
            last: first,
            floor: first,
            kept: VecDeque::new(),
            kept_bytes: 0,
            topics: BTreeMap::new(),
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Takes an event; gives back what is to be sent now.
    pub(super) fn publish(
        &mut self,
        now: u64,
        topic: &Topic,
        event: &'static str,
        key: &str,
        data: Bytes,
    ) -> Option<Sent> {
        // What is held takes no more than what is sent.
        let data = if data.len() > DATA_BYTES {
            Bytes::from_static(STALE)
        } else {
            data
        };
        let pace = self.topics.entry(topic.clone()).or_default();
        if pace.held.is_empty() && !pace.stale && now >= pace.next {
            pace.next = now + PACE_MILLIS;
            return Some(self.send(topic, event, &data));
        }
        if pace.stale {
            return None;
        }
        pace.held
            .retain(|held| held.event != event || held.key != key);
        pace.held.push(Held {
            event,
            key: key.to_owned(),
            data,
        });
        if pace.held.len() > HELD {
            pace.held.clear();
            pace.stale = true;
        }
        None
    }

    /// What topics held until now and is to be sent.
    pub(super) fn due(&mut self, now: u64) -> Vec<Sent> {
        // A topic that holds nothing and may send is as good as new.
        self.topics
            .retain(|_, pace| now < pace.next || pace.stale || !pace.held.is_empty());
        let mut ready = Vec::new();
        for (topic, pace) in &mut self.topics {
            if now >= pace.next {
                pace.next = now + PACE_MILLIS;
                let held = std::mem::take(&mut pace.held);
                ready.push((topic.clone(), held, std::mem::take(&mut pace.stale)));
            }
        }
        let mut sent = Vec::new();
        for (topic, held, stale) in ready {
            if stale {
                sent.push(self.send(&topic, topic.event(), STALE));
            }
            for held in held {
                sent.push(self.send(&topic, held.event, &held.data));
            }
        }
        sent
    }

    /// When something that is held is to be sent next.
    pub(super) fn next_due(&self) -> Option<u64> {
        let waiting = self
            .topics
            .values()
            .filter(|pace| pace.stale || !pace.held.is_empty());
        waiting.map(|pace| pace.next).min()
    }

    /// What was sent behind `since` on these topics; nothing where that is not kept.
    pub(super) fn since(&self, since: u64, topics: &BTreeSet<Topic>) -> Option<Vec<Bytes>> {
        if since < self.floor || since > self.last {
            return None;
        }
        let wanted = |sent: &&Sent| sent.number > since && topics.contains(&sent.topic);
        Some(
            self.kept
                .iter()
                .filter(wanted)
                .map(|sent| sent.frame.clone())
                .collect(),
        )
    }

    fn send(&mut self, topic: &Topic, event: &'static str, data: &[u8]) -> Sent {
        self.last += 1;
        let sent = Sent {
            number: self.last,
            topic: topic.clone(),
            frame: frame(self.last, event, data),
        };
        self.kept_bytes += sent.frame.len();
        self.kept.push_back(sent.clone());
        while self.kept.len() > KEPT || self.kept_bytes > KEPT_BYTES {
            let Some(oldest) = self.kept.pop_front() else {
                break;
            };
            self.floor = oldest.number;
            self.kept_bytes -= oldest.frame.len();
        }
        sent
    }
}

/// An event in the form of server-sent events. A line end within JSON is white space between two values, never part of one.
pub(super) fn frame(number: u64, event: &str, data: &[u8]) -> Bytes {
    let mut frame = format!("id: {number}\nevent: {event}\ndata: ").into_bytes();
    frame.extend(data.iter().map(|byte| match byte {
        b'\n' | b'\r' => b' ',
        byte => *byte,
    }));
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: u64 = 1000;

    fn publish(ring: &mut Ring, now: u64, topic: &Topic, key: &str, data: &str) -> Option<u64> {
        let data = Bytes::from(data.to_owned());
        let sent = ring.publish(now, topic, topic.event(), key, data);
        sent.map(|sent| sent.number)
    }

    fn frames(sent: &[Sent]) -> String {
        let text = |sent: &Sent| String::from_utf8(sent.frame.to_vec()).unwrap();
        sent.iter().map(text).collect()
    }

    #[test]
    fn a_topic_sends_four_times_a_second() {
        let mut ring = Ring::new(FIRST);
        let mut sent = 0;
        for now in 0..1000 {
            sent += ring.due(now).len();
            let direct = publish(&mut ring, now, &Topic::Jobs, "a", &now.to_string());
            sent += usize::from(direct.is_some());
        }
        assert_eq!(sent, 4);
        // The last one wins, however many came before.
        assert_eq!(ring.next_due(), Some(1000));
        let due = ring.due(1000);
        assert_eq!(frames(&due), "id: 1005\nevent: job\ndata: 999\n\n");
        assert_eq!((ring.next_due(), ring.due(2000).len()), (None, 0));
        assert!(ring.topics.is_empty(), "a quiet topic takes no memory");
    }

    #[test]
    fn topics_and_keys_do_not_replace_each_other() {
        let mut ring = Ring::new(FIRST);
        let run = Topic::Run("r".to_owned());
        assert!(publish(&mut ring, 0, &Topic::Jobs, "a", "1").is_some());
        assert!(publish(&mut ring, 0, &run, "", "2").is_some());
        for (key, data) in [("a", "3"), ("b", "4"), ("a", "5")] {
            assert!(publish(&mut ring, 1, &Topic::Jobs, key, data).is_none());
        }
        let due = frames(&ring.due(250));
        assert_eq!(
            due,
            "id: 1003\nevent: job\ndata: 4\n\nid: 1004\nevent: job\ndata: 5\n\n"
        );
    }

    #[test]
    fn too_many_keys_become_stale() {
        let mut ring = Ring::new(FIRST);
        for key in 0..100 {
            publish(&mut ring, 0, &Topic::Jobs, &key.to_string(), "{}");
        }
        let due = frames(&ring.due(250));
        assert_eq!(due, "id: 1002\nevent: job\ndata: {\"stale\":true}\n\n");
    }

    #[test]
    fn what_is_kept_is_sent_again() {
        let mut ring = Ring::new(FIRST);
        let topics: BTreeSet<Topic> = [Topic::Jobs].into();
        for number in 0..5000_u64 {
            publish(&mut ring, number * PACE_MILLIS, &Topic::Jobs, "", "{}");
        }
        let again = |since| ring.since(since, &topics).map(|frames| frames.len());
        let floor = FIRST + 5000 - KEPT as u64;
        let cases = [
            (floor - 1, None),
            (floor, Some(KEPT)),
            (FIRST + 4999, Some(1)),
            (FIRST + 5000, Some(0)),
            (FIRST + 5001, None),
            (0, None),
        ];
        for (since, want) in cases {
            assert_eq!(again(since), want, "{since}");
        }
        assert_eq!(ring.since(floor, &[Topic::Queue].into()), Some(Vec::new()));
    }

    #[test]
    fn bytes_that_are_kept_are_bounded() {
        let mut ring = Ring::new(FIRST);
        let large = "x".repeat(DATA_BYTES);
        for number in 0..200_u64 {
            publish(&mut ring, number * PACE_MILLIS, &Topic::Jobs, "", &large);
        }
        assert!(ring.kept_bytes <= KEPT_BYTES && ring.kept.len() > 100);
        let larger = format!("{large}x");
        let sent = ring.publish(90_000, &Topic::Jobs, "job", "", larger.into());
        let sent = frames(&[sent.unwrap()]);
        assert!(sent.ends_with("data: {\"stale\":true}\n\n"), "{sent}");
        // Nor does a larger one wait for its turn.
        let larger = Bytes::from(vec![b'x'; 16 * DATA_BYTES]);
        let held = ring.publish(90_000, &Topic::Jobs, "job", "a", larger);
        assert_eq!(held, None);
        let held = &ring.topics[&Topic::Jobs].held;
        assert!(held.iter().all(|held| held.data.len() <= DATA_BYTES));
    }

    #[test]
    fn line_ends_do_not_end_an_event() {
        let found = frame(7, "run", b"{\n\"a\":\r\n1}");
        assert_eq!(found, "id: 7\nevent: run\ndata: { \"a\":  1}\n\n");
    }
}
