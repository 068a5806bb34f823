//! Loopback addresses and names of the pods of a run.
//!
//! Every address of 127.0.0.0/8 is this machine. A run takes a block of 65,536 of them, so that
//! two runs never share one, and gives each pod its own.

use std::{fmt::Write as _, io, net::Ipv4Addr, os::unix::net::UnixListener};

use trainyard_core::spec::{Job, Slot};

use super::ports::hold;

/// Pods in a block; the addresses that end in 0 or 255 are left out.
const LAST_BYTE: u32 = 254;

/// The addresses of one run.
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

    /// The address of the pod at `place` in the order of listing.
    pub(crate) fn of(&self, place: u32) -> Ipv4Addr {
        let third = u8::try_from(place / LAST_BYTE % 256).unwrap_or(0);
        let last = u8::try_from(place % LAST_BYTE + 1).unwrap_or(1);
        Ipv4Addr::new(127, self.block, third, last)
    }

    /// The hosts file of the run's pods: the machine's own, and every name that the contract
    /// promises.
    pub(super) fn hosts(&self, job: &Job, machine: &str) -> String {
        let mut text = machine.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for (place, slot) in (0u32..).zip(job.slots()) {
            let names = names(job, slot).join(" ");
            writeln!(text, "{} {names}", self.of(place)).expect("a string takes everything");
        }
        text
    }
}

/// Every name of the pod in `slot`, the plain one first: it is what the address is called.
pub(crate) fn names(job: &Job, slot: Slot) -> Vec<String> {
    let pod = job.pod_name(slot);
    let namespace = &job.namespace;
    let mut names = vec![pod.clone()];
    // The second form is the pod's own name under the Service that all pods of an `MPIJob` share.
    for base in [pod.clone(), format!("{pod}.{}", job.name)] {
        if base != pod {
            names.push(base.clone());
        }
        for domain in ["", ".svc", ".svc.cluster.local"] {
            names.push(format!("{base}.{namespace}{domain}"));
        }
    }
    names
}
