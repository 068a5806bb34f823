//! Lines that hang together, drawn as a tree.

/// A line with what hangs below it.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    pub(crate) words: String,
    pub(crate) branches: Vec<Branch>,
}

impl Branch {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            branches: Vec::new(),
        }
    }

    /// The tree, one line to a branch, each with its newline.
    pub(crate) fn draw(&self) -> String {
        let mut text = format!("{}\n", self.words);
        self.draw_below("", &mut text);
        text
    }

    fn draw_below(&self, indent: &str, text: &mut String) {
        let last = self.branches.len().saturating_sub(1);
        for (at, branch) in self.branches.iter().enumerate() {
            let (here, below) = if at == last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            text.push_str(indent);
            text.push_str(here);
            text.push_str(&branch.words);
            text.push('\n');
            branch.draw_below(&format!("{indent}{below}"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_below_is_indented() {
        let mut root = Branch::new("root");
        let mut one = Branch::new("one");
        one.branches.push(Branch::new("leaf"));
        root.branches.extend([one, Branch::new("two")]);
        assert_eq!(root.draw(), "root\n├─ one\n│  └─ leaf\n└─ two\n");
    }
}
