//! Bytes at addresses: of a process, of a file, or of a blob that stands in for both.
//!
//! All readers of this crate take [`Memory`], so that a test and a fuzzer can give them any bytes.

use std::{cell::Cell, fs::File, io, os::unix::fs::FileExt};

/// Why bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Nothing is mapped there, or the address is no address.
    #[error("nothing can be read there")]
    Unmapped,
    /// The process has ended: its memory is gone.
    #[error("the process has ended")]
    Gone,
    /// The number of reads of one [`Reads`] is used up.
    #[error("the number of reads is used up")]
    UsedUp,
}

/// Bytes at addresses.
pub trait Memory {
    /// Fills `into` with the bytes at `address`, or fails.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault>;
}

/// The memory of a process (`/proc/PID/mem`), or the bytes of a file.
#[derive(Debug)]
pub struct FileMemory(pub File);

impl Memory for FileMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.0
            .read_exact_at(into, address)
            .map_err(|error| match error.kind() {
                // The memory of a process that has ended has no bytes at all.
                io::ErrorKind::UnexpectedEof => Fault::Gone,
                _ => Fault::Unmapped,
            })
    }
}

/// Bytes that stand in for memory, from address `base` on.
#[derive(Debug, Clone)]
pub struct Blob {
    /// Where the first byte is.
    pub base: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Memory for Blob {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let start = address.checked_sub(self.base).ok_or(Fault::Unmapped)?;
        let start = usize::try_from(start).map_err(|_| Fault::Unmapped)?;
        let end = start.checked_add(into.len()).ok_or(Fault::Unmapped)?;
        into.copy_from_slice(self.bytes.get(start..end).ok_or(Fault::Unmapped)?);
        Ok(())
    }
}

/// A memory of which only so many reads are made.
#[derive(Debug)]
pub struct Reads<'a, M: ?Sized> {
    memory: &'a M,
    left: Cell<u32>,
}

impl<'a, M: Memory + ?Sized> Reads<'a, M> {
    /// At most `most` reads of `memory`.
    pub fn new(memory: &'a M, most: u32) -> Self {
        Self {
            memory,
            left: Cell::new(most),
        }
    }

    /// How many reads are left.
    pub fn left(&self) -> u32 {
        self.left.get()
    }

    /// Fills `into`.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        // Never mapped: a null pointer with an offset is refused without a system call.
        const FIRST_PAGE: u64 = 4096;
        let left = self.left.get().checked_sub(1).ok_or(Fault::UsedUp)?;
        self.left.set(left);
        if address < FIRST_PAGE {
            return Err(Fault::Unmapped);
        }
        self.memory.read(address, into)
    }

    /// The bytes of a structure.
    pub fn window(&self, address: u64, length: usize) -> Result<Window, Fault> {
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes)?;
        Ok(Window(bytes))
    }

    /// The pointer-sized number at `address + offset`.
    pub fn word(&self, address: u64, offset: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read(
            address.checked_add(offset).ok_or(Fault::Unmapped)?,
            &mut bytes,
        )?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The bytes of one structure, read at once so that its fields are of one moment as far as can be.
#[derive(Debug, Clone)]
pub struct Window(Vec<u8>);

impl Window {
    /// A structure of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The 8 bytes at `offset`; zero, which is no pointer, outside of the window.
    pub fn u64(&self, offset: u64) -> u64 {
        self.array(offset).map_or(0, u64::from_le_bytes)
    }

    /// The 4 bytes at `offset`.
    pub fn u32(&self, offset: u64) -> u32 {
        self.array(offset).map_or(0, u32::from_le_bytes)
    }

    /// The 2 bytes at `offset`.
    pub fn u16(&self, offset: u64) -> u16 {
        self.array(offset).map_or(0, u16::from_le_bytes)
    }

    /// The 4 bytes at `offset`, signed.
    pub fn i32(&self, offset: u64) -> i32 {
        self.array(offset).map_or(0, i32::from_le_bytes)
    }

    /// The byte at `offset`.
    pub fn u8(&self, offset: u64) -> u8 {
        self.array(offset).map_or(0, |[byte]| byte)
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn array<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let start = usize::try_from(offset).ok()?;
        self.0.get(start..start.checked_add(N)?)?.try_into().ok()
    }
}
