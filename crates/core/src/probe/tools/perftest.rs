//! `ib_write_bw` of perftest: how it is called on both sides of a pair, and what it prints.
//!
//! One side serves and prints no number; the other connects to it over TCP, exchanges addresses, writes into its memory
//! over RDMA, and prints the rate. It is given no address to bind to: programs older than 2023 know no such option, and
//! only the exchange of addresses goes over that connection.

use std::net::IpAddr;

use super::{Port, ProgramError, Ran};

/// The program.
pub const PROGRAM: &str = "ib_write_bw";
/// What to install to have it.
pub const PACKAGE: &str = "perftest";
/// Bytes of one write: what the program itself would take, and enough to fill a link.
const MESSAGE: u32 = 65_536;
/// Bytes of what the program calls a megabyte, whichever way it writes it.
const MEGABYTE: f64 = 1_048_576.0;

/// What both sides must agree on.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The device of this side.
    pub port: Port,
    /// The TCP port of the side that serves.
    pub listens_on: u16,
    /// How long is measured.
    pub seconds: u64,
    /// The address of the side that serves.
    pub server: IpAddr,
}

impl Exchange {
    /// The words of the side that serves.
    pub fn server(&self) -> Vec<String> {
        let mut words: Vec<String> = vec![
            "-d".to_owned(),
            self.port.device.clone(),
            "-i".to_owned(),
            self.port.number.to_string(),
            "-p".to_owned(),
            self.listens_on.to_string(),
            "-s".to_owned(),
            MESSAGE.to_string(),
            "-D".to_owned(),
            self.seconds.to_string(),
            // Without it, processors that change their speed end the run without a number.
            "-F".to_owned(),
            "--report_gbits".to_owned(),
        ];
        if let Some(index) = self.port.gid_index {
            words.extend(["-x".to_owned(), index.to_string()]);
        }
        if self.server.is_ipv6() {
            words.push("--ipv6".to_owned());
        }
        words
    }

    /// The words of the side that connects.
    pub fn client(&self) -> Vec<String> {
        let mut words = self.server();
        words.push(self.server.to_string());
        words
    }
}

/// Bits in a second, from the row below the heading. The error is why there are none.
pub fn read(ran: &Ran) -> Result<f64, ProgramError> {
    average(&ran.output).ok_or_else(|| ran.error(PROGRAM))
}

/// Whether the side that connects was refused: the other one may only not listen yet.
pub fn connection_refused(ran: &Ran) -> bool {
    let lower = ran.errors.to_ascii_lowercase();
    lower.contains("couldn't connect to")
}

fn average(output: &str) -> Option<f64> {
    let mut lines = output.lines();
    let (column, unit) = lines.by_ref().find_map(heading)?;
    let rate = lines.find_map(|line| {
        let cells: Option<Vec<f64>> = line
            .split_whitespace()
            .map(|cell| cell.parse().ok())
            .collect();
        cells?.get(column).copied()
    })?;
    (rate.is_finite() && rate >= 0.0).then_some(rate * unit)
}

/// The column of the average, and what one of its unit is in bits in a second.
fn heading(line: &str) -> Option<(usize, f64)> {
    let line = line.trim();
    if !line.starts_with("#bytes") {
        return None;
    }
    // Names hold single spaces, and lie further apart.
    let names = line
        .split("  ")
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let (column, unit) = names
        .enumerate()
        .find_map(|(column, name)| Some((column, name.strip_prefix("BW average[")?)))?;
    match unit.trim_end_matches(']') {
        "Gb/sec" => Some((column, 1e9)),
        "MB/sec" | "MiB/sec" => Some((column, MEGABYTE * 8.0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tools::Ending;

    /// What a client prints around its one row, in the order and the columns of the program.
    fn printed(heading: &str, row: &str) -> String {
        let line = "-".repeat(87);
        format!(
            "{line}\n                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n \
             Number of qps   : 1\t\tTransport type : IB\n Mtu             : 4096[B]\n Link type       : Ethernet\n \
             GID index       : 3\n{line}\n local address: LID 0000 QPN 0x08f1 PSN 0x61c9 RKey 0x1fff00 \
             VAddr 0x007f0000000000\n GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:10:00:05\n{line}\n{heading}\n{row}\n{line}\n"
        )
    }

    fn ran(output: &str, errors: &str) -> Ran {
        Ran {
            ending: Ending::Exited(Some(i32::from(!errors.is_empty()))),
            output: output.to_owned(),
            errors: errors.to_owned(),
        }
    }

    #[test]
    fn the_average_is_read_by_its_heading() {
        let cases = [
            (
                "gigabits",
                " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
                " 65536      745900           0.00               391.05 \t\t     0.745869",
                Some(391.05e9),
            ),
            (
                "megabytes, as older ones write them",
                " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]",
                " 65536      5000             11780.88            11775.06\t\t   0.188401",
                Some(11_775.06 * 1_048_576.0 * 8.0),
            ),
            (
                "megabytes, as newer ones write them, with the use of processors behind",
                " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]    CPU_Util[%]",
                " 65536      5000             100.00            90.00\t\t   0.188401\t    12.50",
                Some(90.0 * 1_048_576.0 * 8.0),
            ),
            (
                "with a level of service in between",
                " #bytes    #sl      #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
                " 65536      0           5000           98.00            97.50                  0.188401",
                Some(97.5e9),
            ),
            (
                "nothing got through",
                " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
                " 65536      0           0.00               0.00 \t\t     0.000000",
                Some(0.0),
            ),
            (
                "an unknown unit",
                " #bytes     #iterations    BW peak[furlongs]    BW average[furlongs]   MsgRate[Mpps]",
                " 65536      5000             1.00            1.00\t\t   0.1",
                None,
            ),
            (
                "no number",
                " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
                " 65536      5000             inf            inf\t\t   0.1",
                None,
            ),
            (
                "a row that was cut",
                " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
                " 65536      5000",
                None,
            ),
        ];
        for (name, heading, row, want) in cases {
            let got = read(&ran(&printed(heading, row), "")).ok();
            let same = match (got, want) {
                (Some(got), Some(want)) => (got - want).abs() < 1.0,
                (got, want) => got.is_none() && want.is_none(),
            };
            assert!(same, "{name}: {got:?}, {want:?}");
        }
    }

    #[test]
    fn program_error_is_quoted() {
        let cases = [
            (
                "IB device mlx5_7 not found\n Unable to find the Infiniband/RoCE device\n",
                "IB device mlx5_7 not found",
                false,
            ),
            (
                " Did not detect devices \n If device exists, check if driver is up\n \
                 Unable to find the Infiniband/RoCE device\n",
                "Unable to find the Infiniband/RoCE device",
                false,
            ),
            (
                "Couldn't connect to 10.10.0.6:18515\n Unable to init the socket connection\n",
                "Couldn't connect to 10.10.0.6:18515",
                true,
            ),
            (
                " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n",
                "Completion with error at client",
                false,
            ),
        ];
        for (errors, want, refused) in cases {
            let ran = ran("", errors);
            let why = read(&ran).unwrap_err().to_string();
            assert_eq!(why, format!("`ib_write_bw` ended with exit code 1: {want}"));
            assert_eq!(connection_refused(&ran), refused, "{want}");
        }
    }

    #[test]
    fn both_sides_get_same_options_but_address() {
        let exchange = |server: &str, gid_index| Exchange {
            port: Port {
                device: "mlx5_0".to_owned(),
                number: 1,
                gid_index,
                of: 8,
            },
            listens_on: 40_123,
            seconds: 1,
            server: server.parse().unwrap(),
        };
        let roce = exchange("10.10.0.6", Some(3));
        let words = "-d mlx5_0 -i 1 -p 40123 -s 65536 -D 1 -F --report_gbits -x 3";
        assert_eq!(roce.server().join(" "), words);
        assert_eq!(roce.client().join(" "), format!("{words} 10.10.0.6"));
        let over_six = exchange("fd00::6", None);
        let words = "-d mlx5_0 -i 1 -p 40123 -s 65536 -D 1 -F --report_gbits --ipv6";
        assert_eq!(over_six.client().join(" "), format!("{words} fd00::6"));
    }
}
