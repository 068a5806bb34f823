//! Uploads that were begun and never ended: they are in no listing, and they cost money.

use std::io;

use ::http::Method;
use object_store::path::Path;

use super::{Client, PAGE, pages::Pages};
use crate::storage::MAX_ENTRIES;

/// One pending upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// Its key.
    pub(super) key: String,
    /// Its id.
    pub(super) id: String,
}

/// One page of the list of pending uploads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) uploads: Vec<Pending>,
    /// Where the next page begins: key and id.
    pub(super) next: Option<(String, String)>,
}

impl Client {
    /// All uploads below a prefix that were begun and not ended.
    pub(super) fn pending(&self, prefix: &str) -> io::Result<Vec<Pending>> {
        let mut uploads = Vec::new();
        let mut pages = Pages::default();
        loop {
            let mut query = vec![
                ("uploads".to_owned(), String::new()),
                ("prefix".to_owned(), prefix.to_owned()),
                ("max-uploads".to_owned(), PAGE.to_string()),
            ];
            if let Some((key, id)) = pages.marker().cloned() {
                query.push(("key-marker".to_owned(), key));
                query.push(("upload-id-marker".to_owned(), id));
            }
            let root = Path::default();
            let body = self.send(Method::GET, &root, query, false, String::new())?;
            let found = page(&body)?;
            uploads.extend(found.uploads);
            // Beyond the bound the next prune finds the rest.
            if uploads.len() >= MAX_ENTRIES || !pages.advance(found.next)? {
                return Ok(uploads);
            }
        }
    }
}

/// Reads a page. Only the few members that are needed; whatever else is there is passed over.
pub(super) fn page(body: &[u8]) -> io::Result<Page> {
    let bad = |what: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the list of pending uploads has {what}"),
        )
    };
    let text = std::str::from_utf8(body).map_err(|_| bad("bytes that are not text"))?;
    if !text.contains("ListMultipartUploadsResult") {
        return Err(bad("another form"));
    }
    let mut uploads = Vec::new();
    let mut rest = text;
    while let Some((upload, after)) = member(rest, "Upload") {
        let (Some((key, _)), Some((id, _))) = (member(upload, "Key"), member(upload, "UploadId"))
        else {
            return Err(bad("an upload without key or id"));
        };
        uploads.push(Pending {
            key: unescaped(key),
            id: unescaped(id),
        });
        rest = after;
    }
    let is_cut = member(text, "IsTruncated").is_some_and(|(value, _)| value.trim() == "true");
    let next = |name| member(text, name).map(|(value, _)| unescaped(value));
    Ok(Page {
        uploads,
        next: match (is_cut, next("NextKeyMarker"), next("NextUploadIdMarker")) {
            (true, Some(key), Some(id)) => Some((key, id)),
            (true, _, _) => return Err(bad("more pages and does not say where")),
            (false, _, _) => None,
        },
    })
}

/// The text of the first element with this name, and what comes after it.
fn member<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>"))
}

fn unescaped(text: &str) -> String {
    let named = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        // The last one: what it makes is no escape.
        ("&amp;", "&"),
    ];
    let mut text = text.to_owned();
    for (escape, plain) in named {
        text = text.replace(escape, plain);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        let body = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"x\"><Bucket>b</Bucket>\
            <NextKeyMarker>k2</NextKeyMarker><NextUploadIdMarker>i&amp;2</NextUploadIdMarker><IsTruncated>true</IsTruncated>\
            <Upload><Key>a/b&lt;c</Key><UploadId>i1</UploadId><Initiator><ID>x</ID></Initiator></Upload>\
            <Upload><Key>k2</Key><UploadId>i2</UploadId></Upload></ListMultipartUploadsResult>";
        let found = page(body.as_bytes()).unwrap();
        assert_eq!(found.uploads.len(), 2);
        assert_eq!(found.uploads[0].key, "a/b<c");
        assert_eq!(found.next, Some(("k2".to_owned(), "i&2".to_owned())));
        let last = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
        assert_eq!(page(last.as_bytes()).unwrap(), Page::default());
    }

    #[test]
    fn bad_pages_are_refused() {
        for body in [
            "",
            "<html/>",
            "<ListMultipartUploadsResult><Upload><Key>k</Key></Upload></ListMultipartUploadsResult>",
            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>",
        ] {
            assert!(page(body.as_bytes()).is_err(), "{body}");
        }
        assert!(page(&[0xff, 0xfe]).is_err());
    }
}
