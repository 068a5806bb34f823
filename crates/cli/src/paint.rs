//! Colour, where a stream takes any.

/// Whether a stream is given colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// No escape sequences at all.
    Plain,
    /// With colour.
    Styled,
}

impl Paint {
    /// `text` with the look that `codes` (the numbers of an SGR sequence) stands for.
    pub(crate) fn apply(self, codes: &str, text: &str) -> String {
        match self {
            _ if text.is_empty() => String::new(),
            Self::Plain => text.to_owned(),
            Self::Styled => format!("\u{1b}[{codes}m{text}\u{1b}[0m"),
        }
    }
}
