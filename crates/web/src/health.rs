//! `/healthz` and `/readyz` on a port of their own, for the probes of a kubelet: they hold no data and need no token.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use tokio::net::TcpListener;
use trainyard_serve::{Bounds, Intake, Reply, ReplyRules, Server, Size, Traffic};

/// Why the server is not ready; nothing where it is.
pub type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

const BOUNDS: Bounds = Bounds {
    size: Size {
        connections: 16,
        bytes: 1024 * 1024,
        free_bytes: 4096,
        bytes_a_second: 1_000_000,
    },
    first: Duration::from_secs(5),
    idle: Duration::from_secs(30),
    body: Duration::from_secs(1),
    request: Duration::from_secs(5),
    answer: Duration::from_secs(5),
};

/// Serves probes until the future is dropped.
pub async fn serve_health(listener: TcpListener, ready: Ready) {
    let server = Server {
        name: "health",
        bounds: BOUNDS,
        tls: None,
        admit: Arc::new(|head| {
            if head.method == Method::GET || head.method == Method::HEAD {
                return Ok(Intake {
                    bytes: 0,
                    values: None,
                });
            }
            Err(Reply::wrong_method(&Method::GET))
        }),
        answer: Arc::new(move |request| {
            let reply = match request.path.as_str() {
                "/healthz" => Reply::text(StatusCode::OK, "ok"),
                "/readyz" => match ready() {
                    Ok(()) => Reply::text(StatusCode::OK, "ok"),
                    Err(why) => Reply::text(StatusCode::SERVICE_UNAVAILABLE, why),
                },
                path => Reply::not_found(path),
            };
            Box::pin(std::future::ready(reply))
        }),
        rules: ReplyRules::default(),
        traffic: Traffic::default(),
    };
    trainyard_serve::serve(listener, server).await;
}
