//! `/proc/PID/maps`: which files a process has mapped, and where.

/// One mapping of a file from its first byte on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The file, as the process names it.
    pub path: String,
}

/// The mappings that begin at the first byte of a file, in order of their addresses: one for each loaded program and library.
pub fn loaded_files(text: &[u8]) -> Vec<Mapping> {
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| mapping(std::str::from_utf8(line).ok()?))
        .collect()
}

/// A line is `start-end rights offset device inode path`, where the path may hold spaces.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let path = fields.nth(2)?.trim_start();
    if u64::from_str_radix(offset, 16).ok()? != 0 || !path.starts_with('/') {
        return None;
    }
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = b"\
7f2a1ea00000-7f2a1ea61000 r--p 00000000 fe:01 1311  /opt/my pythons/lib/libpython3.9.so.1.0
7f2a1ea61000-7f2a1ec00000 r-xp 00061000 fe:01 1311  /opt/my pythons/lib/libpython3.9.so.1.0
7f2a1f000000-7f2a1f021000 rw-p 00000000 00:00 0
7ffc0b000000-7ffc0b021000 rw-p 00000000 00:00 0     [stack]
not a line
-
\xff\xfe-7 r 0 0 0 /x
zz-7f r--p 00000000 fe:01 1 /x
";
        let expected = Mapping {
            start: 0x7f2a_1ea0_0000,
            end: 0x7f2a_1ea6_1000,
            path: "/opt/my pythons/lib/libpython3.9.so.1.0".to_owned(),
        };
        assert_eq!(loaded_files(text), [expected]);
    }
}
