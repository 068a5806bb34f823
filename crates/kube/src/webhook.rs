//! What the API server asks: what a job means where it says nothing, whether it may be written, and what
//! it is in another version.

use std::sync::Arc;

use futures::FutureExt as _;
use http::{Method, StatusCode};
use tracing::error;
use trainyard_core::{launch::Cluster, spec::Kind};

use crate::{
    admission, convert, crd,
    serve::{Answer, Bounds, Reply, Request},
};

/// A `ConversionReview` holds a page of a list, and 500 large jobs are some megabytes.
pub(crate) const BOUNDS: Bounds = Bounds {
    connections: 256,
    body: 16 * 1024 * 1024,
};

/// Where it is asked what a job means where it says nothing.
pub const DEFAULT_PATH: &str = "/default";

/// Where it is asked whether a job of `kind` may be written.
pub fn validate_path(kind: Kind) -> String {
    format!("/validate-kubeflow-org-v1-{}", crd::singular(kind))
}

/// Answers reviews.
pub(crate) fn reviews(cluster: Arc<Cluster>) -> Answer {
    Arc::new(move |request| answer(request, Arc::clone(&cluster)).boxed())
}

async fn answer(request: Request, cluster: Arc<Cluster>) -> Reply {
    let review: fn(&[u8], &Cluster) -> Vec<u8> = if request.path == crd::CONVERT_PATH {
        |body, _| convert::review(body)
    } else if request.path == DEFAULT_PATH {
        |body, _| admission::complete(body)
    } else if Kind::ALL
        .into_iter()
        .any(|kind| validate_path(kind) == request.path)
    {
        admission::review
    } else {
        return Reply::not_found(&request.path);
    };
    if request.method != Method::POST {
        return Reply::wrong_method(&Method::POST);
    }
    // A page of large jobs takes a while; passes go on meanwhile. A panic is told apart from an
    // answer and ends neither the connection nor the operator.
    let Request { path, body, .. } = request;
    let body = tokio::task::spawn_blocking(move || review(&body, &cluster)).await;
    match body {
        Ok(body) => Reply {
            status: StatusCode::OK,
            content_type: "application/json",
            body,
        },
        Err(error) => {
            error!(path, %error, "a review panicked");
            Reply::text(StatusCode::INTERNAL_SERVER_ERROR, "the review panicked")
        }
    }
}
