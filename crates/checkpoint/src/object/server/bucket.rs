//! What the server keeps, and what a request does to it.

use std::collections::BTreeMap;

use trainyard_core::checkpoint::Crc32c;

use super::{Answer, Object, Request, State, Upload, answer, put, refusal};

impl State {
    pub(super) fn put(&mut self, key: &str, body: Vec<u8>) -> String {
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

    pub(super) fn carry_out(&mut self, request: &Request) -> Answer {
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

    pub(super) fn get(&self, request: &Request) -> Answer {
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
