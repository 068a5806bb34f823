//! The tasks of preflights, so that an orderly stop can wait for what must not be left half done.
//!
//! Invariant: a task that measures ends with the operator; one that closes a preflight is waited for, for a bounded time.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::{AbortHandle, JoinSet},
};

/// The tasks of all preflights.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    measuring: Mutex<JoinSet<()>>,
    closing: Mutex<JoinSet<()>>,
}

fn lock(tasks: &Mutex<JoinSet<()>>) -> MutexGuard<'_, JoinSet<()>> {
    let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
    // What has ended takes no room.
    while tasks.try_join_next().is_some() {}
    tasks
}

impl Tasks {
    /// Runs what may be ended at any time.
    pub(super) fn measure(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        lock(&self.measuring).spawn(task)
    }

    /// Runs what writes to nodes or removes pods. Whoever waits for the answer may be ended; the task is not.
    pub(super) fn close(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> oneshot::Receiver<()> {
        let (done, ends) = oneshot::channel();
        lock(&self.closing).spawn(async move {
            task.await;
            // The waiting task continues.
            drop(done);
        });
        ends
    }

    /// Ends what measures and waits for the rest; whether all of it ended within `limit`.
    pub(crate) async fn finish(&self, limit: Duration) -> bool {
        lock(&self.measuring).abort_all();
        let mut closing = std::mem::take(&mut *lock(&self.closing));
        let all = async { while closing.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stop_waits_for_what_writes_and_for_nothing_else() {
        let tasks = Tasks::default();
        let measuring = tasks.measure(std::future::pending());
        let (answer, answered) = oneshot::channel::<()>();
        let (wrote, written) = oneshot::channel();
        // The trial that began it is ended with the operator.
        drop(tasks.close(async move {
            drop(answered.await);
            wrote.send(()).unwrap();
        }));
        let (finished, ()) = tokio::join!(tasks.finish(Duration::from_mins(1)), async {
            tokio::task::yield_now().await;
            drop(answer);
        });
        assert!(finished);
        assert_eq!(written.await, Ok(()), "it was not cut off");
        tokio::task::yield_now().await;
        assert!(measuring.is_finished());
        drop(tasks.close(std::future::pending()));
        assert!(!tasks.finish(Duration::from_millis(1)).await, "bounded");
    }
}
