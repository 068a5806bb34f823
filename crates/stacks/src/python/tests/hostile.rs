//! Memory that lies: the reader ends, within its bounds, with what can be true.

use super::fake::{BASE, Fake};
use crate::{
    Frame,
    memory::{Blob, Fault, Memory, Window},
    python::{
        MOST_FRAMES, MOST_THREADS,
        layout::{Layout, version},
    },
};

fn frame(file: &str, function: &str, line: u32) -> Frame {
    Frame {
        file: file.to_owned(),
        function: function.to_owned(),
        line: Some(line),
    }
}

#[test]
fn a_thread_made_by_hand() {
    let mut fake = Fake::new();
    let (main, step) = (
        fake.code("train.py", "main"),
        fake.code("train.py", "Trainer.step"),
    );
    let outer = fake.frame(main, 0);
    // A frame of the interpreter itself stands between and is not reported.
    let hidden = fake.frame(0, outer);
    fake.put(hidden + 70, &[3]);
    let inner = fake.frame(step, hidden);
    let thread = fake.thread(inner);
    fake.put(thread + 24, &(1u32 << 4).to_le_bytes());
    let stacks = fake.runtime.stacks(&fake.blob).unwrap();
    assert_eq!(stacks.len(), 1);
    assert_eq!(
        stacks[0].frames,
        [
            frame("train.py", "Trainer.step", 11),
            frame("train.py", "main", 11)
        ]
    );
    assert_eq!((stacks[0].thread_id, stacks[0].task), (0x7777, Some(42)));
    assert_eq!(stacks[0].holds_gil, Some(true));
    assert!(!stacks[0].torn && !stacks[0].truncated);
}

#[test]
fn a_stack_that_ends_in_a_generator_is_torn() {
    let mut fake = Fake::new();
    let code = fake.code("train.py", "numbers");
    let frame = fake.frame(code, 0);
    fake.put(frame + 70, &[1]);
    fake.thread(frame);
    let stacks = fake.runtime.stacks(&fake.blob).unwrap();
    assert!(stacks[0].torn && stacks[0].frames.len() == 1, "{stacks:#?}");
}

#[test]
fn lists_that_lead_back() {
    let mut fake = Fake::new();
    let code = fake.code("train.py", "main");
    let first = fake.frame(code, 0);
    let second = fake.frame(code, first);
    fake.put(first + 8, &second.to_le_bytes());
    let thread = fake.thread(second);
    let stacks = fake.runtime.stacks(&fake.blob).unwrap();
    assert!(stacks[0].torn, "frames");
    assert_eq!(stacks[0].frames.len(), 2);
    fake.put(thread + 8, &thread.to_le_bytes());
    assert_eq!(
        fake.runtime.stacks(&fake.blob),
        Err(Fault::Unmapped),
        "threads"
    );
    fake.put(thread + 8, &0u64.to_le_bytes());
    let interpreter = fake.interpreter;
    fake.put(interpreter, &interpreter.to_le_bytes());
    assert_eq!(
        fake.runtime.stacks(&fake.blob),
        Err(Fault::Unmapped),
        "interpreters"
    );
}

#[test]
fn more_than_the_bounds() {
    let mut fake = Fake::new();
    let code = fake.code("train.py", "down");
    let mut top = 0;
    for _ in 0..=MOST_FRAMES {
        top = fake.frame(code, top);
    }
    for _ in 0..=MOST_THREADS {
        fake.thread(top);
    }
    let stacks = fake.runtime.stacks(&fake.blob).unwrap();
    assert_eq!(stacks[0].frames.len(), MOST_FRAMES);
    assert!(stacks[0].truncated && !stacks[0].torn);
    assert_eq!(stacks.len(), MOST_THREADS);
    let few = fake.runtime.stacks_within(&fake.blob, 1000).unwrap();
    assert_eq!(few.len(), MOST_THREADS);
    assert!(!few[0].torn);
    let last = few.last().unwrap();
    assert!(last.truncated && last.torn, "the reads are used up");
    assert_eq!(last.frames, []);
}

#[test]
fn objects_that_are_none() {
    type Spoil = fn(&mut Fake, u64);
    let spoils: &[(&str, Spoil)] = &[
        ("no code", |fake, code| {
            fake.put(code + 8, &1u64.to_le_bytes());
        }),
        ("no name", |fake, code| {
            fake.put(code + 128, &0u64.to_le_bytes());
        }),
        ("name outside", |fake, code| {
            fake.put(code + 128, &u64::MAX.to_le_bytes());
        }),
        ("name that is code", |fake, code| {
            fake.put(code + 128, &code.to_le_bytes());
        }),
        ("lines that are code", |fake, code| {
            fake.put(code + 136, &code.to_le_bytes());
        }),
    ];
    for (name, spoil) in spoils {
        let mut fake = Fake::new();
        let (outer, inner) = (fake.code("train.py", "main"), fake.code("train.py", "step"));
        let outer_frame = fake.frame(outer, 0);
        let inner_frame = fake.frame(inner, outer_frame);
        fake.thread(inner_frame);
        spoil(&mut fake, outer);
        let stacks = fake.runtime.stacks(&fake.blob).unwrap();
        assert!(stacks[0].torn, "{name}");
        assert_eq!(stacks[0].frames, [frame("train.py", "step", 11)], "{name}");
    }
}

#[test]
fn texts() {
    let mut fake = Fake::new();
    let claims = fake.text("short");
    let long = fake.text(&"x".repeat(2000));
    let escape = fake.text("a\u{1b}[2Jb");
    let wide = fake.block(80);
    fake.put(wide + 8, &0x222u64.to_le_bytes());
    fake.put(wide + 16, &2u64.to_le_bytes());
    // Kind 4, compact, not ASCII: a character that exists, and one that does not.
    fake.put(wide + 32, &[0b0011_0000]);
    fake.put(wide + 56, &0x1_f600u32.to_le_bytes());
    fake.put(wide + 60, &0x7fff_ffffu32.to_le_bytes());
    fake.put(claims + 16, &u64::MAX.to_le_bytes());
    let read = |address| {
        let reads = crate::memory::Reads::new(&fake.blob, 10);
        crate::python::object::text(&reads, &fake.runtime.layout, fake.runtime.types, address)
    };
    assert_eq!(read(long).unwrap(), format!("{}…", "x".repeat(1024)));
    assert_eq!(read(escape).unwrap(), "a\u{fffd}[2Jb");
    assert_eq!(read(wide).unwrap(), "\u{1f600}\u{fffd}");
    let claimed = read(claims).unwrap();
    assert!(
        claimed.starts_with("short") && claimed.chars().count() == 1025,
        "cut at the bound"
    );
    assert_eq!(read(BASE), Err(Fault::Unmapped), "another type");
    assert_eq!(read(0), Err(Fault::Unmapped));
}

#[test]
fn every_byte_may_be_another() {
    let mut fake = Fake::new();
    let code = fake.code("t.py", "f");
    let frame = fake.frame(code, 0);
    fake.thread(frame);
    let whole = fake.blob.clone();
    let mut different = 0;
    let expected = fake.runtime.stacks(&whole);
    for index in 0..whole.bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut spoilt = whole.clone();
            spoilt.bytes[index] = value;
            different += u32::from(fake.runtime.stacks(&spoilt) != expected);
        }
    }
    assert!(different > 100, "{different}");
    for length in 0..whole.bytes.len() {
        let cut = Blob {
            base: BASE,
            bytes: whole.bytes[..length].to_vec(),
        };
        drop(fake.runtime.stacks(&cut));
    }
}

/// Memory of a process that ends after some reads.
struct Ends<'a>(&'a Blob, std::cell::Cell<u32>);

impl Memory for Ends<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Fault> {
        let left = self.1.get().checked_sub(1).ok_or(Fault::Gone)?;
        self.1.set(left);
        self.0.read(address, into)
    }
}

#[test]
fn the_end_of_a_process_is_reported_wherever_it_comes() {
    let mut fake = Fake::new();
    let code = fake.code("t.py", "f");
    let frame = fake.frame(code, 0);
    fake.thread(frame);
    let mut reads = 0;
    loop {
        let memory = Ends(&fake.blob, std::cell::Cell::new(reads));
        match fake.runtime.stacks(&memory) {
            Err(Fault::Gone) => reads += 1,
            Ok(stacks) => {
                assert_eq!(stacks[0].frames.len(), 1);
                break;
            }
            Err(fault) => panic!("{fault} after {reads} reads"),
        }
    }
    assert!(reads > 10, "{reads}");
}

#[test]
fn descriptions_that_are_refused() {
    let described = |words: &[(usize, u64)]| {
        let mut bytes = vec![0; crate::python::layout::DESCRIPTION_SIZE];
        for (index, value) in words {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        Layout::described(&Window::new(bytes)).map(|layout| layout.version)
    };
    let found = |text: &str| Err(text.to_owned());
    assert_eq!(described(&[(1, 0x030d_00f0), (45, 8)]), Ok((3, 13)));
    assert_eq!(described(&[(1, 0x030e_00f0), (51, 8)]), Ok((3, 14)));
    assert_eq!(described(&[(1, 0x030f_00f0)]), found("CPython 3.15"));
    let free = found("CPython 3.13 without a global interpreter lock");
    assert_eq!(described(&[(1, 0x030d_00f0), (2, 1), (45, 8)]), free);
    let unknown = found("CPython 3.13 with an unknown description of itself");
    assert_eq!(described(&[(1, 0x030d_00f0)]), unknown);
    assert_eq!(
        described(&[(1, 0x030d_00f0), (45, 8), (29, u64::MAX)]),
        unknown
    );
    assert_eq!(
        described(&[(1, 0x030d_00f0), (45, 8), (70, u64::MAX)]),
        unknown
    );
}

#[test]
fn versions_of_numbers() {
    assert_eq!(version(0x030b_07f0), (3, 11));
    assert_eq!(version(u64::MAX), (255, 255));
    assert_eq!(Layout::known((3, 8)), None);
    assert_eq!(Layout::known((3, 13)), None, "it describes itself");
}
