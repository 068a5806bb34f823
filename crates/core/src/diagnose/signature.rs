//! When two failures are the same.
//!
//! Owns the normal form of a line: what differs between two runs of the same program (times, addresses, process
//! numbers) is left out of it.

/// Characters that are kept.
const MAX_CHARS: usize = 160;

/// A line without its numbers: `line 7 of /tmp/x3f` and `line 9 of /tmp/x41` have the same one.
pub(super) fn normal(line: &str) -> String {
    let mut text = String::new();
    let mut count = 0;
    for letter in line.trim().chars() {
        let letter = match letter {
            '0'..='9' => '#',
            letter if letter.is_whitespace() => ' ',
            letter => letter,
        };
        let run = matches!(letter, '#' | ' ') && text.ends_with(letter);
        if run {
            continue;
        }
        if count == MAX_CHARS {
            break;
        }
        text.push(letter);
        count += 1;
    }
    text
}

/// The 64-bit FNV-1a hash of `parts`, in hexadecimal: short, and the same in every version.
pub(super) fn digest(parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::{digest, normal};

    #[test]
    fn digest_depends_on_parts() {
        assert_eq!(digest(&["a", "b"]), digest(&["a", "b"]));
        assert_ne!(digest(&["a", "b"]), digest(&["ab"]));
        assert_ne!(digest(&["ab", ""]), digest(&["a", "b"]));
        assert_eq!(digest(&[]), "cbf29ce484222325", "the offset basis");
    }

    #[test]
    fn numbers_are_ignored() {
        let cases = [
            (
                "python: can't open file '/app/trian.py': [Errno 2] No such file",
                "python: can't open file '/app/trian.py': [Errno 2] No such file",
                true,
            ),
            ("pid 4711 at 12:00:01  died", "pid 5 at 12:00:59 died", true),
            ("no module named a", "no module named b", false),
            ("", " ", true),
        ];
        for (one, other, same) in cases {
            assert_eq!(normal(one) == normal(other), same, "{one} | {other}");
        }
        assert_eq!(normal(&"ab".repeat(500)).chars().count(), super::MAX_CHARS);
    }
}
