//! The rank of this process, from `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`.
//!
//! These are the variables that `torchrun`, a `PyTorchJob` and an `XGBoostJob` set. Those of a `JAXJob` and of
//! Open MPI are read too. Without any of them the process trains alone.

use thiserror::Error;

use crate::interface;

/// More ranks than a ring of this trainer is meant for; a bound on what a peer can make us hold.
pub(crate) const SIZE_MAX: usize = 4096;

/// The variables with which ranks are started.
struct Names {
    rank: &'static str,
    size: &'static str,
    host: &'static str,
    port: &'static str,
    by: &'static str,
}

/// Every way to start ranks; the first whose rank is set is taken.
const WAYS: [Names; 3] = [
    Names {
        rank: "RANK",
        size: "WORLD_SIZE",
        host: "MASTER_ADDR",
        port: "MASTER_PORT",
        by: "`torchrun` and a `PyTorchJob` set both",
    },
    Names {
        rank: "PROCESS_ID",
        size: "NUM_PROCESSES",
        host: "COORDINATOR_ADDRESS",
        port: "COORDINATOR_PORT",
        by: "a `JAXJob` sets both",
    },
    Names {
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        host: "MASTER_ADDR",
        port: "MASTER_PORT",
        by: "pass it on with `mpirun -x`",
    },
];

/// The place of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum World {
    /// No peers.
    Alone,
    /// One of several.
    Member(Member),
}

/// One rank of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) rank: usize,
    /// How many ranks there are, at least two.
    pub(crate) size: usize,
    /// Name or address of rank 0.
    pub(crate) master_host: String,
    pub(crate) master_port: u16,
    /// The interface that gradients are to travel on, where one is named.
    pub(crate) interface: Option<String>,
}

/// Why the environment does not define the rank.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorldError {
    /// A variable that the others call for is missing.
    #[error("`{name}` is not set, but `{rank}` is; {by}")]
    Missing {
        /// The variable.
        name: &'static str,
        /// The variable that is set.
        rank: &'static str,
        /// Who sets it.
        by: &'static str,
    },
    /// A value that is not a number in its range.
    #[error("`{name}` is `{found}`; expected {needed}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it holds.
        found: String,
        /// What it may hold.
        needed: &'static str,
    },
    /// A rank beyond the world.
    #[error("rank {rank} is out of range: with {size} ranks it must be from 0 to {size} - 1")]
    Beyond {
        /// The rank.
        rank: usize,
        /// The size of the world.
        size: usize,
    },
}

impl World {
    /// Reads the environment through `variable`.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, WorldError> {
        let Some((names, rank)) = WAYS
            .iter()
            .find_map(|names| Some((names, variable(names.rank)?)))
        else {
            return Ok(Self::Alone);
        };
        let required = |name| {
            variable(name).ok_or(WorldError::Missing {
                name,
                rank: names.rank,
                by: names.by,
            })
        };
        let rank = number(names.rank, &rank, "a number from 0", |_| true)?;
        let size = number(
            names.size,
            &required(names.size)?,
            "a number from 1 to 4096",
            |size| (1..=SIZE_MAX).contains(&size),
        )?;
        if rank >= size {
            return Err(WorldError::Beyond { rank, size });
        }
        if size == 1 {
            return Ok(Self::Alone);
        }
        let port = required(names.port)?;
        let master_port = port.trim().parse::<u16>().ok().filter(|port| *port > 0);
        Ok(Self::Member(Member {
            rank,
            size,
            master_host: required(names.host)?,
            master_port: master_port.ok_or(WorldError::Value {
                name: names.port,
                found: port,
                needed: "a port from 1 to 65535",
            })?,
            interface: variable(interface::VARIABLE).filter(|name| !name.is_empty()),
        }))
    }

    pub(crate) fn rank(&self) -> usize {
        match self {
            Self::Alone => 0,
            Self::Member(member) => member.rank,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Member(member) => member.size,
        }
    }
}

fn number(
    name: &'static str,
    found: &str,
    needed: &'static str,
    allowed: impl Fn(usize) -> bool,
) -> Result<usize, WorldError> {
    let value = found.trim().parse().ok().filter(|value| allowed(*value));
    value.ok_or_else(|| WorldError::Value {
        name,
        found: found.to_owned(),
        needed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<World, String> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        World::read(&lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn environment_defines_the_rank() {
        let master = [("MASTER_ADDR", "job-master-0"), ("MASTER_PORT", "23456")];
        let member = World::Member(Member {
            rank: 2,
            size: 4,
            master_host: "job-master-0".to_owned(),
            master_port: 23456,
            interface: None,
        });
        let alone = Ok(World::Alone);
        let cases = [
            ("nothing is set", vec![], alone.clone()),
            ("no rank", vec![("WORLD_SIZE", "4")], alone.clone()),
            ("one rank", vec![("RANK", "0"), ("WORLD_SIZE", "1")], alone),
            (
                "a member",
                [&[("RANK", "2"), ("WORLD_SIZE", "4")], &master[..]].concat(),
                Ok(member.clone()),
            ),
            (
                "a process of a JAXJob",
                vec![
                    ("PROCESS_ID", "2"),
                    ("NUM_PROCESSES", "4"),
                    ("COORDINATOR_ADDRESS", "job-master-0"),
                    ("COORDINATOR_PORT", "23456"),
                ],
                Ok(member.clone()),
            ),
            (
                "a rank of Open MPI",
                [
                    &[("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")],
                    &master[..],
                ]
                .concat(),
                Ok(member),
            ),
            (
                "a rank of Open MPI without a master",
                vec![("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")],
                Err(
                    "`MASTER_PORT` is not set, but `OMPI_COMM_WORLD_RANK` is; pass it on with `mpirun -x`",
                ),
            ),
            (
                "no size",
                vec![("RANK", "0")],
                Err(
                    "`WORLD_SIZE` is not set, but `RANK` is; `torchrun` and a `PyTorchJob` set both",
                ),
            ),
            (
                "no master",
                vec![("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "1")],
                Err(
                    "`MASTER_ADDR` is not set, but `RANK` is; `torchrun` and a `PyTorchJob` set both",
                ),
            ),
            (
                "a rank beyond the world",
                vec![("RANK", "4"), ("WORLD_SIZE", "4")],
                Err("rank 4 is out of range: with 4 ranks it must be from 0 to 4 - 1"),
            ),
            (
                "a rank that is not a number",
                vec![("RANK", "two")],
                Err("`RANK` is `two`; expected a number from 0"),
            ),
            (
                "an absurd size",
                vec![("RANK", "0"), ("WORLD_SIZE", "100000")],
                Err("`WORLD_SIZE` is `100000`; expected a number from 1 to 4096"),
            ),
            (
                "a port out of range",
                vec![
                    ("RANK", "0"),
                    ("WORLD_SIZE", "2"),
                    ("MASTER_ADDR", "a"),
                    ("MASTER_PORT", "0"),
                ],
                Err("`MASTER_PORT` is `0`; expected a port from 1 to 65535"),
            ),
        ];
        for (name, variables, wanted) in cases {
            assert_eq!(read(&variables), wanted.map_err(str::to_owned), "{name}");
        }
    }
}
