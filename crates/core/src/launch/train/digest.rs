//! SHA-1, which `JobSet` makes the keys of its jobs with. They are names and protect nothing.

use std::fmt::Write as _;

/// The digest of `bytes` as hexadecimal digits.
pub(super) fn sha1(bytes: &[u8]) -> String {
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    let bits = u64::try_from(bytes.len())
        .unwrap_or(u64::MAX)
        .wrapping_mul(8);
    message.extend(bits.to_be_bytes());
    let mut state: [u32; 5] = [
        0x6745_2301,
        0xEFCD_AB89,
        0x98BA_DCFE,
        0x1032_5476,
        0xC3D2_E1F0,
    ];
    for block in message.chunks_exact(64) {
        mix(&mut state, block);
    }
    let mut text = String::with_capacity(40);
    for word in state {
        write!(text, "{word:08x}").expect("a string takes whatever is written");
    }
    text
}

#[expect(clippy::many_single_char_names, reason = "as the standard names them")]
fn mix(state: &mut [u32; 5], block: &[u8]) {
    let mut words: Vec<u32> = block
        .chunks_exact(4)
        .map(|four| {
            four.iter()
                .fold(0, |word, byte| word << 8 | u32::from(*byte))
        })
        .collect();
    for at in 16..80 {
        let word = [3, 8, 14, 16]
            .iter()
            .filter_map(|back| words.get(at - back));
        let word = word.fold(0, |mixed, word| mixed ^ word).rotate_left(1);
        words.push(word);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.iter().enumerate() {
        let (f, k) = match round {
            0..20 => ((b & c) | (!b & d), 0x5A82_7999_u32),
            20..40 => (b ^ c ^ d, 0x6ED9_EBA1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(f)
            .wrapping_add(e)
            .wrapping_add(k)
            .wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        let cases = [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(sha1(text.as_bytes()), want, "{text}");
        }
    }
}
