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
        /// Every check of machines, in the order in which they are told.
        pub static CATALOGUE: &[Entry] = &[$($name),*];
    };
}

catalogue! {
    CPU_COUNT "cpu-count" Host Platform
        "processors that may be used: switched on, allowed by the set and by the quota of the control group"
    CPU_THROTTLING "cpu-throttling" Host Platform
        "share of the periods in which the quota of the control group ran out"
    MEMORY "memory" Host Platform
        "memory of the machine, what of it is available, and the limit of the control group"
    MEMLOCK "memlock" Host Platform
        "memory that a process may pin, which RDMA does with its buffers"
    OPEN_FILES "open-files" Host Platform
        "files and sockets that a process may have open"
    KERNEL_MODULES "kernel-modules" Host Platform
        "`ib_uverbs` and `nvidia_peermem`, where ranks use RDMA; `gdrdrv` is told"
    NVIDIA_DRIVER "nvidia-driver" Host Platform
        "versions of the driver, of the CUDA that it knows, and of NCCL"
    SHM "shm" Host MlTeam
        "size and type of `/dev/shm`, by which ranks of one machine talk"
    DISK "disk" Host Platform
        "free space for temporary files"
    NAMES "names" Host Platform
        "the names that ranks look up resolve, that of the machine included"
    PORTS "ports" Host Platform
        "the ports of the node that the pod takes are free"
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
        "GPUs that the driver knows, beside those on the bus"
    GPU_MODEL "gpu-model" Devices Platform
        "model of the GPUs"
    GPU_ECC "gpu-ecc" Devices Platform
        "errors of GPU memory that could not be corrected; whether correction is on"
    GPU_ROWS "gpu-rows" Devices Platform
        "rows of GPU memory that were replaced, wait for it, or could not be"
    GPU_XID "gpu-xid" Devices Platform
        "errors (Xid) of the driver in the kernel's log"
    GPU_CLOCKS "gpu-clocks" Devices Platform
        "reasons for which a GPU runs slower than it could"
    NVLINK "nvlink" Devices Platform
        "links between GPUs that are up"
    GPU_PCIE "gpu-pcie" Devices Platform
        "generation and width of the PCI link of each GPU"
    GPU_NIC_AFFINITY "gpu-nic-affinity" Devices Platform
        "how far each GPU is from the nearest RDMA device on the PCI bus"
    SAME_GPUS "same-gpus" Devices Platform
        "number and model of GPUs, compared between machines"
    GPU_COLLECTIVE "gpu-collective" Devices Platform
        "what an all-reduce of the GPUs of one pod reaches, by `all_reduce_perf` where the image has it, and that its sums are right"

    INTERFACE "interface" Network Network
        "the interface that gradients travel on is there"
    ADDRESS "address" Network Network
        "its address is inside the range of the fabric"
    MTU "mtu" Network Network
        "bytes of its largest packet"
    LINK "link" Network Network
        "the interface is up"
    LINK_SPEED "link-speed" Network Network
        "speed of the link"
    RDMA_PORTS "rdma-ports" Network Network
        "RDMA ports that are active, of the right link layer"
    RDMA_RATE "rdma-rate" Network Network
        "rate of the RDMA ports together, and of each beside the others"
    RDMA_GID "rdma-gid" Network Network
        "the index of a RoCE v2 address that leads somewhere"
    RDMA_DEVICE "rdma-device" Network Platform
        "the character devices by which programs use RDMA can be opened"
    ERROR_COUNTERS "error-counters" Network Network
        "counters of errors that move while they are watched"
    SAME_MTU "same-mtu" Network Network
        "bytes of the largest packet, compared between machines"

    JOINED "joined" Path Platform
        "the node took part in the preflight, to its end"
    PATH_BANDWIDTH "path-bandwidth" Path Network
        "what one stream of TCP reaches with other nodes, beside what they reach and what the fabric is expected to"
    PATH_LATENCY "path-latency" Path Network
        "the time of a small message to other nodes and back, beside theirs"
    GANG_BANDWIDTH "gang-bandwidth" Path Network
        "what each link carries in an all-reduce of all nodes around a ring, and that its sums are right"
    RDMA_BANDWIDTH "rdma-bandwidth" Path Network
        "what one RDMA port reaches with other nodes, by `ib_write_bw` where the image has it, beside theirs and what the fabric is expected to"

    VOLUME_WRITABLE "volume-writable" Storage Platform
        "a file can be made on the volume"
    VOLUME_WRITE_SPEED "volume-write-speed" Storage Platform
        "bytes in a second that are written and flushed to the device"
    VOLUME_READ_SPEED "volume-read-speed" Storage Platform
        "bytes in a second that are read back"
    VOLUME_RENAME "volume-rename" Storage Platform
        "a file takes another's place at once, as checkpoints are put in place"
    VOLUME_FREE "volume-free" Storage Platform
        "free space of the volume"
    VOLUME_SHARED "volume-shared" Storage Platform
        "what one node writes to the volume, the others see"
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
        let outcome = Outcome::Fail;
        let check = self.warn(found, needed, cause, next);
        Check { outcome, ..check }
    }

    /// The value, or the check that says why there is none.
    pub(super) fn look<'a, T>(
        &self,
        probed: &'a Probed<T>,
        needed: impl Into<String>,
    ) -> Result<&'a T, Box<Check>> {
        Err(Box::new(match probed {
            Probed::Read(value) => return Ok(value),
            Probed::NotAsked => self.skip("not looked at", "only the machine itself tells"),
            Probed::Absent => self.warn(
                "not there",
                needed,
                "what this is read from is not there: another kernel, or hidden from this process",
                "look from the node itself, or from a pod that may see it",
            ),
            Probed::Unreadable(why) => self.warn(
                format!("could not be read: {why}"),
                needed,
                "a missing right, a damaged file, or a driver of another version",
                "read it by hand as the same user",
            ),
            Probed::Hung(after) => self.fail(
                format!("no answer within {after} ms"),
                needed,
                "a driver or a file system that hangs; whoever uses it hangs too",
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

    /// The same check, for somebody else to put right.
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
        assert!(layers.is_sorted(), "told layer by layer");
    }

    #[test]
    fn what_could_not_be_measured_never_passes() {
        let cases = [
            (Probed::Absent, Outcome::Warn),
            (Probed::Unreadable("is binary".to_owned()), Outcome::Warn),
            (Probed::Hung(3000), Outcome::Fail),
            (Probed::NotAsked, Outcome::NotApplicable),
        ];
        for (probed, want) in cases {
            let probed: Probed<u64> = probed;
            let check = DISK.look(&probed, "1 GiB").unwrap_err();
            assert_eq!(check.outcome, want, "{probed:?}");
        }
        assert_eq!(DISK.look(&Probed::Read(1), "").unwrap(), &1);
    }
}
