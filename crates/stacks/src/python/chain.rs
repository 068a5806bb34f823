//! The frames of one thread as they are in memory, followed from the innermost outwards.
//!
//! The process runs meanwhile: a frame is popped and its memory reused while the next one is read. From 3.11 on the frames of
//! a thread lie side by side, so they are taken from whole pages: one read has most of a stack, of a moment that is shorter
//! than a call of Python. Then the innermost frame must still be the same.

use std::collections::{BTreeMap, BTreeSet};

use super::layout::{FIRST_HIDDEN_OWNER, GENERATOR_OWNER, Instruction, Layout, Top};
use crate::memory::{Fault, Memory, Reads, Window};

/// Most frames of a thread that are reported, innermost first.
pub const MOST_FRAMES: usize = 256;

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RawFrame {
    pub(super) address: u64,
    pub(super) code: u64,
    /// An address, or the offset of the instruction; [`RawFrame::NOT_BEGUN`] before the first.
    pub(super) instruction: u64,
    /// Whether its owner is a generator (3.11 and later).
    pub(super) generator: bool,
}

impl RawFrame {
    /// The instruction of a frame that has not begun (3.9 and 3.10).
    pub(super) const NOT_BEGUN: u64 = u64::MAX;
}

/// The frames of one thread.
#[derive(Debug)]
pub(super) struct Chain {
    /// The thread state, from before the frames were read.
    pub(super) state: Window,
    /// The frames of Python, innermost first.
    pub(super) frames: Vec<RawFrame>,
    /// There are more than [`MOST_FRAMES`], or the reads are used up.
    pub(super) truncated: bool,
    /// It led to something that is no frame, or the innermost frame changed.
    broken: bool,
}

impl Chain {
    /// Follows the frames of the thread whose state is at `thread`.
    pub(super) fn read<M: Memory + ?Sized>(
        reads: &Reads<'_, M>,
        layout: &Layout,
        thread: u64,
    ) -> Result<Self, Fault> {
        let state = reads.window(thread, layout.thread_size())?;
        let top = top(reads, layout, &state);
        let mut chain = Self {
            state,
            frames: Vec::new(),
            truncated: false,
            broken: false,
        };
        let ended = match top {
            Ok(top) => chain.follow(reads, layout, top),
            Err(fault) => Err(fault),
        };
        match ended {
            Ok(()) => {}
            Err(Fault::Unmapped) => chain.broken = true,
            Err(Fault::UsedUp) => {
                chain.truncated = true;
                return Ok(chain);
            }
            Err(Fault::Gone) => return Err(Fault::Gone),
        }
        let after = reads.window(thread, layout.thread_size())?;
        chain.broken |= self::top(reads, layout, &after) != top;
        Ok(chain)
    }

    fn follow<M: Memory + ?Sized>(
        &mut self,
        reads: &Reads<'_, M>,
        layout: &Layout,
        top: u64,
    ) -> Result<(), Fault> {
        let mut pages = Pages {
            reads,
            pages: BTreeMap::new(),
        };
        let mut seen = BTreeSet::new();
        let mut address = top;
        // Frames of the interpreter itself are not reported; at most one stands between two of Python.
        for _ in 0..2 * MOST_FRAMES {
            if address == 0 {
                return Ok(());
            }
            if !seen.insert(address) {
                return Err(Fault::Unmapped);
            }
            let frame = pages.window(address, layout.frame_size())?;
            let owner = layout.frame_owner.map_or(0, |offset| frame.u8(offset));
            if owner < FIRST_HIDDEN_OWNER {
                if self.frames.len() == MOST_FRAMES {
                    break;
                }
                self.frames.push(RawFrame {
                    address,
                    // The lowest bits of a reference may be a tag (3.14).
                    code: frame.u64(layout.frame_code) & !3,
                    instruction: instruction(layout, &frame),
                    generator: owner == GENERATOR_OWNER,
                });
            }
            address = frame.u64(layout.frame_previous);
        }
        self.truncated = true;
        Ok(())
    }

    /// Whether both are of one moment. The innermost frame may have moved to another instruction.
    pub(super) fn agrees(&self, later: &Self) -> bool {
        let place = |(index, frame): (usize, &RawFrame)| {
            let instruction = if index == 0 { 0 } else { frame.instruction };
            (frame.address, frame.code, instruction)
        };
        let places = |chain: &Self| {
            chain
                .frames
                .iter()
                .enumerate()
                .map(place)
                .collect::<Vec<_>>()
        };
        !self.broken && !later.broken && places(self) == places(later)
    }
}

fn instruction(layout: &Layout, frame: &Window) -> u64 {
    match layout.instruction {
        Instruction::Address(offset) => frame.u64(offset),
        Instruction::Index(offset, unit) => {
            u64::try_from(frame.i32(offset)).map_or(RawFrame::NOT_BEGUN, |index| index * unit)
        }
    }
}

/// The innermost frame of a thread.
fn top<M: Memory + ?Sized>(
    reads: &Reads<'_, M>,
    layout: &Layout,
    state: &Window,
) -> Result<u64, Fault> {
    match layout.top {
        Top::Direct(offset) => Ok(state.u64(offset)),
        Top::Through(offset, frame) => match state.u64(offset) {
            0 => Ok(0),
            through => reads.word(through, frame),
        },
    }
}

/// Memory that is read by pages, each once.
struct Pages<'a, M: ?Sized> {
    reads: &'a Reads<'a, M>,
    pages: BTreeMap<u64, Window>,
}

impl<M: Memory + ?Sized> Pages<'_, M> {
    /// The smallest page of any machine: where one byte of it can be read, all can.
    const SIZE: u64 = 4096;
    /// Most pages that are kept: a stack of 256 frames takes about ten.
    const MOST: usize = 64;

    fn window(&mut self, address: u64, length: usize) -> Result<Window, Fault> {
        let start = address & !(Self::SIZE - 1);
        let end = address.checked_add(length as u64).ok_or(Fault::Unmapped)?;
        if end - start > Self::SIZE {
            return self.reads.window(address, length);
        }
        if !self.pages.contains_key(&start) {
            if self.pages.len() == Self::MOST {
                self.pages.clear();
            }
            match self.reads.window(start, 4096) {
                Ok(page) => self.pages.insert(start, page),
                // Memory that is made by hand ends anywhere.
                Err(Fault::Unmapped) => return self.reads.window(address, length),
                Err(fault) => return Err(fault),
            };
        }
        let page = self.pages.get(&start).ok_or(Fault::Unmapped)?;
        let from = usize::try_from(address - start).map_err(|_| Fault::Unmapped)?;
        let bytes = page
            .bytes()
            .get(from..from + length)
            .ok_or(Fault::Unmapped)?;
        Ok(Window::new(bytes.to_vec()))
    }
}
