//! Which pods may send now, and which of their tokens have to be checked.
//!
//! Checking a token takes a call to the API server, so a token that was found good is believed for a while, by its digest. Times are
//! counted from any fixed moment, on a clock that never steps back.
//!
//! # Guarantees
//!
//! - At most [`REVIEWS_A_SECOND`] tokens are checked in a second over time, of all pods, and of one pod [`POD_REVIEWS_A_SECOND`]. A bad token is not
//!   checked again for [`AFTER_BAD`]. Anybody may send a token that names a pod: what is bad about it is the token's, not the pod's.
//! - A token is believed until its own end, and at most for [`BELIEVED`].
//! - One pod has one token that is believed, and at most [`PODS`] pods are remembered. No token is.

use std::{collections::BTreeMap, time::Duration};

/// The digest of a token.
pub type Digest = [u8; 32];

/// A token that was checked is believed for this long.
const BELIEVED: Duration = Duration::from_mins(5);
/// Tokens that are checked in a second, over time, of all pods…
const REVIEWS_A_SECOND: u32 = 20;
/// …and how many at once after a quiet time.
const REVIEWS_BURST: u32 = 40;
/// Tokens that name one pod and are checked in a second, over time: whoever sends bad ones in its name blocks no other pod…
const POD_REVIEWS_A_SECOND: u32 = 1;
/// …and how many at once after a quiet time.
const POD_REVIEWS_BURST: u32 = 5;
/// A bad token is not checked again for this long.
const AFTER_BAD: Duration = Duration::from_secs(5);
/// Bad tokens of one pod that are remembered: as many as are checked meanwhile.
const BAD_TOKENS: usize = 10;
/// Updates of one pod in a second, over time. Clients send one every 5 s, and some more at the start and at the end.
pub const UPDATES_A_SECOND: u32 = 1;
const UPDATES_BURST: u32 = 5;
/// Pods that are remembered.
const PODS: usize = 8_192;

/// What is to be done with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It was found good not long ago.
    Known,
    /// It has to be checked.
    Check,
    /// It may be checked later: too many were.
    Later,
}

/// The pods that send.
#[derive(Clone, Debug, Default)]
pub struct Senders {
    pods: BTreeMap<String, Sender>,
    reviews: Rate,
}

#[derive(Clone, Debug, Default)]
struct Sender {
    /// The token that is believed, and until when.
    token: Option<(Digest, Duration)>,
    /// Tokens that were found bad, and until when they are not checked again.
    bad: Vec<(Digest, Duration)>,
    reviews: Rate,
    updates: Rate,
}

impl Sender {
    fn matters_until(&self) -> Duration {
        let believed = self.token.map_or(Duration::ZERO, |(_, until)| until);
        let bad = self.bad.iter().map(|(_, until)| *until).max();
        believed.max(bad.unwrap_or_default())
    }
}

impl Senders {
    /// What is to be done with a token that says it is of `pod`, which is a pod of a job.
    pub fn judge(&mut self, pod: &str, token: &Digest, now: Duration) -> Judgement {
        if let Some(sender) = self.pods.get(pod) {
            if sender
                .token
                .is_some_and(|(known, until)| known == *token && now < until)
            {
                return Judgement::Known;
            }
            let mut bad = sender.bad.iter();
            if bad.any(|(bad, until)| bad == token && now < *until) {
                return Judgement::Later;
            }
        }
        let every = Duration::from_secs(1) / POD_REVIEWS_A_SECOND;
        let reviews = &mut self.sender(pod, now).reviews;
        if !reviews.takes(every, POD_REVIEWS_BURST, now) {
            return Judgement::Later;
        }
        let every = Duration::from_secs(1) / REVIEWS_A_SECOND;
        if self.reviews.takes(every, REVIEWS_BURST, now) {
            Judgement::Check
        } else {
            Judgement::Later
        }
    }

    /// The token is good, and ends at `ends`.
    pub fn believe(&mut self, pod: &str, token: Digest, ends: Duration, now: Duration) {
        let sender = self.sender(pod, now);
        sender.token = Some((token, ends.min(now + BELIEVED)));
    }

    /// The token is bad. One that is believed stays so, and another one is checked.
    pub fn refuse(&mut self, pod: &str, token: Digest, now: Duration) {
        let bad = &mut self.sender(pod, now).bad;
        bad.retain(|(known, until)| *known != token && now < *until);
        if bad.len() >= BAD_TOKENS {
            bad.remove(0);
        }
        bad.push((token, now + AFTER_BAD));
    }

    /// Whether a pod whose token is good may send an update now.
    pub fn takes(&mut self, pod: &str, now: Duration) -> bool {
        let every = Duration::from_secs(1) / UPDATES_A_SECOND;
        self.sender(pod, now)
            .updates
            .takes(every, UPDATES_BURST, now)
    }

    fn sender(&mut self, pod: &str, now: Duration) -> &mut Sender {
        if !self.pods.contains_key(pod) && self.pods.len() >= PODS {
            self.pods.retain(|_, sender| sender.matters_until() > now);
            if self.pods.len() >= PODS {
                let first = self.pods.iter().min_by_key(|(_, it)| it.matters_until());
                if let Some(first) = first.map(|(pod, _)| pod.clone()) {
                    self.pods.remove(&first);
                }
            }
        }
        self.pods.entry(pod.to_owned()).or_default()
    }
}

/// So many in a time, with some at once.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// When all that were taken are paid for.
    paid: Duration,
}

impl Rate {
    fn takes(&mut self, every: Duration, burst: u32, now: Duration) -> bool {
        let paid = self.paid.max(now);
        let takes = paid + every <= now + every * burst;
        if takes {
            self.paid = paid + every;
        }
        takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Digest = [1; 32];
    const BAD: Digest = [2; 32];

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_good_token_is_believed_for_a_while() {
        let mut senders = Senders::default();
        assert_eq!(senders.judge("a", &GOOD, seconds(0)), Judgement::Check);
        senders.believe("a", GOOD, seconds(3_600), seconds(0));
        for (pod, token, at, want) in [
            ("a", GOOD, 299, Judgement::Known),
            ("a", BAD, 299, Judgement::Check),
            ("b", GOOD, 299, Judgement::Check),
            ("a", GOOD, 300, Judgement::Check),
        ] {
            assert_eq!(senders.judge(pod, &token, seconds(at)), want, "{pod} {at}");
        }
        senders.believe("a", GOOD, seconds(310), seconds(300));
        assert_eq!(senders.judge("a", &GOOD, seconds(309)), Judgement::Known);
        let ended = senders.judge("a", &GOOD, seconds(310));
        assert_eq!(ended, Judgement::Check, "it has run out");
    }

    #[test]
    fn bad_tokens_do_not_block_other_pods() {
        let mut senders = Senders::default();
        senders.believe("a", GOOD, seconds(3_600), seconds(0));
        for second in 1..200 {
            let now = seconds(second);
            if senders.judge("a", &BAD, now) == Judgement::Check {
                senders.refuse("a", BAD, now);
                assert_eq!(senders.judge("a", &BAD, now), Judgement::Later);
            }
            assert_eq!(senders.judge("a", &GOOD, now), Judgement::Known);
            assert_eq!(senders.judge("b", &GOOD, now), Judgement::Check);
        }
    }

    #[test]
    fn bad_tokens_in_the_name_of_a_pod_do_not_block_its_own() {
        let mut senders = Senders::default();
        assert_eq!(senders.judge("a", &BAD, seconds(0)), Judgement::Check);
        senders.refuse("a", BAD, seconds(0));
        assert_eq!(senders.judge("a", &BAD, seconds(1)), Judgement::Later);
        assert_eq!(senders.judge("a", &GOOD, seconds(1)), Judgement::Check);
        senders.believe("a", GOOD, seconds(3_600), seconds(1));
        assert_eq!(senders.judge("a", &BAD, seconds(4)), Judgement::Later);
        assert_eq!(senders.judge("a", &BAD, seconds(5)), Judgement::Check);
        // Whoever makes a new one each time is limited, and other pods are not.
        let mut checked = 0;
        for number in 0..200_u8 {
            let now = seconds(100) + Duration::from_millis(u64::from(number) * 10);
            let token = [number; 32];
            if senders.judge("b", &token, now) == Judgement::Check {
                senders.refuse("b", token, now);
                checked += 1;
            }
            assert!(senders.pods["b"].bad.len() <= BAD_TOKENS);
        }
        assert_eq!(checked, POD_REVIEWS_BURST + 1);
        assert_eq!(senders.judge("c", &GOOD, seconds(102)), Judgement::Check);
    }

    #[test]
    fn tokens_are_checked_at_a_rate() {
        let mut senders = Senders::default();
        let mut checked = 0;
        for milli in 0..10_000 {
            let now = Duration::from_millis(milli);
            let judged = senders.judge(&milli.to_string(), &GOOD, now);
            checked += u32::from(judged == Judgement::Check);
        }
        let most = REVIEWS_BURST + 10 * REVIEWS_A_SECOND;
        assert!((most - 2..=most).contains(&checked), "{checked}");
    }

    #[test]
    fn a_pod_sends_at_a_rate() {
        let mut senders = Senders::default();
        let taken = (0..100).filter(|at| senders.takes("a", Duration::from_millis(*at)));
        assert_eq!(taken.count(), 5);
        assert!(
            senders.takes("b", Duration::from_millis(100)),
            "another pod"
        );
        let later = (1..60).filter(|at| senders.takes("a", seconds(*at * 5)));
        assert_eq!(later.count(), 59, "as clients send");
    }

    #[test]
    fn memory_is_bounded() {
        let mut senders = Senders::default();
        for pod in 0..PODS + 100 {
            let now = Duration::from_millis(u64::try_from(pod).unwrap());
            senders.believe(&pod.to_string(), GOOD, seconds(3_600), now);
        }
        assert_eq!(senders.pods.len(), PODS);
        assert!(!senders.pods.contains_key("0"), "the oldest goes first");
        senders.refuse("new", BAD, seconds(4_000));
        assert_eq!(senders.pods.len(), 1, "what has run out goes at once");
    }
}
