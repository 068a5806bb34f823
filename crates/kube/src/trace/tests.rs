use std::sync::Mutex;

use tracing::{Instrument as _, field, info_span};
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;
use crate::{
    health,
    serve::{self, Bind, Intake, Reply, Server},
};

#[test]
fn what_users_write() {
    let cases = [
        ("http://c:4318", Some("http://c:4318/v1/traces")),
        ("http://c", Some("http://c:4318/v1/traces")),
        ("http://c:80/base/", Some("http://c:80/base/v1/traces")),
        ("https://c:4318", None),
        ("c:4318", None),
        ("", None),
    ];
    for (text, want) in cases {
        let found = text.parse::<Collector>().ok().map(|it| it.to_string());
        assert_eq!(found.as_deref(), want, "{text}");
    }
}

#[tokio::test]
async fn a_collector_gets_passes_with_their_calls() {
    let got: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
    let keep = Arc::clone(&got);
    let answer: serve::Answer = Arc::new(move |request| {
        let body = serde_json::from_slice(&request.body).unwrap();
        keep.lock().unwrap().push((request.path, body));
        Box::pin(async { Reply::text(http::StatusCode::OK, "") })
    });
    let bind: Bind = "127.0.0.1:0".parse().unwrap();
    let listener = bind.listen().unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let intake = Intake {
        bytes: 1_000_000,
        values: None,
    };
    let server = Server {
        name: "collector",
        bounds: health::BOUNDS,
        tls: None,
        admit: Arc::new(move |_| Ok(intake)),
        answer,
        rules: serve::ReplyRules::default(),
        traffic: serve::Traffic::default(),
    };
    tokio::spawn(serve::serve(listener, server));

    let (recorder, exporter) = channel(format!("http://{address}").parse().unwrap());
    let subscriber = tracing_subscriber::registry().with(recorder.with_filter(filter()));
    {
        let _guard = tracing::subscriber::set_default(subscriber);
        let pass =
            info_span!(target: TARGET, "pass", job = "PyTorchJob n/j", attempt = field::Empty);
        async {
            tracing::Span::current().record("attempt", 2_u64);
            // A span of log lines is not sent.
            info_span!("other").in_scope(|| ());
            info_span!(target: TARGET, "call", verb = "get").in_scope(|| ());
        }
        .instrument(pass)
        .await;
    }
    let (end, ends) = oneshot::channel();
    end.send(()).unwrap();
    timeout(Duration::from_secs(20), exporter.run(ends))
        .await
        .unwrap();

    let got = got.lock().unwrap();
    let [(path, body)] = &got[..] else {
        panic!("{got:?}");
    };
    assert_eq!(path, "/v1/traces");
    let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
    let (call, pass) = (&spans[0], &spans[1]);
    assert_eq!(spans.as_array().unwrap().len(), 2, "{body}");
    assert_eq!((&call["name"], &call["kind"]), (&json!("call"), &json!(3)));
    assert_eq!((&pass["name"], &pass["kind"]), (&json!("pass"), &json!(1)));
    assert_eq!(call["parentSpanId"], pass["spanId"]);
    assert_eq!(call["traceId"], pass["traceId"]);
    assert_eq!(pass["traceId"].as_str().unwrap().len(), 32);
    let want = json!([
        {"key": "job", "value": {"stringValue": "PyTorchJob n/j"}},
        {"key": "attempt", "value": {"intValue": "2"}},
    ]);
    assert_eq!(pass["attributes"], want);
}

#[tokio::test]
async fn spans_beyond_the_bound_are_dropped_and_counted() {
    let (recorder, exporter) = channel("http://127.0.0.1:9".parse().unwrap());
    let subscriber = tracing_subscriber::registry().with(recorder.with_filter(filter()));
    let _guard = tracing::subscriber::set_default(subscriber);
    for _ in 0..WAITING + 3 {
        info_span!(target: TARGET, "pass").in_scope(|| ());
    }
    assert_eq!(exporter.dropped.load(Ordering::Relaxed), 3);
    assert_eq!(exporter.receiver.len(), WAITING);
}
