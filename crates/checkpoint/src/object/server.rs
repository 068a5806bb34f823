//! A server of the part of S3 that checkpoints need, on this machine, which fails on purpose.
//!
//! It answers on plain threads and sockets, so what fails is below the client that is tested.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use trainyard_core::checkpoint::Crc32c;

/// What happens at one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// This status, without effect.
    Status(u16),
    /// The connection is closed, without effect.
    Reset,
    /// The request is carried out, and the connection is closed without an answer.
    DoneButReset,
    /// The request is carried out, and the answer never comes.
    DoneButSlow,
    /// The request is carried out, and the answer is an error.
    DoneButBusy,
    /// The answer ends in the middle of its body.
    Truncated,
    /// The object of the request is replaced by one with another etag before the request is carried out.
    Replaced,
    /// From here on nothing is answered but errors: for the store, the client was killed.
    Gone,
}

#[derive(Clone, Debug)]
struct Object {
    body: Vec<u8>,
    version: u64,
}

impl Object {
    fn etag(&self) -> String {
        format!("\"{}-{}\"", Crc32c::of(&self.body), self.version)
    }
}

#[derive(Clone, Debug)]
struct Upload {
    key: String,
    parts: BTreeMap<u64, Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    versions: u64,
    requests: u64,
    faults: BTreeMap<u64, Fault>,
    is_gone: bool,
    /// Methods and targets, as they came.
    log: Vec<String>,
    /// Most keys of a page.
    page: usize,
    /// Parts but the last must have so many bytes.
    smallest_part: usize,
    /// Whether conditions are understood at the end of an upload.
    no_condition: bool,
    /// Whether conditions are passed over everywhere.
    ignores_conditions: bool,
}

/// The server; it ends with this value.
#[derive(Debug)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            page: 1000,
            smallest_part: 1,
            ..State::default()
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, over) = (Arc::clone(&state), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                if let Ok(stream) = stream {
                    thread::spawn(move || serve(&shared, &stream));
                }
            }
        });
        Self {
            state,
            address,
            is_over,
        }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Forgets faults and counts; what is kept stays.
    pub(super) fn plan(&self, faults: &[(u64, Fault)]) {
        let mut state = lock(&self.state);
        state.requests = 0;
        state.is_gone = false;
        state.log.clear();
        state.faults = faults.iter().copied().collect();
    }

    pub(super) fn requests(&self) -> u64 {
        lock(&self.state).requests
    }

    pub(super) fn log(&self) -> Vec<String> {
        lock(&self.state).log.clone()
    }

    pub(super) fn page(&self, keys: usize) {
        lock(&self.state).page = keys;
    }

    pub(super) fn smallest_part(&self, bytes: usize) {
        lock(&self.state).smallest_part = bytes;
    }

    pub(super) fn without_condition(&self) {
        lock(&self.state).no_condition = true;
    }

    pub(super) fn ignoring_conditions(&self) {
        lock(&self.state).ignores_conditions = true;
    }

    pub(super) fn keys(&self) -> Vec<String> {
        lock(&self.state).objects.keys().cloned().collect()
    }

    pub(super) fn uploads(&self) -> Vec<String> {
        let state = lock(&self.state);
        state
            .uploads
            .values()
            .map(|upload| upload.key.clone())
            .collect()
    }

    pub(super) fn put(&self, key: &str, body: &[u8]) {
        lock(&self.state).put(key, body.to_vec());
    }

    pub(super) fn body(&self, key: &str) -> Option<Vec<u8>> {
        let state = lock(&self.state);
        state.objects.get(key).map(|object| object.body.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn put(text: &mut String, part: &str) {
    text.push_str(part);
}

struct Request {
    method: String,
    /// Below the bucket.
    key: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

fn answer(status: u16, body: impl Into<Vec<u8>>) -> Answer {
    Answer {
        status,
        headers: Vec::new(),
        body: body.into(),
    }
}

fn refusal(status: u16, code: &str) -> Answer {
    // As a real one: with more than a client should repeat.
    answer(
        status,
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><AWSAccessKeyId>KEY</AWSAccessKeyId></Error>"
        ),
    )
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let hex = bytes
            .get(at + 1..at + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match (
            bytes[at],
            hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()),
        ) {
            (b'%', Some(byte)) => {
                plain.push(byte);
                at += 3;
            }
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).unwrap()
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<(Request, String)> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .ok()
        .filter(|bytes| *bytes > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let path = decoded(path);
    let key = path
        .strip_prefix("/bucket")
        .unwrap_or(&path)
        .trim_start_matches('/');
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    });
    let request = Request {
        key: key.to_owned(),
        query: query.collect(),
        headers,
        body,
        method,
    };
    Some((request, target))
}

fn serve(state: &Mutex<State>, stream: &TcpStream) {
    drop(stream.set_nodelay(true));
    let mut reader = BufReader::new(stream);
    while let Some((request, target)) = read(&mut reader) {
        let fault = {
            let mut state = lock(state);
            let number = state.requests;
            state.requests += 1;
            state.log.push(format!("{} {target}", request.method));
            let fault = state.faults.get(&number).copied();
            state.is_gone |= fault == Some(Fault::Gone);
            if state.is_gone {
                Some(Fault::Gone)
            } else {
                fault
            }
        };
        let is_head = request.method == "HEAD";
        let answer = match fault {
            Some(Fault::Gone) => refusal(400, "Gone"),
            Some(Fault::Reset) => return,
            Some(Fault::Status(status)) => refusal(status, "SlowDown"),
            Some(Fault::DoneButReset) => {
                lock(state).carry_out(&request);
                return;
            }
            Some(Fault::DoneButBusy) => {
                lock(state).carry_out(&request);
                refusal(500, "InternalError")
            }
            Some(Fault::DoneButSlow) => {
                lock(state).carry_out(&request);
                // The client gives up and closes.
                drop(reader.read_line(&mut String::new()));
                return;
            }
            Some(Fault::Replaced) => {
                let mut state = lock(state);
                if let Some(object) = state.objects.get(&request.key).cloned() {
                    state.put(&request.key, object.body);
                }
                state.carry_out(&request)
            }
            Some(Fault::Truncated) | None => lock(state).carry_out(&request),
        };
        let is_cut = fault == Some(Fault::Truncated);
        if write(stream, &answer, is_head, is_cut).is_err() || is_cut {
            return;
        }
    }
}

fn write(
    mut stream: &TcpStream,
    answer: &Answer,
    is_head: bool,
    is_cut: bool,
) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\n", answer.status);
    if !answer
        .headers
        .iter()
        .any(|(name, _)| *name == "Content-Length")
    {
        put(
            &mut head,
            &format!("Content-Length: {}\r\n", answer.body.len()),
        );
    }
    for (name, value) in &answer.headers {
        put(&mut head, &format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    if is_cut && answer.body.is_empty() {
        // Nothing to cut in the body, so the head is cut.
        return stream.write_all(b"HTTP/1.1 200 X\r\nContent-");
    }
    let mut bytes = head.into_bytes();
    let end = if is_cut {
        answer.body.len() / 2
    } else {
        answer.body.len()
    };
    if !is_head {
        bytes.extend_from_slice(&answer.body[..end]);
    }
    stream.write_all(&bytes)
}

impl State {
    fn put(&mut self, key: &str, body: Vec<u8>) -> String {
        self.versions += 1;
        let object = Object {
            body,
            version: self.versions,
        };
        let etag = object.etag();
        self.objects.insert(key.to_owned(), object);
        etag
    }

    fn is_taken(&self, request: &Request) -> bool {
        !self.ignores_conditions
            && request
                .headers
                .get("if-none-match")
                .is_some_and(|value| value == "*")
            && self.objects.contains_key(&request.key)
    }

    fn carry_out(&mut self, request: &Request) -> Answer {
        let is_signed = request.query.contains_key("X-Amz-Signature")
            || request
                .headers
                .get("authorization")
                .is_some_and(|value| value.contains("Signature="));
        if !is_signed {
            return refusal(403, "AccessDenied");
        }
        let upload = request.query.get("uploadId").cloned();
        match (request.method.as_str(), upload) {
            ("POST", None) => {
                self.versions += 1;
                let id = format!("id&{}", self.versions);
                let upload = Upload {
                    key: request.key.clone(),
                    parts: BTreeMap::new(),
                };
                self.uploads.insert(id.clone(), upload);
                let id = id.replace('&', "&amp;");
                answer(
                    200,
                    format!(
                        "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                    ),
                )
            }
            ("PUT", Some(id)) => {
                let Some(upload) = self.uploads.get_mut(&id) else {
                    return refusal(404, "NoSuchUpload");
                };
                let part = request.query["partNumber"].parse().unwrap();
                let etag = format!("\"{}\"", Crc32c::of(&request.body));
                upload.parts.insert(part, request.body.clone());
                let mut done = answer(200, "");
                done.headers.push(("ETag", etag));
                done
            }
            ("POST", Some(id)) => self.complete(request, &id),
            ("DELETE", Some(id)) => match self.uploads.remove(&id) {
                Some(_) => answer(204, ""),
                None => refusal(404, "NoSuchUpload"),
            },
            ("PUT", None) if self.is_taken(request) => refusal(412, "PreconditionFailed"),
            ("PUT", None) => {
                let etag = self.put(&request.key, request.body.clone());
                let mut done = answer(200, "");
                done.headers.push(("ETag", etag));
                done
            }
            ("DELETE", None) => {
                self.objects.remove(&request.key);
                answer(204, "")
            }
            ("GET", None) if request.query.contains_key("uploads") => self.list_uploads(request),
            ("GET", None) if request.query.contains_key("list-type") => self.list(request),
            ("GET" | "HEAD", None) => self.get(request),
            _ => refusal(400, "Unknown"),
        }
    }

    fn complete(&mut self, request: &Request, id: &str) -> Answer {
        let is_conditional = request.headers.contains_key("if-none-match");
        let Some(upload) = self.uploads.get(id).cloned() else {
            return refusal(404, "NoSuchUpload");
        };
        if is_conditional && self.no_condition {
            return refusal(501, "NotImplemented");
        }
        if self.is_taken(request) {
            return refusal(412, "PreconditionFailed");
        }
        let text = String::from_utf8(request.body.clone())
            .unwrap()
            .replace("&quot;", "\"");
        let mut body = Vec::new();
        let last = upload.parts.keys().last().copied();
        for (part, bytes) in &upload.parts {
            let etag = format!("\"{}\"", Crc32c::of(bytes));
            if !text.contains(&format!(
                "<PartNumber>{part}</PartNumber><ETag>{etag}</ETag>"
            )) {
                return refusal(400, "InvalidPart");
            }
            if bytes.len() < self.smallest_part && Some(*part) != last {
                return refusal(400, "EntityTooSmall");
            }
            body.extend_from_slice(bytes);
        }
        self.uploads.remove(id);
        self.put(&request.key, body);
        answer(
            200,
            "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>",
        )
    }

    fn get(&self, request: &Request) -> Answer {
        let Some(object) = self.objects.get(&request.key) else {
            return refusal(404, "NoSuchKey");
        };
        if request
            .headers
            .get("if-match")
            .is_some_and(|etag| *etag != object.etag())
        {
            return refusal(412, "PreconditionFailed");
        }
        let size = object.body.len();
        let mut found = match request.headers.get("range") {
            None => answer(200, object.body.clone()),
            Some(range) => {
                let (start, end) = range
                    .strip_prefix("bytes=")
                    .unwrap()
                    .split_once('-')
                    .unwrap();
                let start: usize = start.parse().unwrap();
                let end = end.parse::<usize>().unwrap().min(size.saturating_sub(1));
                if start >= size {
                    return refusal(416, "InvalidRange");
                }
                let mut part = answer(206, &object.body[start..=end]);
                part.headers
                    .push(("Content-Range", format!("bytes {start}-{end}/{size}")));
                part
            }
        };
        if request.method == "HEAD" {
            found.headers.push(("Content-Length", size.to_string()));
        }
        found.headers.push(("ETag", object.etag()));
        found
            .headers
            .push(("Last-Modified", "Wed, 18 Nov 2026 06:00:00 GMT".to_owned()));
        found
    }

    fn list(&self, request: &Request) -> Answer {
        let get = |name: &str| request.query.get(name).map_or("", String::as_str);
        let (prefix, after) = (get("prefix"), get("continuation-token"));
        let limit = get("max-keys").parse().unwrap_or(1000).min(self.page);
        let mut entries = BTreeMap::new();
        for key in self.objects.keys() {
            let Some(rest) = key.strip_prefix(prefix) else {
                continue;
            };
            match rest.split_once('/') {
                Some((folder, _)) if get("delimiter") == "/" => {
                    entries.insert(format!("{prefix}{folder}/"), true);
                }
                _ => drop(entries.insert(key.clone(), false)),
            }
        }
        let left: Vec<_> = entries
            .iter()
            .filter(|(key, _)| key.as_str() > after)
            .collect();
        let mut text = String::from("<ListBucketResult>");
        for (key, is_folder) in left.iter().take(limit) {
            if **is_folder {
                put(
                    &mut text,
                    &format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"),
                );
            } else {
                let object = &self.objects[*key];
                put(
                    &mut text,
                    &format!(
                        "<Contents><Key>{key}</Key><Size>{}</Size><ETag>x</ETag><LastModified>2026-11-18T06:00:00Z</LastModified></Contents>",
                        object.body.len()
                    ),
                );
            }
        }
        if left.len() > limit {
            let (key, _) = left[limit - 1];
            put(
                &mut text,
                &format!("<NextContinuationToken>{key}</NextContinuationToken>"),
            );
        }
        text.push_str("</ListBucketResult>");
        answer(200, text)
    }

    fn list_uploads(&self, request: &Request) -> Answer {
        let get = |name: &str| request.query.get(name).map_or("", String::as_str);
        let after = (get("key-marker"), get("upload-id-marker"));
        let mut uploads: Vec<_> = self
            .uploads
            .iter()
            .map(|(id, upload)| (upload.key.as_str(), id.as_str()))
            .collect();
        uploads.sort_unstable();
        uploads.retain(|upload| upload.0.starts_with(get("prefix")) && *upload > after);
        let mut text = String::from("<ListMultipartUploadsResult>");
        let is_cut = uploads.len() > self.page;
        for (key, id) in uploads.iter().take(self.page) {
            let id = id.replace('&', "&amp;");
            put(
                &mut text,
                &format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>"),
            );
        }
        put(&mut text, &format!("<IsTruncated>{is_cut}</IsTruncated>"));
        if is_cut {
            let (key, id) = uploads[self.page - 1];
            let id = id.replace('&', "&amp;");
            put(
                &mut text,
                &format!(
                    "<NextKeyMarker>{key}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>"
                ),
            );
        }
        text.push_str("</ListMultipartUploadsResult>");
        answer(200, text)
    }
}
