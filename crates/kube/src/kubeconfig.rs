//! Which cluster is meant: a kubeconfig, or the cluster that this process is a pod of.
//!
//! Owns where it is looked for and, where nothing is found, the sentence that says so.

use std::{io, path::PathBuf};

use kube::{
    Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError},
};

use crate::plain;

/// The cluster that the kubeconfig and its context name, or their usual places; else why there is none.
pub(crate) async fn config(
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
) -> Result<Config, String> {
    let named = kubeconfig.is_some() || context.is_some();
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let read = match kubeconfig {
        Some(path) => match Kubeconfig::read_from(&path) {
            Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
            Err(error) => Err(error),
        },
        None => Config::from_kubeconfig(&options).await,
    };
    let found = match read {
        Err(error) if !named => Config::incluster().map_err(|inside| neither(&error, &inside)),
        read => read.map_err(|error| words(&error)),
    };
    let mut config = found?;
    // Compressing on the way costs more than it saves next to the API server.
    config.disable_compression = true;
    Ok(config)
}

/// Why neither a kubeconfig nor the variables of a pod name a cluster. Of the two the one that was meant is said.
fn neither(file: &KubeconfigError, inside: &InClusterError) -> String {
    match (file, inside) {
        (KubeconfigError::ReadConfig(error, path), InClusterError::ReadEnvironmentVariable(_))
            if error.kind() == io::ErrorKind::NotFound && path.ends_with(".kube/config") =>
        {
            format!(
                "`KUBECONFIG` is not set, there is no `{}`, and this process is not in a pod of a cluster",
                path.display()
            )
        }
        (KubeconfigError::FindPath, InClusterError::ReadEnvironmentVariable(_)) => {
            "neither `KUBECONFIG` nor `HOME` is set, and this process is not in a pod of a cluster"
                .to_owned()
        }
        (_, InClusterError::ReadEnvironmentVariable(_)) => words(file),
        (_, inside) => format!(
            "this process is in a pod, and its ServiceAccount cannot be read: {}",
            plain::reason(inside)
        ),
    }
}

/// What is wrong with a kubeconfig.
fn words(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::CurrentContextNotSet => {
            "the kubeconfig has no `current-context`, and no context was given".to_owned()
        }
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "the files that `KUBECONFIG` lists are of different kinds or versions".to_owned()
        }
        KubeconfigError::LoadContext(name) => {
            format!("the kubeconfig has no context `{name}`")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("the kubeconfig has no cluster `{name}`, which its context names")
        }
        KubeconfigError::FindPath => "neither `KUBECONFIG` nor `HOME` is set".to_owned(),
        KubeconfigError::ReadConfig(error, path) => {
            let why = match error.kind() {
                io::ErrorKind::InvalidData => "it is not text".to_owned(),
                _ if error.to_string().contains("UTF-8") => "it is not text".to_owned(),
                _ => plain::reason(error),
            };
            format!("cannot read the kubeconfig `{}`: {why}", path.display())
        }
        KubeconfigError::Parse(error) => {
            // The rest of the text is a drawing of the place, which has its own lines.
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            format!("the kubeconfig is not YAML of the right form: {first}")
        }
        KubeconfigError::MissingClusterUrl => {
            "the cluster in the kubeconfig has no `server`".to_owned()
        }
        KubeconfigError::ParseClusterUrl(error) => {
            format!("the `server` of the cluster is not a URL: {error}")
        }
        KubeconfigError::ParseProxyUrl(error) => {
            format!("the `proxy-url` of the cluster is not a URL: {error}")
        }
        KubeconfigError::LoadCertificateAuthority(error) => data("certificate-authority", error),
        KubeconfigError::LoadClientCertificate(error) => data("client-certificate", error),
        KubeconfigError::LoadClientKey(error) => data("client-key", error),
        KubeconfigError::ParseCertificates(_) => {
            "the certificates in the kubeconfig are not PEM".to_owned()
        }
    }
}

fn data(field: &str, error: &LoadDataError) -> String {
    match error {
        LoadDataError::DecodeBase64(_) => {
            format!("`{field}-data` of the kubeconfig is not base64")
        }
        LoadDataError::ReadFile(error, path) => format!(
            "cannot read `{}`, which the kubeconfig names as `{field}`: {}",
            path.display(),
            plain::reason(error)
        ),
        LoadDataError::NoBase64DataOrFile => {
            format!("the kubeconfig has neither `{field}` nor `{field}-data`")
        }
    }
}

/// Why the credentials of a kubeconfig are of no use.
pub(crate) fn unusable(error: &kube::Error) -> String {
    match error {
        kube::Error::Auth(auth) => match auth {
            kube::client::AuthError::AuthExecStart(error) => format!(
                "cannot start the credentials program of the kubeconfig (`exec`): {}",
                plain::reason(error)
            ),
            kube::client::AuthError::AuthExecRun { cmd, out } => {
                let said = String::from_utf8_lossy(&out.stderr);
                let said: String = said.trim().chars().take(300).collect();
                format!("the credentials program of the kubeconfig (`exec`) `{cmd}` failed: {said}")
            }
            other => plain::reason(other),
        },
        other => plain::reason(other),
    }
}
