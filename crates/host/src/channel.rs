//! Messages with descriptors, over a pair of sockets that keep message boundaries.
//!
//! Invariant: a message fits one packet. What may be larger travels as a memory file beside it.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _},
    os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    thread,
    time::{Duration, Instant},
};

use nix::{
    cmsg_space,
    errno::Errno,
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
/// How often it is tried whether descriptors may be sent, where too many are on their way.
const CROWDED: Duration = Duration::from_millis(1);
/// How long that is tried; 500 pods start in less than three seconds.
const CROWDED_MAX: Duration = Duration::from_secs(10);
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
    send_when_possible(|| {
        sendmsg::<()>(
            socket.as_fd().as_raw_fd(),
            &[IoSlice::new(&bytes)],
            rights,
            flags | MsgFlags::MSG_NOSIGNAL,
            None,
        )
    })?;
    Ok(())
}

/// Sends as soon as it may: the kernel lets an ordinary user have only so many descriptors on their
/// way to whoever takes them, and the engine sends those of many pods faster than pods start.
fn send_when_possible(mut send: impl FnMut() -> nix::Result<usize>) -> io::Result<()> {
    let until = Instant::now() + CROWDED_MAX;
    loop {
        match send() {
            Ok(_) => return Ok(()),
            // No event reports when there are fewer.
            Err(Errno::ETOOMANYREFS) if Instant::now() < until => thread::sleep(CROWDED),
            Err(errno) => return Err(errno.into()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_sent_when_there_is_room_for_them() {
        for (name, answers, want, tries) in [
            ("at once", vec![Ok(1)], None, 1),
            (
                "when others were taken",
                vec![Err(Errno::ETOOMANYREFS), Err(Errno::ETOOMANYREFS), Ok(1)],
                None,
                3,
            ),
            ("never", vec![Err(Errno::EPIPE)], Some(Errno::EPIPE), 1),
            (
                "no more",
                vec![Err(Errno::ETOOMANYREFS), Err(Errno::EPIPE)],
                Some(Errno::EPIPE),
                2,
            ),
        ] {
            let mut left = answers.into_iter();
            let mut tried = 0;
            let sent = send_when_possible(|| {
                tried += 1;
                left.next().unwrap()
            });
            let found = sent.err().and_then(|error| error.raw_os_error());
            assert_eq!(found, want.map(|errno| errno as i32), "{name}");
            assert_eq!(tried, tries, "{name}");
        }
    }

    #[test]
    fn a_message_arrives_whole_and_the_end_is_seen() {
        let (ours, theirs) = pair().unwrap();
        let error = receive_now::<String>(&ours).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let long = "x".repeat(MESSAGE_BYTES - 2);
        send(&theirs, &long, &[theirs.as_raw_fd()]).unwrap();
        assert!(
            send(&theirs, &"x".repeat(MESSAGE_BYTES), &[]).is_err(),
            "it is too long"
        );
        let (found, descriptors) = receive::<String>(&ours).unwrap().unwrap();
        assert_eq!((found == long, descriptors.len()), (true, 1));
        drop((theirs, descriptors));
        assert!(receive::<String>(&ours).unwrap().is_none());
    }
}
