//! Ranges of addresses that a network attachment hands out.

use std::net::IpAddr;

use serde_json::Value as Json;

/// Addresses from the first to the last, both of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    is_v4: bool,
    first: u128,
    last: u128,
}

impl Range {
    /// `10.0.0.0/16`, or `10.0.0.10-10.0.0.20/24`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (addresses, prefix) = text.split_once('/')?;
        let prefix: u32 = prefix.trim().parse().ok()?;
        if let Some((first, last)) = addresses.split_once('-') {
            return Self::between(first, last);
        }
        let (is_v4, address) = number(addresses)?;
        let bits: u32 = if is_v4 { 32 } else { 128 };
        let host = bits.checked_sub(prefix)?;
        let mask = 1_u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        Some(Self {
            is_v4,
            first: address & !mask,
            last: address | mask,
        })
    }

    pub(crate) fn between(first: &str, last: &str) -> Option<Self> {
        let (is_v4, first) = number(first)?;
        let (_, last) = number(last).filter(|(family, _)| *family == is_v4)?;
        Some(Self { is_v4, first, last })
    }

    /// Whether all of `part` lies within it.
    pub(crate) fn contains(self, part: Self) -> bool {
        self.is_v4 == part.is_v4 && self.first <= part.first && part.last <= self.last
    }

    /// Whether its end is before its beginning.
    pub(crate) fn is_empty(self) -> bool {
        self.last < self.first
    }

    /// Whether both have an address in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.is_v4 == other.is_v4 && self.first <= other.last && other.first <= self.last
    }
}

fn number(text: &str) -> Option<(bool, u128)> {
    Some(match text.trim().parse().ok()? {
        IpAddr::V4(address) => (true, u128::from(u32::from(address))),
        IpAddr::V6(address) => (false, u128::from(address)),
    })
}

/// The ranges of `ipam`, as written.
pub(crate) fn ranges(ipam: &Json) -> Vec<(String, Range)> {
    let mut found = Vec::new();
    let mut take = |item: &Json| {
        let text = |key: &str| item.get(key).and_then(Json::as_str);
        let Some(whole) = text("subnet").or_else(|| text("range")) else {
            return;
        };
        let first = text("rangeStart").or_else(|| text("range_start"));
        let last = text("rangeEnd").or_else(|| text("range_end"));
        let part = first
            .zip(last)
            .and_then(|(first, last)| Range::between(first, last));
        if let Some(range) = part.or_else(|| Range::parse(whole)) {
            found.push((whole.to_owned(), range));
        }
    };
    take(ipam);
    let lists = ["ranges", "ipRanges"]
        .into_iter()
        .filter_map(|key| ipam.get(key)?.as_array());
    for item in lists.flatten() {
        // `host-local` has a list of lists, `whereabouts` a plain one.
        match item.as_array() {
            Some(items) => items.iter().for_each(&mut take),
            None => take(item),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_where_they_share_an_address() {
        let cases = [
            ("10.0.0.0/24", "10.0.0.128/25", true),
            ("10.0.0.0/24", "10.0.1.0/24", false),
            ("10.0.0.10-10.0.0.20/24", "10.0.0.20-10.0.0.30/24", true),
            ("10.0.0.10-10.0.0.20/24", "10.0.0.21-10.0.0.30/24", false),
            ("fd00::/64", "fd00::1/128", true),
            ("::/0", "10.0.0.0/8", false),
            ("0.0.0.0/0", "10.0.0.0/8", true),
        ];
        for (left, right, want) in cases {
            let (left, right) = (Range::parse(left).unwrap(), Range::parse(right).unwrap());
            assert_eq!(left.overlaps(right), want, "{left:?} {right:?}");
            assert_eq!(right.overlaps(left), want, "{left:?} {right:?}");
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "a/8",
            "10.0.0.0/x",
            "1.1.1.1-::1/8",
        ] {
            assert_eq!(Range::parse(bad), None, "{bad}");
        }
    }
}
