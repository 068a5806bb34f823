//! The token of a server, and codes that are exchanged for it once.

use std::fmt;

use ring::{
    digest::{SHA256, digest as hash},
    rand::{SecureRandom as _, SystemRandom},
};
use thiserror::Error;

/// Bytes of randomness in a token and in a code.
const RANDOM: usize = 32;
/// Characters of a token that somebody else made: so many hex digits are 128 bits.
const LENGTH: std::ops::RangeInclusive<usize> = 32..=1024;
/// How long a code can be exchanged, in milliseconds.
pub(crate) const CODE_LASTS: u64 = 60_000;
/// Codes that can be exchanged at once.
const CODES: usize = 4;

type Digest = [u8; 32];

/// A token that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// It is too short or too long.
    #[error(
        "the token has {0} characters, and from {min} to {max} are needed; make one with `openssl rand -hex 32`",
        min = LENGTH.start(),
        max = LENGTH.end()
    )]
    Length(usize),
    /// It cannot be sent in a header.
    #[error(
        "the token contains characters other than letters, digits and `-._~+/=`; make one with `openssl rand -hex 32`"
    )]
    Characters,
    /// The system has no randomness.
    #[error("cannot make a token: the random numbers of the system cannot be read")]
    Random,
}

/// What a request must carry in `Authorization: Bearer`. It is never logged: its debug form hides it.
#[derive(Clone)]
pub struct Token {
    text: String,
    digest: Digest,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl Token {
    /// A token of 256 random bits.
    pub fn random() -> Result<Self, TokenError> {
        Ok(Self::of(random()?))
    }

    /// A token that somebody else made, as a file holds it: white space around it is left out.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        if !text.bytes().all(plain) {
            return Err(TokenError::Characters);
        }
        if !LENGTH.contains(&text.len()) {
            return Err(TokenError::Length(text.len()));
        }
        Ok(Self::of(text.to_owned()))
    }

    fn of(text: String) -> Self {
        Self {
            digest: digest(text.as_bytes()),
            text,
        }
    }

    /// The token itself, for the URL that is printed.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether a header `Authorization` carries it. The time that takes depends only on the length of what was sent.
    pub(crate) fn is_in(&self, authorization: Option<&[u8]>) -> bool {
        let Some((scheme, sent)) = authorization.and_then(|value| value.split_at_checked(7)) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ") && equal(&self.digest, &digest(sent))
    }
}

/// Codes that are exchanged for the token: once each, and for a minute. Times are milliseconds of any clock that never goes back.
#[derive(Debug, Default)]
pub(crate) struct Codes(Vec<(Digest, u64)>);

impl Codes {
    /// A new code; the oldest one ends where there are too many.
    pub(crate) fn issue(&mut self, now: u64) -> Result<String, TokenError> {
        let code = random()?;
        self.expire(now);
        if self.0.len() >= CODES {
            self.0.remove(0);
        }
        self.0.push((digest(code.as_bytes()), now));
        Ok(code)
    }

    /// Whether a code is good; it is not a second time.
    pub(crate) fn redeem(&mut self, code: &str, now: u64) -> bool {
        self.expire(now);
        let sent = digest(code.as_bytes());
        let before = self.0.len();
        self.0.retain(|(code, _)| !equal(code, &sent));
        self.0.len() < before
    }

    fn expire(&mut self, now: u64) {
        self.0
            .retain(|(_, made)| now.saturating_sub(*made) < CODE_LASTS);
    }
}

/// Compares all bytes, whichever differ.
fn equal(one: &Digest, other: &Digest) -> bool {
    let differ = |sum: u8, (one, other): (&u8, &u8)| std::hint::black_box(sum | (one ^ other));
    one.iter().zip(other).fold(0, differ) == 0
}

fn random() -> Result<String, TokenError> {
    let mut bytes = [0; RANDOM];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| TokenError::Random)?;
    Ok(hex(&bytes))
}

/// SHA-256.
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut digest = Digest::default();
    digest.copy_from_slice(hash(&SHA256, bytes).as_ref());
    digest
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_random_and_hidden() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(one.expose().len(), 64);
        assert_ne!(one.expose(), other.expose());
        assert!(!format!("{one:?}").contains(one.expose()));
        let header = format!("bearer {}", one.expose());
        assert!(one.is_in(Some(header.as_bytes())));
        assert!(!other.is_in(Some(header.as_bytes())));
        assert!(!one.is_in(Some("Bearer é".as_bytes())));
        for short in [None, Some(&b"Bearer"[..]), Some(b"")] {
            assert!(!one.is_in(short));
        }
    }

    #[test]
    fn tokens_of_others_are_checked() {
        let good = "a".repeat(32);
        assert_eq!(Token::parse(&format!(" {good}\n")).unwrap().expose(), good);
        let cases = [
            ("", TokenError::Length(0)),
            ("short", TokenError::Length(5)),
            ("a b", TokenError::Characters),
            ("ä", TokenError::Characters),
        ];
        for (text, want) in cases {
            assert_eq!(Token::parse(text).unwrap_err(), want, "{text}");
        }
    }

    #[test]
    fn a_code_is_good_once_and_for_a_minute() {
        let mut codes = Codes::default();
        let code = codes.issue(1000).unwrap();
        assert!(!codes.redeem("wrong", 1000));
        assert!(codes.redeem(&code, 1000));
        assert!(!codes.redeem(&code, 1000), "it was used");
        let code = codes.issue(1000).unwrap();
        assert!(!codes.redeem(&code, 1000 + CODE_LASTS), "it is too old");
        let code = codes.issue(1000).unwrap();
        assert!(codes.redeem(&code, 999 + CODE_LASTS));
        let first = codes.issue(0).unwrap();
        for _ in 0..CODES {
            codes.issue(0).unwrap();
        }
        assert_eq!(codes.0.len(), CODES);
        assert!(!codes.redeem(&first, 0));
    }
}
