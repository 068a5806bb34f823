//! A cluster as people read it: jobs, their pods, what pods write, and the few changes people make.
//!
//! Owns the calls of the command line. It is no part of the operator: it asks when it is asked, keeps
//! nothing, and uses the rights of whoever calls it. What may not be read is left out of a [`Facts`];
//! what was asked for by name and may not be read is an error.
//!
//! Invariant: every call is bounded in time, every list in length.

mod capacity;
mod change;
mod cluster;
mod error;
mod facts;
mod job;
mod kept;
mod lint;
mod live;
mod logs;
mod objects;
mod pod;
mod preflight;
mod review;
mod tail;
mod train;

use std::{path::PathBuf, time::Duration};

use http::HeaderValue;
use kube::{
    Client,
    config::AuthInfo,
    core::{
        Request,
        params::{GetParams, ListParams},
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::runtime::Runtime;
use trainyard_core::{explain::Facts, spec::Kind};

pub use self::{
    error::LookError,
    job::JobSeen,
    kept::KeptLog,
    live::{Changed, Health, Live, LiveJob, LivePod, SourceHealth, Trouble},
    logs::{Chunk, Followed, LogAsked, LogBounds, LogOf, LogPart, LogsRead},
    pod::PodSeen,
    preflight::{PREFLIGHT_REPORT_BYTES, PreflightStopped, preflight_token},
    review::{Sees, User},
    tail::{Tail, TailAsk, TailLine},
};
pub use crate::preflight_run::PreflightFound;
use crate::{ProcessError, crd, kubeconfig, view::JobView};

/// One call takes at most this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Objects asked for at once.
const PAGE: u32 = 500;
/// Objects of one list that are read at most: as many pods as Kubernetes supports in one cluster.
const LIST_MAX: usize = 150_000;
/// Pages of them at most.
const PAGES_MAX: usize = 3_000;

/// A cluster to read.
pub struct Look {
    runtime: Runtime,
    api: Api,
    /// The same way without credentials, for calls with those of somebody else.
    bare: Client,
}

/// How the commands of this program are written where one is recommended.
#[derive(Clone, Debug)]
pub struct Words {
    /// How the program was called: `trainyard`, or `kubectl trainyard`.
    pub program: String,
    /// What stands after a command to mean the job, such as `j --cluster -n team`.
    pub handle: String,
}

/// The API server, as whoever calls may use it.
#[derive(Clone)]
struct Api {
    client: Client,
    /// Its address, for messages.
    server: String,
    /// The header with the token of whoever is meant, where that is not whoever calls.
    token: Option<HeaderValue>,
}

impl std::fmt::Debug for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Look").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}

impl Look {
    /// The cluster that the kubeconfig and its context name, or their usual places.
    pub fn connect(
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
    ) -> Result<Self, LookError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(LookError::Runtime)?;
        // A client starts tasks, so it is made inside of the runtime.
        let api = runtime.block_on(async {
            let config = kubeconfig::config(kubeconfig, context).await;
            let config = config.map_err(ProcessError::NoCluster)?;
            let server = config.cluster_url.to_string();
            let server = server.trim_end_matches('/').to_owned();
            let mut bare = config.clone();
            bare.auth_info = AuthInfo::default();
            let client = Client::try_from(config).map_err(ProcessError::Client)?;
            let bare = Client::try_from(bare).map_err(ProcessError::Client)?;
            let token = None;
            let api = Api {
                client,
                server,
                token,
            };
            Ok::<_, ProcessError>((api, bare))
        });
        let (api, bare) = api.map_err(LookError::Connect)?;
        Ok(Self { runtime, api, bare })
    }

    /// One for a test, which brings the connection.
    #[cfg(test)]
    pub(crate) fn for_test(runtime: Runtime, client: Client) -> Self {
        let server = "https://cluster.test".to_owned();
        let bare = client.clone();
        let token = None;
        let api = Api {
            client,
            server,
            token,
        };
        Self { runtime, api, bare }
    }

    /// The way of whoever has `token`; that of whoever calls where there is none. A text that is no token reaches nothing.
    fn api_of(&self, token: Option<&str>) -> Api {
        let Some(token) = token else {
            return self.api.clone();
        };
        let header = HeaderValue::try_from(format!("Bearer {token}"));
        let mut header = header.unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        header.set_sensitive(true);
        Api {
            client: self.bare.clone(),
            server: self.api.server.clone(),
            token: Some(header),
        }
    }

    /// The address of the API server.
    pub fn server(&self) -> &str {
        &self.api.server
    }

    /// The namespace that the context names, else `default`.
    pub fn namespace(&self) -> &str {
        self.api.client.default_namespace()
    }

    /// The jobs of `namespace`, or of all; newest first.
    pub fn jobs(&self, namespace: Option<&str>) -> Result<Vec<JobSeen>, LookError> {
        self.runtime.block_on(self.api.jobs(namespace))
    }

    /// The jobs in `namespace` that are called `name`, of whatever kind, or of `kind` only: several where
    /// several kinds have one of that name.
    pub fn called(
        &self,
        namespace: &str,
        name: &str,
        kind: Option<&str>,
    ) -> Result<Vec<JobSeen>, LookError> {
        self.runtime
            .block_on(self.api.called(namespace, name, kind))
    }

    /// The pods of `job`, by slot.
    pub fn pods(&self, job: &JobSeen) -> Result<Vec<PodSeen>, LookError> {
        self.runtime.block_on(self.api.pods(job))
    }

    /// What is known of `job`.
    pub fn facts(&self, job: &JobSeen, words: &Words) -> Result<Facts, LookError> {
        self.runtime.block_on(self.api.facts(job, words))
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMeta {
    #[serde(rename = "continue")]
    more: String,
}

impl Api {
    /// Why `tried` was not done.
    fn failed(&self, tried: &str, error: kube::Error) -> LookError {
        LookError::call(tried, &self.server, error)
    }

    /// Asks, with a bound.
    async fn ask<T: DeserializeOwned>(
        &self,
        tried: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, LookError> {
        let request =
            request.map_err(|error| self.failed(tried, kube::Error::BuildRequest(error)))?;
        match tokio::time::timeout(PATIENCE, self.client.request(request)).await {
            Ok(answer) => answer.map_err(|error| self.failed(tried, error)),
            Err(_) => Err(LookError::Late {
                tried: tried.to_owned(),
                patience: PATIENCE,
            }),
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        tried: &str,
        path: &str,
        name: &str,
    ) -> Result<T, LookError> {
        let request = Request::new(path).get(name, &GetParams::default());
        self.ask(tried, request).await
    }

    async fn list<T: DeserializeOwned>(
        &self,
        tried: &str,
        path: &str,
        labels: Option<String>,
        fields: Option<String>,
    ) -> Result<Vec<T>, LookError> {
        let mut params = ListParams {
            label_selector: labels,
            field_selector: fields,
            limit: Some(PAGE),
            ..ListParams::default()
        };
        let mut items = Vec::new();
        // A page may be empty and still name another.
        let mut pages = 0;
        loop {
            pages += 1;
            let request = Request::new(path).list(&params);
            let page: Page<T> = self.ask(tried, request).await?;
            items.extend(page.items);
            if page.metadata.more.is_empty() {
                return Ok(items);
            }
            // Half a list would be half an answer that looks like a whole one.
            if items.len() >= LIST_MAX || pages >= PAGES_MAX {
                return Err(LookError::TooMany {
                    tried: tried.to_owned(),
                    most: LIST_MAX,
                });
            }
            params.continue_token = Some(page.metadata.more);
        }
    }

    async fn jobs(&self, namespace: Option<&str>) -> Result<Vec<JobSeen>, LookError> {
        let mut seen = Vec::new();
        let mut served = false;
        for resource in RESOURCES {
            let tried = format!("list {}", crd::plural(resource[0]));
            for kind in *resource {
                let path = path(*kind, namespace);
                match self.list::<JobView>(&tried, &path, None, None).await {
                    Ok(views) => {
                        served = true;
                        seen.extend(views.iter().filter_map(JobSeen::new));
                        break;
                    }
                    // The cluster does not serve this version of the kind.
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if self.serves_train_jobs().await? {
            served = true;
            seen.extend(self.train_jobs(namespace).await?);
        }
        if !served {
            return Err(LookError::NoKinds);
        }
        seen.sort_by(|a, b| {
            b.created_at
                .cmp(&a.created_at)
                .then_with(|| a.key.cmp(&b.key))
        });
        Ok(seen)
    }

    async fn called(
        &self,
        namespace: &str,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<Vec<JobSeen>, LookError> {
        let mut found = Vec::new();
        if wanted.is_none_or(|wanted| is_called(Kind::Train, wanted))
            && self.serves_train_jobs().await?
        {
            found.extend(self.train_job(namespace, name).await?);
        }
        for resource in RESOURCES {
            if wanted.is_some_and(|wanted| !is_called(resource[0], wanted)) {
                continue;
            }
            let tried = format!("get {} `{name}`", crd::singular(resource[0]));
            for kind in *resource {
                let path = path(*kind, Some(namespace));
                match self.get::<JobView>(&tried, &path, name).await {
                    Ok(view) => {
                        found.extend(JobSeen::new(&view));
                        break;
                    }
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }
}

/// The resources of all kinds, each in the versions in which it may be served, the one in which
/// ours stores it first.
const RESOURCES: &[&[Kind]] = &[
    &[Kind::PyTorch],
    &[Kind::Tf],
    &[Kind::MpiV1, Kind::MpiV2],
    &[Kind::XgBoost],
    &[Kind::Paddle],
    &[Kind::Jax],
];

/// A resource that few clusters serve, and that many users may not list: discovery is asked first.
const TRAIN: &[Kind] = &[Kind::Train];

/// Whether `word` (`pytorchjob`, `pytorchjobs`, `PyTorchJob`, `pytorch`) means `kind`.
fn is_called(kind: Kind, word: &str) -> bool {
    let word = word.to_lowercase();
    let word = word.split('.').next().unwrap_or_default();
    let singular = crd::singular(kind);
    word == singular || word == crd::plural(kind) || Some(word) == singular.strip_suffix("job")
}

/// Whether `word` means any kind of job.
pub fn is_kind(word: &str) -> bool {
    RESOURCES
        .iter()
        .chain([&TRAIN])
        .any(|resource| is_called(resource[0], word))
}

fn path(kind: Kind, namespace: Option<&str>) -> String {
    let group = format!("/apis/{}/{}", kind.group(), crd::version(kind));
    let plural = crd::plural(kind);
    match namespace {
        Some(namespace) => format!("{group}/namespaces/{namespace}/{plural}"),
        None => format!("{group}/{plural}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_their_names() {
        let cases = [
            ("pytorchjob", true),
            ("PyTorchJobs", true),
            ("pytorch", true),
            ("pytorchjobs.kubeflow.org", true),
            ("mpijob", true),
            ("pod", false),
            ("", false),
        ];
        for (word, want) in cases {
            assert_eq!(is_kind(word), want, "{word}");
        }
    }

    #[test]
    fn every_kind_is_looked_at() {
        for kind in Kind::ALL {
            assert!(
                RESOURCES.iter().any(|kinds| kinds.contains(&kind)),
                "{kind}"
            );
        }
    }
}
