//! Who asks, and what he may see: reviews of tokens and rights by the API server, kept for seconds.
//!
//! Invariants: a token is known here by its digest alone. A review that cannot be made allows nothing. What is kept is bounded, whoever asks; requests for
//! the same answer at once are one call.

mod kept;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use trainyard_core::spec::Kind;
use trainyard_kube::look::{Look, LookError, Sees, User};
use trainyard_web::{Credential, Problem, ProblemCode, Visitor};

use self::kept::Kept;
use super::{lock, problem, sight::Sight};
use crate::clean;

/// For so long a token that was reviewed is not reviewed again…
const TOKEN_KEPT: SignedDuration = SignedDuration::from_secs(45);
/// …and so long after its review a stream of changes ends. It is longer, so that no stream ends at once.
const TOKEN_BELIEVED: SignedDuration = SignedDuration::from_secs(60);
/// A token that was refused is reviewed again after this time.
const REFUSED_KEPT: SignedDuration = SignedDuration::from_secs(5);
/// Tokens of nobody that are reviewed in a second, over time, with those whose review fails: whoever makes them up is not to load the API server…
const REFUSALS_A_SECOND: i64 = 20;
/// …and how many at once after a quiet time.
const REFUSALS_BURST: i64 = 100;
/// A token that was good is reviewed again for so long whatever others send.
const GOOD_KEPT: SignedDuration = SignedDuration::from_mins(10);
/// A right that somebody has is believed for so long. A stream notices its end at most 10 s later, and 30 s are the limit.
const ALLOWED_KEPT: SignedDuration = SignedDuration::from_secs(20);
/// One that he does not have.
const DENIED_KEPT: SignedDuration = SignedDuration::from_secs(5);
/// A review that could not be made is not tried again within this time.
const UNKNOWN_KEPT: SignedDuration = SignedDuration::from_secs(2);
/// Somebody who has not asked for so long is forgotten; his next request is reviewed in any case.
const USER_KEPT: SignedDuration = SignedDuration::from_mins(5);
/// Tokens, users and rights that are kept, each.
pub(super) const KEPT_MAX: usize = 10_000;
/// Refused tokens that are kept: they are not to take the room of good ones.
const REFUSED_MAX: usize = 1_000;

/// A token without the token.
type Digest = [u8; 32];

/// Whether somebody may see something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allowed,
    Denied,
    /// It could not be reviewed.
    Unknown,
}

/// Whoever makes reviews.
pub(super) trait Reviewer {
    /// Whose a token is; nothing where it is nobody's.
    fn user_of(&self, token: &str) -> Result<Option<User>, LookError>;
    /// Whether a user may see each of these.
    fn may_see(&self, user: &User, what: &[Sees]) -> Vec<Result<bool, LookError>>;
}

impl Reviewer for Look {
    fn user_of(&self, token: &str) -> Result<Option<User>, LookError> {
        Self::user_of(self, token)
    }

    fn may_see(&self, user: &User, what: &[Sees]) -> Vec<Result<bool, LookError>> {
        Self::may_see(self, user, what)
    }
}

/// What was reviewed.
#[derive(Debug)]
pub(super) struct Access {
    tokens: Mutex<Kept<Digest, (Arc<str>, Timestamp)>>,
    refused: Mutex<Kept<Digest, ()>>,
    /// Tokens that were good not long ago.
    good: Mutex<Kept<Digest, ()>>,
    /// When all tokens that were refused are paid for.
    refusals: Mutex<Timestamp>,
    users: Mutex<Kept<Arc<str>, Arc<Known>>>,
    rights: Mutex<Kept<(Arc<str>, Sees), Answer>>,
    /// Tokens that are reviewed now: whoever sends the same one waits for the answer.
    asking: Mutex<BTreeMap<Digest, Arc<Mutex<()>>>>,
}

/// A user who has asked.
#[derive(Debug)]
struct Known {
    user: User,
    /// Held while his rights are reviewed: whoever asks for the same meanwhile waits for the answer.
    turn: Mutex<()>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            tokens: Mutex::new(Kept::new(KEPT_MAX)),
            refused: Mutex::new(Kept::new(REFUSED_MAX)),
            good: Mutex::new(Kept::new(KEPT_MAX)),
            refusals: Mutex::new(Timestamp::UNIX_EPOCH),
            users: Mutex::new(Kept::new(KEPT_MAX)),
            rights: Mutex::new(Kept::new(KEPT_MAX)),
            asking: Mutex::default(),
        }
    }
}

fn later(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.checked_add(by).unwrap_or(now)
}

/// Who somebody is, in one word: other names, groups or identities are somebody else. What stands before the full stop is the same for all tokens of one
/// user: API servers since 1.30 say in `extra` which token it was.
fn identity_of(user: &User) -> Arc<str> {
    let person = hex_of(&(&user.name, &user.uid));
    let all = hex_of(&(&user.name, &user.uid, &user.groups, &user.extra));
    format!("{person}.{all}").into()
}

fn hex_of(value: &impl Serialize) -> String {
    let text = serde_json::to_vec(value);
    let digest = trainyard_web::digest_of(&text.unwrap_or_default());
    let mut hex = String::with_capacity(64);
    for byte in digest {
        // Writing to a text does not fail.
        write!(hex, "{byte:02x}").unwrap_or_default();
    }
    hex
}

fn not_accepted() -> Problem {
    problem(
        ProblemCode::Unauthorized,
        "the API server does not accept the token, or no longer",
        "use a new token of the cluster, such as that of `kubectl create token NAME`",
    )
}

fn flooded() -> Problem {
    problem(
        ProblemCode::Busy,
        format!(
            "the token was not reviewed: many unknown tokens come in, and the API server is asked about \
             {REFUSALS_A_SECOND} of them in a second at most"
        ),
        "retry in a few seconds; requests with a token that was accepted in the last 10 minutes are answered",
    )
}

/// Why something is not shown although nobody has said no.
fn not_reviewed(error: &LookError) -> Problem {
    problem(
        ProblemCode::Busy,
        format!(
            "nothing is shown, because the API server did not review the token: {}",
            clean::text(&error.to_string())
        ),
        "retry in a few seconds; if it stays, check the rights of the dashboard's ServiceAccount",
    )
}

impl Access {
    /// Whose a token is.
    pub(super) fn identify(
        &self,
        reviewer: &impl Reviewer,
        credential: &Credential,
        now: impl Fn() -> Timestamp,
    ) -> Result<Visitor, Problem> {
        let digest = credential.digest();
        if let Some(known) = self.known(&digest, now()) {
            return known;
        }
        let turn = Arc::clone(lock(&self.asking).entry(digest).or_default());
        let held = lock(&turn);
        let answered = match self.known(&digest, now()) {
            Some(known) => known,
            None => self.review(reviewer, credential, digest, &now),
        };
        drop(held);
        let mut asking = lock(&self.asking);
        // This thread and the table hold it: nobody waits.
        if Arc::strong_count(&turn) <= 2 {
            asking.remove(&digest);
        }
        answered
    }

    /// Whose a token is, where that is known without a call; it does not block for long.
    pub(super) fn identified(
        &self,
        credential: &Credential,
        now: Timestamp,
    ) -> Option<Result<Visitor, Problem>> {
        self.known(&credential.digest(), now)
    }

    fn known(&self, digest: &Digest, now: Timestamp) -> Option<Result<Visitor, Problem>> {
        if lock(&self.refused).get(digest, now).is_some() {
            return Some(Err(not_accepted()));
        }
        let (identity, until) = lock(&self.tokens).get(digest, now)?.clone();
        // A user who was forgotten is reviewed again.
        let user = lock(&self.users).get(&identity, now).cloned()?;
        let mut users = lock(&self.users);
        users.put(Arc::clone(&identity), user, later(now, USER_KEPT), now);
        drop(users);
        let lasts = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        Some(Ok(Visitor { identity, lasts }))
    }

    fn review(
        &self,
        reviewer: &impl Reviewer,
        credential: &Credential,
        digest: Digest,
        now: &impl Fn() -> Timestamp,
    ) -> Result<Visitor, Problem> {
        // What is believed is as old as the question, not as the answer.
        let asked_at = now();
        let was_good = lock(&self.good).get(&digest, asked_at).is_some();
        if !was_good && !self.charge(asked_at) {
            return Err(flooded());
        }
        let user = reviewer.user_of(credential.expose());
        let user = user.map_err(|error| not_reviewed(&error))?;
        let now = now();
        let Some(user) = user else {
            lock(&self.refused).put(digest, (), later(now, REFUSED_KEPT), now);
            return Err(not_accepted());
        };
        if !was_good {
            self.refund();
        }
        let identity = identity_of(&user);
        let mut users = lock(&self.users);
        let known = users.get(&identity, now).cloned();
        let known = known.unwrap_or_else(|| {
            Arc::new(Known {
                user,
                turn: Mutex::default(),
            })
        });
        users.put(Arc::clone(&identity), known, later(now, USER_KEPT), now);
        drop(users);
        let believed = later(asked_at, TOKEN_BELIEVED);
        let answer = (Arc::clone(&identity), believed);
        lock(&self.tokens).put(digest, answer, later(asked_at, TOKEN_KEPT), now);
        lock(&self.good).put(digest, (), later(now, GOOD_KEPT), now);
        let lasts = Duration::try_from(believed.duration_since(now)).unwrap_or_default();
        Ok(Visitor { identity, lasts })
    }

    /// Counts the review of an unknown token as refused before it is made, so that those that take long or fail count, too. False where
    /// so many were refused that it is not made now.
    fn charge(&self, now: Timestamp) -> bool {
        let mut paid = lock(&self.refusals);
        let burst = SignedDuration::from_millis(1_000 * REFUSALS_BURST / REFUSALS_A_SECOND);
        // It is later than that only where the clock was set back.
        *paid = (*paid).min(later(now, burst));
        if *paid >= later(now, burst) {
            return false;
        }
        let each = SignedDuration::from_millis(1_000 / REFUSALS_A_SECOND);
        *paid = later((*paid).max(now), each);
        true
    }

    /// The token was somebody's.
    fn refund(&self) {
        let mut paid = lock(&self.refusals);
        let each = SignedDuration::from_millis(1_000 / REFUSALS_A_SECOND);
        *paid = later(*paid, -each);
    }

    /// The name of somebody who has asked.
    pub(super) fn name_of(&self, identity: &Arc<str>, now: Timestamp) -> Option<String> {
        let users = lock(&self.users);
        users
            .get(identity, now)
            .map(|known| known.user.name.clone())
    }

    /// Whether somebody may see each of these. Of somebody who is not known nothing is.
    fn may_see(
        &self,
        reviewer: &impl Reviewer,
        identity: &Arc<str>,
        what: &[Sees],
        now: Timestamp,
    ) -> BTreeMap<Sees, Answer> {
        let Some(known) = lock(&self.users).get(identity, now).cloned() else {
            let unknown = |what: &Sees| (what.clone(), Answer::Unknown);
            return what.iter().map(unknown).collect();
        };
        let before = std::time::Instant::now();
        let _turn = lock(&known.turn);
        // What is kept grew older while another review was waited for.
        let waited = SignedDuration::try_from(before.elapsed()).unwrap_or_default();
        let now = later(now, waited);
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        let rights = lock(&self.rights);
        for what in what {
            match rights.get(&(Arc::clone(identity), what.clone()), now) {
                Some(answer) => drop(found.insert(what.clone(), *answer)),
                None => missing.push(what.clone()),
            }
        }
        drop(rights);
        let answered = if missing.is_empty() {
            Vec::new()
        } else {
            reviewer.may_see(&known.user, &missing)
        };
        let mut rights = lock(&self.rights);
        let mut answered = answered.into_iter();
        for what in missing {
            let (answer, lasts) = match answered.next() {
                Some(Ok(true)) => (Answer::Allowed, ALLOWED_KEPT),
                Some(Ok(false)) => (Answer::Denied, DENIED_KEPT),
                Some(Err(_)) | None => (Answer::Unknown, UNKNOWN_KEPT),
            };
            let key = (Arc::clone(identity), what.clone());
            rights.put(key, answer, later(now, lasts), now);
            found.insert(what, answer);
        }
        found
    }

    /// What somebody may see of jobs in these places: the kinds by name, each with its namespaces.
    pub(super) fn sight(
        &self,
        reviewer: &impl Reviewer,
        identity: &Arc<str>,
        places: &Places,
        now: Timestamp,
    ) -> Sight {
        let mut sight = Sight::default();
        let mut what = vec![Sees::Nodes];
        if let Places::All(_) = places {
            what.extend(kinds().map(|kind| Sees::Jobs(kind, None)));
        }
        sight.add(&self.may_see(reviewer, identity, &what, now));
        let further: Vec<Sees> = match places {
            Places::Nowhere => Vec::new(),
            Places::Namespace(namespace) => kinds()
                .map(|kind| Sees::Jobs(kind, Some(namespace.clone())))
                .chain([Sees::Logs(namespace.clone())])
                .collect(),
            Places::All(pairs) => pairs
                .iter()
                .filter(|(kind, namespace)| !sight.sees(kind.name(), namespace))
                .map(|(kind, namespace)| Sees::Jobs(*kind, Some(namespace.clone())))
                .collect(),
        };
        if !further.is_empty() {
            sight.add(&self.may_see(reviewer, identity, &further, now));
        }
        sight
    }
}

/// The kinds, each once.
pub(super) fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| *kind != Kind::MpiV2)
}

/// The one that stands for all versions of its kind.
pub(super) fn one_of(kind: Kind) -> Kind {
    if kind == Kind::MpiV2 {
        Kind::MpiV1
    } else {
        kind
    }
}

/// Where it is asked what somebody may see.
#[derive(Clone, Debug)]
pub(super) enum Places {
    /// Nowhere: only of what has no namespace.
    Nowhere,
    /// In one namespace, whether there is anything in it or not: an answer takes the same calls for a job that is not there.
    Namespace(String),
    /// Wherever there are jobs.
    All(BTreeSet<(Kind, String)>),
}
