//! The only place where environment variables are read.
//!
//! Everything else takes an [`Environment`], so that what a variable changes can be found by
//! looking for its field, and tests need no variables.

use std::path::{Path, PathBuf};

/// What the variables of this process say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// `NO_COLOR` is set to something: no colour unless a flag asks for it.
    pub(crate) no_color: bool,
    /// `TERM` says that the terminal cannot show colour.
    pub(crate) dumb_terminal: bool,
    /// `CUSTOM_CLUSTER_DOMAIN`: the cluster's DNS domain, as the operator reads it.
    pub(crate) cluster_domain: Option<String>,
    /// `XDG_DATA_HOME`, else `~/.local/share`: the folder for data of the user.
    pub(crate) data_folder: Option<PathBuf>,
}

impl Environment {
    /// Reads every variable that matters, once.
    pub(crate) fn read() -> Self {
        let value = |name: &str| {
            #[expect(
                clippy::disallowed_methods,
                reason = "this is the one module that reads variables"
            )]
            let value = std::env::var_os(name);
            value
                .map(|value| value.to_string_lossy().into_owned())
                .filter(|value| !value.is_empty())
        };
        Self {
            no_color: value("NO_COLOR").is_some(),
            dumb_terminal: value("TERM").is_some_and(|term| term == "dumb"),
            cluster_domain: value("CUSTOM_CLUSTER_DOMAIN"),
            data_folder: data_folder(value("XDG_DATA_HOME"), value("HOME")),
        }
    }
}

/// The folder for data of the user. One that is not absolute does not count, as the XDG specification says.
fn data_folder(xdg: Option<String>, home: Option<String>) -> Option<PathBuf> {
    let absolute = |path: String| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    xdg.and_then(absolute)
        .or_else(|| Some(home.and_then(absolute)?.join(".local/share")))
}

/// The variable called `name`, for a program that runs inside this one.
pub(crate) fn lookup(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one module that reads variables"
    )]
    let value = std::env::var(name);
    value.ok()
}

/// Every variable of this process, for those that it starts. One that is not UTF-8 is left out:
/// job files cannot name it either.
///
/// `PATH` ends with `folder`, that of this program: a job may start `trainyard` itself.
pub(crate) fn inherited(folder: Option<&Path>) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    if let Some(folder) = folder.and_then(Path::to_str) {
        match variables.iter_mut().find(|(name, _)| name == "PATH") {
            Some((_, path)) => {
                path.push(':');
                path.push_str(folder);
            }
            None => variables.push(("PATH".to_owned(), folder.to_owned())),
        }
    }
    variables
}
