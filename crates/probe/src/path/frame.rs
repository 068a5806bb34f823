//! Messages on a connection: four bytes of length, then JSON.
//!
//! Invariant: no more than [`LARGEST`] bytes are ever held for a message, and reading or writing one
//! ends at its limit, however slowly the other side is.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
};

use serde::{Serialize, de::DeserializeOwned};

use super::limit::Limit;

/// The largest message. What is read of a machine with hundreds of interfaces is a tenth of it.
pub(super) const LARGEST: usize = 4 << 20;

/// Sends one message.
pub(super) fn write<T: Serialize>(stream: &TcpStream, message: &T, limit: Limit) -> io::Result<()> {
    let body = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= LARGEST);
    let length = length.ok_or_else(|| too_large(body.len()))?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend(body);
    write_all(stream, &bytes, limit)
}

/// Reads one message of at most `largest` bytes.
pub(super) fn read<T: DeserializeOwned>(
    stream: &TcpStream,
    largest: usize,
    limit: Limit,
) -> io::Result<T> {
    let mut length = [0; 4];
    read_exact(stream, &mut length, limit)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > largest {
        return Err(too_large(length));
    }
    let mut body = vec![0; length];
    read_exact(stream, &mut body, limit)?;
    serde_json::from_slice(&body).map_err(io::Error::other)
}

/// Writes all of `bytes`.
pub(super) fn write_all(mut stream: &TcpStream, mut bytes: &[u8], limit: Limit) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(limit.left()?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills all of `bytes`.
pub(super) fn read_exact(mut stream: &TcpStream, bytes: &mut [u8], limit: Limit) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        stream.set_read_timeout(Some(limit.left()?))?;
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn too_large(length: usize) -> io::Error {
    io::Error::other(format!(
        "a message of {length} bytes is larger than {LARGEST}"
    ))
}
