//! The keeper of a run, and the first process of each of its pods.
//!
//! # Flow
//! The engine starts the program once with a socket as standard input: the *keeper*. For each pod
//! it makes a child in namespaces of its own, which is process 1 of the pod: that makes the mounts,
//! starts the containers and reaps whatever ends, until the pod is over.
//!
//! A child of the keeper has the program in memory already. Starting the program again for each pod
//! cost 1.4 ms of processor time, most of it to place its addresses.
//!
//! # Guarantees
//! - When process 1 ends, for whatever reason, the kernel ends every process of the pod.
//! - Process 1 ends when the keeper does, the keeper ends when the engine's thread does, and both
//!   end by themselves when the engine's end of their socket is closed.

mod isolate;
mod keeper;
mod mounts;
mod spawn;
mod supervise;

use std::{fs, io, os::fd::OwnedFd, process};

use nix::sys::{prctl, signal::Signal};

use self::isolate::Refused;
use crate::{
    channel,
    wire::{Order, PodSpec, Report},
};

/// The hidden command `pod-init`: never returns.
pub fn pod_init_main() -> ! {
    let code = match keeper::keep() {
        Ok(()) => 0,
        // The engine has the reason if it still lives; there is nobody else to report to.
        Err(_) => 1,
    };
    end(code)
}

#[expect(clippy::exit, reason = "a pod init is a program of its own")]
fn end(code: i32) -> ! {
    process::exit(code)
}

/// Process 1 of a pod, from its first order to its end.
fn first_process(socket: &OwnedFd, isolated: Result<(), Refused>) -> io::Result<()> {
    prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
    let Some((order, descriptors)) = channel::receive::<Order>(socket)? else {
        return Ok(());
    };
    if let Err(refused) = isolated {
        return channel::send(socket, &refused.report(), &[]);
    }
    let broken = |message: String| channel::send(socket, &Report::Broken { message }, &[]);
    match order {
        Order::Probe => {
            let report = match mounts::probe() {
                Ok(()) => Report::Isolated,
                Err(failure) => Report::NotIsolated {
                    step: failure.step,
                    reason: failure.source.to_string(),
                },
            };
            channel::send(socket, &report, &[])
        }
        Order::Start => {
            let pid = number()?;
            channel::send(socket, &Report::Started { pid }, &[])?;
            let mut descriptors = descriptors.into_iter();
            let Some(memory) = descriptors.next() else {
                return broken("the pod was sent without its description".to_owned());
            };
            let spec: PodSpec = channel::from_memory(memory)?;
            if let Err(failure) = mounts::set_up_pod(&spec) {
                return broken(failure.to_string());
            }
            supervise::supervise(socket, &spec, descriptors)
        }
        _ => broken("the first message must be a start".to_owned()),
    }
}

/// The number that this process has on the machine: `/proc` is still that of the machine.
fn number() -> io::Result<u32> {
    let name = fs::read_link("/proc/self")?;
    let number = name.to_str().and_then(|name| name.parse().ok());
    number.ok_or_else(|| io::Error::other("`/proc/self` is not a process"))
}
