//! A stack in brief: a number that is the same for the same calls, and the line of the user's own code.

use std::fmt;

use crate::Frame;

/// The digest of a stack: equal for equal functions, files and lines, in every process and version of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u64);

impl Digest {
    /// The digest of these calls.
    ///
    /// FNV-1a: not against attackers, only to compare ranks of one job.
    pub fn of(frames: &[Frame]) -> Self {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let mut hash = OFFSET;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
            }
        };
        for frame in frames {
            // Names hold no control characters, so these end a field.
            add(frame.function.as_bytes());
            add(&[0]);
            add(frame.file.as_bytes());
            add(&[0]);
            // No line has the number 0.
            add(&frame.line.unwrap_or(0).to_le_bytes());
        }
        Self(hash)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Whose code a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user's own: neither of the others.
    Own,
    /// A package that was installed.
    Package,
    /// Python's standard library, and what is frozen into the interpreter.
    Standard,
}

impl Origin {
    /// By the path as Python has it.
    pub fn of(file: &str) -> Self {
        if file.contains("/site-packages/") || file.contains("/dist-packages/") {
            return Self::Package;
        }
        // `<frozen runpy>`; `<string>` and `<stdin>` are what the user has typed.
        if file.starts_with("<frozen ") || in_standard_library(file) {
            return Self::Standard;
        }
        Self::Own
    }
}

/// Below a folder such as `lib/python3.11`, or in an archive such as `lib/python311.zip`.
fn in_standard_library(file: &str) -> bool {
    let mut parent = "";
    for part in file.split('/') {
        let version = part.strip_prefix("python3").unwrap_or_default();
        let minor = version
            .strip_prefix('.')
            .unwrap_or(version)
            .trim_end_matches(".zip");
        let numbered = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
        if numbered && matches!(parent, "lib" | "lib64") {
            return true;
        }
        parent = part;
    }
    false
}

/// The innermost call of the user's own code: the line to show.
pub fn own_frame(frames: &[Frame]) -> Option<&Frame> {
    frames
        .iter()
        .find(|frame| Origin::of(&frame.file) == Origin::Own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str, line: u32) -> Frame {
        Frame {
            file: file.to_owned(),
            function: function.to_owned(),
            line: Some(line),
        }
    }

    #[test]
    fn digests() {
        let stack = [frame("step", "train.py", 19), frame("main", "train.py", 40)];
        // Written down: a digest of another version of this program must compare.
        assert_eq!(Digest::of(&stack).to_string(), "7133aededc678a65");
        assert_eq!(Digest::of(&[]).to_string(), "cbf29ce484222325");
        let others = [
            vec![frame("step", "train.py", 20), frame("main", "train.py", 40)],
            vec![frame("main", "train.py", 40), frame("step", "train.py", 19)],
            vec![frame("steptrain.py", "", 19), frame("main", "train.py", 40)],
            vec![frame("step", "train.py", 19)],
        ];
        for other in others {
            assert_ne!(Digest::of(&stack), Digest::of(&other), "{other:?}");
        }
        let mut unknown = stack.clone();
        unknown[0].line = None;
        assert_ne!(Digest::of(&stack), Digest::of(&unknown));
    }

    #[test]
    fn origins() {
        let cases = [
            ("/home/me/train.py", Origin::Own),
            ("train.py", Origin::Own),
            ("<string>", Origin::Own),
            ("<stdin>", Origin::Own),
            ("/home/me/python3.11/train.py", Origin::Own),
            ("/home/lib/pythonic/train.py", Origin::Own),
            ("<frozen runpy>", Origin::Standard),
            ("/usr/lib/python3.11/threading.py", Origin::Standard),
            (
                "/opt/conda/lib/python3.9/asyncio/base_events.py",
                Origin::Standard,
            ),
            ("/usr/lib64/python3.12/queue.py", Origin::Standard),
            ("/usr/lib/python311.zip/queue.py", Origin::Standard),
            (
                "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
                Origin::Package,
            ),
            (
                "/usr/lib/python3/dist-packages/numpy/core.py",
                Origin::Package,
            ),
        ];
        for (file, expected) in cases {
            assert_eq!(Origin::of(file), expected, "{file}");
        }
    }

    #[test]
    fn own_frame_is_the_innermost() {
        let stack = [
            frame("wait", "/usr/lib/python3.11/threading.py", 320),
            frame("step", "/me/train.py", 19),
            frame("main", "/me/train.py", 40),
            frame("_run_code", "<frozen runpy>", 88),
        ];
        assert_eq!(own_frame(&stack), Some(&stack[1]));
        assert_eq!(own_frame(&stack[..1]), None);
        assert_eq!(own_frame(&[]), None);
    }
}
