//! A Python made by hand: the memory of an interpreter of 3.12 with one thread, whose parts a test can spoil.

use crate::{
    memory::Blob,
    python::{layout::Layout, object::Types, walk::Runtime},
};

pub(super) use crate::feed::BASE;

/// Memory that grows.
pub(super) struct Fake {
    pub(super) blob: Blob,
    pub(super) runtime: Runtime,
    pub(super) interpreter: u64,
}

impl Fake {
    pub(super) fn new() -> Self {
        let blob = Blob {
            base: BASE,
            bytes: vec![0; 64],
        };
        let layout = Layout::known((3, 12)).unwrap();
        let types = Types {
            code: 0x111,
            text: 0x222,
            bytes: 0x333,
        };
        let runtime = Runtime {
            address: BASE,
            layout,
            types,
        };
        let mut fake = Self {
            blob,
            runtime,
            interpreter: 0,
        };
        fake.blob.bytes.resize(512, 0);
        fake.interpreter = fake.block(512);
        let head = fake.runtime.layout.interpreters_head;
        fake.put(BASE + head, &fake.interpreter.to_le_bytes());
        fake
    }

    /// New memory, and its address.
    pub(super) fn block(&mut self, size: usize) -> u64 {
        let address = self.blob.base + self.blob.bytes.len() as u64;
        self.blob
            .bytes
            .resize(self.blob.bytes.len() + size.next_multiple_of(8), 0);
        address
    }

    pub(super) fn put(&mut self, address: u64, bytes: &[u8]) {
        let start = usize::try_from(address - self.blob.base).unwrap();
        self.blob.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) -> u64 {
        let address = self.block(40 + text.len());
        self.put(address + 8, &self.runtime.types.text.to_le_bytes());
        self.put(address + 16, &(text.len() as u64).to_le_bytes());
        // Kind 1, compact, ASCII.
        self.put(address + 32, &[0b0110_0100]);
        self.put(address + 40, text.as_bytes());
        address
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let address = self.block(32 + bytes.len());
        self.put(address + 8, &self.runtime.types.bytes.to_le_bytes());
        self.put(address + 16, &(bytes.len() as u64).to_le_bytes());
        self.put(address + 32, bytes);
        address
    }

    /// A code object whose first instructions are one line behind its definition in line 10.
    pub(super) fn code(&mut self, file: &str, function: &str) -> u64 {
        let fields = [
            self.text(file),
            self.text(function),
            self.bytes(&[0xe8 | 7, 2]),
        ];
        let address = self.block(208);
        self.put(address + 8, &self.runtime.types.code.to_le_bytes());
        self.put(address + 68, &10u32.to_le_bytes());
        for (offset, value) in [112, 128, 136].into_iter().zip(fields) {
            self.put(address + offset, &value.to_le_bytes());
        }
        address
    }

    /// A frame in front of `previous`, at the first instruction of its code.
    pub(super) fn frame(&mut self, code: u64, previous: u64) -> u64 {
        let address = self.block(80);
        for (offset, value) in [(0, code), (8, previous), (56, code + 192)] {
            self.put(address + offset, &value.to_le_bytes());
        }
        address
    }

    /// A thread in front of the others, with this innermost frame.
    pub(super) fn thread(&mut self, frame: u64) -> u64 {
        let through = self.block(8);
        self.put(through, &frame.to_le_bytes());
        let address = self.block(160);
        let head = self.interpreter + self.runtime.layout.threads_head;
        let start = usize::try_from(head - BASE).unwrap();
        let next: [u8; 8] = self.blob.bytes[start..start + 8].try_into().unwrap();
        self.put(address + 8, &next);
        self.put(address + 56, &through.to_le_bytes());
        self.put(address + 136, &0x7777u64.to_le_bytes());
        self.put(address + 144, &42u64.to_le_bytes());
        self.put(head, &address.to_le_bytes());
        address
    }
}

/// Two calls in one thread of 3.12.
pub(crate) fn sample() -> Blob {
    let mut fake = Fake::new();
    let (main, step) = (
        fake.code("train.py", "main"),
        fake.code("train.py", "Trainer.step"),
    );
    let outer = fake.frame(main, 0);
    let inner = fake.frame(step, outer);
    fake.thread(inner);
    fake.blob
}

/// The same with a description of itself as 3.14 has it, for the offsets of 3.12, and a thread that has its frame itself.
pub(crate) fn sample_described() -> Blob {
    let mut fake = Fake::new();
    fake.blob.bytes.splice(
        0..512,
        std::iter::repeat_n(0, crate::python::layout::DESCRIPTION_SIZE),
    );
    // The interpreter has moved behind the description.
    let interpreter = BASE + crate::python::layout::DESCRIPTION_SIZE as u64;
    fake.interpreter = interpreter;
    let (main, step) = (
        fake.code("train.py", "main"),
        fake.code("train.py", "Trainer.step"),
    );
    let outer = fake.frame(main, 0);
    let inner = fake.frame(step, outer);
    let thread = fake.thread(inner);
    fake.put(thread + 56, &inner.to_le_bytes());
    // At the index of each number, counted in `_Py_DebugOffsets` of 3.14; the head of the interpreters is at the end.
    let numbers: &[(u64, u64)] = &[
        (0, u64::from_le_bytes(*b"xdebugpy")),
        (1, 0x030e_00f0),
        (5, 1016),
        (9, 72),
        (24, 8),
        (26, 56),
        (27, 136),
        (28, 144),
        (32, 8),
        (34, 56),
        (36, 70),
        (40, 112),
        (42, 128),
        (43, 136),
        (44, 68),
        (48, 192),
        (51, 8),
        (75, 16),
        (76, 32),
        (78, 32),
        (79, 16),
        (80, 40),
        (127, interpreter),
    ];
    for (index, value) in numbers {
        fake.put(BASE + index * 8, &value.to_le_bytes());
    }
    fake.blob
}
