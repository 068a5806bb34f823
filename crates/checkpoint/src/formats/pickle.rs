//! The part of Python's pickle format that torch writes for tensors and metadata, read without running anything.
//!
//! A pickle is a program for a stack machine. This one knows the instructions that build numbers, texts, containers and objects of an
//! allowed class ([`Class`]); objects stay data. Any other instruction or class ends the reading with one sentence. Time and memory are
//! proportional to the input: every instruction makes at most one value, values are shared by number ([`Id`]) and never copied, and whoever
//! walks through them does so with a budget ([`Pickle::walk`]), so that cycles and values that contain each other many times end.
//!
//! Protocols 2 to 5; the instructions are those of Python's module `pickletools`.

mod class;
#[cfg(test)]
mod tests;
mod write;

pub use self::{
    class::{Class, DTYPES},
    write::Writer,
};

/// A value, by its number.
pub type Id = u32;

/// The most values of one pickle.
const MAX_VALUES: usize = 1 << 26;
/// The deepest nesting that is followed.
pub const MAX_DEPTH: usize = 64;

/// What a pickle holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A tuple.
    Tuple(Vec<Id>),
    /// A list.
    List(Vec<Id>),
    /// A dict, in its order.
    Dict(Vec<(Id, Id)>),
    /// A set.
    Set(Vec<Id>),
    /// A class or function.
    Class(Class),
    /// A call that was not made: class and arguments.
    Call(Class, Id),
    /// An object of a class with the state that it was given.
    Object(Class, Option<Id>),
    /// A reference to something outside of the pickle.
    Outside(Id),
}

/// A pickle that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Pickle {
    values: Vec<Value>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle; the error is a sentence.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
        };
        let root = machine.run()?;
        Ok(Self {
            values: machine.values,
            root,
        })
    }

    /// The value that it is.
    pub fn root(&self) -> Id {
        self.root
    }

    /// A value by its number.
    pub fn get(&self, id: Id) -> &Value {
        self.values.get(id as usize).unwrap_or(&Value::None)
    }

    /// How many steps whoever walks through the values may take: enough for every honest file, since values are rarely shared.
    pub fn budget(&self) -> u64 {
        (self.values.len() as u64).saturating_mul(16) + 1_024
    }

    /// Takes a step of a walk.
    pub fn walk(budget: &mut u64) -> Result<(), String> {
        *budget = budget
            .checked_sub(1)
            .ok_or("the pickle expands to many more values than it has")?;
        Ok(())
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

type Step<T> = Result<T, String>;

impl<'a> Machine<'a> {
    fn run(&mut self) -> Step<Id> {
        loop {
            let place = self.at;
            let code = self.byte()?;
            if code == b'.' {
                return self.pop();
            }
            self.step(code).map_err(|why| match why.as_str() {
                TRUNCATED => why,
                _ => format!("{why} (instruction at byte {place} of the pickle)"),
            })?;
        }
    }

    fn step(&mut self, code: u8) -> Step<()> {
        match code {
            // PROTO
            0x80 => match self.byte()? {
                2..=5 => Ok(()),
                other => Err(format!("pickle protocol {other} is not supported")),
            },
            // FRAME: only a hint for readers that buffer.
            0x95 => self.take(8).map(drop),
            b'(' => {
                self.marks.push(self.stack.len());
                Ok(())
            }
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'K' => {
                let number = self.byte()?;
                self.push(Value::Int(number.into()))
            }
            b'M' => {
                let number = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(number.into()))
            }
            b'J' => {
                let number = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(number.into()))
            }
            0x8a => {
                let length = self.byte()?.into();
                self.long(length)
            }
            0x8b => {
                let length = self.length4()?;
                self.long(length)
            }
            b'G' => {
                let number = f64::from_be_bytes(self.array()?);
                self.push(Value::Float(number))
            }
            // Texts: with a length of 1, 4 and 8 bytes.
            0x8c => {
                let length = self.byte()?.into();
                self.text(length)
            }
            b'X' => {
                let length = self.length4()?;
                self.text(length)
            }
            0x8d => {
                let length = self.length8()?;
                self.text(length)
            }
            b'C' => {
                let length = self.byte()?.into();
                self.binary(length)
            }
            b'B' => {
                let length = self.length4()?;
                self.binary(length)
            }
            0x8e => {
                let length = self.length8()?;
                self.binary(length)
            }
            b')' => self.push(Value::Tuple(Vec::new())),
            0x85..=0x87 => {
                let count = usize::from(code - 0x84);
                let parts = self.last(count)?;
                self.push(Value::Tuple(parts))
            }
            b't' => {
                let parts = self.since_mark()?;
                self.push(Value::Tuple(parts))
            }
            b']' => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            0x8f => self.push(Value::Set(Vec::new())),
            0x91 => {
                let parts = self.since_mark()?;
                self.push(Value::Set(parts))
            }
            b'a' => {
                let part = self.pop()?;
                self.extend(vec![part])
            }
            b'e' | 0x90 => {
                let parts = self.since_mark()?;
                self.extend(parts)
            }
            b's' => {
                let pair = self.last(2)?;
                self.set_items(&pair)
            }
            b'u' => {
                let pairs = self.since_mark()?;
                self.set_items(&pairs)
            }
            b'h' => {
                let place = self.byte()?.into();
                self.recall(place)
            }
            b'j' => {
                let place = self.length4()?;
                self.recall(place)
            }
            b'q' => {
                let place = self.byte()?.into();
                self.remember(place)
            }
            b'r' => {
                let place = self.length4()?;
                self.remember(place)
            }
            0x94 => self.remember(self.memo.len()),
            b'c' => {
                let module = self.line()?;
                let name = self.line()?;
                self.class(module, name)
            }
            0x93 => {
                let parts = self.last(2)?;
                let (module, name) = (self.text_of(parts[0])?, self.text_of(parts[1])?);
                let class = Class::find(&module, &name)?;
                self.push(Value::Class(class))
            }
            b'R' => {
                let parts = self.last(2)?;
                let class = self.class_of(parts[0])?;
                self.push(Value::Call(class, parts[1]))
            }
            0x81 => {
                let parts = self.last(2)?;
                let class = self.class_of(parts[0])?;
                self.push(Value::Object(class, None))
            }
            b'b' => self.build(),
            b'Q' => {
                let part = self.pop()?;
                self.push(Value::Outside(part))
            }
            other => Err(format!("unknown pickle instruction 0x{other:02x}")),
        }
    }

    fn take(&mut self, length: usize) -> Step<&'a [u8]> {
        let end = self.at.checked_add(length).ok_or(TRUNCATED)?;
        let part = self.bytes.get(self.at..end).ok_or(TRUNCATED)?;
        self.at = end;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| TRUNCATED.into())
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn length4(&mut self) -> Step<usize> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn length8(&mut self) -> Step<usize> {
        usize::try_from(u64::from_le_bytes(self.array()?)).map_err(|_| TRUNCATED.into())
    }

    fn line(&mut self) -> Step<&'a str> {
        let rest = self.bytes.get(self.at..).ok_or(TRUNCATED)?;
        let end = rest
            .iter()
            .take(1_024)
            .position(|byte| *byte == b'\n')
            .ok_or(TRUNCATED)?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end]).map_err(|_| "a class name is not UTF-8".into())
    }

    fn push(&mut self, value: Value) -> Step<()> {
        if self.values.len() == MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        let id = Id::try_from(self.values.len()).map_err(|_| "too many values")?;
        self.values.push(value);
        self.stack.push(id);
        Ok(())
    }

    fn pop(&mut self) -> Step<Id> {
        // What is below a mark belongs to whoever set it.
        if self
            .marks
            .last()
            .is_some_and(|mark| *mark >= self.stack.len())
        {
            return Err("the stack of the pickle is empty".into());
        }
        self.stack
            .pop()
            .ok_or_else(|| "the stack of the pickle is empty".into())
    }

    fn last(&mut self, count: usize) -> Step<Vec<Id>> {
        let mut parts = Vec::with_capacity(count);
        for _ in 0..count {
            parts.push(self.pop()?);
        }
        parts.reverse();
        Ok(parts)
    }

    fn since_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or("a mark of the pickle is missing")?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn top(&mut self) -> Step<&mut Value> {
        let id = self.pop()?;
        self.stack.push(id);
        self.values
            .get_mut(id as usize)
            .ok_or_else(|| "the stack of the pickle is empty".into())
    }

    fn extend(&mut self, parts: Vec<Id>) -> Step<()> {
        match self.top()? {
            Value::List(all) | Value::Set(all) => {
                all.extend(parts);
                Ok(())
            }
            _ => Err("something is added to what is not a list or a set".into()),
        }
    }

    fn set_items(&mut self, parts: &[Id]) -> Step<()> {
        if !parts.len().is_multiple_of(2) {
            return Err("a key has no value".into());
        }
        let pairs = parts.chunks(2).map(|pair| (pair[0], pair[1]));
        let top = self.pop()?;
        self.stack.push(top);
        let Some(value) = self.values.get_mut(top as usize) else {
            return Err("the stack of the pickle is empty".into());
        };
        match value {
            Value::Dict(all) => all.extend(pairs),
            // An `OrderedDict` is made by a call without arguments and filled afterwards.
            Value::Call(Class::OrderedDict, _) => *value = Value::Dict(pairs.collect()),
            _ => return Err("an item is set of what is not a dict".into()),
        }
        Ok(())
    }

    fn recall(&mut self, place: usize) -> Step<()> {
        let id = self.memo.get(place).copied().flatten();
        self.stack
            .push(id.ok_or_else(|| format!("value {place} of the memo was never set"))?);
        Ok(())
    }

    fn remember(&mut self, place: usize) -> Step<()> {
        // Python counts them one by one; a far one would take memory for nothing.
        if place > self.memo.len() + 1_024 {
            return Err(format!("value {place} of the memo is set out of order"));
        }
        let id = self.pop()?;
        self.stack.push(id);
        if place >= self.memo.len() {
            self.memo.resize(place + 1, None);
        }
        self.memo[place] = Some(id);
        Ok(())
    }

    fn text(&mut self, length: usize) -> Step<()> {
        let text = std::str::from_utf8(self.take(length)?).map_err(|_| "a text is not UTF-8")?;
        self.push(Value::Text(text.to_owned()))
    }

    fn binary(&mut self, length: usize) -> Step<()> {
        let bytes = self.take(length)?.to_vec();
        self.push(Value::Bytes(bytes))
    }

    /// A whole number as two's complement, little-endian.
    fn long(&mut self, length: usize) -> Step<()> {
        let bytes = self.take(length)?;
        if bytes.len() > 16 {
            return Err("a number has more than 128 bits".into());
        }
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut whole = [if is_negative { 0xff } else { 0 }; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        self.push(Value::Int(i128::from_le_bytes(whole)))
    }

    fn text_of(&self, id: Id) -> Step<String> {
        match self.values.get(id as usize) {
            Some(Value::Text(text)) => Ok(text.clone()),
            _ => Err("the name of a class is not a text".into()),
        }
    }

    fn class(&mut self, module: &str, name: &str) -> Step<()> {
        let class = Class::find(module, name)?;
        self.push(Value::Class(class))
    }

    fn class_of(&self, id: Id) -> Step<Class> {
        match self.values.get(id as usize) {
            Some(Value::Class(class)) => Ok(*class),
            _ => Err("something is called that is not a class".into()),
        }
    }

    fn build(&mut self) -> Step<()> {
        let state = self.pop()?;
        match self.top()? {
            Value::Object(_, known @ None) => {
                *known = Some(state);
                Ok(())
            }
            // Attributes of a dict are of no use here.
            Value::Dict(_) | Value::Call(Class::OrderedDict, _) => Ok(()),
            _ => Err("a state is given to what is not a new object".into()),
        }
    }
}

const TRUNCATED: &str = "the pickle is truncated";
