//! A command line as people type it, word by word.

/// The words of `line`, as a shell would split them: blanks separate, quotes hold together. Nothing is
/// expanded, because no shell reads the command of a container.
pub(super) fn split(line: &str) -> Result<Vec<String>, String> {
    if let Some(found) = line
        .chars()
        .find(|letter| letter.is_control() && *letter != '\t')
    {
        return Err(format!(
            "it holds the control character U+{:04X}",
            u32::from(found)
        ));
    }
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some('"') | None, '\\') => match letters.next() {
                Some(escaped) => word.get_or_insert_default().push(escaped),
                None => return Err("it ends with a backslash".to_owned()),
            },
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(open) = quote {
        return Err(format!("the quotation mark {open} is not closed"));
    }
    words.extend(word);
    match words.first() {
        Some(program) if !program.is_empty() => Ok(words),
        _ => Err("it names no program".to_owned()),
    }
}

/// The line that [`split`] makes `words` of.
pub(super) fn join(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let plain = |letter: char| !(letter.is_whitespace() || "'\"\\".contains(letter));
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        let cases: [(&str, Result<&[&str], &str>); 9] = [
            ("torchrun train.py", Ok(&["torchrun", "train.py"])),
            ("  a \t b ", Ok(&["a", "b"])),
            ("a 'b \"c' \"d 'e\"", Ok(&["a", "b \"c", "d 'e"])),
            (r#"a b\ c "d\"e" 'f\g'"#, Ok(&["a", "b c", "d\"e", "f\\g"])),
            ("a ''", Ok(&["a", ""])),
            ("a $(RANK) *", Ok(&["a", "$(RANK)", "*"])),
            ("a 'b", Err("the quotation mark ' is not closed")),
            ("  ", Err("it names no program")),
            ("a\u{1b}b", Err("it holds the control character U+001B")),
        ];
        for (line, want) in cases {
            let want = want.map(|words| words.iter().map(ToString::to_string).collect::<Vec<_>>());
            let got = split(line);
            assert_eq!(
                got.as_ref().map_err(String::as_str),
                want.as_ref().map_err(|text| *text),
                "{line}"
            );
            if let Ok(words) = got {
                assert_eq!(
                    split(&join(&words)),
                    Ok(words),
                    "{line} joined and split again"
                );
            }
        }
    }
}
