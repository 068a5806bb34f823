//! Documents: a question is put to whoever answers it, within the bounds of all questions together.
//!
//! Invariant: a question holds its place until it is answered or its time is over, also where whoever asked has left: what is
//! worked on is bounded, not only what is waited for.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::BoxFuture};
use http::{HeaderValue, StatusCode, header};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tracing::error;
use trainyard_serve::{Headers, Reply};

use crate::{
    Document, Problem, Question, RunPart,
    form::{self, name_of, tag},
    refusal::{JSON, Refusal},
};

/// Answers questions.
pub type Ask = Arc<dyn Fn(Question) -> BoxFuture<'static, Result<Document, Problem>> + Send + Sync>;

/// What all questions together may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Questions at once.
    pub(crate) questions: usize,
    /// Of these, searches through logs.
    pub(crate) searches: usize,
    /// Time of one.
    pub(crate) time: Duration,
}

pub(crate) const LIMITS: Limits = Limits {
    questions: 32,
    searches: 4,
    time: Duration::from_secs(30),
};

/// The place of a question, and of a search.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held for what their drop does")]
struct Held(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Puts questions, and words the answers.
pub(crate) struct Answers {
    ask: Ask,
    limits: Limits,
    questions: Arc<Semaphore>,
    searches: Arc<Semaphore>,
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
        }
    }

    /// The reply to a question.
    pub(crate) async fn reply(&self, question: Question, headers: &Headers) -> Reply {
        match self.document(question).await {
            // Its place is kept until it is compressed.
            Ok((document, _held)) => worded(document, headers).await,
            Err(refusal) => refusal.reply(),
        }
    }

    async fn document(&self, question: Question) -> Result<(Document, Held), Refusal> {
        let many = StatusCode::TOO_MANY_REQUESTS;
        let Ok(place) = Arc::clone(&self.questions).try_acquire_owned() else {
            let most = self.limits.questions;
            let message = format!("{most} questions are being answered, the maximum");
            return Err(Refusal::busy(many, message));
        };
        let search = if is_search(&question) {
            let Ok(search) = Arc::clone(&self.searches).try_acquire_owned() else {
                let most = self.limits.searches;
                let message = format!("{most} searches through logs are running, the maximum");
                return Err(Refusal::busy(many, message));
            };
            Some(search)
        } else {
            None
        };
        let limit = self.limits.time;
        // The call itself may panic, and so may the future that it gives.
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| (self.ask)(question)));
        let Ok(asked) = asked else {
            error!("A question panicked");
            return Err(Refusal::internal());
        };
        let worked = tokio::spawn(async move {
            let answer = timeout(limit, AssertUnwindSafe(asked).catch_unwind()).await;
            (answer, Held(place, search))
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
}

/// Whether a question reads a whole log.
fn is_search(question: &Question) -> bool {
    matches!(
        question,
        Question::Run { part: RunPart::Logs(logs), .. } if logs.search.is_some()
    )
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
    use crate::{LogsAsk, ProblemCode};

    const SHORT: Limits = Limits {
        questions: 2,
        searches: 1,
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
        let ask: Ask = Arc::new(|_| std::future::pending().boxed());
        let answers = Arc::new(Answers::new(ask, SHORT));
        let put = |question| {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move { answers.document(question).await })
        };
        let first = put(search());
        tokio::task::yield_now().await;
        assert_eq!(code(answers.document(search()).await), (429, "busy"));
        let second = put(Question::About);
        tokio::task::yield_now().await;
        assert_eq!(code(answers.document(Question::About).await), (429, "busy"));
        // Who leaves keeps the place until the question is answered or its time is over.
        second.abort();
        tokio::task::yield_now().await;
        assert_eq!(code(answers.document(Question::About).await), (429, "busy"));
        assert_eq!(code(first.await.unwrap()), (503, "busy"));
        tokio::task::yield_now().await;
        assert_eq!(answers.questions.available_permits(), 2);
        assert_eq!(answers.searches.available_permits(), 1);
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let inside: Ask = Arc::new(|_| async { panic!("inside") }.boxed());
        let outside: Ask = Arc::new(|_| panic!("outside"));
        for ask in [inside, outside] {
            let answers = Answers::new(ask, SHORT);
            let found = answers.document(Question::About).await;
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
