//! Every check by its stable name, and how one is made.
//!
//! Invariant: a name is never given another meaning. Whatever does not pass has a cause and a next
//! step.

use super::{Check, Layer, Outcome, Owner, Probed};

/// What a check of one name looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The stable name.
    pub name: &'static str,
    /// The layer.
    pub layer: Layer,
    /// Who can put it right, as a rule.
    pub owner: Owner,
    /// What it looks at, for people.
    pub about: &'static str,
}

macro_rules! catalogue {
    ($($name:ident $text:literal $layer:ident $owner:ident $about:literal)*) => {
        $(
            #[doc = $about]
            pub(super) const $name: Entry = Entry {
                name: $text,
                layer: Layer::$layer,
                owner: Owner::$owner,
                about: $about,
            };
        )*
        /// Every check of machines, in the order of the report.
        pub static CATALOGUE: &[Entry] = &[$($name),*];
    };
}

catalogue! {
    CPU_COUNT "cpu-count" Host Platform
        "usable CPUs: online, allowed by the cpuset and by the CPU quota of the cgroup"
    CPU_THROTTLING "cpu-throttling" Host Platform
        "share of CPU quota periods in which the cgroup was throttled"
    MEMORY "memory" Host Platform
        "total and available memory of the machine, and the limit of the cgroup"
    MEMLOCK "memlock" Host Platform
        "memory that a process may lock (`ulimit -l`), which RDMA needs for its buffers"
    OPEN_FILES "open-files" Host Platform
        "maximum number of open files and sockets of a process"
    KERNEL_MODULES "kernel-modules" Host Platform
        "`ib_uverbs` and `nvidia_peermem`, where ranks use RDMA; `gdrdrv` is reported only"
    NVIDIA_DRIVER "nvidia-driver" Host Platform
        "versions of the driver, of the CUDA that it supports, and of NCCL"
    SHM "shm" Host MlTeam
        "size and type of `/dev/shm`, which ranks of one machine use to communicate"
    DISK "disk" Host Platform
        "free space for temporary files"
    NAMES "names" Host Platform
        "the host names that ranks look up resolve, including that of the machine"
    PORTS "ports" Host Platform
        "the host ports that the pod uses are free"
    SAME_KERNEL "same-kernel" Host Platform
        "version of the kernel, compared between machines"
    SAME_DRIVER "same-driver" Host Platform
        "version of the NVIDIA driver, compared between machines"
    SAME_CUDA "same-cuda" Host Platform
        "version of CUDA, compared between machines"
    SAME_NCCL "same-nccl" Host Platform
        "version of NCCL, compared between machines"
    CLOCK_SKEW "clock-skew" Host Platform
        "how far the clock is from the median of all machines"

    GPU_COUNT "gpu-count" Devices Platform
        "GPUs that the driver lists, compared with those on the PCI bus"
    GPU_MODEL "gpu-model" Devices Platform
        "model of the GPUs"
    GPU_ECC "gpu-ecc" Devices Platform
        "uncorrectable ECC errors of GPU memory; whether ECC is enabled"
    GPU_ROWS "gpu-rows" Devices Platform
        "remapped rows of GPU memory: done, pending or failed"
    GPU_XID "gpu-xid" Devices Platform
        "Xid errors of the driver in the kernel log"
    GPU_CLOCKS "gpu-clocks" Devices Platform
        "reasons for which GPU clocks are throttled"
    NVLINK "nvlink" Devices Platform
        "`NVLink` links that are up"
    GPU_PCIE "gpu-pcie" Devices Platform
        "generation and width of the `PCIe` link of each GPU"
    GPU_NIC_AFFINITY "gpu-nic-affinity" Devices Platform
        "how far each GPU is from the nearest RDMA device on the PCI bus"
    SAME_GPUS "same-gpus" Devices Platform
        "number and model of GPUs, compared between machines"
    GPU_COLLECTIVE "gpu-collective" Devices Platform
        "bus bandwidth of an all-reduce over the GPUs of one pod (`all_reduce_perf`, where the image has it), and that its sums are correct"

    INTERFACE "interface" Network Network
        "the network interface for gradients exists"
    ADDRESS "address" Network Network
        "its address is in the address range of the fabric"
    MTU "mtu" Network Network
        "its MTU in bytes"
    LINK "link" Network Network
        "the interface is up"
    LINK_SPEED "link-speed" Network Network
        "link speed"
    RDMA_PORTS "rdma-ports" Network Network
        "active RDMA ports with the right link layer"
    RDMA_RATE "rdma-rate" Network Network
        "total rate of the RDMA ports, and of each compared with the others"
    RDMA_GID "rdma-gid" Network Network
        "the GID index of a routable RoCE v2 address"
    RDMA_DEVICE "rdma-device" Network Platform
        "the RDMA character devices can be opened"
    ERROR_COUNTERS "error-counters" Network Network
        "error counters that increase while they are watched"
    SAME_MTU "same-mtu" Network Network
        "MTU in bytes, compared between machines"

    JOINED "joined" Path Platform
        "the node took part in the preflight until it ended"
    PATH_BANDWIDTH "path-bandwidth" Path Network
        "bandwidth of one TCP stream to other nodes, compared with theirs and with what the fabric expects"
    PATH_LATENCY "path-latency" Path Network
        "round-trip time of a small message to other nodes, compared with theirs"
    GANG_BANDWIDTH "gang-bandwidth" Path Network
        "bandwidth of each link in a ring all-reduce over all nodes, and that its sums are correct"
    RDMA_BANDWIDTH "rdma-bandwidth" Path Network
        "bandwidth of one RDMA port to other nodes (`ib_write_bw`, where the image has it), compared with theirs and with what the fabric expects"

    VOLUME_WRITABLE "volume-writable" Storage Platform
        "a file can be created on the volume"
    VOLUME_WRITE_SPEED "volume-write-speed" Storage Platform
        "write speed in bytes per second, flushed to the device"
    VOLUME_READ_SPEED "volume-read-speed" Storage Platform
        "read speed in bytes per second"
    VOLUME_RENAME "volume-rename" Storage Platform
        "rename replaces a file atomically, as checkpoint writers need"
    VOLUME_FREE "volume-free" Storage Platform
        "free space on the volume"
    VOLUME_SHARED "volume-shared" Storage Platform
        "files that one node writes to the volume are visible to the others"
}

impl Entry {
    fn check(
        &self,
        outcome: Outcome,
        found: impl Into<String>,
        needed: impl Into<String>,
    ) -> Check {
        Check {
            name: self.name.to_owned(),
            layer: self.layer,
            subject: String::new(),
            outcome,
            found: found.into(),
            needed: needed.into(),
            cause: String::new(),
            next: String::new(),
            owner: self.owner,
        }
    }

    /// It is as it should be.
    pub(super) fn pass(&self, found: impl Into<String>, needed: impl Into<String>) -> Check {
        self.check(Outcome::Pass, found, needed)
    }

    /// There is nothing to check, and why.
    pub(super) fn skip(&self, found: impl Into<String>, why: impl Into<String>) -> Check {
        self.check(Outcome::NotApplicable, found, why)
    }

    /// A job would start, and may be slow or fail later.
    pub(super) fn warn(
        &self,
        found: impl Into<String>,
        needed: impl Into<String>,
        cause: impl Into<String>,
        next: impl Into<String>,
    ) -> Check {
        let check = self.check(Outcome::Warn, found, needed);
        let (cause, next) = (cause.into(), next.into());
        Check {
            cause,
            next,
            ..check
        }
    }

    /// A job would fail or hang.
    pub(super) fn fail(
        &self,
        found: impl Into<String>,
        needed: impl Into<String>,
        cause: impl Into<String>,
        next: impl Into<String>,
    ) -> Check {
        self.fail_if(true, found, needed, cause, next)
    }

    /// It fails where it is known to be needed, and warns where it is not.
    pub(super) fn fail_if(
        &self,
        is_needed: bool,
        found: impl Into<String>,
        needed: impl Into<String>,
        cause: impl Into<String>,
        next: impl Into<String>,
    ) -> Check {
        let check = self.warn(found, needed, cause, next);
        if is_needed {
            let outcome = Outcome::Fail;
            return Check { outcome, ..check };
        }
        check
    }

    /// The value, or the check that says why there is none.
    pub(super) fn value_or_check<'a, T>(
        &self,
        probed: &'a Probed<T>,
        needed: impl Into<String>,
    ) -> Result<&'a T, Box<Check>> {
        Err(Box::new(match probed {
            Probed::Read(value) => return Ok(value),
            Probed::NotAsked => self.skip("not checked", "can be read only on the machine itself"),
            Probed::Absent => self.warn(
                "not there",
                needed,
                "the file or device it is read from is missing: another kernel version, or not visible in this container",
                "run the check on the node itself, or in a privileged pod",
            ),
            Probed::Unreadable(why) => self.warn(
                format!("could not be read: {why}"),
                needed,
                "missing permission, a damaged file, or another driver version",
                "read it manually as the same user",
            ),
            Probed::Hung(after) => self.fail(
                format!("no answer within {after} ms"),
                needed,
                "a driver or a file system hangs; every process that uses it hangs too",
                "look for processes in state `D` and for the kernel's `blocked for more than` \
                 messages, then restart the node",
            ),
        }))
    }
}

impl Check {
    /// The same check of one part of the machine.
    #[must_use]
    pub fn about(self, subject: impl Into<String>) -> Self {
        let subject = subject.into();
        Self { subject, ..self }
    }

    /// The same check with another owner.
    #[must_use]
    pub fn owned_by(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = CATALOGUE.iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), CATALOGUE.len());
        let layers: Vec<Layer> = CATALOGUE.iter().map(|entry| entry.layer).collect();
        assert!(layers.is_sorted(), "sorted by layer");
    }

    #[test]
    fn unmeasured_check_never_passes() {
        let cases = [
            (Probed::Absent, Outcome::Warn),
            (Probed::Unreadable("is binary".to_owned()), Outcome::Warn),
            (Probed::Hung(3000), Outcome::Fail),
            (Probed::NotAsked, Outcome::NotApplicable),
        ];
        for (probed, want) in cases {
            let probed: Probed<u64> = probed;
            let check = DISK.value_or_check(&probed, "1 GiB").unwrap_err();
            assert_eq!(check.outcome, want, "{probed:?}");
        }
        assert_eq!(DISK.value_or_check(&Probed::Read(1), "").unwrap(), &1);
    }
}
