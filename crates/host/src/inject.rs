//! Injected faults, as users write them: `kill rank=3 at=5s`.
//!
//! Owns the words and when a fault is due. What a fault does to a pod is done by the engine and by
//! pod init.

use std::{fmt, str::FromStr, time::Duration};

use thiserror::Error;

/// One injected fault. It takes place once in a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// What happens.
    pub fault: Fault,
    /// To whom.
    pub targets: Targets,
    /// When.
    pub at: At,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The rank gets `SIGKILL`.
    Kill,
    /// The rank stops without a word.
    Hang,
    /// The rank ends with this code.
    Exit {
        /// The code.
        code: u8,
    },
    /// The pods freeze and their node is gone.
    NodeLoss,
    /// The rank runs at a fraction of its speed from then on.
    Slow {
        /// How many times slower.
        factor: f64,
    },
}

/// To whom it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// The pod of this rank.
    Rank(
        /// The rank.
        u32,
    ),
    /// The pods at these places of the listing order.
    Pods(
        /// The places, from 0.
        Vec<u32>,
    ),
}

/// When it happens; a target that does not run by then is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// This long after the first pod of the run was started.
    Elapsed(
        /// How long.
        Duration,
    ),
    /// When any rank reports this step, or a later one.
    Step(
        /// The step.
        u64,
    ),
}

/// Why an injection cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InjectionError {
    /// Not a fault that we know.
    #[error("unknown fault `{found}`; expected `kill`, `hang`, `exit`, `node-loss` or `slow`")]
    UnknownFault {
        /// The word found.
        found: String,
    },
    /// A part that is not `key=value`, or whose key the fault does not have.
    #[error("unknown setting `{found}` of `{fault}`; expected {}", in_words(takes))]
    UnknownSetting {
        /// The part found.
        found: String,
        /// The fault.
        fault: String,
        /// The settings it takes.
        takes: &'static [&'static str],
    },
    /// A setting that must be there.
    #[error("`{fault}` needs `{missing}`")]
    Missing {
        /// The fault.
        fault: String,
        /// The setting, with an example.
        missing: &'static str,
    },
    /// A value that cannot be read.
    #[error("`{key}={found}` is not {needed}")]
    BadValue {
        /// The setting.
        key: String,
        /// The value found.
        found: String,
        /// What it must be.
        needed: &'static str,
    },
}

/// The names of settings as a list: `` `rank`, `factor` and `at` ``.
fn in_words(settings: &[&str]) -> String {
    let names: Vec<String> = settings.iter().map(|name| format!("`{name}`")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

impl FromStr for Injection {
    type Err = InjectionError;

    fn from_str(text: &str) -> Result<Self, InjectionError> {
        let mut parts = text.split_whitespace();
        let word = parts.next().unwrap_or_default();
        let takes: &[&str] = match word {
            "kill" | "hang" => &["rank", "at"],
            "exit" => &["code", "rank", "at"],
            "node-loss" => &["pods", "at"],
            "slow" => &["rank", "factor", "at"],
            _ => {
                return Err(InjectionError::UnknownFault {
                    found: word.to_owned(),
                });
            }
        };
        let (mut rank, mut pods, mut at, mut code, mut factor) = (None, None, None, None, None);
        for part in parts {
            let unknown = || InjectionError::UnknownSetting {
                found: part.to_owned(),
                fault: word.to_owned(),
                takes,
            };
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            if !takes.contains(&key) {
                return Err(unknown());
            }
            let bad = |needed| InjectionError::BadValue {
                key: key.to_owned(),
                found: value.to_owned(),
                needed,
            };
            match key {
                "rank" => rank = Some(value.parse().map_err(|_| bad("a rank, such as `3`"))?),
                "code" => code = Some(value.parse().map_err(|_| bad("an exit code, 0 to 255"))?),
                "at" => {
                    let read = parse_at(value);
                    let needed = "a time such as `5s`, `1500ms` or `2m`, or `step:100`";
                    at = Some(read.ok_or_else(|| bad(needed))?);
                }
                "factor" => {
                    let read = value
                        .parse()
                        .ok()
                        .filter(|factor| (1.0..=1000.0).contains(factor));
                    factor = Some(read.ok_or_else(|| bad("a number from 1 to 1000"))?);
                }
                _ => {
                    let read: Result<Vec<u32>, _> = value.split(',').map(str::parse).collect();
                    pods = Some(read.map_err(|_| bad("a list of pods, such as `2,3`"))?);
                }
            }
        }
        let missing = |missing| InjectionError::Missing {
            fault: word.to_owned(),
            missing,
        };
        let fault = match word {
            "kill" => Fault::Kill,
            "hang" => Fault::Hang,
            "exit" => Fault::Exit {
                code: code.ok_or_else(|| missing("code=137"))?,
            },
            "slow" => Fault::Slow {
                factor: factor.ok_or_else(|| missing("factor=5"))?,
            },
            _ => Fault::NodeLoss,
        };
        let targets = match fault {
            Fault::NodeLoss => Targets::Pods(pods.ok_or_else(|| missing("pods=2,3"))?),
            _ => Targets::Rank(rank.ok_or_else(|| missing("rank=3"))?),
        };
        Ok(Self {
            fault,
            targets,
            at: at.ok_or_else(|| missing("at=5s"))?,
        })
    }
}

fn parse_at(text: &str) -> Option<At> {
    if let Some(step) = text.strip_prefix("step:") {
        return step.parse().ok().map(At::Step);
    }
    let (number, unit_seconds) = if let Some(number) = text.strip_suffix("ms") {
        (number, 0.001)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else {
        (text.strip_suffix('m')?, 60.0)
    };
    let seconds: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(seconds * unit_seconds)
        .ok()
        .map(At::Elapsed)
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::Kill => write!(f, "kill")?,
            Fault::Hang => write!(f, "hang")?,
            Fault::Exit { code } => write!(f, "exit code={code}")?,
            Fault::NodeLoss => write!(f, "node-loss")?,
            Fault::Slow { factor } => write!(f, "slow factor={factor}")?,
        }
        match &self.targets {
            Targets::Rank(rank) => write!(f, " rank={rank}")?,
            Targets::Pods(pods) => {
                let pods: Vec<String> = pods.iter().map(u32::to_string).collect();
                write!(f, " pods={}", pods.join(","))?;
            }
        }
        match self.at {
            At::Elapsed(elapsed) => write!(f, " at={}s", elapsed.as_secs_f64()),
            At::Step(step) => write!(f, " at=step:{step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injections_read_back_as_written() {
        for text in [
            "kill rank=3 at=5s",
            "hang rank=1 at=step:100",
            "exit code=137 rank=0 at=2s",
            "node-loss pods=2,3 at=8s",
            "slow factor=5 rank=2 at=10s",
        ] {
            let read: Injection = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        let read: Injection = "slow rank=2 factor=5 at=1500ms".parse().unwrap();
        assert_eq!(read.at, At::Elapsed(Duration::from_millis(1500)));
        assert_eq!(read.fault, Fault::Slow { factor: 5.0 });
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let cases = [
            (
                "",
                "unknown fault ``; expected `kill`, `hang`, `exit`, `node-loss` or `slow`",
            ),
            ("kill rank=3", "`kill` needs `at=5s`"),
            ("kill at=1s", "`kill` needs `rank=3`"),
            ("kill rank=x at=1s", "`rank=x` is not a rank, such as `3`"),
            (
                "kill rank=1 at=-1s",
                "`at=-1s` is not a time such as `5s`, `1500ms` or `2m`, or `step:100`",
            ),
            (
                "kill rank=1 at=1e40s",
                "`at=1e40s` is not a time such as `5s`, `1500ms` or `2m`, or `step:100`",
            ),
            (
                "kill pods=1 at=1s",
                "unknown setting `pods=1` of `kill`; expected `rank` and `at`",
            ),
            (
                "hang now",
                "unknown setting `now` of `hang`; expected `rank` and `at`",
            ),
            ("exit rank=0 at=1s", "`exit` needs `code=137`"),
            (
                "exit code=256 rank=0 at=1s",
                "`code=256` is not an exit code, 0 to 255",
            ),
            (
                "slow rank=0 factor=0.5 at=1s",
                "`factor=0.5` is not a number from 1 to 1000",
            ),
            (
                "slow rank=0 factor=NaN at=1s",
                "`factor=NaN` is not a number from 1 to 1000",
            ),
            (
                "node-loss pods=1, at=1s",
                "`pods=1,` is not a list of pods, such as `2,3`",
            ),
        ];
        for (text, want) in cases {
            let got = text.parse::<Injection>().unwrap_err().to_string();
            assert_eq!(got, want, "{text:?}");
        }
    }
}
