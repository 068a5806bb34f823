//! How many bytes the network interfaces of this pod have moved.
//!
//! `/proc/PID/io` counts what is read from sockets by `read`, and not by `recv`: a download may show here only. Counters of InfiniBand and
//! `RoCE` ports are not read: they are those of the node, and the traffic of other jobs says nothing about this one.

use std::{fs::File, io::Read as _};

const FILE: &str = "/proc/self/net/dev";
/// Bytes of the file: some 130 for each interface.
const MOST: u64 = 256 << 10;

/// Bytes that were received and sent since the pod began, without those of the loopback interface. `None` where it has no other.
pub fn network_bytes() -> Option<u64> {
    let mut text = String::new();
    let file = File::open(FILE).ok()?;
    file.take(MOST).read_to_string(&mut text).ok()?;
    sum(&text)
}

fn sum(text: &str) -> Option<u64> {
    let interfaces = text.lines().filter_map(|line| {
        let (name, counters) = line.split_once(':')?;
        if name.trim() == "lo" {
            return None;
        }
        // Bytes are the first of eight counters in each direction.
        let mut counters = counters.split_ascii_whitespace();
        let received: u64 = counters.next()?.parse().ok()?;
        let sent: u64 = counters.nth(7)?.parse().ok()?;
        Some(received.saturating_add(sent))
    });
    interfaces.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_summed() {
        let head = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";
        let text = format!(
            "{head}    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  eth0:1000 10 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  net1: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
        );
        assert_eq!(sum(&text), Some(1_032));
        assert_eq!(
            sum(&format!("{head}    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n")),
            None
        );
        assert_eq!(sum("eth0: 1 2\nx: y"), None);
    }
}
