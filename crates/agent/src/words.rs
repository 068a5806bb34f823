//! A command line without a shell: for images that have none.

/// The words of `line`, as a shell would split them.
///
/// What only a shell can do is refused rather than done wrongly.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    const SHELL: &str = "|&;<>()$`*?[]{}~\n!#";
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err("unmatched quotation mark".to_owned()),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => match letters.next() {
                            Some(letter @ ('"' | '\\' | '$' | '`')) => word.push(letter),
                            Some(letter) => word.extend(['\\', letter]),
                            None => return Err("unmatched quotation mark".to_owned()),
                        },
                        Some(letter @ ('$' | '`')) => return Err(needs_shell(letter)),
                        Some(letter) => word.push(letter),
                        None => return Err("unmatched quotation mark".to_owned()),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(letters.next()),
            letter if SHELL.contains(letter) => return Err(needs_shell(letter)),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    if words.first().is_some_and(|word| word.contains('=')) {
        return Err(needs_shell('='));
    }
    Ok(words)
}

fn needs_shell(letter: char) -> String {
    format!("`{letter}` needs a shell, and this image has no `/bin/sh`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_lines_are_split_and_others_refused() {
        let cases: [(&str, Result<&[&str], &str>); 10] = [
            ("orted -mca a \"b c\"", Ok(&["orted", "-mca", "a", "b c"])),
            ("  a\t b ", Ok(&["a", "b"])),
            ("a ''", Ok(&["a", ""])),
            (r#"a 'b"c' "d'e" f\ g"#, Ok(&["a", "b\"c", "d'e", "f g"])),
            (r#"a "\"b\n""#, Ok(&["a", "\"b\\n"])),
            ("", Ok(&[])),
            ("a; b", Err("`;` needs a shell")),
            ("a \"$HOME\"", Err("`$` needs a shell")),
            ("A=1 b", Err("`=` needs a shell")),
            ("a 'b", Err("unmatched quotation mark")),
        ];
        for (line, want) in cases {
            match (split(line), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{line}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{line}: {got}"),
                (got, want) => panic!("{line}: {got:?}, wanted {want:?}"),
            }
        }
    }
}
