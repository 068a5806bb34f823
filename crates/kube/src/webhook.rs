//! What the API server asks: what a job means where it says nothing, whether it may be written, and what
//! it is in another version.
//!
//! Owns how many reviews are worked on at once. A review of usual size has turns of its own, so that it never waits for large ones.

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::{Method, StatusCode};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tracing::error;
use trainyard_core::{
    launch::Cluster,
    spec::{Kind, count::Values},
};

use crate::{
    admission::{self, FindRuntime},
    convert, crd,
    serve::{Admit, Answer, Bounds, Head, Intake, Phase, Reply, Request, Size, Traffic, counted},
};

#[cfg(test)]
mod tests;

/// Under what its connections are counted.
pub(crate) const NAME: &str = "webhook";

/// Of all bodies and answers at once 48 MiB: 64 KiB for each connection, and 32 MiB for what is larger.
pub(crate) const BOUNDS: Bounds = Bounds {
    size: Size {
        connections: 256,
        bytes: 32 * MEBIBYTE,
        free_bytes: SMALL_BYTES,
        // A tenth of what one thread can decrypt and count.
        bytes_a_second: 100_000_000,
    },
    first: Duration::from_secs(5),
    idle: Duration::from_secs(100),
    body: Duration::from_secs(5),
    request: Duration::from_secs(30),
    answer: Duration::from_secs(10),
};

const MEBIBYTE: usize = 1024 * 1024;
/// An `AdmissionReview` holds a job twice, and etcd stores none above 1.5 MiB. A job with 1,000 variables is 6,000 units; parsing and
/// checking 200,000 takes some 50 MB.
const ADMISSION: Intake = Intake {
    bytes: 3 * MEBIBYTE,
    values: Some(|| counted(Values::InAll(200_000))),
};
/// A `ConversionReview` holds a page of a list, and 500 large jobs are some megabytes. They are converted one after the other:
/// `{"request": {"objects": [` are three levels around each.
const CONVERSION: Intake = Intake {
    bytes: 16 * MEBIBYTE,
    values: Some(|| {
        counted(Values::InEach {
            depth: 3,
            most: 200_000,
        })
    }),
};
/// A review of usual size, which has turns of its own.
const SMALL_BYTES: usize = 64 * 1024;
const SMALL_VALUES: usize = 10_000;

/// How many are worked on at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Reviews of usual size, of both kinds.
    pub(crate) small: usize,
    /// Large admission reviews.
    pub(crate) admissions: usize,
    /// Large conversion reviews.
    pub(crate) conversions: usize,
    /// How long one waits for its turn.
    pub(crate) wait: Duration,
}

impl Turns {
    /// How many in all.
    pub(crate) const fn all(self) -> usize {
        self.small + self.admissions + self.conversions
    }
}

/// What the operator does.
pub(crate) const TURNS: Turns = Turns {
    small: 4,
    admissions: 1,
    conversions: 2,
    wait: Duration::from_secs(5),
};

/// Where it is asked what a job means where it says nothing.
pub const DEFAULT_PATH: &str = "/default";

/// Where it is asked whether a job of `kind` may be written.
pub fn validate_path(kind: Kind) -> String {
    let group = match kind {
        Kind::Train => "trainer-kubeflow-org-v1alpha1",
        _ => "kubeflow-org-v1",
    };
    format!("/validate-{group}-{}", crd::singular(kind))
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callers {
    /// None is needed.
    Anybody,
    /// For admission reviews. The API server has none to show for conversions: it reads no credentials for them.
    Verified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Convert,
    Complete,
    Validate,
}

impl Question {
    fn at(path: &str) -> Option<Self> {
        if path == crd::CONVERT_PATH {
            return Some(Self::Convert);
        }
        if path == DEFAULT_PATH {
            return Some(Self::Complete);
        }
        let validates = Kind::READ
            .into_iter()
            .any(|kind| validate_path(kind) == path);
        validates.then_some(Self::Validate)
    }

    fn intake(self) -> Intake {
        match self {
            Self::Convert => CONVERSION,
            Self::Complete | Self::Validate => ADMISSION,
        }
    }

    fn review(self) -> fn(&[u8], &Cluster, &FindRuntime) -> Vec<u8> {
        match self {
            Self::Convert => |body, _, _| convert::review(body),
            Self::Complete => |body, _, _| admission::complete(body),
            Self::Validate => admission::review,
        }
    }
}

/// Which requests are read, and how much of them.
pub(crate) fn admits(callers: Callers, traffic: Traffic) -> Admit {
    Arc::new(move |head| {
        admit(head, callers).inspect_err(|reply| {
            let reason = match reply.status {
                StatusCode::FORBIDDEN => "no_certificate",
                StatusCode::METHOD_NOT_ALLOWED => "wrong_method",
                _ => "not_found",
            };
            traffic.refused(NAME, reason);
        })
    })
}

fn admit(head: &Head, callers: Callers) -> Result<Intake, Reply> {
    let question = Question::at(&head.path).ok_or_else(|| Reply::not_found(&head.path))?;
    if head.method != Method::POST {
        return Err(Reply::wrong_method(&Method::POST));
    }
    if callers == Callers::Verified && !head.verified && question != Question::Convert {
        return Err(Reply::text(
            StatusCode::FORBIDDEN,
            "a client certificate is required here (`--webhook-client-ca`), and none was presented",
        ));
    }
    Ok(question.intake())
}

/// Answers reviews.
pub(crate) fn reviews(
    turns: Turns,
    cluster: Arc<Cluster>,
    find: FindRuntime,
    traffic: Traffic,
) -> Answer {
    let lanes = Arc::new(Lanes::new(turns, traffic));
    Arc::new(move |request| {
        let (cluster, find) = (Arc::clone(&cluster), Arc::clone(&find));
        answer(request, Arc::clone(&lanes), cluster, find).boxed()
    })
}

/// Those who wait for their turn.
struct Lanes {
    small: Arc<Semaphore>,
    admissions: Arc<Semaphore>,
    conversions: Arc<Semaphore>,
    wait: Duration,
    traffic: Traffic,
}

impl Lanes {
    fn new(turns: Turns, traffic: Traffic) -> Self {
        Self {
            small: Arc::new(Semaphore::new(turns.small)),
            admissions: Arc::new(Semaphore::new(turns.admissions)),
            conversions: Arc::new(Semaphore::new(turns.conversions)),
            wait: turns.wait,
            traffic,
        }
    }

    /// Waits for the turn of a review.
    async fn turn(&self, question: Question, request: &Request) -> Option<OwnedSemaphorePermit> {
        let small = request.body.len() <= SMALL_BYTES && request.values <= SMALL_VALUES;
        let lane = match question {
            _ if small => &self.small,
            Question::Convert => &self.conversions,
            Question::Complete | Question::Validate => &self.admissions,
        };
        let _waits = self.traffic.waits();
        let turn = timeout(self.wait, Arc::clone(lane).acquire_owned()).await;
        turn.ok()?.ok()
    }
}

async fn answer(
    request: Request,
    lanes: Arc<Lanes>,
    cluster: Arc<Cluster>,
    find: FindRuntime,
) -> Reply {
    let Some(question) = Question::at(&request.path) else {
        return Reply::not_found(&request.path);
    };
    let Some(turn) = lanes.turn(question, &request).await else {
        lanes.traffic.refused(NAME, "busy");
        return Reply::text(
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "other reviews took longer than {:?}; retry later",
                lanes.wait
            ),
        );
    };
    // A page of large jobs takes a while; other connections get on meanwhile. A panic is distinguished from an
    // answer and ends neither the connection nor the operator.
    let Request {
        path, body, place, ..
    } = request;
    place.set(Phase::Working);
    let body = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        question.review()(&body, &cluster, &find)
    })
    .await;
    match body {
        Ok(body) => Reply::new(StatusCode::OK, "application/json", body),
        Err(error) => {
            error!(path, %error, "Review panicked");
            Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the review panicked")
        }
    }
}
