//! Messages with descriptors, over a pair of sockets that keep message boundaries.
//!
//! Invariant: a message fits one packet. What may be larger travels as a memory file beside it.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _},
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
};

use nix::{
    cmsg_space,
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{
            AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recv,
            recvmsg, sendmsg, socketpair,
        },
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// No message is longer; the kernel's packets hold more than three times this.
const MESSAGE_BYTES: usize = 64 << 10;
/// The kernel passes at most 253 descriptors at once.
pub(crate) const MAX_DESCRIPTORS: usize = 253;

/// Two connected ends. Neither is inherited by programs that are started.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?;
    Ok(pair)
}

/// Sends one message.
pub(crate) fn send(
    socket: &impl AsFd,
    message: &impl Serialize,
    descriptors: &[RawFd],
) -> io::Result<()> {
    send_with(socket, message, descriptors, MsgFlags::empty())
}

/// Sends one message if there is room for it; the error is `WouldBlock` where there is none.
pub(crate) fn send_now(socket: &impl AsFd, message: &impl Serialize) -> io::Result<()> {
    send_with(socket, message, &[], MsgFlags::MSG_DONTWAIT)
}

fn send_with(
    socket: &impl AsFd,
    message: &impl Serialize,
    descriptors: &[RawFd],
    flags: MsgFlags,
) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES {
        return Err(io::Error::other(format!(
            "a message of {} bytes is too long",
            bytes.len()
        )));
    }
    let rights = [ControlMessage::ScmRights(descriptors)];
    let rights: &[ControlMessage<'_>] = if descriptors.is_empty() { &[] } else { &rights };
    sendmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &[IoSlice::new(&bytes)],
        rights,
        flags | MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

/// Waits for one message; `None` when the other end is gone.
pub(crate) fn receive<T: DeserializeOwned>(
    socket: &impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    receive_with(socket, MsgFlags::empty())
}

/// Receives one message that is there already; the error is `WouldBlock` where none is.
pub(crate) fn receive_now<T: DeserializeOwned>(
    socket: &impl AsFd,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    receive_with(socket, MsgFlags::MSG_DONTWAIT)
}

#[expect(
    unsafe_code,
    reason = "descriptors arrive as plain numbers and must be owned"
)]
fn receive_with<T: DeserializeOwned>(
    socket: &impl AsFd,
    flags: MsgFlags,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    // Asked for first, so that no more memory is cleared than the message takes.
    let look = flags | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
    let waiting = recv(socket.as_fd().as_raw_fd(), &mut [], look)?;
    let mut bytes = vec![0; waiting.min(MESSAGE_BYTES)];
    let mut space = cmsg_space!([RawFd; MAX_DESCRIPTORS]);
    let mut descriptors = Vec::new();
    let length = {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let received = recvmsg::<()>(
            socket.as_fd().as_raw_fd(),
            &mut slices,
            Some(&mut space),
            flags | MsgFlags::MSG_CMSG_CLOEXEC,
        )?;
        for message in received.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                for number in numbers {
                    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
                    descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
                }
            }
        }
        received.bytes
    };
    if length == 0 {
        return Ok(None);
    }
    bytes.truncate(length);
    Ok(Some((serde_json::from_slice(&bytes)?, descriptors)))
}

/// A memory file that holds `value`.
pub(crate) fn to_memory(value: &impl Serialize) -> io::Result<OwnedFd> {
    let descriptor = memfd_create(c"trainyard", MFdFlags::MFD_CLOEXEC)?;
    let mut file = File::from(descriptor);
    file.write_all(&serde_json::to_vec(value)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// What a memory file holds.
pub(crate) fn from_memory<T: DeserializeOwned>(descriptor: OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::from(descriptor).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}
