//! The server for a program that is not asynchronous itself: it lives on a thread of its own.

use std::{
    fmt, io,
    net::TcpListener,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{Ask, Dashboard, Document, Hub, Problem, ProblemCode, Question, serve};

/// How long pages have to read the end of their streams.
const FAREWELL: Duration = Duration::from_millis(200);

/// Answers questions by a function that may block: each runs on a thread for such work, as many as questions are let in.
pub fn blocking(
    answer: impl Fn(&Question) -> Result<Document, Problem> + Send + Sync + 'static,
) -> Ask {
    let answer = Arc::new(answer);
    Arc::new(move |question| {
        let answer = Arc::clone(&answer);
        Box::pin(async move {
            let work = tokio::task::spawn_blocking(move || answer(&question));
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
    /// Serves `dashboard` at `listener`. `hub` is the one that the dashboard was made with.
    pub fn start(listener: TcpListener, dashboard: Dashboard, hub: Arc<Hub>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
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
            tokio::select! {
                () = serve(listener, dashboard) => {}
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
