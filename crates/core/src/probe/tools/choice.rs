//! Which RDMA port and how many GPUs of a machine a program is called for, or why for none.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::probe::{
    Needs, Probed, RdmaPort, Reading,
    examine::rdma::{is_active, is_chosen, routed},
};

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// The device, such as `mlx5_0`.
    pub device: String,
    /// The number of the port.
    pub number: u32,
    /// The index of its address; none on InfiniBand.
    pub gid_index: Option<u32>,
    /// How many ports ranks of this machine use, this one included.
    pub of: usize,
}

/// Why a program is not called for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unmeasured {
    /// The job uses no RDMA.
    #[error("ranks do not use RDMA")]
    RdmaUnused,
    /// There is no RDMA device.
    #[error("the machine has no RDMA device")]
    NoRdma,
    /// Its RDMA ports are not known.
    #[error("its RDMA ports could not be read")]
    RdmaUnread,
    /// No port can be used.
    #[error("no RDMA port is active and can be opened")]
    NoActivePort,
    /// No port has an address.
    #[error("no RDMA port has a RoCE v2 address")]
    NoGid,
    /// Others cannot connect to it.
    #[error("it has no address to measure at")]
    NoAddress,
    /// It is the only one.
    #[error("there is no other node to measure with")]
    Alone,
    /// The job uses no GPU.
    #[error("ranks do not use GPUs")]
    GpusUnused,
    /// There is no GPU.
    #[error("the driver lists no GPU")]
    NoGpu,
    /// GPUs are split.
    #[error("its GPUs are split (MIG), and NCCL cannot join MIG instances")]
    Split,
    /// The limit of the whole is near.
    #[error("no time was left for it")]
    NoTime,
    /// The image of the job lacks the program.
    #[error(
        "`{program}` is not in `PATH` of the image; install `{package}` there to have it measured"
    )]
    NotInJobImage {
        /// The program.
        program: &'static str,
        /// What has it.
        package: &'static str,
    },
    /// Our own image lacks the program.
    #[error("`{0}` is not in `PATH` of the image; the image of a job may have it")]
    NotInImage(&'static str),
}

/// The port that is measured: of those that ranks would use and this process can open, the one of the named interface,
/// else the first. The error is why there is none.
pub fn port(reading: &Reading, needs: &Needs) -> Result<Port, Unmeasured> {
    if needs.asked_by.is_some() && !needs.rdma() {
        return Err(Unmeasured::RdmaUnused);
    }
    let ports = match &reading.rdma {
        Probed::Read(ports) => ports,
        Probed::Absent => return Err(Unmeasured::NoRdma),
        _ => return Err(Unmeasured::RdmaUnread),
    };
    let opens = |port: &RdmaPort| matches!(port.device_file, Probed::Read(_) | Probed::NotAsked);
    let usable: Vec<(&String, &RdmaPort)> = ports
        .iter()
        .filter(|(name, port)| is_chosen(needs, name, port) && is_active(port) && opens(port))
        .collect();
    if usable.is_empty() {
        return Err(Unmeasured::NoActivePort);
    }
    let addressed = usable.iter().filter_map(|(name, port)| {
        let (device, number) = name.split_once('/')?;
        let is_roce = port
            .link_layer
            .value()
            .is_some_and(|layer| layer == "Ethernet");
        let gids = || port.gids.value().into_iter().flatten();
        let of_interface = gids().filter(|(_, gid)| {
            let on = gid.interface.value();
            on.is_some() && on == needs.interface.as_ref()
        });
        let named = routed(of_interface, needs.gid_index);
        let is_named = named.is_some();
        let index = named.or_else(|| routed(gids(), needs.gid_index));
        let found = Port {
            device: device.to_owned(),
            number: number.parse().ok()?,
            gid_index: index.map(|(index, _)| index).filter(|_| is_roce),
            of: usable.len(),
        };
        (!is_roce || found.gid_index.is_some()).then_some((is_named, found))
    });
    // Of several that are as good, the first in the order of their names.
    let best = addressed.reduce(|best, next| if next.0 && !best.0 { next } else { best });
    best.map(|(_, port)| port).ok_or(Unmeasured::NoGid)
}

/// How many GPUs are measured together. The error is why none are.
pub fn gpus(reading: &Reading, needs: &Needs) -> Result<u32, Unmeasured> {
    if needs.asked_by.is_some() && !needs.uses_gpus() {
        return Err(Unmeasured::GpusUnused);
    }
    let known = reading.gpus.value().filter(|known| !known.is_empty());
    let known = known.ok_or(Unmeasured::NoGpu)?;
    if known.iter().any(|gpu| gpu.split == Probed::Read(true)) {
        return Err(Unmeasured::Split);
    }
    let here = u32::try_from(known.len()).unwrap_or(u32::MAX);
    // One alone has no peer; that it starts and computes correctly is worth knowing.
    Ok(here.min(needs.gpus.filter(|count| *count > 0).unwrap_or(here)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::examine::testing::{needs, reading, value};

    type Change = fn(&mut Reading, &mut Needs);

    #[test]
    fn the_port_is_one_that_ranks_use() {
        type Case = (
            &'static str,
            Change,
            Result<(&'static str, Option<u32>, usize), Unmeasured>,
        );
        let cases: [Case; 8] = [
            ("as it is", |_, _| {}, Ok(("mlx5_0", Some(3), 8))),
            (
                "the named interface",
                |reading, _| {
                    let ports = value(&mut reading.rdma);
                    let gids = value(&mut ports.get_mut("mlx5_4/1").unwrap().gids);
                    gids.get_mut(&3).unwrap().interface = Probed::Read("net1".to_owned());
                },
                Ok(("mlx5_4", Some(3), 8)),
            ),
            (
                "those of `NCCL_IB_HCA`",
                |_, needs| needs.hcas = Some("=mlx5_2,mlx5_3".to_owned()),
                Ok(("mlx5_2", Some(3), 2)),
            ),
            (
                "a pod that was given one of them",
                |reading, _| {
                    for (name, port) in value(&mut reading.rdma) {
                        if name != "mlx5_5/1" {
                            port.device_file = Probed::Absent;
                        }
                    }
                },
                Ok(("mlx5_5", Some(3), 1)),
            ),
            (
                "InfiniBand has no index",
                |reading, needs| {
                    needs.transport = Some("ib".to_owned());
                    for port in value(&mut reading.rdma).values_mut() {
                        port.link_layer = Probed::Read("InfiniBand".to_owned());
                    }
                },
                Ok(("mlx5_0", None, 8)),
            ),
            (
                "no address",
                |_, needs| needs.gid_index = Some(7),
                Err(Unmeasured::NoGid),
            ),
            (
                "none is active",
                |reading, _| {
                    for port in value(&mut reading.rdma).values_mut() {
                        port.state = Probed::Read("DOWN".to_owned());
                    }
                },
                Err(Unmeasured::NoActivePort),
            ),
            (
                "nobody wants it",
                |_, needs| {
                    needs.transport = Some("socket".to_owned());
                    needs.rdma_devices = None;
                },
                Err(Unmeasured::RdmaUnused),
            ),
        ];
        for (name, change, want) in cases {
            let (mut reading, mut needs) = (reading(), needs());
            change(&mut reading, &mut needs);
            let got = port(&reading, &needs);
            let got = got
                .as_ref()
                .map(|port| (port.device.as_str(), port.gid_index, port.of));
            assert_eq!(got.map_err(|why| *why), want, "{name}");
        }
        let nothing = Needs::default();
        let got = port(&reading(), &nothing).unwrap();
        assert_eq!(got.device, "mlx5_0", "without a job, what is there");
        let got = port(
            &Reading {
                rdma: Probed::Absent,
                ..reading()
            },
            &nothing,
        );
        assert_eq!(got.unwrap_err(), Unmeasured::NoRdma);
    }

    #[test]
    fn gpus_are_those_of_the_pod() {
        let cases: [(&str, Change, Result<u32, Unmeasured>); 6] = [
            ("as it is", |_, _| {}, Ok(8)),
            (
                "one is missing",
                |reading, _| {
                    value(&mut reading.gpus).pop();
                },
                Ok(7),
            ),
            ("a part of them", |_, needs| needs.gpus = Some(4), Ok(4)),
            ("one", |_, needs| needs.gpus = Some(1), Ok(1)),
            (
                "split",
                |reading, _| value(&mut reading.gpus)[2].split = Probed::Read(true),
                Err(Unmeasured::Split),
            ),
            (
                "nobody wants them",
                |_, needs| needs.gpus = None,
                Err(Unmeasured::GpusUnused),
            ),
        ];
        for (name, change, want) in cases {
            let (mut reading, mut needs) = (reading(), needs());
            change(&mut reading, &mut needs);
            let got = gpus(&reading, &needs);
            assert_eq!(got, want, "{name}");
        }
        assert_eq!(gpus(&reading(), &Needs::default()), Ok(8));
        let none = gpus(&Reading::default(), &Needs::default());
        assert!(none.is_err());
    }
}
