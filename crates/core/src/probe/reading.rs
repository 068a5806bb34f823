//! What was read of one machine, without a judgement.
//!
//! Owns the values that an adapter fills in and peers send each other. Whatever was looked for and not
//! found, could not be read, or did not answer is a value of its own: [`Probed`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use serde::{Deserialize, Serialize};

/// The result of reading one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Probed<T> {
    /// It was read.
    Read(T),
    /// It is not there.
    Absent,
    /// It is there and cannot be read, and why.
    Unreadable(String),
    /// It did not answer within this many milliseconds.
    Hung(u64),
    /// It was not checked.
    #[default]
    NotAsked,
}

impl<T> Probed<T> {
    /// The value, where it was read.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Read(value) => Some(value),
            _ => None,
        }
    }

    /// The value, or the same result without one.
    pub fn or_missing<U>(self) -> Result<T, Probed<U>> {
        Err(match self {
            Self::Read(value) => return Ok(value),
            Self::Absent => Probed::Absent,
            Self::Unreadable(why) => Probed::Unreadable(why),
            Self::Hung(after) => Probed::Hung(after),
            Self::NotAsked => Probed::NotAsked,
        })
    }

    /// The same with `then` done to the value.
    pub fn map<U>(self, then: impl FnOnce(T) -> U) -> Probed<U> {
        self.or_missing()
            .map_or_else(|missing| missing, |value| Probed::Read(then(value)))
    }

    /// The same with `then` done to the value; where that fails, the value is unreadable.
    pub fn and_then<U, E: Display>(self, then: impl FnOnce(T) -> Result<U, E>) -> Probed<U> {
        let read = self.or_missing().map(then);
        match read {
            Ok(Ok(value)) => Probed::Read(value),
            Ok(Err(error)) => Probed::Unreadable(error.to_string()),
            Err(missing) => missing,
        }
    }
}

/// Everything that was read of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reading {
    /// Processors, and how much of them this process may use.
    pub processors: Probed<Processors>,
    /// Memory, and how much of it this process may use.
    pub memory: Probed<Memory>,
    /// Limits of this process.
    pub limits: Probed<Limits>,
    /// Modules that the kernel has loaded or built in.
    pub modules: Probed<BTreeSet<String>>,
    /// Versions of what jobs rest on.
    pub versions: Probed<Versions>,
    /// The memory that processes of a pod share.
    pub shm: Probed<Space>,
    /// The disk that temporary files lie on.
    pub disk: Probed<Space>,
    /// The name of this machine.
    pub hostname: Probed<String>,
    /// Addresses of the names that were asked for.
    pub names: BTreeMap<String, Probed<BTreeSet<String>>>,
    /// Ports that something listens on.
    pub listening: Probed<BTreeSet<u16>>,
    /// How far the clock is ahead of that of the leader, in microseconds; the leader
    /// fills this in.
    pub clock_ahead_micros: Option<i64>,

    /// GPUs that the driver knows.
    pub gpus: Probed<Vec<Gpu>>,
    /// NVIDIA GPUs on the PCI bus, by address, whether or not a driver has them.
    pub gpus_on_bus: Probed<BTreeSet<String>>,
    /// Errors of the driver in the kernel log.
    pub xids: Probed<Vec<XidSeen>>,

    /// Network interfaces by name.
    pub interfaces: Probed<BTreeMap<String, Interface>>,
    /// RDMA ports by `device/port`.
    pub rdma: Probed<BTreeMap<String, RdmaPort>>,

    /// Volumes by the path they are tried at.
    pub volumes: BTreeMap<String, Probed<VolumeTrial>>,
}

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Processors {
    /// Those that are switched on.
    pub online: Probed<u64>,
    /// Those that this process may run on.
    pub allowed: Probed<u64>,
    /// Thousandths of a processor that its control groups allow; absent where there is no limit.
    pub quota_milli: Probed<u64>,
    /// Periods of the quota that have passed.
    pub periods: Probed<u64>,
    /// Those of them in which it ran out.
    pub throttled: Probed<u64>,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// What the machine has.
    pub total: Probed<u64>,
    /// What can be had without swapping.
    pub available: Probed<u64>,
    /// What the control groups of this process allow; absent where there is no limit.
    pub limit: Probed<u64>,
}

/// Limits of a process. `None` means unlimited.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Bytes that it may pin in memory.
    pub locked_memory: Probed<Option<u64>>,
    /// Files that it may have open.
    pub open_files: Probed<Option<u64>>,
    /// Whether it may pin memory whatever the limit says (`CAP_IPC_LOCK`).
    pub may_lock: Probed<bool>,
}

/// Versions, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Versions {
    /// The kernel.
    pub kernel: Probed<String>,
    /// The NVIDIA driver.
    pub driver: Probed<String>,
    /// The newest CUDA that the driver knows.
    pub cuda: Probed<String>,
    /// NCCL, where it lies in one of the system's folders.
    pub nccl: Probed<String>,
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Space {
    /// Its type, such as `tmpfs`.
    pub kind: String,
    /// Bytes in all.
    pub total: Probed<u64>,
    /// Bytes that this user may still write.
    pub free: Probed<u64>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    /// Its address on the PCI bus, such as `0000:17:00.0`.
    pub bus: String,
    /// Its model, such as `NVIDIA H100 80GB HBM3`.
    pub model: Probed<String>,
    /// Whether it is split into instances (MIG).
    pub split: Probed<bool>,
    /// Bytes of its memory.
    pub memory: Probed<u64>,
    /// Bytes of it that are in use.
    pub memory_used: Probed<u64>,
    /// Whether errors of its memory are corrected.
    pub ecc: Probed<bool>,
    /// Errors that could not be corrected, since the driver was loaded.
    pub uncorrected: Probed<u64>,
    /// Rows of its memory that others stand in for.
    pub rows: Probed<RemappedRows>,
    /// MHz that its processors run at.
    pub clock: Probed<u64>,
    /// MHz that they can run at.
    pub clock_most: Probed<u64>,
    /// Why they run slower, in the driver's words.
    pub throttled_by: Probed<BTreeSet<String>>,
    /// Whether each of its links to other GPUs is up.
    pub nvlinks: Probed<Vec<bool>>,
    /// How it is connected.
    pub pcie: Pcie,
}

/// Rows of a GPU's memory that were replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RemappedRows {
    /// After errors that were corrected.
    pub corrected: u64,
    /// After errors that were not.
    pub uncorrected: u64,
    /// Whether some wait for a reset.
    pub pending: bool,
    /// Whether replacing one has failed.
    pub failed: bool,
}

/// A place on the PCI bus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pcie {
    /// The addresses from the root complex down to the device itself.
    pub path: Vec<String>,
    /// The memory node that it is next to.
    pub numa: Probed<i64>,
    /// Generation of the link as it is.
    pub generation: Probed<u64>,
    /// Generation that it can have.
    pub generation_most: Probed<u64>,
    /// Lanes of the link as it is.
    pub width: Probed<u64>,
    /// Lanes that it can have.
    pub width_most: Probed<u64>,
}

/// An error that the NVIDIA driver wrote to the kernel log.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct XidSeen {
    /// The PCI address, as in the log.
    pub bus: String,
    /// The number of the error.
    pub number: u32,
    /// Seconds ago, where the log has a time.
    pub age_seconds: Option<u64>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// `up`, `down` and the kernel's other states.
    pub state: Probed<String>,
    /// Bytes of the largest packet.
    pub mtu: Probed<u64>,
    /// Megabits in a second; absent where the interface has none of its own.
    pub speed_mbps: Probed<u64>,
    /// Its addresses.
    pub addresses: Probed<BTreeSet<String>>,
    /// How much each counter of errors moved while it was watched.
    pub moved: Probed<BTreeMap<String, u64>>,
    /// Where it is on the PCI bus; an empty path where it is not a PCI device.
    pub pcie: Pcie,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RdmaPort {
    /// The logical state, such as `ACTIVE`.
    pub state: Probed<String>,
    /// The physical state, such as `LinkUp`.
    pub physical: Probed<String>,
    /// Megabits in a second.
    pub rate_mbps: Probed<u64>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Probed<String>,
    /// Its addresses by index; empty entries are left out.
    pub gids: Probed<BTreeMap<u32, Gid>>,
    /// The character device, such as `uverbs0`, that programs open it by.
    pub device_file: Probed<String>,
    /// How much each counter of errors moved while it was watched.
    pub moved: Probed<BTreeMap<String, u64>>,
    /// Where it is on the PCI bus.
    pub pcie: Pcie,
}

/// An address of an RDMA port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gid {
    /// The address, as IPv6 (of an IPv4 address: mapped into it).
    pub address: String,
    /// `RoCE v2`, `IB/RoCE v1`.
    pub kind: Probed<String>,
    /// The network interface that it belongs to.
    pub interface: Probed<String>,
}

/// The result of trying a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeTrial {
    /// Its file system.
    pub space: Space,
    /// Bytes that were written and read back.
    pub bytes: u64,
    /// Microseconds until they were written and on the device.
    pub write_micros: Probed<u64>,
    /// Microseconds until they were read back, and as they were written.
    pub read_micros: Probed<u64>,
    /// Whether a file takes another's place at once.
    pub rename: Probed<bool>,
}
