//! The form in which bytes are sent: whether the client has them, and whether they are compressed.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http::{HeaderValue, StatusCode, header};
use trainyard_serve::{Headers, Reply};

use crate::{
    auth::{digest, hex},
    refusal::Refusal,
};

/// What is smaller is sent as it is: its head is as large.
const SMALL: usize = 1024;
/// What is larger is compressed on a thread of its own, so that other requests are answered meanwhile.
const LARGE: usize = 64 * 1024;

/// A name for bytes: other bytes have another one.
pub(crate) fn name_of(bytes: &[u8]) -> String {
    let mut name = hex(&digest(bytes));
    name.truncate(32);
    name
}

/// The header `ETag` for bytes of that name. It is a weak one: compressed or not, the document is the same.
pub(crate) fn tag(name: &str) -> HeaderValue {
    HeaderValue::try_from(format!("W/\"{name}\"")).expect("hex digits are visible")
}

/// Whether the client has what `tag` names.
pub(crate) fn is_known(headers: &Headers, tag: &HeaderValue) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let Some(known) = headers.hint(&header::IF_NONE_MATCH) else {
        return false;
    };
    let tag = tag.to_str().map(bare).unwrap_or_default();
    known
        .split(',')
        .any(|known| known.trim() == "*" || bare(known) == tag)
}

/// The client has it already.
pub(crate) fn not_modified(tag: HeaderValue) -> Reply {
    Reply::new(StatusCode::NOT_MODIFIED, "", Vec::new()).with(header::ETAG, tag)
}

/// Whether the client takes gzip.
pub(crate) fn takes_gzip(headers: &Headers) -> bool {
    let Some(accepted) = headers.hint(&header::ACCEPT_ENCODING) else {
        return false;
    };
    accepted.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let named = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let refused = weight.is_some_and(|weight| weight.parse::<f32>().is_ok_and(|it| it <= 0.0));
        named && !refused
    })
}

/// Compresses the body of a reply where the client takes it and it pays.
pub(crate) async fn compress(mut reply: Reply, headers: &Headers) -> Reply {
    reply = reply.with(header::VARY, HeaderValue::from_static("accept-encoding"));
    if reply.body.len() <= SMALL || !takes_gzip(headers) {
        return reply;
    }
    let compressed = if reply.body.len() < LARGE {
        gzip(&reply.body, Compression::fast())
    } else {
        let body = std::mem::take(&mut reply.body);
        let worked = tokio::task::spawn_blocking(move || (gzip(&body, Compression::fast()), body));
        let Ok((compressed, body)) = worked.await else {
            return Refusal::internal().reply();
        };
        reply.body = body;
        compressed
    };
    gzipped(reply, compressed)
}

/// The same reply with a body that is compressed already.
pub(crate) fn gzipped(mut reply: Reply, compressed: Vec<u8>) -> Reply {
    reply.body = compressed;
    reply.with(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))
}

/// Compresses bytes.
pub(crate) fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    let written = encoder.write_all(bytes);
    written
        .and_then(|()| encoder.finish())
        .expect("memory takes all bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: http::HeaderName, value: &'static str) -> Headers {
        [(name, HeaderValue::from_static(value))]
            .into_iter()
            .collect()
    }

    #[test]
    fn what_clients_take() {
        let cases = [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("br", false),
            ("xgzip", false),
            ("", false),
        ];
        for (accepted, want) in cases {
            assert_eq!(
                takes_gzip(&with(header::ACCEPT_ENCODING, accepted)),
                want,
                "{accepted}"
            );
        }
        assert!(!takes_gzip(&Headers::default()));
    }

    #[test]
    fn what_clients_have() {
        let tag = tag("ab");
        let cases = [
            ("W/\"ab\"", true),
            ("\"ab\"", true),
            ("\"x\", W/\"ab\"", true),
            ("*", true),
            ("\"abc\"", false),
            ("ab", false),
        ];
        for (known, want) in cases {
            assert_eq!(
                is_known(&with(header::IF_NONE_MATCH, known), &tag),
                want,
                "{known}"
            );
        }
        assert!(!is_known(&Headers::default(), &tag));
        assert_ne!(name_of(b"a"), name_of(b"b"));
    }
}
