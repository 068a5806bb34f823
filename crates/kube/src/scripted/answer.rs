//! Answering requests.

use std::{io, sync::Arc};

use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};

use crate::clock;

use super::{
    Shared, patch,
    path::{self, Place},
    rights,
    rule::Fault,
    selector::{Selector, field, label},
    watch,
    world::{Call, Name, Refused, TRAIN_JOBS, Verb, World, missing, text},
};

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A list page holds at most so many where nobody asks for less.
const PAGE: usize = 500;

/// Which objects a list or watch means.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meant {
    pub(crate) place: Place,
    labels: Selector,
    fields: Selector,
}

impl Meant {
    fn of(place: &Place, call: &Call) -> Self {
        let text = |key: &str| call.query.get(key).map_or("", String::as_str);
        Self {
            place: place.clone(),
            labels: Selector::of(text("labelSelector")),
            fields: Selector::of(text("fieldSelector")),
        }
    }

    /// Whether it means `object`.
    pub(crate) fn means(&self, name: &Name, object: &Value) -> bool {
        let here = &self.place;
        name.0 == here.resource
            && (here.namespace.is_empty() || here.namespace == name.1)
            && (here.name.is_empty() || here.name == name.2)
            && self.labels.selects(&|key| label(object, key))
            && self.fields.selects(&|key| Some(field(object, key)))
    }
}

/// Answers one request.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    who: &'static str,
    request: Request<Bytes>,
) -> Result<Response<Body>, io::Error> {
    let (parts, bytes) = request.into_parts();
    let query = path::query(parts.uri.query().unwrap_or_default());
    let place = Place::of(parts.uri.path());
    let verb = verb(&parts.method, place.as_ref(), &query);
    let mut call = Call {
        who,
        at: tokio::time::Instant::now(),
        verb,
        path: parts.uri.path().to_owned(),
        query,
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
        version: 0,
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|it| it.to_str().ok()).unwrap_or("");
    let fault = shared.change(|world| {
        call.version = world.version;
        world.calls.push(call.clone());
        let place = place.as_ref().filter(|_| world.checks_rights);
        let forbidden = place.and_then(|place| rights::refusal(verb, place));
        forbidden.map(Fault::Refuse).or_else(|| world.fault(&call))
    });
    match &fault {
        Some(Fault::Refuse(refused)) => return Ok(refusal(refused)),
        Some(Fault::Cut) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Silent) => std::future::pending().await,
        Some(Fault::HeadOnly) => return Ok(halted(Vec::new())),
        Some(Fault::Garbage(text)) => return Ok(whole(StatusCode::OK, text.clone().into_bytes())),
        _ => {}
    }
    let Some(place) = place else {
        if let Some(group) = call.path.strip_prefix("/openapi/v3") {
            return Ok(match shared.read(|world| openapi(world, group)) {
                Some(text) => whole(StatusCode::OK, text),
                None => refusal(&Refused::new(404, "NotFound", "the group is not served")),
            });
        }
        return Ok(whole(StatusCode::OK, discovery(&shared, &call.path)));
    };
    if verb == Verb::Watch {
        let first = match fault {
            Some(Fault::Lines(lines)) => lines,
            _ => Vec::new(),
        };
        return Ok(watch::open(shared, Meant::of(&place, &call), &call, first));
    }
    let done = shared.change(|world| {
        let done = match verb {
            Verb::List => {
                let meant = Meant::of(&place, &call);
                Ok(json_bytes(&world.page(&meant, &call, fault.as_ref())))
            }
            Verb::Log => world.log(&place, &call),
            _ => world
                .serve(verb, &place, &call, content_type)
                .map(|it| json_bytes(&it)),
        };
        world.settle();
        done
    });
    match (fault, done) {
        (Some(Fault::Lost), _) => Err(io::ErrorKind::ConnectionReset.into()),
        (_, Err(refused)) => Ok(refusal(&refused)),
        (Some(Fault::Unfinished), Ok(mut bytes)) => {
            bytes.truncate(bytes.len() / 2);
            Ok(halted(bytes))
        }
        (Some(Fault::Torn), Ok(mut bytes)) => {
            bytes.truncate(bytes.len() / 2);
            let end = Err(io::ErrorKind::ConnectionReset.into());
            Ok(streamed(stream::iter([Ok(frame(bytes)), end])))
        }
        (_, Ok(bytes)) if verb == Verb::Create => Ok(whole(StatusCode::CREATED, bytes)),
        (_, Ok(bytes)) => Ok(whole(StatusCode::OK, bytes)),
    }
}

fn verb(
    method: &Method,
    place: Option<&Place>,
    query: &std::collections::BTreeMap<String, String>,
) -> Verb {
    let asks = |key: &str| query.get(key).is_some_and(|value| value != "false");
    let place = place.cloned().unwrap_or_default();
    match method.as_str() {
        "GET" if asks("watch") => Verb::Watch,
        "GET" if place.subresource == "log" => Verb::Log,
        "GET" if place.name.is_empty() && !place.resource.is_empty() => Verb::List,
        "GET" => Verb::Get,
        "POST" => Verb::Create,
        "PUT" => Verb::Update,
        "DELETE" => Verb::Delete,
        _ => Verb::Patch,
    }
}

impl World {
    /// What goes wrong with this request.
    fn fault(&mut self, call: &Call) -> Option<Fault> {
        let mut rules = std::mem::take(&mut self.rules);
        let mut found = None;
        for rule in &mut rules {
            if found.is_none() || matches!(rule.fault, Fault::Hook(_)) {
                if !rule.meets(call) {
                    continue;
                }
                match &rule.fault {
                    Fault::Hook(hook) => hook(self),
                    fault => found = Some(fault.clone()),
                }
            }
        }
        // What a hook added comes after what was there.
        rules.append(&mut self.rules);
        self.rules = rules;
        found
    }

    fn serve(
        &mut self,
        verb: Verb,
        place: &Place,
        call: &Call,
        content_type: &str,
    ) -> Result<Value, Refused> {
        let name = (
            place.resource.clone(),
            place.namespace.clone(),
            place.name.clone(),
        );
        let there = self.objects.get(&name).cloned();
        match verb {
            Verb::Create => self.create(place, call.body.clone()),
            Verb::Update => self.replace(place, call.body.clone()),
            Verb::Delete => {
                self.remove(&name, &call.body)?;
                Ok(
                    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
                )
            }
            Verb::Patch => {
                let applies = content_type.contains("apply-patch");
                let Some(there) = there else {
                    if applies && !text(&call.body, "/metadata/uid").is_empty() {
                        let message = "uid mismatch: no existing object was found";
                        return Err(Refused::new(409, "Conflict", message));
                    }
                    if applies {
                        return self.create(place, call.body.clone());
                    }
                    return Err(missing(place));
                };
                let mut object = Value::clone(&there);
                if content_type.contains("json-patch") {
                    patch::operate(&mut object, &call.body)
                        .map_err(|why| Refused::new(422, "Invalid", why))?;
                } else {
                    let strategic = content_type.contains("strategic") || applies;
                    patch::merge(&mut object, &call.body, strategic);
                }
                self.replace(place, object)
            }
            _ => there
                .map(|there| Value::clone(&there))
                .ok_or_else(|| missing(place)),
        }
    }

    fn page(&self, meant: &Meant, call: &Call, fault: Option<&Fault>) -> Value {
        let from = call.query.get("continue").map_or("", String::as_str);
        let (version, after) = from.split_once('/').unwrap_or(("", ""));
        let limit = call.query.get("limit").and_then(|text| text.parse().ok());
        let limit = limit.unwrap_or(PAGE);
        let key = |name: &Name| format!("{}/{}", name.1, name.2);
        let found = self.objects.iter();
        let found = found.filter(|(name, object)| meant.means(name, object));
        let mut found = found.filter(|(name, _)| from.is_empty() || key(name).as_str() > after);
        let page: Vec<_> = found.by_ref().take(limit).collect();
        let last = page.last().map(|(name, _)| key(name)).unwrap_or_default();
        let version = match version {
            "" => self.version.to_string(),
            version => version.to_owned(),
        };
        let mut items: Vec<Value> = page.iter().map(|(_, it)| Value::clone(it)).collect();
        let mut more = found.next().is_some().then(|| format!("{version}/{last}"));
        match fault {
            Some(Fault::Items(added)) => items.extend(added.iter().cloned()),
            Some(Fault::Endless) => more = Some(format!("{version}/")),
            _ => {}
        }
        json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "continue": more.unwrap_or_default()},
            "items": items})
    }

    fn log(&self, place: &Place, call: &Call) -> Result<Vec<u8>, Refused> {
        let pod = self.get(&place.resource, &place.namespace, &place.name);
        let pod = pod.ok_or_else(|| missing(place))?;
        if text(&pod, "/status/phase") == "Pending" {
            let message = format!("container in pod \"{}\" is waiting to start", place.name);
            return Err(Refused::new(400, "BadRequest", message));
        }
        let key = format!("{}/{}", place.namespace, place.name);
        let log = self.kubelet.logs.get(&key).map_or("", String::as_str);
        let number = |key: &str| call.query.get(key).and_then(|text| text.parse().ok());
        let mut lines: Vec<String> = log.split_inclusive('\n').map(str::to_owned).collect();
        if call.query.get("timestamps").is_some_and(|it| it == "true") {
            let times = self.kubelet.log_times.get(&key);
            for (at, line) in lines.iter_mut().enumerate() {
                let time = times.and_then(|times| times.get(at)).copied();
                let time = time.unwrap_or_else(clock::now);
                let stamp = time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ");
                *line = format!("{stamp} {line}");
            }
        }
        if let Some(since) = call.query.get("sinceTime") {
            let since: jiff::Timestamp = since.parse().expect("a time");
            let times = self.kubelet.log_times.get(&key);
            let mut times = times.into_iter().flatten();
            lines.retain(|_| times.next().is_none_or(|at| *at >= since));
        }
        let tail = number("tailLines").unwrap_or(lines.len());
        let mut bytes = lines[lines.len().saturating_sub(tail)..]
            .concat()
            .into_bytes();
        bytes.truncate(number("limitBytes").unwrap_or(usize::MAX));
        Ok(bytes)
    }
}

/// What a version of an API serves.
fn discovery(shared: &Shared, path: &str) -> Vec<u8> {
    let served = shared.read(|world| {
        let served = world.served.iter();
        let names = served.filter_map(|it| it.strip_prefix(path)?.strip_prefix('/'));
        names
            .map(|name| json!({"name": name, "namespaced": true}))
            .collect::<Vec<Value>>()
    });
    json_bytes(
        &json!({"kind": "APIResourceList", "apiVersion": "v1", "resources": served,
        "versions": [], "name": path}),
    )
}

/// The types of a version of an API, as far as anybody asks: those of `TrainJob`.
fn openapi(world: &World, group: &str) -> Option<Vec<u8>> {
    let served = TRAIN_JOBS.strip_prefix(group)?;
    let is_served = served == "/trainjobs" && world.served.contains(TRAIN_JOBS);
    is_served.then_some(())?;
    let mut fields = json!({"conditions": {}, "jobsStatus": {}, "trainyard": {}});
    if world.prunes_record {
        fields = json!({"conditions": {}, "jobsStatus": {}});
    }
    let job = json!({"properties": {"status": {"properties": fields}},
        "x-kubernetes-group-version-kind": [{"group": "trainer.kubeflow.org", "kind": "TrainJob", "version": "v1alpha1"}]});
    let schemas = json!({"org.kubeflow.trainer.v1alpha1.TrainJob": job});
    Some(json_bytes(
        &json!({"openapi": "3.0.0", "components": {"schemas": schemas}}),
    ))
}

fn json_bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn frame(bytes: Vec<u8>) -> Frame<Bytes> {
    Frame::data(Bytes::from(bytes))
}

pub(crate) fn refusal(refused: &Refused) -> Response<Body> {
    let status = StatusCode::from_u16(refused.code).unwrap_or(StatusCode::BAD_REQUEST);
    let mut response = whole(status, json_bytes(&refused.status()));
    if let Some(seconds) = refused.retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn whole(status: StatusCode, bytes: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A body of which nothing comes after `bytes`.
fn halted(bytes: Vec<u8>) -> Response<Body> {
    let first = stream::iter([Ok(frame(bytes))]);
    streamed(first.chain(stream::pending()))
}

/// A body that comes bit by bit.
pub(crate) fn streamed(
    frames: impl futures::Stream<Item = Result<Frame<Bytes>, io::Error>> + Send + 'static,
) -> Response<Body> {
    Response::new(StreamBody::new(frames).boxed_unsync())
}
