//! The order that people expect of names with numbers in them: `node-9` before `node-10`.
//!
//! Hosts that are numbered side by side mostly stand side by side.

use std::cmp::Ordering;

/// Compares by runs of digits as numbers, and by bytes otherwise. Names that differ are never equal.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let (left, right) = (a.as_bytes(), b.as_bytes());
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (left.get(i), right.get(j)) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (one, other) = (digits(&left[i..]), digits(&right[j..]));
            let order = by_value(one, other);
            if order.is_ne() {
                return order;
            }
            i += one.len();
            j += other.len();
        } else if x != y {
            return x.cmp(y);
        } else {
            i += 1;
            j += 1;
        }
    }
    (left.len() - i)
        .cmp(&(right.len() - j))
        .then_with(|| a.cmp(b))
}

fn digits(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

fn by_value(a: &[u8], b: &[u8]) -> Ordering {
    let significant = |digits: &[u8]| digits.iter().position(|digit| *digit != b'0');
    let a = significant(a).map_or(&[][..], |at| &a[at..]);
    let b = significant(b).map_or(&[][..], |at| &b[at..]);
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_by_value() {
        let sorted = ["a", "a1", "a01", "a2", "a10", "a10b1", "a10b12", "b"];
        for (at, a) in sorted.iter().enumerate() {
            for (to, b) in sorted.iter().enumerate() {
                // Equal numbers are ordered by their bytes.
                if ["a1", "a01"].contains(a) && ["a1", "a01"].contains(b) {
                    continue;
                }
                assert_eq!(compare(a, b), at.cmp(&to), "{a} {b}");
            }
        }
        assert_eq!(compare("a01", "a1"), Ordering::Less);
    }
}
