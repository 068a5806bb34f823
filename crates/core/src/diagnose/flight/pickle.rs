//! A reader of pickles that executes nothing.
//!
//! A pickle is a program for a stack machine. This one supports the instructions that build plain data and
//! two that name and call things; a name stays a name, and a call returns its first argument, which is
//! what the helpers that `PyTorch`'s pickler calls (`restore_type_tag`, `build_intlist`) do. Anything else
//! is refused.
//!
//! Invariant: every instruction consumes bytes, so reading ends; values are counted before they are made or
//! copied, and a pickle that would make more than [`MAX_VALUES`], or far more than its length accounts for,
//! is refused: a few hundred bytes that copy copies of copies cannot use up time or memory.

use std::collections::BTreeMap;

use super::value::Value;

/// The most values that one pickle may make: a recorder of 20,000 collectives with frames makes fewer.
const MAX_VALUES: usize = 8 << 20;
/// Values that each byte may make, and how many any pickle may. What is copied out of the memo are short
/// texts, and frames that several collectives share.
const VALUES_PER_BYTE: usize = 64;
const ANY_VALUES: usize = 64 << 10;
/// How deep values may be nested; a dump needs six levels.
const MAX_DEPTH: usize = 64;

/// Why a pickle cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickleError {
    #[error("it is truncated within an instruction")]
    Short,
    #[error("instruction {0:#04x} at byte {1} is not supported")]
    Instruction(u8, usize),
    #[error("an instruction at byte {0} has no operand on the stack")]
    Stack(usize),
    #[error("it would create more than {0} values")]
    Large(usize),
    #[error("values are nested more than {MAX_DEPTH} levels deep")]
    Deep,
    #[error("text at byte {0} is not UTF-8")]
    Text(usize),
}

/// A value with its depth, so that depth is bounded without recursion.
#[derive(Clone, Debug)]
struct Item {
    value: Value,
    depth: usize,
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Item>,
    marks: Vec<usize>,
    memo: BTreeMap<u64, Item>,
    made: usize,
    most: usize,
}

/// Reads one pickle.
pub(super) fn read(bytes: &[u8]) -> Result<Value, PickleError> {
    let mut machine = Machine {
        bytes,
        at: 0,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: BTreeMap::new(),
        made: 0,
        most: bytes
            .len()
            .saturating_mul(VALUES_PER_BYTE)
            .saturating_add(ANY_VALUES)
            .min(MAX_VALUES),
    };
    while !machine.step()? {}
    let item = machine.pop()?;
    Ok(item.value)
}

impl Machine<'_> {
    /// Runs one instruction; returns whether it was the last.
    fn step(&mut self) -> Result<bool, PickleError> {
        let place = self.at;
        let instruction = self.byte()?;
        match instruction {
            b'.' => return Ok(true),
            // PROTO, FRAME.
            0x80 => drop(self.byte()?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
            }
            b'2' => {
                let top = self.stack.last().ok_or(PickleError::Stack(place))?;
                let size = top.value.size();
                self.count(size)?;
                self.stack.extend(self.stack.last().cloned());
            }
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'K' => {
                let byte = self.byte()?;
                self.push(Value::Int(i64::from(byte)))?;
            }
            b'M' => {
                let number = self.little(2)?;
                self.push(Value::Int(i64::from(u16::try_from(number).unwrap_or(0))))?;
            }
            b'J' => {
                let number = u32::try_from(self.little(4)?).unwrap_or(0);
                self.push(Value::Int(i64::from(number.cast_signed())))?;
            }
            0x8a => self.long()?,
            b'G' => {
                let bytes = self.take(8)?;
                let mut number = [0; 8];
                number.copy_from_slice(bytes);
                self.push(Value::Float(f64::from_be_bytes(number)))?;
            }
            b'X' => self.text(4)?,
            0x8c => self.text(1)?,
            0x8d => self.text(8)?,
            // Bytes are not needed, but may occur in a dump.
            b'C' => self.skip(1)?,
            b'B' => self.skip(4)?,
            b'}' => self.push(Value::Dict(Vec::new()))?,
            b']' | b')' => self.push(Value::List(Vec::new()))?,
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.append(items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(vec![key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?;
                self.set(items)?;
            }
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.group(items)?;
            }
            b'd' => {
                let items = self.since_mark()?;
                self.push(Value::Dict(Vec::new()))?;
                self.set(items)?;
            }
            count @ 0x85..=0x87 => {
                let from = self
                    .stack
                    .len()
                    .checked_sub(usize::from(count - 0x84))
                    .ok_or(PickleError::Stack(place))?;
                let items = self.stack.split_off(from);
                self.group(items)?;
            }
            b'q' => {
                let key = u64::from(self.byte()?);
                self.remember(key)?;
            }
            b'r' => {
                let key = self.little(4)?;
                self.remember(key)?;
            }
            0x94 => {
                let key = self.memo.len() as u64;
                self.remember(key)?;
            }
            b'h' => {
                let key = u64::from(self.byte()?);
                self.recall(key, place)?;
            }
            b'j' => {
                let key = self.little(4)?;
                self.recall(key, place)?;
            }
            b'c' => {
                let module = self.word()?;
                let name = self.word()?;
                self.push(Value::Name(format!("{module}.{name}")))?;
            }
            0x93 => {
                self.pop()?;
                self.pop()?;
                self.push(Value::Name(String::new()))?;
            }
            b'R' => self.call(place)?,
            other => return Err(PickleError::Instruction(other, place)),
        }
        Ok(false)
    }

    /// A call returns its first argument; nothing is called.
    fn call(&mut self, place: usize) -> Result<(), PickleError> {
        let arguments = self.pop()?;
        let Value::Name(_) = self.pop()?.value else {
            return Err(PickleError::Stack(place));
        };
        let depth = arguments.depth;
        let first = match arguments.value {
            Value::List(items) => items.into_iter().next(),
            _ => None,
        };
        let value = first.unwrap_or(Value::None);
        self.stack.push(Item { value, depth });
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        let end = self.at.checked_add(count).ok_or(PickleError::Short)?;
        let bytes = self.bytes.get(self.at..end).ok_or(PickleError::Short)?;
        self.at = end;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        let byte = *self.bytes.get(self.at).ok_or(PickleError::Short)?;
        self.at += 1;
        Ok(byte)
    }

    fn little(&mut self, count: usize) -> Result<u64, PickleError> {
        let bytes = self.take(count)?;
        let add = |value: u64, byte: &u8| (value << 8) | u64::from(*byte);
        Ok(bytes.iter().rev().fold(0, add))
    }

    /// LONG1; values that do not fit are not needed.
    fn long(&mut self) -> Result<(), PickleError> {
        let count = usize::from(self.byte()?);
        let bytes = self.take(count)?;
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut number = [if negative { 0xff } else { 0 }; 8];
        for (place, byte) in number.iter_mut().zip(bytes) {
            *place = *byte;
        }
        self.push(Value::Int(i64::from_le_bytes(number)))
    }

    fn text(&mut self, width: usize) -> Result<(), PickleError> {
        let place = self.at;
        let count = usize::try_from(self.little(width)?).map_err(|_| PickleError::Short)?;
        let bytes = self.take(count)?;
        let text = std::str::from_utf8(bytes).map_err(|_| PickleError::Text(place))?;
        let text = text.to_owned();
        self.push(Value::Text(text))
    }

    fn skip(&mut self, width: usize) -> Result<(), PickleError> {
        let count = usize::try_from(self.little(width)?).map_err(|_| PickleError::Short)?;
        self.take(count)?;
        self.push(Value::None)
    }

    fn word(&mut self) -> Result<String, PickleError> {
        let rest = self.bytes.get(self.at..).ok_or(PickleError::Short)?;
        let end = memchr::memchr(b'\n', rest).ok_or(PickleError::Short)?;
        let word =
            String::from_utf8_lossy(rest.get(..end.min(200)).unwrap_or_default()).into_owned();
        self.at += end + 1;
        Ok(word)
    }

    fn count(&mut self, values: usize) -> Result<(), PickleError> {
        self.made = self.made.saturating_add(values);
        if self.made > self.most {
            return Err(PickleError::Large(self.most));
        }
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        self.count(value.size())?;
        self.stack.push(Item { value, depth: 0 });
        Ok(())
    }

    fn pop(&mut self) -> Result<Item, PickleError> {
        self.stack.pop().ok_or(PickleError::Stack(self.at))
    }

    fn mark(&mut self) -> Result<usize, PickleError> {
        let mark = self.marks.pop().ok_or(PickleError::Stack(self.at))?;
        if mark > self.stack.len() {
            return Err(PickleError::Stack(self.at));
        }
        Ok(mark)
    }

    fn since_mark(&mut self) -> Result<Vec<Item>, PickleError> {
        let mark = self.mark()?;
        Ok(self.stack.split_off(mark))
    }

    fn group(&mut self, items: Vec<Item>) -> Result<(), PickleError> {
        let depth = deepest(&items)?;
        self.count(1)?;
        let value = Value::List(items.into_iter().map(|item| item.value).collect());
        self.stack.push(Item { value, depth });
        Ok(())
    }

    fn append(&mut self, items: Vec<Item>) -> Result<(), PickleError> {
        let depth = deepest(&items)?;
        let place = self.at;
        let target = self.stack.last_mut().ok_or(PickleError::Stack(place))?;
        let Value::List(list) = &mut target.value else {
            return Err(PickleError::Stack(place));
        };
        list.extend(items.into_iter().map(|item| item.value));
        target.depth = target.depth.max(depth);
        Ok(())
    }

    fn set(&mut self, items: Vec<Item>) -> Result<(), PickleError> {
        let depth = deepest(&items)?;
        let place = self.at;
        if !items.len().is_multiple_of(2) {
            return Err(PickleError::Stack(place));
        }
        let target = self.stack.last_mut().ok_or(PickleError::Stack(place))?;
        let Value::Dict(pairs) = &mut target.value else {
            return Err(PickleError::Stack(place));
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key.value, value.value));
        }
        target.depth = target.depth.max(depth);
        Ok(())
    }

    fn remember(&mut self, key: u64) -> Result<(), PickleError> {
        let top = self.stack.last().ok_or(PickleError::Stack(self.at))?;
        // A copy costs what it holds, or a pickle could fill memory with puts alone.
        let size = top.value.size();
        self.count(size)?;
        self.memo
            .extend(self.stack.last().cloned().map(|top| (key, top)));
        Ok(())
    }

    fn recall(&mut self, key: u64, place: usize) -> Result<(), PickleError> {
        let item = self.memo.get(&key).ok_or(PickleError::Stack(place))?;
        let size = item.value.size();
        self.count(size)?;
        self.stack.extend(self.memo.get(&key).cloned());
        Ok(())
    }
}

/// The depth of a container of `items`.
fn deepest(items: &[Item]) -> Result<usize, PickleError> {
    let depth = items
        .iter()
        .map(|item| item.depth)
        .max()
        .map_or(0, |depth| depth + 1);
    if depth > MAX_DEPTH {
        return Err(PickleError::Deep);
    }
    Ok(depth)
}
