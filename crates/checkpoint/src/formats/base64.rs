//! Base64 as the Python package writes bytes into small state.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The text of some bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let group = three
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        for place in 0..4 {
            let digit = group >> (18 - 6 * place) & 63;
            if place <= three.len() {
                text.push(char::from(DIGITS[digit as usize]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

/// The bytes of a text; `None` where it is not base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padded = text.as_bytes();
    let digits = text.trim_end_matches('=').as_bytes();
    if padded.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for four in digits.chunks(4) {
        if four.len() == 1 {
            return None;
        }
        let mut group = 0_u32;
        for place in 0..4 {
            let digit = match four.get(place) {
                Some(digit) => DIGITS.iter().position(|known| known == digit)?,
                None => 0,
            };
            group = group << 6 | u32::try_from(digit).ok()?;
        }
        bytes.extend(&group.to_be_bytes()[1..four.len()]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        for bad in ["Z", "Zg=", "Z===", "Zm9v!m9v", "Zm9\u{e4}"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
