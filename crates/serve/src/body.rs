//! Reading the body of a request within its bounds.

use std::time::{Duration, Instant};

use http::StatusCode;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::room::Place;

/// Counts what a body holds while its bytes arrive, so that one that holds too much is refused before it is parsed.
pub trait Meter: Send {
    /// Counts the next bytes; where the body holds too much, the sentence for whoever sent it.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), String>;

    /// What of it is parsed at once, in units of the meter.
    fn largest(&self) -> usize;
}

/// What a body may be.
#[derive(Clone, Copy, Debug)]
pub struct Intake {
    /// Its size in bytes, at most.
    pub bytes: usize,
    /// What counts its values, where it will be parsed.
    pub values: Option<fn() -> Box<dyn Meter>>,
}

/// A body, whole.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// What of it is parsed at once, in units of its [`Meter`].
    pub(crate) values: usize,
}

/// Why a body was not read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    TooLarge(usize),
    TooManyValues(String),
    NoRoom(usize),
    TooSlow(Duration),
    Broken(String),
}

impl Refused {
    /// Under what it is counted.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge(_) => "too_large",
            Self::TooManyValues(_) => "too_many_values",
            Self::NoRoom(_) => "no_room",
            Self::TooSlow(_) => "too_slow",
            Self::Broken(_) => "broken",
        }
    }

    /// The status, and one sentence for whoever sent it.
    pub(crate) fn reply(self) -> (StatusCode, String) {
        match self {
            Self::TooLarge(most) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the body has more than {most} bytes, the maximum"),
            ),
            Self::TooManyValues(sentence) => (StatusCode::PAYLOAD_TOO_LARGE, sentence),
            Self::NoRoom(most) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("requests in progress hold {most} bytes, the maximum; retry later"),
            ),
            Self::TooSlow(limit) => (
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {limit:?}"),
            ),
            Self::Broken(error) => (
                StatusCode::BAD_REQUEST,
                format!("cannot read the body: {error}"),
            ),
        }
    }
}

/// Reads a body. Each byte is charged as it arrives, so that one who announces much and sends little holds little.
pub(crate) async fn read(
    body: Incoming,
    intake: Intake,
    limit: Duration,
    place: &Place,
) -> Result<Body, Refused> {
    let announced = body.size_hint().lower();
    if usize::try_from(announced).is_ok_and(|announced| announced <= intake.bytes) {
        timeout(limit, collect(body, intake, place))
            .await
            .unwrap_or(Err(Refused::TooSlow(limit)))
    } else {
        Err(Refused::TooLarge(intake.bytes))
    }
}

async fn collect(mut body: Incoming, intake: Intake, place: &Place) -> Result<Body, Refused> {
    let mut bytes = Vec::new();
    let mut meter = intake.values.map(|start| start());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refused::Broken(error.to_string()))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let began = Instant::now();
        if bytes.len() + data.len() > intake.bytes {
            return Err(Refused::TooLarge(intake.bytes));
        }
        if let Some(meter) = &mut meter {
            meter.feed(&data).map_err(Refused::TooManyValues)?;
        }
        place
            .hold(data.len())
            .map_err(|_| Refused::NoRoom(place.limit()))?;
        append(&mut bytes, &data, &body);
        place.pace(data.len(), began.elapsed()).await;
    }
    Ok(Body {
        bytes,
        values: meter.map_or(0, |meter| meter.largest()),
    })
}

/// Doubles the memory as `Vec` does, but never beyond what was announced.
fn append(bytes: &mut Vec<u8>, data: &[u8], rest: &Incoming) {
    if bytes.capacity() - bytes.len() < data.len() {
        let left = usize::try_from(rest.size_hint().lower()).unwrap_or(usize::MAX);
        let more = data
            .len()
            .saturating_add(left)
            .min(data.len().max(bytes.len()));
        bytes.reserve_exact(more);
    }
    bytes.extend_from_slice(data);
}
