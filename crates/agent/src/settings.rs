//! The settings of the agent, from the environment variables of its pod.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use thiserror::Error;
use trainyard_core::launch::agent::{PORT, variable_name};

/// A large image takes minutes to pull, and `mpirun` may start before its workers.
const WAIT: Duration = Duration::from_mins(10);

/// The settings of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The attempt that this pod is part of.
    pub attempt: u32,
    /// The folder with certificate, key and authority.
    pub identity: PathBuf,
    /// What follows a bare host name, with the leading dot.
    pub domain: String,
    /// Where a worker listens, and at which port the remote shell finds it.
    pub listen: SocketAddr,
    /// How long the remote shell waits for a worker.
    pub wait: Duration,
}

/// Why the variables do not describe a pod of a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// One is missing.
    #[error("the variable `{name}` is not set, so this is not a pod of an `MPIJob`")]
    Missing {
        /// Its name.
        name: &'static str,
    },
    /// One has a value that makes no sense.
    #[error("the variable `{name}` must be {needed}, found `{found}`")]
    Bad {
        /// Its name.
        name: &'static str,
        /// What it must be.
        needed: &'static str,
        /// What it is.
        found: String,
    },
}

impl Settings {
    /// Reads the variables that `lookup` gives.
    pub fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let required = |name| lookup(name).ok_or(SettingsError::Missing { name });
        let every_address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT);
        Ok(Self {
            attempt: parse(
                variable_name::ATTEMPT,
                "a number",
                &required(variable_name::ATTEMPT)?,
            )?,
            identity: required(variable_name::IDENTITY)?.into(),
            domain: lookup(variable_name::DOMAIN).unwrap_or_default(),
            listen: match lookup(variable_name::LISTEN) {
                Some(text) => parse(variable_name::LISTEN, "an address with a port", &text)?,
                None => every_address,
            },
            wait: match lookup(variable_name::WAIT) {
                Some(text) => {
                    let seconds: u32 = parse(variable_name::WAIT, "a number of seconds", &text)?;
                    Duration::from_secs(seconds.into())
                }
                None => WAIT,
            },
        })
    }

    /// The name under which the pod called `host` is looked up.
    pub(crate) fn full_name(&self, host: &str) -> String {
        if host.contains(['.', ':']) {
            host.to_owned()
        } else {
            format!("{host}{}", self.domain)
        }
    }
}

fn parse<T: std::str::FromStr>(
    name: &'static str,
    needed: &'static str,
    text: &str,
) -> Result<T, SettingsError> {
    text.parse().map_err(|_| SettingsError::Bad {
        name,
        needed,
        found: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| {
            let mut all = variables.iter();
            let found = all.find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(&find).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_pod_says() {
        let least = [
            ("TRAINYARD_ATTEMPT", "3"),
            ("TRAINYARD_AGENT_IDENTITY", "/id"),
        ];
        let settings = read(&least).unwrap();
        assert_eq!((settings.attempt, settings.listen.port()), (3, 28_022));
        assert_eq!(settings.full_name("w-0"), "w-0");

        let more = [least[0], least[1], ("TRAINYARD_AGENT_DOMAIN", ".j.n.svc")];
        let settings = read(&more).unwrap();
        let names = [
            ("w-0", "w-0.j.n.svc"),
            ("w-0.j.n.svc", "w-0.j.n.svc"),
            ("10.0.0.1", "10.0.0.1"),
            ("fd00::1", "fd00::1"),
        ];
        for (host, want) in names {
            assert_eq!(settings.full_name(host), want);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[(&str, &str)], &str); 3] = [
            (
                &[],
                "the variable `TRAINYARD_ATTEMPT` is not set, so this is not a pod of an `MPIJob`",
            ),
            (
                &[("TRAINYARD_ATTEMPT", "x")],
                "the variable `TRAINYARD_ATTEMPT` must be a number, found `x`",
            ),
            (
                &[("TRAINYARD_ATTEMPT", "1")],
                "the variable `TRAINYARD_AGENT_IDENTITY` is not set, so this is not a pod of an `MPIJob`",
            ),
        ];
        for (variables, want) in cases {
            assert_eq!(read(variables), Err(want.to_owned()));
        }
    }
}
