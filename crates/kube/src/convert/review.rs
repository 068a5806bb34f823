//! The answer to a `ConversionReview`.
//!
//! Invariant: objects are read, converted and written one after the other, so that a page of a list takes the memory of its text,
//! of the answer's text and of one object.

use std::fmt;

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json};

use super::convert;

/// Converting adds an annotation or two to an object. An answer that is larger than its question by more than this part of it, and
/// more than [`MARGIN`] bytes, is not one to objects that the API server stores.
const GROWTH: usize = 2;
const MARGIN: usize = 1024 * 1024;

#[derive(Deserialize)]
struct Review {
    request: Request,
}

/// All of a request but its objects.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
}

/// Answers the body of a `ConversionReview` request with the body of its response.
///
/// All objects are converted or none: the API server has no use for a part.
pub fn review(body: &[u8]) -> Vec<u8> {
    let unreadable = |error: &dyn fmt::Display| {
        let message = format!("cannot read the request as a `ConversionReview`: {error}");
        failed("", &message)
    };
    let request = match serde_json::from_slice::<Review>(body) {
        Ok(Review { request }) => request,
        Err(error) => return unreadable(&error),
    };
    let mut answer = Answer {
        to: &request.desired_api_version,
        text: beginning(&request.uid, body.len()),
        most: body.len() + body.len() / GROWTH + MARGIN,
        count: 0,
        failure: None,
    };
    let objects = Field {
        name: "objects",
        needed: false,
        inner: &mut answer,
    };
    let seed = Field {
        name: "request",
        needed: true,
        inner: objects,
    };
    let mut text = serde_json::Deserializer::from_slice(body);
    let read = seed.deserialize(&mut text).and_then(|()| text.end());
    match (answer.failure.take(), read) {
        (Some(failure), _) => failed(&request.uid, &failure),
        (None, Err(error)) => unreadable(&error),
        (None, Ok(())) => {
            answer.text.extend_from_slice(END);
            answer.text
        }
    }
}

/// What was converted so far.
struct Answer<'a> {
    to: &'a str,
    /// The response as far as it is written.
    text: Vec<u8>,
    most: usize,
    count: usize,
    failure: Option<String>,
}

impl Answer<'_> {
    /// Converts one more object; else says why not.
    fn take(&mut self, object: &Value) -> Result<(), String> {
        let index = self.count;
        let name = || {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            name.unwrap_or("without a name")
        };
        let of = |error: &dyn fmt::Display| format!("object {index}, `{}`: {error}", name());
        let converted = convert(object, self.to).map_err(|error| of(&error))?;
        if index > 0 {
            self.text.push(b',');
        }
        serde_json::to_writer(&mut self.text, &converted).map_err(|error| of(&error))?;
        if self.text.len() > self.most {
            return Err(format!(
                "the converted objects have more than {} bytes, the maximum for this request",
                self.most
            ));
        }
        self.count += 1;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Answer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, list: D) -> Result<(), D::Error> {
        list.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut Answer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(object) = list.next_element::<Value>()? {
            if let Err(failure) = self.take(&object) {
                self.failure = Some(failure);
                return Err(A::Error::custom("not converted"));
            }
        }
        Ok(())
    }
}

/// One field of a map, read by `inner`; all others are skipped.
struct Field<S> {
    name: &'static str,
    needed: bool,
    inner: S,
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> DeserializeSeed<'de> for Field<S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, map: D) -> Result<(), D::Error> {
        map.deserialize_map(self)
    }
}

impl<'de, S: DeserializeSeed<'de, Value = ()>> Visitor<'de> for Field<S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a map with `{}`", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut inner = Some(self.inner);
        while let Some(key) = map.next_key::<String>()? {
            if key != self.name {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            match inner.take() {
                Some(inner) => map.next_value_seed(inner)?,
                None => return Err(A::Error::duplicate_field(self.name)),
            }
        }
        if self.needed && inner.is_some() {
            return Err(A::Error::missing_field(self.name));
        }
        Ok(())
    }
}

/// A response up to its first object, to a question of `size` bytes; [`END`] comes behind the last one.
fn beginning(uid: &str, size: usize) -> Vec<u8> {
    let uid = json!(uid);
    let text = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{{"uid":{uid},"convertedObjects":["#
    );
    let mut text = text.into_bytes();
    // An answer is a little larger than its question.
    text.reserve_exact(size + size / 8);
    text
}

const END: &[u8] = br#"],"result":{"status":"Success"}}}"#;

fn failed(uid: &str, message: &str) -> Vec<u8> {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": { "uid": uid, "result": { "status": "Failed", "message": message } },
    });
    review.to_string().into_bytes()
}
