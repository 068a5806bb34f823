//! The operator's own HTTP endpoints: `/metrics`, `/healthz`, `/readyz`.
//!
//! Invariant: the page of metrics is rendered at most once in [`PAGE_LASTS`], however often it is asked for.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use http::{Method, StatusCode};
use tokio::time::Instant;

use crate::{
    Operator,
    certificate::Certificate,
    crd,
    feed::{Age, STALE_AFTER},
    serve::{Admit, Answer, Bounds, Intake, Reply, Size},
};

/// Nobody sends anything but questions here. A probe gives up after a second, so whoever is silent is closed soon; what holds
/// bytes are pages of metrics.
pub(crate) const BOUNDS: Bounds = Bounds {
    size: Size {
        connections: 64,
        bytes: 32 * 1024 * 1024,
        free_bytes: 64 * 1024,
        bytes_a_second: 100_000_000,
    },
    first: Duration::from_secs(2),
    idle: Duration::from_secs(100),
    body: Duration::from_secs(2),
    request: Duration::from_secs(10),
    answer: Duration::from_secs(10),
};
/// A question has no body; some clients send a few bytes all the same.
const INTAKE: Intake = Intake {
    bytes: 1024,
    values: None,
};
/// A page of metrics is sent again for this long: rendering that of ten thousand jobs takes a while, and anybody may ask.
pub(crate) const PAGE_LASTS: Duration = Duration::from_secs(1);
/// What `OpenMetrics` calls itself.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Only questions are read.
pub(crate) fn admits() -> Admit {
    Arc::new(|head| match head.method {
        Method::GET | Method::HEAD => Ok(INTAKE),
        _ => Err(Reply::wrong_method(&Method::GET)),
    })
}

/// Answers `/metrics`.
pub(crate) fn metrics(operator: Operator) -> Answer {
    let page = Page::default();
    answers(move |path| {
        (path == "/metrics").then(|| {
            let text = page.get(|| operator.metrics().text());
            Reply::new(StatusCode::OK, OPEN_METRICS, text.into_bytes())
        })
    })
}

/// A page as it was rendered last.
#[derive(Debug, Default)]
struct Page(Mutex<Option<(Instant, String)>>);

impl Page {
    fn get(&self, render: impl FnOnce() -> String) -> String {
        let mut page = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let fresh = page
            .take()
            .filter(|(at, _)| now.duration_since(*at) < PAGE_LASTS);
        page.get_or_insert_with(|| fresh.unwrap_or_else(|| (now, render())))
            .1
            .clone()
    }
}

/// Answers `/healthz` and `/readyz`.
///
/// That anything is answered at all says that the one thread of the operator is not stuck.
pub(crate) fn health(operator: Operator, certificate: Option<Arc<Certificate>>) -> Answer {
    answers(move |path| match path {
        "/healthz" => Some(Reply::text(StatusCode::OK, "ok")),
        "/readyz" => {
            let (unlisted, ages) = (operator.unlisted(), operator.ages());
            let ready = readiness(&unlisted, &ages, certificate.as_deref());
            Some(match ready {
                Ok(stale) => {
                    let remarks = [operator.remarks(), operator.train_remark(), stale];
                    let remarks: Vec<String> = remarks.into_iter().flatten().collect();
                    let ok = if remarks.is_empty() { "ok" } else { "ok; " };
                    let text = format!("{ok}{}{}", remarks.join("; "), lines(&ages));
                    Reply::text(StatusCode::OK, text)
                }
                Err(why) => Reply::text(StatusCode::SERVICE_UNAVAILABLE, why),
            })
        }
        _ => None,
    })
}

fn answers(answer: impl Fn(&str) -> Option<Reply> + Send + Sync + 'static) -> Answer {
    Arc::new(move |request| {
        let reply = answer(&request.path).unwrap_or_else(|| Reply::not_found(&request.path));
        std::future::ready(reply).boxed()
    })
}

/// The age of each watch, a line for each.
fn lines(ages: &[Age]) -> String {
    let line = |age: &Age| {
        let seconds = age.silent.as_secs();
        format!("\n{}: last sign of life {seconds} s ago", age.feed)
    };
    ages.iter().map(line).collect()
}

/// Whether the operator can do its work; else why not. What is stale and holds only some jobs up is named with a yes:
/// webhooks are of use to all others.
///
/// Where it serves webhooks, jobs of `mpijobs` that are not listed yet do not count: objects stored in
/// the other version are listed through its own conversion, which gets no calls before it is ready.
fn readiness(
    unlisted: &[String],
    ages: &[Age],
    certificate: Option<&Certificate>,
) -> Result<Option<String>, String> {
    let converted = format!("/{}", crd::plural(crd::MPI_STORAGE));
    let missing: Vec<&str> = unlisted
        .iter()
        .map(String::as_str)
        .filter(|path| certificate.is_none() || !path.ends_with(&converted))
        .collect();
    let stale = |shared: bool| {
        let stale = ages.iter().filter(|age| age.stale && age.shared == shared);
        let words: Vec<String> = stale
            .map(|age| format!("{} for {} s", age.feed, age.silent.as_secs()))
            .collect();
        let limit = STALE_AFTER.as_secs();
        let words = words.join(", ");
        (!words.is_empty()).then(|| format!("stale for more than {limit} s: {words}"))
    };
    if let Some(stale) = stale(true) {
        return Err(stale);
    }
    if !missing.is_empty() {
        return Err(format!("not listed yet: {}", missing.join(", ")));
    }
    certificate.map_or(Ok(()), Certificate::readiness)?;
    Ok(stale(false))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn conversion_does_not_wait_for_what_waits_for_it() {
        let pods = "/api/v1/pods".to_owned();
        let mpi = "/apis/kubeflow.org/v1/mpijobs".to_owned();
        let ready = Certificate::default();
        ready.take_for_test(crate::certificate::issue_for_test(
            &["localhost".to_owned()],
        ));
        let unready = Certificate::default();
        let none: &[String] = &[];
        let cases = [
            ("all listed, no webhooks", none, None, ""),
            ("all listed, certificate", none, Some(&ready), ""),
            (
                "all listed, no certificate",
                none,
                Some(&unready),
                "the webhooks have no certificate yet",
            ),
            (
                "pods missing",
                &[pods],
                Some(&ready),
                "not listed yet: /api/v1/pods",
            ),
            (
                "jobs of MPI missing, not served here",
                std::slice::from_ref(&mpi),
                None,
                "not listed yet: /apis/kubeflow.org/v1/mpijobs",
            ),
            (
                "jobs of MPI missing, served here",
                std::slice::from_ref(&mpi),
                Some(&ready),
                "",
            ),
        ];
        for (name, unlisted, certificate, want) in cases {
            let found = readiness(unlisted, &[], certificate)
                .err()
                .unwrap_or_default();
            assert_eq!(found, want, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_rendered_once_a_second() {
        let page = Page::default();
        let mut rendered = 0;
        let mut ask = |page: &Page| {
            page.get(|| {
                rendered += 1;
                rendered.to_string()
            })
        };
        for _ in 0..100 {
            assert_eq!(ask(&page), "1");
        }
        tokio::time::advance(PAGE_LASTS.mul_f32(0.9)).await;
        assert_eq!(ask(&page), "1");
        tokio::time::advance(PAGE_LASTS.mul_f32(0.2)).await;
        assert_eq!(ask(&page), "2");
    }

    #[test]
    fn a_stale_watch_is_named() {
        let age = |seconds: u64, shared: bool| Age {
            feed: "/api/v1/pods".to_owned(),
            silent: Duration::from_secs(seconds),
            listed: true,
            stale: seconds >= 300,
            shared,
        };
        let words = "stale for more than 300 s: /api/v1/pods for 400 s".to_owned();
        assert_eq!(readiness(&[], &[age(299, true)], None), Ok(None));
        assert_eq!(readiness(&[], &[age(400, true)], None), Err(words.clone()));
        let one_kind = readiness(&[], &[age(400, false)], None);
        assert_eq!(one_kind, Ok(Some(words)), "webhooks go on for the others");
        let line = lines(&[age(7, true)]);
        assert_eq!(line, "\n/api/v1/pods: last sign of life 7 s ago");
    }
}
