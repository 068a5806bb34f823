//! Archives as zip, in the part of the format that wheels need: deflated or stored files of less than 4 GiB.

use std::io::Write as _;

use flate2::{Compression, Crc, write::DeflateEncoder};

use super::{date::Moment, entry::Entry};

/// "2.0": the first version that inflates.
const VERSION: u16 = 20;
/// Made on Unix, so the high half of the attributes is a mode.
const MADE_BY: u16 = (3 << 8) | VERSION;
/// The bit of a mode that says "a file".
const REGULAR: u32 = 0o100_000;

/// `files` in the order in which they are given, each with the time `time`.
pub(super) fn archive<'a>(
    files: impl Iterator<Item = (&'a str, &'a Entry)>,
    time: u64,
) -> Result<Vec<u8>, String> {
    let (date, clock) = dos(time)?;
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    let mut count = 0_u16;
    for (path, entry) in files {
        if !path.is_ascii() {
            return Err(format!(
                "`{path}` is not ASCII, as names in a zip archive here are"
            ));
        }
        let packed = deflated(&entry.data);
        let (method, stored) = if packed.len() < entry.data.len() {
            (8, packed.as_slice())
        } else {
            (0, entry.data.as_slice())
        };
        let mut crc = Crc::new();
        crc.update(&entry.data);
        let mut common = Vec::new();
        common.extend(VERSION.to_le_bytes());
        common.extend(0_u16.to_le_bytes());
        for number in [method, clock, date] {
            common.extend(number.to_le_bytes());
        }
        for number in [crc.sum(), small(stored.len())?, small(entry.data.len())?] {
            common.extend(number.to_le_bytes());
        }
        let length = u16::try_from(path.len()).map_err(|_| format!("`{path}` is too long"))?;
        common.extend(length.to_le_bytes());
        // No extra field.
        common.extend(0_u16.to_le_bytes());

        let at = small(archive.len())?;
        archive.extend(b"PK\x03\x04");
        archive.extend(&common);
        archive.extend(path.as_bytes());
        archive.extend(stored);

        directory.extend(b"PK\x01\x02");
        directory.extend(MADE_BY.to_le_bytes());
        directory.extend(&common);
        // No comment, the first disk, not text.
        directory.extend([0; 6]);
        directory.extend(((REGULAR | entry.mode) << 16).to_le_bytes());
        directory.extend(at.to_le_bytes());
        directory.extend(path.as_bytes());
        count = count.checked_add(1).ok_or("more than 65,535 files")?;
    }
    let at = small(archive.len())?;
    let size = small(directory.len())?;
    archive.extend(directory);
    archive.extend(b"PK\x05\x06");
    archive.extend([0; 4]);
    for number in [count, count] {
        archive.extend(number.to_le_bytes());
    }
    for number in [size, at] {
        archive.extend(number.to_le_bytes());
    }
    archive.extend([0; 2]);
    Ok(archive)
}

fn deflated(data: &[u8]) -> Vec<u8> {
    let mut writer = DeflateEncoder::new(Vec::new(), Compression::best());
    writer
        .write_all(data)
        .and_then(|()| writer.finish())
        .expect("memory can be written")
}

fn small(number: usize) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| "a zip archive here has less than 4 GiB".to_owned())
}

/// The date and the time of day as DOS has them, which begins in 1980 and counts every other second.
fn dos(time: u64) -> Result<(u16, u16), String> {
    let moment = Moment::of(time);
    let year = moment
        .year
        .checked_sub(1980)
        .filter(|year| *year < 128)
        .ok_or_else(|| format!("a zip archive has no date for the year {}", moment.year))?;
    let pack = |high: u64, middle: u64, low: u64| {
        u16::try_from(high << 11 | middle << 5 | low).map_err(|error| error.to_string())
    };
    Ok((
        u16::try_from(year << 9 | moment.month << 5 | moment.day)
            .map_err(|error| error.to_string())?,
        pack(moment.hour, moment.minute, moment.second / 2)?,
    ))
}
