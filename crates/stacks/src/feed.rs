//! Any bytes given to every reader of this crate: what the fuzz target and the test of its seeds call.
//!
//! It is in the crate so that the seeds are fed by an ordinary test as well, without a nightly compiler.

use crate::{
    ThreadStack,
    digest::{Digest, own_frame},
    elf::Elf,
    fold::fold,
    lines::LineTable,
    maps,
    memory::{Blob, Reads},
    process,
    python::{
        MOST_FRAMES, MOST_THREADS,
        layout::{DESCRIPTION_SIZE, Layout},
        object::{MOST_TEXT, Types},
        walk::Runtime,
    },
    waits::wait_of,
};

/// Where the memory that a blob stands in for begins; the runtime is its first byte.
pub const BASE: u64 = 0x10_0000;

/// Reads `bytes` as what their first byte says.
///
/// # Panics
///
/// Where a bound is not kept, which is what a fuzzer looks for.
pub fn feed(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else {
        return;
    };
    match kind % 6 {
        0 => feed_elf(rest),
        1 => feed_lines(rest),
        2 => drop(maps::loaded_files(rest)),
        3 => process::feed(rest),
        4 => {
            let Some((minor, rest)) = rest.split_first() else {
                return;
            };
            let layout = Layout::known((3, 9 + minor % 4)).expect("3.9 to 3.12 are known");
            feed_memory(layout, rest);
        }
        _ => {
            let memory = blob(rest);
            let start = Reads::new(&memory, 1).window(BASE, DESCRIPTION_SIZE);
            if let Ok(Ok(layout)) = start.map(|start| Layout::described(&start)) {
                feed_memory(layout, rest);
            }
        }
    }
}

fn blob(bytes: &[u8]) -> Blob {
    Blob {
        base: BASE,
        bytes: bytes.to_vec(),
    }
}

fn feed_elf(bytes: &[u8]) {
    let file = Blob {
        base: 0,
        bytes: bytes.to_vec(),
    };
    if let Ok(elf) = Elf::read(&file) {
        drop(elf.symbols(&file, &["_PyRuntime", "Py_Version"]));
        elf.section(".PyRuntime");
        elf.bias(BASE);
    }
}

fn feed_lines(bytes: &[u8]) {
    let Some((head, table)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    for form in [
        LineTable::Increments,
        LineTable::Ranges,
        LineTable::Locations,
    ] {
        form.line(table, u32::from(head[0]) << 24, u64::from(head[1]) * 8);
        form.line(table, u32::from(head[0]), u64::MAX);
    }
}

fn feed_memory(layout: Layout, bytes: &[u8]) {
    let runtime = Runtime {
        address: BASE,
        layout,
        types: Types::default(),
    };
    let Ok(stacks) = runtime.stacks(&blob(bytes)) else {
        return;
    };
    assert!(stacks.len() <= MOST_THREADS, "{} threads", stacks.len());
    for stack in &stacks {
        check(stack);
    }
    for fold in fold(&[(0, stacks.clone()), (1, stacks)]) {
        assert_eq!(fold.ranks, [0, 1]);
        assert!(!fold.to_string().is_empty());
    }
}

fn check(stack: &ThreadStack) {
    assert!(
        stack.frames.len() <= MOST_FRAMES,
        "{} frames",
        stack.frames.len()
    );
    for text in stack
        .frames
        .iter()
        .flat_map(|frame| [&frame.file, &frame.function])
    {
        assert!(text.chars().count() as u64 <= MOST_TEXT + 1, "{text}");
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    Digest::of(&stack.frames);
    own_frame(&stack.frames);
    wait_of(&stack.frames, None);
}

#[cfg(test)]
mod tests;
