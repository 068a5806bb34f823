//! The known word that is nearest to one that is not known.

/// Characters of a word that are compared, at most.
const MOST: usize = 64;

/// The nearest of `known`, which is not empty; the first of those that are equally near.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> &'a str {
    let word: Vec<char> = word.chars().take(MOST).collect();
    let far = |other: &&&str| distance(&word, other);
    known.iter().min_by_key(far).copied().unwrap_or_default()
}

/// How many characters must be inserted, removed or replaced.
fn distance(one: &[char], other: &str) -> usize {
    let mut row: Vec<usize> = (0..=one.len()).collect();
    for (at, wanted) in other.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (index, found) in one.iter().enumerate() {
            let replaced = before + usize::from(*found != wanted);
            before = row[index + 1];
            row[index + 1] = replaced.min(before + 1).min(row[index] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found() {
        let known = ["columns", "rows", "from", "to"];
        for (word, want) in [
            ("colums", "columns"),
            ("row", "rows"),
            ("form", "from"),
            ("", "to"),
        ] {
            assert_eq!(nearest(word, &known), want, "{word}");
        }
        assert_eq!(nearest(&"columns".repeat(10_000), &known), "columns");
    }
}
