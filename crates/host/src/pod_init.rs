//! The first process of a pod.
//!
//! # Flow
//! The engine starts the program with a socket as standard input. This process makes the
//! namespaces and forks: the child is process 1 of the pod, the parent only waits for it. Process 1
//! makes the mounts, starts the containers and reaps whatever ends, until the pod is over.
//!
//! # Guarantees
//! - When process 1 ends, for whatever reason, the kernel ends every process of the pod.
//! - Process 1 ends when the parent does, the parent ends when the engine's thread does, and
//!   process 1 ends by itself when the engine's end of the socket is closed.

mod isolate;
mod mounts;
mod spawn;
mod supervise;

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    process,
};

use nix::{
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, dup2_stdin, fork},
};

use crate::{
    channel,
    wire::{Order, PodSpec, Report},
};

/// The hidden command `pod-init`: never returns.
pub fn pod_init_main() -> ! {
    let code = match begin() {
        Ok(()) => 0,
        // The engine has the reason if it still lives; there is nobody else to tell.
        Err(_) => 1,
    };
    end(code)
}

#[expect(clippy::exit, reason = "a pod init is a program of its own")]
fn end(code: i32) -> ! {
    process::exit(code)
}

fn begin() -> io::Result<()> {
    prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    detach_stdin()?;
    let Some((order, descriptors)) = channel::receive::<Order>(&socket)? else {
        return Ok(());
    };
    if let Err(failure) = isolate::isolate() {
        let report = Report::NotIsolated {
            step: failure.step.to_owned(),
            reason: failure.source.to_string(),
        };
        return channel::send(&socket, &report, &[]);
    }
    // Making namespaces may have cleared it.
    prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
    split(socket, &order, descriptors)
}

/// The socket must not be the standard input of anything that is started later.
fn detach_stdin() -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    dup2_stdin(&null)?;
    Ok(())
}

#[expect(unsafe_code, reason = "a new pid namespace begins with a fork")]
fn split(socket: OwnedFd, order: &Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    // SAFETY: this process has one thread, so the child may do whatever the parent could.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            // The streams of the containers must close when the containers do.
            drop((socket, descriptors));
            let code = loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, code)) => break code,
                    Ok(WaitStatus::Signaled(..)) | Err(nix::Error::ECHILD) => break 1,
                    _ => {}
                }
            };
            end(code)
        }
        ForkResult::Child => {
            prctl::set_pdeathsig(Some(Signal::SIGKILL))?;
            first_process(&socket, order, descriptors)
        }
    }
}

fn first_process(socket: &OwnedFd, order: &Order, descriptors: Vec<OwnedFd>) -> io::Result<()> {
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
            let mut descriptors = descriptors.into_iter();
            let Some(memory) = descriptors.next() else {
                return broken("the pod came without its description".to_owned());
            };
            let spec: PodSpec = channel::from_memory(memory)?;
            if let Err(failure) = mounts::set_up_pod(&spec) {
                return broken(failure.to_string());
            }
            supervise::supervise(socket, &spec, descriptors)
        }
        _ => broken("the first order must be to start".to_owned()),
    }
}
