//! How a program ended, as its supervisor leaves it in the status of the pod.
//!
//! It is a statement of the user's pod: whoever reads it may believe it about that pod and no other.

use serde::{Deserialize, Serialize};

/// Bytes that the kubelet keeps, at most.
const MAX_BYTES: usize = 4096;
/// Characters of the last line, at most: however they are escaped, the whole fits.
const MAX_LINE: usize = 480;

/// How a supervised program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastWords {
    /// The attempt that it ran as.
    pub attempt: u32,
    /// Its rank, where the pod has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Whether it ended by itself.
    pub how: HowEnded,
    /// The exit code of the container.
    pub code: i32,
    /// The signal that ended the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The last line that it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
}

/// Whether a program ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HowEnded {
    /// It did.
    Ended,
    /// It was stopped, for a restart that did not come or because its pod was deleted.
    Stopped,
}

impl LastWords {
    /// As JSON of at most 4 KiB.
    pub fn encode(&self) -> String {
        let line = self.last_line.as_ref();
        let mut words = self.clone();
        words.last_line = line.map(|line| line.chars().take(MAX_LINE).collect());
        // Made of text and numbers.
        serde_json::to_string(&words).unwrap_or_default()
    }

    /// What [`Self::encode`] wrote; nothing where `text` is something else, such as a message of the program.
    pub fn parse(text: &str) -> Option<Self> {
        let text = Some(text).filter(|text| text.len() <= MAX_BYTES)?;
        let words: Self = serde_json::from_str(text).ok()?;
        let long = |line: &String| line.chars().count() > MAX_LINE;
        (!words.last_line.as_ref().is_some_and(long)).then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> LastWords {
        LastWords {
            attempt: 3,
            rank: Some(2),
            how: HowEnded::Ended,
            code: 137,
            signal: Some(9),
            last_line: Some(line.to_owned()),
        }
    }

    #[test]
    fn words_are_bounded_and_read_again() {
        let short = words("RuntimeError: boom");
        assert_eq!(LastWords::parse(&short.encode()), Some(short));
        // Each of these takes six bytes or more.
        for letter in ["\u{1}", "\u{1F600}", "x"] {
            let long = words(&letter.repeat(10_000)).encode();
            assert!(long.len() <= MAX_BYTES, "{}", long.len());
            assert!(LastWords::parse(&long).is_some());
        }
        let too_long = serde_json::to_string(&words(&"x".repeat(481))).unwrap();
        for other in ["", "mine", "{}", &too_long, &" ".repeat(5000)] {
            assert_eq!(LastWords::parse(other), None, "{other}");
        }
    }
}
