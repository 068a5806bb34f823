use http::Method;
use trainyard_serve::Headers;

use super::*;
use crate::serve::Place;

/// As the operator does, but for the time.
const SHORT: Turns = Turns {
    wait: Duration::from_millis(10),
    ..TURNS
};

fn head(method: Method, path: &str, verified: bool) -> Head {
    Head {
        method,
        path: path.to_owned(),
        verified,
        ..Head::default()
    }
}

fn request(path: &str, bytes: usize, values: usize) -> Request {
    Request {
        method: Method::POST,
        path: path.to_owned(),
        query: None,
        authorization: None,
        headers: Headers::default(),
        body: vec![b' '; bytes],
        values,
        place: Place::alone(),
    }
}

fn lanes(turns: Turns, traffic: &Traffic) -> Arc<Lanes> {
    Arc::new(Lanes::new(turns, traffic.clone()))
}

#[test]
fn what_is_read_depends_on_the_path_and_the_caller() {
    let validate = "/validate-kubeflow-org-v1-mpijob";
    let (anybody, verified) = (Callers::Anybody, Callers::Verified);
    let cases = [
        (anybody, Method::POST, "/convert", false, Ok(16 << 20)),
        (anybody, Method::POST, "/default", false, Ok(3 << 20)),
        (anybody, Method::POST, validate, false, Ok(3 << 20)),
        (anybody, Method::GET, validate, false, Err(405)),
        (anybody, Method::POST, "/else", false, Err(404)),
        (verified, Method::POST, validate, true, Ok(3 << 20)),
        (verified, Method::POST, validate, false, Err(403)),
        (verified, Method::POST, "/default", false, Err(403)),
        (verified, Method::POST, "/convert", false, Ok(16 << 20)),
    ];
    for (callers, method, path, shown, want) in cases {
        let found = admit(&head(method, path, shown), callers);
        let found = found
            .map(|intake| intake.bytes)
            .map_err(|reply| reply.status.as_u16());
        assert_eq!(found, want, "{callers:?} {path} {shown}");
    }
}

#[tokio::test]
async fn two_large_conversions_are_worked_on_at_a_time() {
    let traffic = Traffic::default();
    let lanes = lanes(SHORT, &traffic);
    let large = request("/convert", SMALL_BYTES + 1, 0);
    let first = lanes.turn(Question::Convert, &large).await.unwrap();
    let second = lanes.turn(Question::Convert, &large).await.unwrap();
    assert!(lanes.turn(Question::Convert, &large).await.is_none());
    // Others do not wait for them.
    let small = request("/convert", 10, 10);
    assert!(lanes.turn(Question::Convert, &small).await.is_some());
    let review = request("/default", SMALL_BYTES + 1, 0);
    assert!(lanes.turn(Question::Complete, &review).await.is_some());
    drop(first);
    assert!(lanes.turn(Question::Convert, &large).await.is_some());
    drop(second);
    assert_eq!(traffic.waiting_now(), 0);
}

#[tokio::test]
async fn a_review_of_many_values_is_large() {
    let lanes = lanes(SHORT, &Traffic::default());
    let dense = request("/default", 10, SMALL_VALUES + 1);
    let _first = lanes.turn(Question::Complete, &dense).await.unwrap();
    assert!(lanes.turn(Question::Validate, &dense).await.is_none());
}

#[tokio::test]
async fn review_that_waits_too_long_is_refused() {
    let traffic = Traffic::default();
    let turns = Turns { small: 0, ..SHORT };
    let reply = answer(
        request("/convert", 10, 10),
        lanes(turns, &traffic),
        Arc::default(),
        Arc::new(|_, _| None),
    )
    .await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        String::from_utf8(reply.body).unwrap(),
        "other reviews took longer than 10ms; retry later\n"
    );
    assert_eq!(traffic.refused_so_far(NAME, "busy"), 1);
}
