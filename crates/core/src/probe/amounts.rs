//! Amounts as people read them.

/// Bytes, such as `64 MiB` or `1.5 GiB`.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 5] = [
        ("PiB", 50),
        ("TiB", 40),
        ("GiB", 30),
        ("MiB", 20),
        ("KiB", 10),
    ];
    let unit = UNITS.into_iter().find(|(_, bits)| count >> bits > 0);
    unit.map_or_else(
        || format!("{count} B"),
        |(name, bits)| format!("{} {name}", tenths((u128::from(count) * 10) >> bits)),
    )
}

/// Bytes in a second, such as `180 MB/s`.
pub(super) fn speed(bytes_per_second: u64) -> String {
    if bytes_per_second < 10_000_000 {
        return format!("{} MB/s", tenths(u128::from(bytes_per_second / 100_000)));
    }
    format!("{} MB/s", bytes_per_second / 1_000_000)
}

/// Megabits in a second, such as `400 Gb/s` or `100 Mb/s`.
pub(super) fn rate(megabits: u64) -> String {
    if megabits < 1000 {
        return format!("{megabits} Mb/s");
    }
    format!("{} Gb/s", tenths(u128::from(megabits / 100)))
}

/// Thousandths of a processor, such as `1.5`.
pub(super) fn processors(milli: u64) -> String {
    tenths(u128::from(milli / 100))
}

/// Seconds as a rough time, such as `3 h`.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Microseconds, such as `0.4 ms` or `12.0 s`.
pub(super) fn micros(micros: u64) -> String {
    if micros < 1_000_000 {
        return format!("{} ms", tenths(u128::from(micros / 100)));
    }
    format!("{} s", tenths(u128::from(micros / 100_000)))
}

/// `1 port`, `8 ports`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

fn tenths(tenths: u128) -> String {
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        rest => format!("{}.{rest}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let cases = [
            (bytes(0), "0 B"),
            (bytes(64 << 20), "64 MiB"),
            (bytes(3 << 29), "1.5 GiB"),
            (bytes(u64::MAX), "16383.9 PiB"),
            (speed(1_900_000), "1.9 MB/s"),
            (speed(2_000_000_000), "2000 MB/s"),
            (rate(100), "100 Mb/s"),
            (rate(400_000), "400 Gb/s"),
            (rate(2_500), "2.5 Gb/s"),
            (processors(1500), "1.5"),
            (processors(8000), "8"),
            (age(59), "59 s"),
            (age(7200), "2 h"),
            (age(864_000), "10 days"),
            (micros(450), "0.4 ms"),
            (micros(12_000_000), "12 s"),
            (counted(1, "port"), "1 port"),
            (counted(0, "port"), "0 ports"),
        ];
        for (got, want) in cases {
            assert_eq!(got, want);
        }
    }
}
