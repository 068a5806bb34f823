//! The attackers. Each repeats one thing, with a pause, until it is stopped.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{Done, Plan, wire};

/// Between two attempts of one attacker.
const PAUSE: Duration = Duration::from_secs(1);
/// One attempt ends after this, whatever the server does.
const ATTEMPT: Duration = Duration::from_secs(15);
const MEBIBYTE: usize = 1024 * 1024;

/// What one hostile review is.
#[derive(Clone)]
struct Hostile {
    path: &'static str,
    body: Arc<Vec<u8>>,
    /// Only a little of it is sent, and more of it every second.
    slow: bool,
}

/// Starts all attackers, on two threads of their own.
pub(crate) fn start(plan: &Plan, done: &Arc<Done>) -> Vec<JoinHandle<()>> {
    let reviews = {
        let (plan, done) = (plan.clone(), Arc::clone(done));
        thread::spawn(move || {
            let secure = wire::connector();
            let kinds = kinds();
            let all = (0..plan.hostile).map(|number| {
                let hostile = kinds.get(number % kinds.len()).unwrap().clone();
                review(plan.webhook, hostile, secure.clone(), Arc::clone(&done))
            });
            run(join_all(all));
        })
    };
    let sockets = {
        let (plan, done) = (plan.clone(), Arc::clone(done));
        thread::spawn(move || {
            let secure = wire::connector();
            let idle =
                (0..plan.idle).map(|_| idle(plan.webhook, secure.clone(), Arc::clone(&done)));
            let silent = (0..plan.silent).map(|_| silent(plan.health, Arc::clone(&done)));
            run(async {
                futures::join!(join_all(idle), join_all(silent));
            });
        })
    };
    vec![reviews, sockets]
}

fn run<T>(future: impl Future<Output = T>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future);
}

/// Lists of lists, maps of maps and texts, as large as they may be; one body comes slowly.
fn kinds() -> Vec<Hostile> {
    let validate = "/validate-kubeflow-org-v1-pytorchjob";
    let review = r#"{"request":{"uid":"u","operation":"CREATE","object":{"apiVersion":"kubeflow.org/v1","kind":"PyTorchJob","spec":{"x":["#;
    let page = r#"{"request":{"uid":"u","desiredAPIVersion":"kubeflow.org/v1","objects":["#;
    let job = r#"{"apiVersion":"kubeflow.org/v2beta1","kind":"MPIJob","metadata":{"name":"x"},"spec":{}},"#;
    let of = |path, before: &str, piece: &str, bytes: usize, after: &str, slow| {
        let mut body = before.to_owned();
        let pieces = (bytes - before.len() - after.len()) / piece.len();
        body.push_str(&piece.repeat(pieces));
        body.truncate(body.trim_end_matches(',').len());
        body.push_str(after);
        Hostile {
            path,
            body: Arc::new(body.into_bytes()),
            slow,
        }
    };
    let end = "]}}}}";
    vec![
        of(validate, review, "[],", 3 * MEBIBYTE, end, false),
        of(validate, review, r#"{"":0},"#, 3 * MEBIBYTE, end, false),
        // Below every bound but that of work at once.
        of(
            validate,
            review,
            r#""aaaaaaaaaaaaaaaa","#,
            3 * MEBIBYTE,
            end,
            false,
        ),
        of(validate, review, "[],", MEBIBYTE / 4, end, false),
        of(validate, review, "[],", 16 * MEBIBYTE, end, false),
        of("/convert", page, "[],", 16 * MEBIBYTE, "]}}", false),
        of("/convert", page, job, 16 * MEBIBYTE, "]}}", false),
        of(validate, review, "[0],", 2 * MEBIBYTE, end, true),
    ]
}

async fn review(address: SocketAddr, hostile: Hostile, secure: TlsConnector, done: Arc<Done>) {
    while !done.stop.load(Ordering::Relaxed) {
        let attempt = async {
            if !hostile.slow {
                wire::post(address, &secure, hostile.path, &hostile.body).await;
                return;
            }
            let Some(mut stream) = wire::connect(address, &secure).await else {
                return;
            };
            let head = wire::head(hostile.path, hostile.body.len());
            let mut sent = stream.write_all(head.as_bytes()).await;
            for part in hostile.body.chunks(64 * 1024) {
                if sent.is_err() {
                    return;
                }
                sent = stream.write_all(part).await.and(stream.flush().await);
                tokio::time::sleep(PAUSE).await;
            }
        };
        drop(timeout(ATTEMPT, attempt).await);
        done.hostile.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Holds a TLS connection until the server closes it, and opens another.
async fn idle(address: SocketAddr, secure: TlsConnector, done: Arc<Done>) {
    while !done.stop.load(Ordering::Relaxed) {
        if let Ok(Some(mut stream)) = timeout(ATTEMPT, wire::connect(address, &secure)).await {
            done.connections.fetch_add(1, Ordering::Relaxed);
            let mut byte = [0];
            drop(timeout(ATTEMPT, stream.read(&mut byte)).await);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Holds a connection without a word until the server closes it, and opens another.
async fn silent(address: SocketAddr, done: Arc<Done>) {
    while !done.stop.load(Ordering::Relaxed) {
        if let Ok(Ok(mut stream)) = timeout(ATTEMPT, TcpStream::connect(address)).await {
            done.silent.fetch_add(1, Ordering::Relaxed);
            let mut byte = [0];
            drop(timeout(ATTEMPT, stream.read(&mut byte)).await);
        }
        // The next one at once, as somebody would who wants the probe to fail.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
