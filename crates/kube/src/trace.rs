//! Spans for OpenTelemetry: passes and the calls they make, sent to a collector as OTLP over HTTP.
//!
//! OTLP has a JSON form, and the operator speaks HTTP and JSON already; a library for it would bring more
//! crates than the rest of the operator has. Nothing is recorded unless a collector is named.
//!
//! Invariant: tracing never holds the operator up. What does not fit the bounds is dropped and counted.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::{Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    warn,
};
use tracing_subscriber::{Layer, filter::Targets, layer::Context, registry::LookupSpan};

#[cfg(test)]
mod tests;

/// The target of spans that are sent, apart from those of log lines.
pub(crate) const TARGET: &str = "otel";
/// Spans that wait to be sent.
const WAITING: usize = 8_192;
/// Spans of one request.
const BATCH: usize = 512;
/// Spans wait at most this long for others to be sent with.
const EVERY: Duration = Duration::from_secs(5);
/// One request takes at most this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the collector listens, such as `http://otel-collector:4318`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    host: String,
    port: u16,
    path: String,
}

/// A text that names no collector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("expected an address such as `http://otel-collector:4318`; TLS is left to the collector")]
pub struct CollectorError;

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let uri: Uri = text.parse().map_err(|_| CollectorError)?;
        if uri.scheme_str() != Some("http") {
            return Err(CollectorError);
        }
        let base = uri.path().trim_end_matches('/');
        Ok(Self {
            host: uri.host().ok_or(CollectorError)?.to_owned(),
            port: uri.port_u16().unwrap_or(4318),
            path: format!("{base}/v1/traces"),
        })
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

/// A span that has ended, in the form of OTLP.
type Ended = Value;

/// Takes spans in, and the other end of what it takes.
pub(crate) fn channel(collector: Collector) -> (Recorder, Exporter) {
    let (ended, receiver) = mpsc::channel(WAITING);
    let dropped = Arc::new(AtomicU64::new(0));
    let recorder = Recorder {
        ended,
        dropped: Arc::clone(&dropped),
    };
    let exporter = Exporter {
        collector,
        receiver,
        dropped,
    };
    (recorder, exporter)
}

/// Which spans are recorded.
pub(crate) fn filter() -> Targets {
    Targets::new().with_target(TARGET, LevelFilter::INFO)
}

/// Takes spans in.
#[derive(Debug)]
pub(crate) struct Recorder {
    ended: mpsc::Sender<Ended>,
    dropped: Arc<AtomicU64>,
}

/// What is kept of a span while it lasts.
struct Open {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    began: SystemTime,
    fields: Fields,
}

#[derive(Default)]
struct Fields(Vec<Value>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, &json!({"stringValue": value}));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, &json!({"intValue": value.to_string()}));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, &json!({"intValue": value.to_string()}));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, &json!({"boolValue": value}));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, &json!({"stringValue": format!("{value:?}")}));
    }
}

impl Fields {
    fn put(&mut self, field: &Field, value: &Value) {
        self.0.push(json!({"key": field.name(), "value": value}));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let parent = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            extensions.get::<Open>().map(|open| (open.trace, open.id))
        });
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(Open {
            trace: parent.map_or_else(
                || u128::from(random()) << 64 | u128::from(random()),
                |it| it.0,
            ),
            id: random(),
            parent: parent.map(|it| it.1),
            began: SystemTime::now(),
            fields,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else {
            return;
        };
        let mut ended = json!({
            "traceId": format!("{:032x}", open.trace),
            "spanId": format!("{:016x}", open.id),
            "name": span.name(),
            "kind": if open.parent.is_some() { CLIENT } else { INTERNAL },
            "startTimeUnixNano": nanoseconds(open.began),
            "endTimeUnixNano": nanoseconds(SystemTime::now()),
            "attributes": open.fields.0,
        });
        if let Some(parent) = open.parent {
            ended["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        if self.ended.try_send(ended).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Kinds of spans: a pass is our own doing, a call asks another program.
const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;

fn nanoseconds(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}

/// A number that no other span has. Keys of the standard hasher differ for each call and process.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Sends the recorded spans.
#[derive(Debug)]
pub(crate) struct Exporter {
    collector: Collector,
    receiver: mpsc::Receiver<Ended>,
    dropped: Arc<AtomicU64>,
}

/// Why spans were not sent.
#[derive(Debug, Error)]
enum ExportError {
    #[error("cannot reach it: {0}")]
    Connect(std::io::Error),
    #[error("the connection ended: {0}")]
    Broken(hyper::Error),
    #[error("it answered {0}")]
    Refused(http::StatusCode),
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Late,
}

impl Exporter {
    /// Sends spans until `ends`, and then what is left.
    pub(crate) async fn run(mut self, mut ends: oneshot::Receiver<()>) {
        let mut said = String::new();
        let mut going = true;
        while going {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = &mut ends => going = false,
            }
            while !self.receiver.is_empty() {
                let mut batch = Vec::new();
                self.receiver.recv_many(&mut batch, BATCH).await;
                let sent = timeout(PATIENCE, self.send(&batch)).await;
                let trouble = match sent.unwrap_or(Err(ExportError::Late)) {
                    Ok(()) => String::new(),
                    Err(error) => error.to_string(),
                };
                if !trouble.is_empty() && trouble != said {
                    let collector = self.collector.to_string();
                    let dropped = self.dropped.load(Ordering::Relaxed);
                    warn!(collector, error = trouble, dropped, "Cannot send spans");
                }
                let failed = !trouble.is_empty();
                said = trouble;
                if failed {
                    break;
                }
            }
        }
    }

    async fn send(&self, spans: &[Ended]) -> Result<(), ExportError> {
        let host = format!("{}:{}", self.collector.host, self.collector.port);
        let stream = TcpStream::connect(&host)
            .await
            .map_err(ExportError::Connect)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(ExportError::Broken)?;
        let connection = tokio::spawn(connection);
        let request = hyper::Request::post(self.collector.path.as_str())
            .header(header::HOST, host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(request(spans).to_string())))
            .expect("the parts of the address were parsed");
        let response = sender
            .send_request(request)
            .await
            .map_err(ExportError::Broken)?;
        let status = response.status();
        drop(response.into_body().collect().await);
        connection.abort();
        if status.is_success() {
            Ok(())
        } else {
            Err(ExportError::Refused(status))
        }
    }
}

/// The body of a request with `spans`.
fn request(spans: &[Ended]) -> Value {
    let name = json!({"key": "service.name", "value": {"stringValue": "trainyard"}});
    json!({"resourceSpans": [{
        "resource": {"attributes": [name]},
        "scopeSpans": [{"scope": {"name": "trainyard"}, "spans": spans}],
    }]})
}
