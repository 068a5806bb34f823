//! Turns of reads of logs, so that those of one namespace that do not come delay no other one's.
//!
//! Invariant: at most as many have a turn as there are, `of_namespace` of one namespace, and of each namespace no more wait for one of the
//! turns that all share: a namespace with one log waits behind a few of each other one, not behind all logs of a large job.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Logs that are read at once for transports, of all jobs.
pub(crate) const AT_ONCE: usize = 6;
/// Of these, those of one namespace.
const NAMESPACE_AT_ONCE: usize = 2;

#[derive(Debug)]
pub(crate) struct Turns {
    all: Semaphore,
    of_namespace: usize,
    /// Those of namespaces in which a log is read or waited for.
    namespaces: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
}

impl Default for Turns {
    fn default() -> Self {
        Self::new(AT_ONCE, NAMESPACE_AT_ONCE)
    }
}

impl Turns {
    /// So many turns at once, and so many of them of one namespace.
    pub(crate) fn new(at_once: usize, of_namespace: usize) -> Self {
        Self {
            all: Semaphore::new(at_once),
            of_namespace,
            namespaces: Mutex::default(),
        }
    }

    /// Waits for a turn of `namespace`.
    pub(crate) async fn next(&self, namespace: &str) -> Option<Turn<'_>> {
        let own = self.of(namespace).acquire_owned().await.ok()?;
        let all = self.all.acquire().await.ok()?;
        Some(Turn {
            _all: all,
            _own: own,
        })
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let namespaces = self.namespaces.lock();
        let mut namespaces = namespaces.unwrap_or_else(PoisonError::into_inner);
        // Of the others nobody has a turn or waits for one.
        namespaces.retain(|_, turns| Arc::strong_count(turns) > 1);
        let own = namespaces.entry(namespace.to_owned());
        Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(self.of_namespace))))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{task::JoinSet, time::Instant};

    use super::*;

    /// How long each log of the slow namespaces takes.
    const SLOW: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn slow_logs_of_two_namespaces_delay_no_other() {
        let turns = Arc::new(Turns::default());
        let mut reads = JoinSet::new();
        for number in 0..200 {
            let turns = Arc::clone(&turns);
            reads.spawn(async move {
                let namespace = format!("slow-{}", number % 2);
                let _turn = turns.next(&namespace).await;
                tokio::time::sleep(SLOW).await;
            });
        }
        // All of them ask first.
        tokio::task::yield_now().await;
        let began = Instant::now();
        drop(turns.next("other").await);
        assert!(began.elapsed() < SLOW, "{:?}", began.elapsed());
        while reads.join_next().await.is_some() {}
        assert_eq!(began.elapsed().as_secs(), 100 / 2 * SLOW.as_secs());
        // Nothing is kept of namespaces without logs.
        drop(turns.next("other").await);
        let namespaces = turns.namespaces.lock().unwrap();
        assert_eq!(namespaces.keys().collect::<Vec<_>>(), ["other"]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_slow_namespaces_delay_another_by_their_turns() {
        let turns = Arc::new(Turns::default());
        let mut reads = JoinSet::new();
        for number in 0..600 {
            let turns = Arc::clone(&turns);
            reads.spawn(async move {
                let _turn = turns.next(&format!("slow-{}", number % 6)).await;
                tokio::time::sleep(SLOW).await;
            });
        }
        tokio::task::yield_now().await;
        let began = Instant::now();
        drop(turns.next("other").await);
        // Two of each of six namespaces are in front of it, and six are read at once.
        assert_eq!(began.elapsed(), 2 * SLOW);
        reads.abort_all();
    }
}
