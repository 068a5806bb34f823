//! The server for a program that is not asynchronous itself: it lives on a thread of its own.

use std::{
    fmt, io,
    net::TcpListener,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::{Semaphore, oneshot};

use crate::{
    Ask, Asker, Credential, Dashboard, Document, Hub, Identify, Problem, ProblemCode, Question,
    Sight, SightOf, Visitor,
    answer::LIMITS,
    health::{Ready, serve_health},
    serve,
};

/// How long pages have to read the end of their streams.
const FAREWELL: Duration = Duration::from_millis(200);

/// Answers questions by a function that may block: each runs on a thread for such work, as many as questions are let in. A thread cannot be ended: one
/// that works on a question whose time is over counts until it has finished.
pub fn blocking(
    answer: impl Fn(&Question, &Asker) -> Result<Document, Problem> + Send + Sync + 'static,
) -> Ask {
    let answer = Arc::new(answer);
    let threads = Arc::new(Semaphore::new(LIMITS.questions));
    Arc::new(move |question, asker| {
        let (answer, threads) = (Arc::clone(&answer), Arc::clone(&threads));
        Box::pin(async move {
            let Ok(thread) = threads.try_acquire_owned() else {
                return Err(Problem {
                    code: ProblemCode::Busy,
                    message: format!(
                        "{} earlier questions are still being worked on, the maximum",
                        LIMITS.questions
                    ),
                    hint: "retry later; a slow disk or very large logs make answers slow"
                        .to_owned(),
                });
            };
            let work = tokio::task::spawn_blocking(move || {
                let answered = answer(&question, &asker);
                drop(thread);
                answered
            });
            work.await.unwrap_or_else(|_| {
                Err(Problem {
                    code: ProblemCode::Unreadable,
                    message: "the answer could not be made because of an error in this program"
                        .to_owned(),
                    hint: "reload the page; if it happens again, report it with the messages of `trainyard dashboard`"
                        .to_owned(),
                })
            })
        })
    })
}

/// Threads that review tokens and rights.
const REVIEWS: usize = 32;
/// Who finds none of them free within this time is not reviewed.
const REVIEW_WAITS: Duration = Duration::from_secs(5);

/// Finds out whose a token is by a function that may block.
pub fn blocking_identify(
    identify: impl Fn(&Credential) -> Result<Visitor, Problem> + Send + Sync + 'static,
) -> Identify {
    let identify = Arc::new(identify);
    let threads = Arc::new(Semaphore::new(REVIEWS));
    Arc::new(move |credential| {
        let (identify, threads) = (Arc::clone(&identify), Arc::clone(&threads));
        Box::pin(async move {
            let reviewed = on_thread(threads, move || identify(&credential)).await;
            reviewed.unwrap_or_else(|| {
                Err(Problem {
                    code: ProblemCode::Busy,
                    message: format!("{REVIEWS} tokens are being reviewed, the maximum"),
                    hint: "retry in a few seconds".to_owned(),
                })
            })
        })
    })
}

/// Finds out which changes somebody may learn of by a function that may block; of none, where that is not found out.
pub fn blocking_sight(sight_of: impl Fn(&Arc<str>) -> Sight + Send + Sync + 'static) -> SightOf {
    let sight_of = Arc::new(sight_of);
    let threads = Arc::new(Semaphore::new(REVIEWS));
    Arc::new(move |identity| {
        let (sight_of, threads) = (Arc::clone(&sight_of), Arc::clone(&threads));
        Box::pin(async move {
            let found = on_thread(threads, move || sight_of(&identity)).await;
            found.unwrap_or_default()
        })
    })
}

/// What `work` gives on a thread for such work; nothing where none is free in time, or where it panics.
async fn on_thread<T: Send + 'static>(
    threads: Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let thread = tokio::time::timeout(REVIEW_WAITS, threads.acquire_owned()).await;
    let thread = thread.ok()?.ok()?;
    let work = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(thread);
        done
    });
    work.await.ok()
}

/// A server that runs until it is ended or dropped.
pub struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    hub: Arc<Hub>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Serving {
    /// Serves `dashboard` at `listener`, and probes beside it where there is a listener for them. `hub` is the one that the dashboard was made with.
    pub fn start(
        listener: TcpListener,
        dashboard: Dashboard,
        hub: Arc<Hub>,
        probes: Option<(TcpListener, Ready)>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        if let Some((listener, _)) = &probes {
            listener.set_nonblocking(true)?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let work = async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => {
                    tracing::error!(%error, "Cannot listen");
                    return;
                }
            };
            let probing = async {
                let Some((listener, ready)) = probes else {
                    return std::future::pending().await;
                };
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => serve_health(listener, ready).await,
                    Err(error) => tracing::error!(%error, "Cannot listen for probes"),
                }
            };
            tokio::select! {
                () = serve(listener, dashboard) => {}
                () = probing => {}
                _ = stopped => tokio::time::sleep(FAREWELL).await,
            }
        };
        let thread = thread::Builder::new()
            .name("dashboard".to_owned())
            .spawn(move || {
                runtime.block_on(work);
                // A question that is still worked on is not waited for: nobody reads its answer.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
            hub,
        })
    }

    /// Whether it has ended by itself, which it does only where it cannot serve.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.hub.close();
        if let Some(stop) = self.stop.take() {
            // Without a receiver it has ended already.
            stop.send(()).unwrap_or_default();
        }
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn threads_count_until_they_have_finished() {
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        let ask = blocking(move |question, _| {
            if *question == Question::Nodes {
                // Until the other end is dropped.
                released.lock().unwrap().recv().unwrap_err();
            }
            Ok(Document::json(Vec::new()))
        });
        for _ in 0..LIMITS.questions {
            // Nobody waits for the answer any more.
            assert_eq!(ask(Question::Nodes, Asker::Owner).now_or_never(), None);
        }
        let refused = ask(Question::About, Asker::Owner).await.unwrap_err();
        assert_eq!(refused.code, ProblemCode::Busy);
        drop(release);
        let freed = async {
            while ask(Question::About, Asker::Owner).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        let freed = tokio::time::timeout(Duration::from_secs(30), freed).await;
        freed.expect("a thread that has finished makes room");
    }
}
