//! Lists: page by page, each within its time, and not without end.

use std::time::Duration;

use kube::{
    Client,
    core::{Request, params::ListParams},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

use super::{Pulse, Source};
use crate::view::View;

/// Objects asked for at once.
const PAGE: u32 = 500;
/// A page comes within this time.
pub(super) const PAGE_WITHIN: Duration = Duration::from_mins(1);
/// A list has at most so many pages: a million objects, as many as an API server is built for…
pub(super) const PAGES: usize = 2_000;
/// …and at most so many objects, however many a page holds.
const OBJECTS: usize = 1_000_000;

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "items")]
    items: Vec<T>,
}

/// Servers in Go write an empty list as `null` where nobody made it one.
fn items<'de, D, T>(list: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(list).map(Option::unwrap_or_default)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    more: String,
}

/// Every object, as of one version.
pub(crate) async fn list<T: View>(
    client: &Client,
    source: &Source,
) -> Result<(Vec<T>, String), kube::Error> {
    list_with(client, source, &Pulse::default()).await
}

/// The same; `pulse` gets what cannot be decoded.
pub(super) async fn list_with<T: View>(
    client: &Client,
    source: &Source,
    pulse: &Pulse,
) -> Result<(Vec<T>, String), kube::Error> {
    let request = Request::new(&source.path);
    let mut params = ListParams {
        label_selector: source.labels.clone(),
        field_selector: source.fields.clone(),
        limit: Some(PAGE),
        ..ListParams::default()
    };
    let mut items = Vec::new();
    for _ in 0..PAGES {
        let page = request.list(&params).map_err(kube::Error::BuildRequest)?;
        let text = timeout(PAGE_WITHIN, client.request_text(page)).await;
        let text = text.map_err(|_| late())??;
        let page: Page<T> = read(&text, source, pulse).map_err(kube::Error::SerdeError)?;
        items.extend(page.items);
        if page.metadata.more.is_empty() {
            return Ok((items, page.metadata.resource_version));
        }
        if items.len() > OBJECTS {
            break;
        }
        params.continue_token = Some(page.metadata.more);
    }
    let found = items.len();
    Err(kube::Error::Service(
        format!("the list did not end within {PAGES} pages and {OBJECTS} objects; it had {found}")
            .into(),
    ))
}

fn late() -> kube::Error {
    let seconds = PAGE_WITHIN.as_secs();
    kube::Error::Service(format!("a page of the list did not come within {seconds} s").into())
}

/// A page without the items that cannot be decoded.
fn read<T: DeserializeOwned>(
    text: &str,
    source: &Source,
    pulse: &Pulse,
) -> Result<Page<T>, serde_json::Error> {
    // At once where all are as they should be; that is the rule, and half the work.
    if let Ok(page) = serde_json::from_str(text) {
        return Ok(page);
    }
    let page: Page<Value> = serde_json::from_str(text)?;
    let items = page.items.into_iter().filter_map(|item| {
        T::deserialize(&item)
            .inspect_err(|error| pulse.undecodable(source, &item, error))
            .ok()
    });
    Ok(Page {
        items: items.collect(),
        metadata: page.metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_may_be_null() {
        let source = Source {
            path: "/api/v1/pods".to_owned(),
            labels: None,
            fields: None,
        };
        let cases = [
            (r#"{"items": null}"#, 0),
            ("{}", 0),
            (r#"{"items": []}"#, 0),
            (r#"{"items": [7, "8", 9]}"#, 2),
        ];
        for (text, want) in cases {
            let page = read::<u32>(text, &source, &Pulse::default()).unwrap();
            assert_eq!(page.items.len(), want, "{text}");
        }
    }
}
