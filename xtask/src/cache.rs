//! The folder outside the tree for what can be made again, and the names of what lies in it.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::Failure;

/// The folder of this project for what can be made again.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    let own = variable("TRAINYARD_CACHE").map(PathBuf::from);
    let shared = || variable("XDG_CACHE_HOME").map(|path| Path::new(&path).join("trainyard"));
    let home = || variable("HOME").map(|path| Path::new(&path).join(".cache/trainyard"));
    own.or_else(shared).or_else(home).ok_or_else(|| {
        Failure::CouldNotRun(
            "no folder for what is installed: set `TRAINYARD_CACHE`, `XDG_CACHE_HOME` or `HOME`"
                .to_owned(),
        )
    })
}

/// An environment variable; one that is empty counts as not set.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one place where chores read variables"
)]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// FNV-1a: the same on every machine and with every toolchain, so what was made is found again.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The failure of doing `verb` to `path`.
pub(crate) fn cannot<'a>(
    verb: &'a str,
    path: &'a Path,
) -> impl FnOnce(std::io::Error) -> Failure + 'a {
    move |error| Failure::CouldNotRun(format!("cannot {verb} `{}`: {error}", path.display()))
}

/// One cache.
pub(crate) struct Part {
    pub(crate) name: String,
    /// The suites and benches that need it.
    pub(crate) used_by: &'static str,
    /// How long it took once, on two cores shared with other builds.
    pub(crate) took: Duration,
    pub(crate) is_there: Box<dyn Fn() -> Result<bool, Failure>>,
    pub(crate) make: Box<dyn Fn() -> Result<(), Failure>>,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("name", &self.name)
            .field("used_by", &self.used_by)
            .field("took", &self.took)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_its_definition() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
