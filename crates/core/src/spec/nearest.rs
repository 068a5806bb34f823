//! The known word that somebody probably meant.

/// The word of `known` nearest to `word`, where one is near enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Beyond a third of its letters, another word is another word.
    let length = word.chars().count();
    let allowed = (length / 3).clamp(1, 3);
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        if candidate.eq_ignore_ascii_case(word) {
            return Some(candidate);
        }
        if candidate.chars().count().abs_diff(length) > allowed {
            continue;
        }
        let distance = distance(&word.to_ascii_lowercase(), &candidate.to_ascii_lowercase());
        if distance <= allowed && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with their neighbour.
pub(crate) fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    let mut previous: Option<char> = None;
    for (row, letter) in from.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, other) in to.iter().enumerate() {
            let replace = last[column] + usize::from(letter != *other);
            let mut fewest = replace.min(last[column + 1] + 1).min(current[column] + 1);
            let swapped = column > 0 && previous == Some(*other) && to[column - 1] == letter;
            if swapped {
                fewest = fewest.min(before_last[column - 1] + 1);
            }
            current.push(fewest);
        }
        before_last = std::mem::replace(&mut last, current);
        previous = Some(letter);
    }
    last.last().copied().unwrap_or_default()
}

/// `known` as a list for a sentence: `` `a`, `b` or `c` ``.
pub(crate) fn one_of<'a>(known: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = known.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_far_ones_are_not() {
        let known = ["image", "imagePullPolicy", "name", "env", "envFrom", "PS"];
        let cases = [
            ("imge", Some("image")),
            ("iamge", Some("image")),
            ("Image", Some("image")),
            ("imagepullpolicy", Some("imagePullPolicy")),
            ("enviroment", None),
            ("ps", Some("PS")),
            ("command", None),
            ("", None),
        ];
        for (word, want) in cases {
            assert_eq!(nearest(word, known), want, "{word:?}");
        }
    }

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(one_of(["a"]), "`a`");
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
