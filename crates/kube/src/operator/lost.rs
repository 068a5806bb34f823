//! Tasks that an operator must not lose.

use std::any::Any;

use tokio::task::JoinSet;
use tracing::error;

use crate::poison::panic_message;

/// Ready when a task panicked. An operator that has lost a feed or its lease is worse than one that is started again.
pub(super) async fn panic_in(tasks: &mut JoinSet<()>) -> Box<dyn Any + Send> {
    loop {
        match tasks.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                if let Ok(panic) = error.try_into_panic() {
                    error!(
                        panic = panic_message(panic.as_ref()),
                        "A required task panicked; exiting"
                    );
                    return panic;
                }
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{panic::resume_unwind, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_a_task_is_noticed() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async {});
        tasks.spawn(std::future::pending()).abort();
        let quiet = tokio::time::timeout(Duration::from_hours(1), panic_in(&mut tasks)).await;
        assert!(quiet.is_err(), "tasks that end or are aborted are not lost");
        tasks.spawn(async { resume_unwind(Box::new("a feed panics")) });
        let panic = panic_in(&mut tasks).await;
        assert_eq!(panic_message(panic.as_ref()), "a feed panics");
    }
}
