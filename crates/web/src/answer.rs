//! Documents: a question is put to whoever answers it, within the bounds of all questions together.
//!
//! Invariant: a question holds its place until it is answered or its time is over, also where whoever asked has left: what is
//! worked on is bounded, not only what is waited for.

use std::{
    collections::BTreeMap,
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, StatusCode, header};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tracing::error;
use trainyard_serve::{Headers, Reply};

use crate::{
    Asker, Document, Problem, Question, RunPart,
    access::person,
    form::{self, name_of, tag},
    refusal::{JSON, Refusal},
};

/// Answers questions.
pub type Ask =
    Arc<dyn Fn(Question, Asker) -> BoxFuture<'static, Result<Document, Problem>> + Send + Sync>;

/// What all questions together may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Questions at once.
    pub(crate) questions: usize,
    /// Of these, those of one person whose token was reviewed.
    pub(crate) each: usize,
    /// Of these, searches through logs.
    pub(crate) searches: usize,
    /// Of these, those that fold the logs of a whole attempt, which takes tens of MiB each.
    pub(crate) folds: usize,
    /// Of the folds, those of one person.
    pub(crate) folds_each: usize,
    /// Time of one.
    pub(crate) time: Duration,
}

pub(crate) const LIMITS: Limits = Limits {
    questions: 32,
    // Behind a proxy that speaks HTTP/2 one page asks ten at once.
    each: 16,
    searches: 4,
    folds: 8,
    folds_each: 2,
    time: Duration::from_secs(30),
};

/// Questions that are being answered, by person.
#[derive(Clone, Debug, Default)]
struct Each(Arc<Mutex<BTreeMap<String, usize>>>);

impl Each {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place of one more; nothing where there are `most`.
    fn take(&self, person: &str, most: usize) -> Option<Own> {
        let mut counts = self.counts();
        let count = counts.get(person).copied().unwrap_or(0);
        if count >= most {
            return None;
        }
        counts.insert(person.to_owned(), count + 1);
        Some(Own {
            of: self.clone(),
            person: person.to_owned(),
        })
    }
}

/// One of the questions of a person, until it is dropped.
#[derive(Debug)]
struct Own {
    of: Each,
    person: String,
}

impl Drop for Own {
    fn drop(&mut self) {
        let mut counts = self.of.counts();
        let left = counts.get(&self.person).copied().unwrap_or(0);
        if left > 1 {
            counts.insert(self.person.clone(), left - 1);
        } else {
            counts.remove(&self.person);
        }
    }
}

/// The place of a question, of one of a person, and those of one that takes more than others.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held for what their drop does")]
struct Held(OwnedSemaphorePermit, Option<Own>, Heavy);

/// The place of a question that takes more than others, and of one of a person.
type Heavy = (Option<OwnedSemaphorePermit>, Option<Own>);

/// Puts questions, and words the answers.
pub(crate) struct Answers {
    ask: Ask,
    limits: Limits,
    questions: Arc<Semaphore>,
    searches: Arc<Semaphore>,
    folds: Arc<Semaphore>,
    each: Each,
    folds_each: Each,
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Answers");
        debug.field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Answers {
    pub(crate) fn new(ask: Ask, limits: Limits) -> Self {
        Self {
            ask,
            limits,
            questions: Arc::new(Semaphore::new(limits.questions)),
            searches: Arc::new(Semaphore::new(limits.searches)),
            folds: Arc::new(Semaphore::new(limits.folds)),
            each: Each::default(),
            folds_each: Each::default(),
        }
    }

    /// The reply to a question.
    pub(crate) async fn reply(&self, question: Question, by: Asker, headers: &Headers) -> Reply {
        match self.document(question, by).await {
            // Its place is kept until it is compressed.
            Ok((document, _held)) => worded(document, headers).await,
            Err(refusal) => refusal.reply(),
        }
    }

    async fn document(&self, question: Question, by: Asker) -> Result<(Document, Held), Refusal> {
        let place = place(&self.questions, || {
            let most = self.limits.questions;
            format!("{most} questions are being answered, the maximum")
        })?;
        // Somebody who may see little must not keep everybody else waiting.
        let own = own(&self.each, &by, self.limits.each, "questions")?;
        let heavy = self.heavy(&question, &by)?;
        let limit = self.limits.time;
        // The call itself may panic, and so may the future that it gives.
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| (self.ask)(question, by)));
        let Ok(asked) = asked else {
            error!("A question panicked");
            return Err(Refusal::internal());
        };
        let worked = tokio::spawn(async move {
            let answer = timeout(limit, AssertUnwindSafe(asked).catch_unwind()).await;
            (answer, Held(place, own, heavy))
        });
        let Ok((answer, held)) = worked.await else {
            return Err(Refusal::internal());
        };
        match answer {
            Ok(Ok(answer)) => Ok((answer?, held)),
            Err(_) => Err(Refusal::busy(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "the question was not answered within {} s",
                    limit.as_secs_f32()
                ),
            )),
            Ok(Err(_)) => {
                error!("A question panicked");
                Err(Refusal::internal())
            }
        }
    }

    /// The place of a question that reads a whole log, or the logs of all pods.
    fn heavy(&self, question: &Question, by: &Asker) -> Result<Heavy, Refusal> {
        let Question::Run { part, .. } = question else {
            return Ok((None, None));
        };
        match part {
            RunPart::Logs(logs) if logs.search.is_some() => {
                let most = self.limits.searches;
                let message = || format!("{most} searches through logs are running, the maximum");
                Ok((Some(place(&self.searches, message)?), None))
            }
            RunPart::FoldedLogs { .. } => {
                let most = self.limits.folds;
                let message = || format!("logs of {most} attempts are being folded, the maximum");
                let own = own(&self.folds_each, by, self.limits.folds_each, "folded logs")?;
                Ok((Some(place(&self.folds, message)?), own))
            }
            _ => Ok((None, None)),
        }
    }
}

/// A place among those of `all`.
fn place(
    all: &Arc<Semaphore>,
    message: impl FnOnce() -> String,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let found = Arc::clone(all).try_acquire_owned();
    found.map_err(|_| Refusal::busy(StatusCode::TOO_MANY_REQUESTS, message()))
}

/// A place among those of whoever asks, who has at most `most`; whoever owns the server has as many as there are.
fn own(each: &Each, by: &Asker, most: usize, what: &str) -> Result<Option<Own>, Refusal> {
    let Asker::Visitor { identity, .. } = by else {
        return Ok(None);
    };
    let found = each.take(person(identity), most).ok_or_else(|| {
        let message = format!("{most} of your {what} are being answered, the maximum");
        Refusal::busy(StatusCode::TOO_MANY_REQUESTS, message)
    });
    found.map(Some)
}

async fn worded(document: Document, headers: &Headers) -> Reply {
    let tag = tag(&name_of(&document.json));
    // A browser may keep a document, and asks every time whether it is still the same.
    let cache = HeaderValue::from_static("private, no-cache");
    if form::is_known(headers, &tag) {
        let reply = form::not_modified(tag).with(header::CACHE_CONTROL, cache);
        return reply.with(header::VARY, HeaderValue::from_static("accept-encoding"));
    }
    let mut reply = Reply::new(StatusCode::OK, JSON, document.json)
        .with(header::ETAG, tag)
        .with(header::CACHE_CONTROL, cache);
    if let Some(name) = document.file_name {
        reply = reply.with(header::CONTENT_DISPOSITION, attachment(&name));
    }
    form::compress(reply, headers).await
}

/// The name under which a browser stores a file: characters that mean something to a header or to a shell are replaced.
fn attachment(name: &str) -> HeaderValue {
    let plain = |found: char| match found {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' => found,
        _ => '_',
    };
    let name: String = name.chars().take(128).map(plain).collect();
    let name = name.trim_start_matches('.');
    HeaderValue::try_from(format!("attachment; filename=\"{name}\""))
        .expect("letters, digits and dots are visible")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credential, LogsAsk, ProblemCode};

    const SHORT: Limits = Limits {
        questions: 2,
        each: 1,
        searches: 1,
        folds: 2,
        folds_each: 1,
        time: Duration::from_secs(30),
    };

    fn search() -> Question {
        let logs = LogsAsk {
            search: Some("x".to_owned()),
            ..LogsAsk::default()
        };
        Question::Run {
            run: "r".to_owned(),
            part: RunPart::Logs(logs),
        }
    }

    fn code<T: fmt::Debug>(answer: Result<T, Refusal>) -> (u16, &'static str) {
        let refusal = answer.unwrap_err();
        (refusal.status.as_u16(), refusal.code)
    }

    #[tokio::test(start_paused = true)]
    async fn questions_and_searches_are_bounded() {
        let ask: Ask = Arc::new(|_, _| std::future::pending().boxed());
        let answers = Arc::new(Answers::new(ask, SHORT));
        let put = |question| {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move { answers.document(question, Asker::Owner).await })
        };
        let first = put(search());
        tokio::task::yield_now().await;
        assert_eq!(
            code(answers.document(search(), Asker::Owner).await),
            (429, "busy")
        );
        let second = put(Question::About);
        tokio::task::yield_now().await;
        assert_eq!(
            code(answers.document(Question::About, Asker::Owner).await),
            (429, "busy")
        );
        // Who leaves keeps the place until the question is answered or its time is over.
        second.abort();
        tokio::task::yield_now().await;
        assert_eq!(
            code(answers.document(Question::About, Asker::Owner).await),
            (429, "busy")
        );
        assert_eq!(code(first.await.unwrap()), (503, "busy"));
        tokio::task::yield_now().await;
        assert_eq!(answers.questions.available_permits(), 2);
        assert_eq!(answers.searches.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn one_person_leaves_room_for_others() {
        let ask: Ask = Arc::new(|_, _| std::future::pending().boxed());
        let answers = Arc::new(Answers::new(ask, SHORT));
        let by = |identity: &str| Asker::Visitor {
            identity: identity.into(),
            credential: Credential::parse("t").unwrap(),
        };
        let put = |by| {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move { answers.document(Question::About, by).await })
        };
        let first = put(by("a.1"));
        tokio::task::yield_now().await;
        let again = answers.document(Question::About, by("a.2")).await;
        assert_eq!(code(again), (429, "busy"));
        let other = put(by("b.1"));
        assert_eq!(code(first.await.unwrap()), (503, "busy"));
        assert_eq!(code(other.await.unwrap()), (503, "busy"));
        tokio::task::yield_now().await;
        assert!(answers.each.counts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn folded_logs_have_places_of_their_own() {
        let limits = Limits {
            questions: 9,
            each: 9,
            ..SHORT
        };
        let ask: Ask = Arc::new(|_, _| std::future::pending().boxed());
        let answers = Arc::new(Answers::new(ask, limits));
        let by = |identity: &str| Asker::Visitor {
            identity: identity.into(),
            credential: Credential::parse("t").unwrap(),
        };
        let fold = || Question::Run {
            run: "r".to_owned(),
            part: RunPart::FoldedLogs { attempt: None },
        };
        let put = |by| {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move { answers.document(fold(), by).await })
        };
        let first = put(by("a.1"));
        tokio::task::yield_now().await;
        let again = answers.document(fold(), by("a.2")).await;
        assert_eq!(code(again), (429, "busy"));
        let second = put(by("b.1"));
        tokio::task::yield_now().await;
        let third = answers.document(fold(), by("c.1")).await;
        assert_eq!(code(third), (429, "busy"));
        // Questions of other kinds have room.
        let other = answers.document(Question::About, by("a.1")).await;
        assert_eq!(code(other), (503, "busy"));
        assert_eq!(code(first.await.unwrap()), (503, "busy"));
        assert_eq!(code(second.await.unwrap()), (503, "busy"));
        tokio::task::yield_now().await;
        assert_eq!(answers.folds.available_permits(), 2);
        assert!(answers.folds_each.counts().is_empty());
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let inside: Ask = Arc::new(|_, _| async { panic!("inside") }.boxed());
        let outside: Ask = Arc::new(|_, _| panic!("outside"));
        for ask in [inside, outside] {
            let answers = Answers::new(ask, SHORT);
            let found = answers.document(Question::About, Asker::Owner).await;
            assert_eq!(code(found), (500, "internal"));
            assert_eq!(answers.questions.available_permits(), 2);
        }
    }

    #[tokio::test]
    async fn problems_have_their_status() {
        let cases = [
            (ProblemCode::NotFound, (404, "notFound")),
            (ProblemCode::BadRequest, (400, "badRequest")),
            (ProblemCode::NotHere, (404, "notHere")),
            (ProblemCode::Unreadable, (500, "unreadable")),
            (ProblemCode::Unauthorized, (401, "unauthorized")),
            (ProblemCode::Busy, (503, "busy")),
        ];
        for (problem, want) in cases {
            let problem = Problem {
                code: problem,
                message: "m".to_owned(),
                hint: "h".to_owned(),
            };
            assert_eq!(code::<()>(Err(problem.into())), want);
        }
    }

    #[test]
    fn names_of_files_are_plain() {
        let found = attachment("../a\"b\r\nc é.json");
        assert_eq!(found, "attachment; filename=\"_a_b__c__.json\"");
    }
}
