//! A member of a preflight as a pod runs it: settings come by variables, the report goes to stdout.

use std::{
    collections::BTreeMap,
    env,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use thiserror::Error;
use trainyard_core::{
    launch::preflight::{MARKER, MEASURES, PORT, variable_name},
    probe::Needs,
};

use super::{Conduct, PeerError, Settings, SocketError, join, run_leader};

/// How long one direction of a pair is measured by default: long enough for TCP to find its speed
/// on any link of a data centre, short enough for twenty rounds in a minute.
const MEASURE: Duration = Duration::from_secs(1);

/// Why a member failed.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A variable that must be there is not.
    #[error("`{0}` is not set, which `preflight --serve` needs")]
    Missing(&'static str),
    /// A variable has an invalid value.
    #[error("`{name}` needs {needed}, found `{found}`")]
    Variable {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        needed: &'static str,
    },
    /// The leader could not start.
    #[error("cannot start the leader of the preflight")]
    Leader(#[source] SocketError),
    /// The peer ended before the goodbye.
    #[error("cannot take part in the preflight")]
    Peer(#[source] PeerError),
    /// The report could not be written.
    #[error("cannot print the report")]
    Print(#[source] io::Error),
}

/// Takes part as the variables say, and where it is the leader, prints the report as one line.
pub fn serve(
    variable: &dyn Fn(&str) -> Option<String>,
    output: &mut dyn Write,
) -> Result<(), ServeError> {
    let settings = settings(variable)?;
    let own: Option<SocketAddr> = parsed(variable, variable_name::LEAD, "an address and a port")?;
    if let Some(address) = own {
        return join(&settings, address).map_err(ServeError::Peer);
    }
    let conduct = conduct(variable)?;
    let most = parsed(variable, variable_name::REPORT_BYTES, "a number of bytes")?;
    let conducted = run_leader(&settings, &conduct).map_err(ServeError::Leader)?;
    let print = |error| ServeError::Print(error);
    let report = conducted.report.within(most.unwrap_or(usize::MAX));
    let line = serde_json::to_string(&report).map_err(|error| print(error.into()))?;
    writeln!(output, "{MARKER}{line}")
        .and_then(|()| output.flush())
        .map_err(print)
}

fn settings(variable: &dyn Fn(&str) -> Option<String>) -> Result<Settings, ServeError> {
    let required = |name: &'static str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.ok_or(ServeError::Missing(name))
    };
    let seconds = parsed(variable, variable_name::TIMEOUT, "a number of seconds")?;
    let millis = parsed(variable, variable_name::MEASURE, "a number of milliseconds")?;
    Ok(Settings {
        needs: json(variable, variable_name::NEEDS, "needs as JSON")?
            .unwrap_or_else(Needs::default),
        node: required(variable_name::NODE)?,
        token: required(variable_name::TOKEN)?,
        root: variable(variable_name::ROOT)
            .filter(|root| !root.is_empty())
            .map_or_else(|| PathBuf::from("/"), PathBuf::from),
        timeout: seconds
            .map_or(MEASURES, Duration::from_secs)
            .max(Duration::from_secs(1)),
        measure: millis
            .map_or(MEASURE, Duration::from_millis)
            .max(Duration::from_millis(10)),
        programs: variable("PATH").map_or_else(Vec::new, |path| folders(&path)),
    })
}

/// The folders of a search path, without relative ones.
fn folders(path: &str) -> Vec<PathBuf> {
    env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .collect()
}

fn conduct(variable: &dyn Fn(&str) -> Option<String>) -> Result<Conduct, ServeError> {
    let names = variable(variable_name::NODES).unwrap_or_default();
    let names = names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let nodes: Vec<String> = names.map(str::to_owned).collect();
    let gang = parsed(variable, variable_name::GANG, "a number of pods")?;
    let domains: Option<BTreeMap<String, Vec<String>>> = json(
        variable,
        variable_name::TOPOLOGY,
        "the domains of each node as JSON",
    )?;
    Ok(Conduct {
        gang: gang.unwrap_or_else(|| nodes.len().max(1)),
        port: parsed(variable, variable_name::PORT, "a port")?.unwrap_or(PORT),
        domains: domains.unwrap_or_default(),
        nodes,
    })
}

fn parsed<T: FromStr>(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &'static str,
    needed: &'static str,
) -> Result<Option<T>, ServeError> {
    read(variable, name, needed, |text| text.trim().parse().ok())
}

fn json<T: serde::de::DeserializeOwned>(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &'static str,
    needed: &'static str,
) -> Result<Option<T>, ServeError> {
    read(variable, name, needed, |text| {
        serde_json::from_str(text).ok()
    })
}

fn read<T>(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &'static str,
    needed: &'static str,
    value: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ServeError> {
    let Some(found) = variable(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match value(&found) {
        Some(value) => Ok(Some(value)),
        None => Err(ServeError::Variable {
            name,
            found,
            needed,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(
        pairs: &'static [(&'static str, &'static str)],
    ) -> impl Fn(&str) -> Option<String> {
        move |name| {
            let own = pairs
                .iter()
                .find(|(own, _)| format!("TRAINYARD_PREFLIGHT_{own}") == name);
            own.map(|(_, value)| (*value).to_owned())
        }
    }

    /// Pods set every variable in the list, so that the image of a job sets none.
    #[test]
    fn all_variables_are_in_the_list() {
        let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let variable = |name: &str| {
            asked.borrow_mut().insert(name.to_owned());
            let value = match name {
                variable_name::NEEDS | variable_name::TOPOLOGY => "{}",
                variable_name::LEAD => "",
                // The last one that is read before anything is measured.
                variable_name::REPORT_BYTES => "many",
                _ => "1",
            };
            Some(value.to_owned())
        };
        let refused = serve(&variable, &mut Vec::new()).unwrap_err();
        let want = "`TRAINYARD_PREFLIGHT_REPORT_BYTES` needs a number of bytes, found `many`";
        assert_eq!(refused.to_string(), want);
        let all = variable_name::ALL.into_iter().chain(["PATH"]);
        assert_eq!(asked.into_inner(), all.map(str::to_owned).collect());
    }

    #[test]
    fn empty_is_not_set() {
        let read = settings(&variables(&[
            ("NODE", "node-a"),
            ("TOKEN", "secret"),
            ("ROOT", ""),
            ("MEASURE", ""),
        ]));
        let read = read.unwrap();
        assert_eq!((read.root, read.measure), (PathBuf::from("/"), MEASURE));
    }

    #[test]
    fn variables_are_read_and_refused_by_name() {
        let read = settings(&variables(&[
            ("NODE", "node-a"),
            ("TOKEN", "secret"),
            ("NEEDS", r#"{"interface":"net1"}"#),
            ("TIMEOUT", "30"),
        ]));
        let read = read.unwrap();
        assert_eq!(read.needs.interface.as_deref(), Some("net1"));
        assert_eq!(
            (read.timeout, read.measure),
            (Duration::from_secs(30), MEASURE)
        );
        let conduct = conduct(&variables(&[
            ("NODES", "a, b,c"),
            ("TOPOLOGY", r#"{"a":["r1"]}"#),
        ]));
        let conduct = conduct.unwrap();
        assert_eq!(
            (conduct.gang, conduct.port, conduct.nodes.len()),
            (3, PORT, 3)
        );
        assert_eq!(conduct.domains["a"], ["r1"]);

        let want = ["/usr/bin", "/opt/bin"].map(PathBuf::from);
        assert_eq!(folders("/usr/bin::.:bin:/opt/bin"), want);

        let refused = |pairs| settings(&variables(pairs)).unwrap_err().to_string();
        assert_eq!(
            refused(&[("NODE", "a")]),
            "`TRAINYARD_PREFLIGHT_TOKEN` is not set, which `preflight --serve` needs"
        );
        assert_eq!(
            refused(&[("NODE", "a"), ("TOKEN", "b"), ("TIMEOUT", "soon")]),
            "`TRAINYARD_PREFLIGHT_TIMEOUT` needs a number of seconds, found `soon`"
        );
    }
}
