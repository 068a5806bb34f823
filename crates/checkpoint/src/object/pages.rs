//! The pages of a listing, one after the other, with an end: a server that sends the same place twice, or page after page with
//! nothing on it, is refused.

use std::io;

/// The most pages of one listing. One page has up to 1,000 entries; some servers send fewer.
const MAX_PAGES: u32 = 16_384;

/// How far a listing is.
#[derive(Debug)]
pub(super) struct Pages<M> {
    marker: Option<M>,
    seen: u32,
}

impl<M> Default for Pages<M> {
    fn default() -> Self {
        Self {
            marker: None,
            seen: 0,
        }
    }
}

impl<M: PartialEq> Pages<M> {
    /// Where the next page begins; `None` for the first one.
    pub(super) fn marker(&self) -> Option<&M> {
        self.marker.as_ref()
    }

    /// Goes on to the next page; `false` where there is none.
    pub(super) fn advance(&mut self, next: Option<M>) -> io::Result<bool> {
        let Some(next) = next else {
            return Ok(false);
        };
        let bad = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        self.seen += 1;
        if self.marker.as_ref() == Some(&next) {
            return bad(
                "a listing of the object store does not advance: two pages have the same marker"
                    .into(),
            );
        }
        if self.seen >= MAX_PAGES {
            return bad(format!(
                "a listing of the object store has more than {MAX_PAGES} pages"
            ));
        }
        self.marker = Some(next);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_end() {
        let mut pages = Pages::default();
        assert_eq!(pages.marker(), None);
        assert!(pages.advance(Some(1)).unwrap());
        assert_eq!(pages.marker(), Some(&1));
        assert!(pages.advance(Some(2)).unwrap());
        assert!(!pages.advance(None).unwrap());
        let error = pages.advance(Some(2)).unwrap_err().to_string();
        assert!(error.contains("does not advance"), "{error}");

        let mut pages = Pages::default();
        let error = (0..=MAX_PAGES).find_map(|place| pages.advance(Some(place)).err());
        let error = error.unwrap().to_string();
        assert!(error.contains("more than 16384 pages"), "{error}");
    }
}
