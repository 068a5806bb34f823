//! The page: four files that are part of the program, or those of a folder while the page is being developed.
//!
//! Invariant: only these names are served. A path never becomes the name of a file.

use std::{fs::File, io::Read as _, path::PathBuf};

use flate2::Compression;
use http::{HeaderValue, StatusCode, header};
use trainyard_serve::{Headers, Reply};

use crate::{
    form::{self, gzip, gzipped, name_of, tag},
    refusal::Refusal,
};

/// Bytes of a file of a folder, at most; maps of sources are the largest.
const MOST: u64 = 16 * 1024 * 1024;
/// The client asks every time whether it is still the same.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");
/// Its URL names its content.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// The names and types of what is served, and what the program holds.
const FILES: [(&str, &str, &[u8]); 4] = [
    (
        INDEX,
        "text/html; charset=utf-8",
        include_bytes!("../assets/index.html"),
    ),
    (
        "app.js",
        "text/javascript; charset=utf-8",
        include_bytes!("../assets/app.js"),
    ),
    (
        "app.css",
        "text/css; charset=utf-8",
        include_bytes!("../assets/app.css"),
    ),
    (
        "favicon.svg",
        "image/svg+xml",
        include_bytes!("../assets/favicon.svg"),
    ),
];
const INDEX: &str = "index.html";

/// One file, ready to be sent.
#[derive(Debug)]
struct Asset {
    name: &'static str,
    content_type: &'static str,
    plain: Vec<u8>,
    gzip: Vec<u8>,
    /// The name of its content, as `v` in its URL.
    version: String,
}

/// The page.
#[derive(Debug)]
pub(crate) struct Assets {
    files: Vec<Asset>,
    folder: Option<PathBuf>,
}

impl Assets {
    /// The files of the program, compressed once; those of `folder` go before them.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        let versions = FILES.map(|(name, _, bytes)| (name, name_of(bytes)));
        let files = FILES.map(|(name, content_type, bytes)| {
            let plain = if name == INDEX {
                versioned(bytes, &versions)
            } else {
                bytes.to_vec()
            };
            Asset {
                name,
                content_type,
                gzip: gzip(&plain, Compression::best()),
                version: name_of(&plain),
                plain,
            }
        });
        Self {
            files: files.into(),
            folder,
        }
    }

    /// Answers a path below the base path.
    pub(crate) async fn reply(&self, path: &str, query: Option<&str>, headers: &Headers) -> Reply {
        let name = if path.is_empty() { INDEX } else { path };
        let Some(asset) = self.files.iter().find(|asset| asset.name == name) else {
            return not_found().reply();
        };
        if let Some(folder) = &self.folder {
            return from_folder(folder.join(asset.name), asset.content_type).await;
        }
        let version = query.and_then(|query| query.strip_prefix("v="));
        let cache = if version == Some(&asset.version) {
            FOREVER
        } else {
            ASK_AGAIN
        };
        let tag = tag(&asset.version);
        let reply = if form::is_known(headers, &tag) {
            form::not_modified(tag)
        } else {
            let reply = Reply::new(StatusCode::OK, asset.content_type, Vec::new());
            let mut reply = reply.with(header::ETAG, tag);
            if form::takes_gzip(headers) {
                gzipped(reply, asset.gzip.clone())
            } else {
                reply.body.clone_from(&asset.plain);
                reply
            }
        };
        reply
            .with(header::CACHE_CONTROL, cache)
            .with(header::VARY, HeaderValue::from_static("accept-encoding"))
    }
}

fn not_found() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "notFound",
        "the page has no file at this path",
        "open the page at `./`; documents are below `api/v1/`",
    )
}

/// Sets the `v` of every URL in the page to the name of the content, whatever it was built with.
fn versioned(page: &[u8], versions: &[(&str, String)]) -> Vec<u8> {
    let mut page = String::from_utf8_lossy(page).into_owned();
    for (name, version) in versions {
        let key = format!("{name}?v=");
        let mut parts = page.split(&key);
        let mut done = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.trim_start_matches(|found: char| found.is_ascii_alphanumeric());
            done.extend([&key, version, rest]);
        }
        page = done;
    }
    page.into_bytes()
}

async fn from_folder(path: PathBuf, content_type: &'static str) -> Reply {
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut bytes));
        read.map(|_| bytes).map_err(|error| (path, error))
    });
    match read.await {
        Ok(Ok(bytes)) => Reply::new(StatusCode::OK, content_type, bytes)
            .with(header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        Ok(Err((path, error))) => Refusal::new(
            StatusCode::NOT_FOUND,
            "unreadable",
            format!("cannot read `{}`: {error}", path.display()),
            "build the page into the folder of `--assets`",
        )
        .reply(),
        Err(_) => Refusal::internal().reply(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_in_the_page_name_their_content() {
        let page = br#"<a href="app.css?v=HASH"><b src="app.js?v=12ab"><i src="app.js?v=">"#;
        let versions = [("app.js", "j1".to_owned()), ("app.css", "c1".to_owned())];
        let found = String::from_utf8(versioned(page, &versions)).unwrap();
        let want = r#"<a href="app.css?v=c1"><b src="app.js?v=j1"><i src="app.js?v=j1">"#;
        assert_eq!(found, want);
    }

    #[test]
    fn the_page_has_no_inline_script_or_style() {
        let page = String::from_utf8(FILES[0].2.to_vec()).unwrap();
        assert!(page.contains("app.js?v=") && page.contains("app.css?v="));
        for script in page.split("<script").skip(1) {
            let (tag, rest) = script.split_once('>').unwrap();
            assert!(tag.contains("src=\"app.js"), "{tag}");
            assert!(rest.starts_with("</script>"), "{rest}");
        }
        for inline in ["<style", " style=", " onload=", " onclick=", "javascript:"] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[tokio::test]
    async fn only_four_names_are_served() {
        let assets = Assets::new(None);
        let headers = Headers::default();
        for (path, want) in [
            ("", 200),
            ("index.html", 200),
            ("app.js", 200),
            ("favicon.svg", 200),
        ] {
            assert_eq!(
                assets.reply(path, None, &headers).await.status,
                want,
                "{path}"
            );
        }
        let others = [
            "/",
            "app.js/",
            "../Cargo.toml",
            "%2e%2e/x",
            "assets/app.js",
            ".",
            "APP.JS",
            "app.js\0",
        ];
        let folder = Assets::new(Some("/".into()));
        for path in others {
            assert_eq!(
                assets.reply(path, None, &headers).await.status,
                404,
                "{path}"
            );
            assert_eq!(
                folder.reply(path, None, &headers).await.status,
                404,
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn only_the_own_version_is_immutable() {
        let assets = Assets::new(None);
        let headers = Headers::default();
        let version = assets.files[1].version.clone();
        for (query, want) in [
            (version.as_str(), FOREVER),
            ("HASH", ASK_AGAIN),
            ("", ASK_AGAIN),
        ] {
            let query = format!("v={query}");
            let reply = assets.reply("app.js", Some(&query), &headers).await;
            let cache = reply
                .headers
                .iter()
                .find(|(name, _)| name == header::CACHE_CONTROL);
            assert_eq!(cache.unwrap().1, want, "{query}");
        }
        let page = String::from_utf8(assets.files[0].plain.clone()).unwrap();
        assert!(page.contains(&format!("app.js?v={version}\"")), "{page}");
    }

    #[tokio::test]
    async fn a_folder_replaces_the_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("app.js"), "1").unwrap();
        let assets = Assets::new(Some(folder.path().to_owned()));
        let headers = Headers::default();
        assert_eq!(assets.reply("app.js", None, &headers).await.body, b"1");
        std::fs::write(folder.path().join("app.js"), "2").unwrap();
        assert_eq!(assets.reply("app.js", None, &headers).await.body, b"2");
        assert_eq!(assets.reply("app.css", None, &headers).await.status, 404);
    }
}
