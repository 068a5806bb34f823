//! What a pod says to its supervisor.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use thiserror::Error;
use trainyard_core::{
    barrier::{Begin, Limits, MAX_TEXT, MemberSetup, OnSuccess},
    launch::{
        checkpoints, evidence,
        supervise::{PORT, SuperviseSettings, variable_name},
    },
};
use trainyard_probe::evidence::{FlightRecorder, RAS_ADDRESS, Ras};

/// Where the leader listens instead of its port on every address, for tests on one machine.
const LISTEN: &str = "TRAINYARD_SUPERVISE_LISTEN";
/// How long a member whose program ended waits for an order, in milliseconds, for tests.
const HOLD: &str = "TRAINYARD_SUPERVISE_HOLD_MS";

/// Why a pod has no supervisor although it should.
#[derive(Debug, Error)]
pub(crate) enum SetupError {
    /// A variable is missing.
    #[error("the variable `{name}` is not set")]
    Missing { name: &'static str },
    /// The settings are not settings.
    #[error("cannot read the variable `{name}`: {source}")]
    Settings {
        name: &'static str,
        source: serde_json::Error,
    },
    /// A variable has a value that makes no sense.
    #[error("the variable `{name}` must be {needed}")]
    Bad {
        name: &'static str,
        needed: &'static str,
    },
}

/// Why a pod has no supervisor, and what must be known all the same.
#[derive(Debug, Error)]
#[error("{error}")]
pub(crate) struct SetupFailure {
    pub(crate) error: SetupError,
    /// The pod joins a restart in place, so its program must not run.
    pub(crate) waits: bool,
}

/// What a supervisor knows at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) settings: SuperviseSettings,
    pub(crate) uid: String,
    pub(crate) attempt: u32,
    pub(crate) listen: SocketAddr,
    hold: Option<Duration>,
    /// How the names of dumps and pipes of Flight Recorders begin.
    flight: Option<(String, String)>,
    /// Variables that the program gets and that are not set.
    pub(crate) variables: Vec<(&'static str, String)>,
    /// Where NCCL's monitor listens, where that is not the usual address.
    ras: Option<String>,
    /// The folder of the job's checkpoints.
    pub(crate) checkpoints: Option<PathBuf>,
}

impl Setup {
    /// Reads the variables that `lookup` returns; `None` where the pod has no supervisor.
    pub(crate) fn read(
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SetupFailure> {
        let name = variable_name::SETTINGS;
        let Some(text) = lookup(name) else {
            return Ok(None);
        };
        let settings: SuperviseSettings =
            serde_json::from_str(&text).map_err(|source| SetupFailure {
                error: SetupError::Settings { name, source },
                waits: says_waits(&text),
            })?;
        let waits = settings.waits;
        let setup = Self::with(settings, lookup);
        setup
            .map(Some)
            .map_err(|error| SetupFailure { error, waits })
    }

    fn with(
        settings: SuperviseSettings,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, SetupError> {
        let required = |name| lookup(name).ok_or(SetupError::Missing { name });
        let uid = required(variable_name::POD_UID)?;
        if uid.is_empty() || uid.len() > MAX_TEXT || settings.job.len() > MAX_TEXT {
            return Err(SetupError::Bad {
                name: variable_name::POD_UID,
                needed: "the uid of a pod",
            });
        }
        let attempt = required(variable_name::ATTEMPT)?;
        let folder = settings.evidence.as_ref();
        let prefix = folder.map(|folder| format!("{folder}/"));
        let every_address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT);
        Ok(Self {
            settings,
            uid,
            attempt: parse(variable_name::ATTEMPT, "a number", &attempt)?,
            listen: match lookup(LISTEN) {
                Some(text) => parse(LISTEN, "an address with a port", &text)?,
                None => every_address,
            },
            ras: lookup(RAS_ADDRESS),
            checkpoints: lookup(checkpoints::variable_name::CHECKPOINTS).map(PathBuf::from),
            flight: prefix
                .as_ref()
                .map(|prefix| evidence::prefixes(prefix, lookup)),
            variables: prefix.map_or_else(Vec::new, |prefix| {
                evidence::variables(&prefix, |name| lookup(name).is_some())
            }),
            hold: match lookup(HOLD) {
                Some(text) => {
                    let millis = parse(HOLD, "a number of milliseconds", &text)?;
                    Some(Duration::from_millis(millis))
                }
                None => None,
            },
        })
    }

    /// The Flight Recorders of the ranks, where they write to known places.
    pub(crate) fn recorder(&self) -> Option<FlightRecorder> {
        let (dumps, pipes) = self.flight.clone()?;
        Some(FlightRecorder::new(dumps, pipes))
    }

    /// NCCL's monitor, in the pod that leads: it knows all ranks, and each question costs all of them a little.
    pub(crate) fn ras(&self) -> Option<Ras> {
        self.settings.operator.as_ref()?;
        Ras::new(self.ras.as_deref())
    }

    /// How long each side waits.
    pub(crate) fn limits(&self) -> Limits {
        let limits = Limits::of(
            Duration::from_millis(self.settings.stop_grace_ms),
            Duration::from_millis(self.settings.start_within_ms),
        );
        Limits {
            hold: self.hold.unwrap_or(limits.hold),
            ..limits
        }
    }

    /// What the member starts with.
    pub(crate) fn member(&self) -> MemberSetup {
        MemberSetup {
            job: self.settings.job.clone(),
            uid: self.uid.clone(),
            slot: self.settings.slot,
            attempt: self.attempt,
            begin: if self.settings.waits {
                Begin::Wait
            } else {
                Begin::Run
            },
            on_success: if self.settings.exits_on_success {
                OnSuccess::Exit
            } else {
                OnSuccess::Hold
            },
            limits: self.limits(),
        }
    }
}

/// Whether settings that another version wrote, or that lack something, say that the program waits.
fn says_waits(text: &str) -> bool {
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    value.is_some_and(|value| value.get("waits") == Some(&serde_json::Value::Bool(true)))
}

fn parse<T: std::str::FromStr>(
    name: &'static str,
    needed: &'static str,
    text: &str,
) -> Result<T, SetupError> {
    text.parse().map_err(|_| SetupError::Bad { name, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"job":"j","slot":{"role":"Worker","index":3},"waits":true,"exitsOnSuccess":false,
        "identity":"/id","leader":"a:1","startWithinMs":7000,"ranks":{"first":3,"count":1,"all":4},
        "watch":{"mode":"act","hangAfterMs":1,"hangFloorMs":2,"firstStepWithinMs":3}}"#;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Setup>, String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Setup::read(&find).map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_pod_carries() {
        assert_eq!(read(&[("TRAINYARD_ATTEMPT", "2")]), Ok(None));
        let setup = read(&[
            ("TRAINYARD_SUPERVISE", WHOLE),
            ("TRAINYARD_POD_UID", "u"),
            ("TRAINYARD_ATTEMPT", "2"),
        ]);
        let setup = setup.unwrap().unwrap();
        let member = setup.member();
        assert_eq!((member.attempt, member.uid.as_str()), (2, "u"));
        assert_eq!(
            (member.begin, member.on_success),
            (Begin::Wait, OnSuccess::Hold)
        );
        assert_eq!(member.limits.start_within, Duration::from_secs(7));
        assert_eq!(member.limits.hold, Limits::default().hold);
        assert_eq!(setup.listen.port(), 28_023);
    }

    /// A pod that joins a restart in place never runs its program by itself, whatever else is wrong with its settings.
    #[test]
    fn bad_variables_keep_that_a_pod_waits() {
        let runs = WHOLE.replace("\"waits\":true", "\"waits\":false");
        let cases: [(&[(&str, &str)], bool); 5] = [
            (&[("TRAINYARD_SUPERVISE", WHOLE)], true),
            (
                &[
                    ("TRAINYARD_SUPERVISE", WHOLE),
                    ("TRAINYARD_POD_UID", "u"),
                    ("TRAINYARD_ATTEMPT", "x"),
                ],
                true,
            ),
            (&[("TRAINYARD_SUPERVISE", r#"{"waits":true}"#)], true),
            (&[("TRAINYARD_SUPERVISE", "[")], false),
            (&[("TRAINYARD_SUPERVISE", &runs)], false),
        ];
        for (variables, waits) in cases {
            let find = |name: &str| {
                let found = variables.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let failure = Setup::read(&find).unwrap_err();
            assert_eq!(failure.waits, waits, "{failure}");
        }
    }

    /// The supervisor gives a program as long to stop as the operator does.
    #[test]
    fn stop_bound_follows_the_grace_period() {
        let longer = WHOLE.replace(
            r#""startWithinMs":7000"#,
            r#""startWithinMs":7000,"stopGraceMs":60000"#,
        );
        for (settings, seconds) in [(WHOLE, 35), (longer.as_str(), 90)] {
            let setup = read(&[
                ("TRAINYARD_SUPERVISE", settings),
                ("TRAINYARD_POD_UID", "u"),
                ("TRAINYARD_ATTEMPT", "2"),
            ]);
            let limits = setup.unwrap().unwrap().limits();
            assert_eq!(limits.stop_within, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases: [(&[(&str, &str)], &str); 4] = [
            (
                &[("TRAINYARD_SUPERVISE", "[")],
                "cannot read the variable `TRAINYARD_SUPERVISE`",
            ),
            (
                &[("TRAINYARD_SUPERVISE", WHOLE)],
                "the variable `TRAINYARD_POD_UID` is not set",
            ),
            (
                &[("TRAINYARD_SUPERVISE", WHOLE), ("TRAINYARD_POD_UID", "")],
                "the variable `TRAINYARD_POD_UID` must be the uid of a pod",
            ),
            (
                &[
                    ("TRAINYARD_SUPERVISE", WHOLE),
                    ("TRAINYARD_POD_UID", "u"),
                    ("TRAINYARD_ATTEMPT", "-1"),
                ],
                "the variable `TRAINYARD_ATTEMPT` must be a number",
            ),
        ];
        for (variables, want) in cases {
            let error = read(variables).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        }
    }
}
