//! Loopback addresses and names of the pods of a run.
//!
//! Every address of 127.0.0.0/8 is this machine. A run takes a block of 65,536 of them, so that
//! two runs never share one, and gives each pod its own. A pod that takes another's place gets a
//! new one, as on a cluster: the kernel holds the ports of a killed server for a minute, at its
//! address. Others find it by its name.
//!
//! Invariant: no two pods that run have the same address, and the hosts file keeps its length, so
//! that pods can read it while it is written.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io,
    net::Ipv4Addr,
    os::unix::{
        fs::{FileExt as _, OpenOptionsExt as _},
        net::UnixListener,
    },
    path::Path,
};

use trainyard_core::spec::{Job, Slot};

use super::ports::hold;

/// Addresses that share their third byte; those that end in 0 or 255 are left out.
const LAST_BYTES: u32 = 254;
/// Addresses of a block.
const BLOCK: u32 = LAST_BYTES * 256;

/// A block of addresses that one run holds.
#[derive(Debug)]
pub(crate) struct Addresses {
    block: u8,
    _held: UnixListener,
}

impl Addresses {
    /// Takes a free block; `None` where all are taken. 127.0 holds the machine's own addresses.
    pub(super) fn claim() -> io::Result<Option<Self>> {
        for block in 1..=u8::MAX {
            if let Some(held) = hold(&format!("trainyard-addresses-127.{block}"))? {
                return Ok(Some(Self { block, _held: held }));
            }
        }
        Ok(None)
    }
}

/// Who has which address now.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    block: u8,
    /// What the hosts file begins with: the machine's own.
    machine: String,
    pods: Vec<Listed>,
    /// The attempt that has the addresses.
    attempt: u32,
    /// The number of the address to give next.
    next: u32,
}

/// One pod in the order of listing.
#[derive(Clone, Debug)]
struct Listed {
    names: String,
    /// The number of its address in the block.
    number: u32,
    /// Whether a pod of this attempt has it already.
    used: bool,
}

impl Directory {
    /// The pods of `job`, without addresses yet. `machine` is the hosts file of this machine.
    pub(crate) fn new(addresses: &Addresses, job: &Job, machine: &str) -> Self {
        let mut machine = machine.to_owned();
        if !machine.is_empty() && !machine.ends_with('\n') {
            machine.push('\n');
        }
        let listed = |slot| Listed {
            names: names(job, slot).join(" "),
            number: 0,
            used: false,
        };
        let mut directory = Self {
            block: addresses.block,
            machine,
            pods: job.slots().map(listed).collect(),
            attempt: 1,
            next: 0,
        };
        directory.give_all();
        directory
    }

    /// The address of the pod at `place` in the order of listing.
    pub(crate) fn of(&self, place: usize) -> Ipv4Addr {
        self.address(self.pods.get(place).map_or(0, |pod| pod.number))
    }

    /// Whether a pod of `attempt` that starts at `place` needs a new address.
    pub(crate) fn is_used(&self, place: usize, attempt: u32) -> bool {
        attempt > self.attempt || self.pods.get(place).is_some_and(|pod| pod.used)
    }

    /// A pod of `attempt` starts at `place`.
    ///
    /// All pods of an attempt get their addresses with the first of them, so that none looks up
    /// that of a pod which is gone.
    pub(crate) fn take(&mut self, place: usize, attempt: u32) {
        if attempt > self.attempt {
            self.attempt = attempt;
            self.give_all();
        } else if self.is_used(place, attempt) {
            self.give(place);
        }
        if let Some(pod) = self.pods.get_mut(place) {
            pod.used = true;
        }
    }

    fn give_all(&mut self) {
        for place in 0..self.pods.len() {
            self.give(place);
        }
    }

    fn give(&mut self, place: usize) {
        // Once around the block, those that are still in use are left out.
        while self.next >= BLOCK && self.is_held(self.next % BLOCK) {
            self.next += 1;
        }
        if let Some(pod) = self.pods.get_mut(place) {
            pod.number = self.next % BLOCK;
            pod.used = false;
        }
        // After the first time around it stays in the second.
        self.next = (self.next + 1) % (2 * BLOCK);
        if self.next == 0 {
            self.next = BLOCK;
        }
    }

    fn is_held(&self, number: u32) -> bool {
        self.pods.len() < BLOCK as usize && self.pods.iter().any(|pod| pod.number == number)
    }

    fn address(&self, number: u32) -> Ipv4Addr {
        let third = u8::try_from(number / LAST_BYTES % 256).unwrap_or(0);
        let last = u8::try_from(number % LAST_BYTES + 1).unwrap_or(1);
        Ipv4Addr::new(127, self.block, third, last)
    }

    /// Writes the hosts file of the run's pods: the machine's own, and every name that the
    /// contract promises.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = self.machine.clone();
        for pod in &self.pods {
            let address = self.address(pod.number).to_string();
            writeln!(text, "{address:<15} {}", pod.names).expect("a string takes everything");
        }
        // Pods that run have the file itself mounted, so it is not replaced; and as its length
        // stays, nobody reads an empty one.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(path)?;
        file.write_all_at(text.as_bytes(), 0)
    }
}

/// Every name of the pod in `slot`, the plain one first: it is what the address is called.
pub(crate) fn names(job: &Job, slot: Slot) -> Vec<String> {
    let pod = job.pod_name(slot);
    let namespace = &job.namespace;
    let mut names = vec![pod.clone()];
    // The second form is the pod's own name under the Service that all pods of an `MPIJob` or a `TrainJob` share.
    let service = job.train().map_or(job.name.as_str(), |own| &own.subdomain);
    for base in [pod.clone(), format!("{pod}.{service}")] {
        if base != pod {
            names.push(base.clone());
        }
        for domain in ["", ".svc", ".svc.cluster.local"] {
            names.push(format!("{base}.{namespace}{domain}"));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(pods: usize) -> Directory {
        let pod = |place: usize| Listed {
            names: format!("pod-{place}"),
            number: u32::try_from(place).unwrap(),
            used: false,
        };
        Directory {
            block: 7,
            machine: String::new(),
            pods: (0..pods).map(pod).collect(),
            attempt: 1,
            next: u32::try_from(pods).unwrap(),
        }
    }

    #[test]
    fn new_address_per_attempt_and_pod_restart() {
        let mut directory = directory(3);
        let mut start = |place, attempt| {
            let used = directory.is_used(place, attempt);
            directory.take(place, attempt);
            let all = (0..3).map(|place| directory.of(place).octets()[3]);
            (used, all.collect::<Vec<_>>())
        };
        for place in 0..3 {
            assert_eq!(start(place, 1), (false, vec![1, 2, 3]));
        }
        assert_eq!(start(1, 1), (true, vec![1, 4, 3]), "one pod starts again");
        assert_eq!(start(2, 2), (true, vec![5, 6, 7]), "all start again");
        assert_eq!(start(0, 2), (false, vec![5, 6, 7]));
        assert_eq!(start(1, 2), (false, vec![5, 6, 7]));
        assert_eq!(start(1, 2), (true, vec![5, 8, 7]));
    }

    #[test]
    fn an_address_that_is_held_is_not_given_again() {
        let mut directory = directory(200);
        for place in 0..200 {
            directory.take(place, 1);
        }
        for round in 0..2 * BLOCK {
            directory.take(1, 1);
            let given = directory.of(1);
            assert_ne!(given, directory.of(0), "{round}");
            assert_ne!(given, directory.of(199), "{round}");
            assert!(![0, 255].contains(&given.octets()[3]));
        }
    }

    #[test]
    fn the_hosts_file_keeps_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let mut directory = directory(300);
        let mut lengths = Vec::new();
        for attempt in 1..400 {
            directory.take(0, attempt);
            directory.write(&path).unwrap();
            lengths.push(std::fs::metadata(&path).unwrap().len());
        }
        lengths.dedup();
        assert_eq!(lengths.len(), 1);
        let text = std::fs::read_to_string(&path).unwrap();
        let want = format!("{:<15} pod-299", directory.of(299).to_string());
        assert_eq!(text.lines().last(), Some(want.as_str()));
    }
}
