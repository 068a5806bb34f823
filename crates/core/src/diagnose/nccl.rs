//! What NCCL logs: host and rank of a process, its network and transports, and its initialization.
//!
//! Owns the shapes of `NCCL INFO` lines from 2.4 to 2.28. Warnings are left to the rules.
//!
//! Invariant: what is kept of one process is bounded, however much it logs.

use std::{collections::BTreeMap, sync::LazyLock};

use memchr::memmem::Finder;

/// How a line of NCCL begins: `node-1:77231:77291 [0] `.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub(super) host: &'a str,
    pub(super) pid: u32,
    pub(super) device: Option<u32>,
    /// What follows `NCCL INFO ` or `NCCL WARN `.
    pub(super) rest: &'a [u8],
    pub(super) warning: bool,
}

/// Communicators of one process that are remembered; jobs make a few dozen.
const MAX_INITS: usize = 64;
/// Kinds of transport that are counted separately.
const MAX_TRANSPORTS: usize = 16;

/// One communicator, as one process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) id: Option<u64>,
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) complete: bool,
    pub(super) line: u64,
}

/// What one process logged.
#[derive(Clone, Debug, Default)]
pub(super) struct NcclFacts {
    pub(super) version: Option<String>,
    pub(super) network: Option<String>,
    pub(super) interface: Option<String>,
    /// Whether its verbs devices are InfiniBand or Ethernet.
    pub(super) infiniband: bool,
    pub(super) roce: bool,
    pub(super) no_verbs_device: bool,
    pub(super) transports: Vec<(String, u32)>,
    pub(super) inits: Vec<Init>,
    pub(super) nodes: u32,
    pub(super) channels: Option<u32>,
    pub(super) gdr_enabled: u32,
    pub(super) gdr_disabled: u32,
    pub(super) bus: Option<String>,
    /// Connection attempts that failed since the last completed initialization.
    pub(super) retries: u32,
    pub(super) retry_line: u64,
}

/// Whether a line was understood; else the rules read it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Yes,
    No,
}

/// Takes the beginning of a line of NCCL apart.
pub(super) fn header(text: &[u8]) -> Option<Header<'_>> {
    let head = text.get(..text.len().min(400))?;
    // The process comes first, and lines of others have none: no text is searched for in those.
    let space = memchr::memchr(b' ', head)?;
    let mut parts = head.get(..space)?.rsplit(|byte| *byte == b':');
    let _thread = digits(parts.next()?)?;
    let pid = digits(parts.next()?)?;
    let host = parts.next().filter(|_| parts.next().is_none())?;
    // Host names are the first thing that people redact from a log.
    let host = std::str::from_utf8(host).ok()?;
    let (front_end, at) = if let Some(at) = memchr::memmem::find(head, b"NCCL ") {
        (at, at + 5)
    } else {
        // Before 2.3 the line does not contain `NCCL`.
        let at = memchr::memmem::find(head, b"] INFO ")
            .or_else(|| memchr::memmem::find(head, b" WARN "))?;
        let level = memchr::memchr(b' ', head.get(at..)?)? + at + 1;
        (level, level)
    };
    let warning = match text.get(at..at + 5)? {
        b"INFO " => false,
        b"WARN " => true,
        _ => return None,
    };
    let front = text.get(..front_end)?;
    let open = memchr::memchr(b'[', front)?;
    let close = memchr::memchr(b']', front.get(open..)?)? + open;
    Some(Header {
        host,
        pid,
        device: digits(front.get(open + 1..close)?),
        rest: text.get(at + 5..)?,
        warning,
    })
}

/// The version of a line such as `NCCL version 2.7.8+cuda10.2`, wherever it stands.
pub(super) fn version(text: &[u8]) -> Option<&str> {
    static KEY: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("NCCL version "));
    let start = KEY.find(text)? + KEY.needle().len();
    let rest = text.get(start..)?;
    let end = rest
        .iter()
        .position(|byte| !(byte.is_ascii_alphanumeric() || b".+-_".contains(byte)))
        .unwrap_or(rest.len());
    let word = std::str::from_utf8(rest.get(..end)?).ok()?;
    word.starts_with(|first: char| first.is_ascii_digit())
        .then_some(word)
}

impl NcclFacts {
    /// Notes one `NCCL INFO` line.
    pub(super) fn note(&mut self, rest: &[u8], line: u64) -> Known {
        match rest.first() {
            Some(b'C') if self.channel(rest) => return Known::Yes,
            Some(b'R') if rest.starts_with(b"Ring ") && self.channel(rest) => return Known::Yes,
            Some(b'T') if rest.starts_with(b"Trees ") => return Known::Yes,
            Some(b'B') if rest.starts_with(b"Bootstrap") => {
                if let Some(name) = interface(rest) {
                    self.interface = Some(name);
                }
                return Known::Yes;
            }
            Some(b'U') => {
                if let Some(name) = rest.strip_prefix(b"Using network ") {
                    self.network = Some(text(name));
                    return Known::Yes;
                }
            }
            Some(b'N') => {
                if let Some(known) = self.network_line(rest) {
                    return known;
                }
            }
            _ => {}
        }
        if let Some(init) = init(rest, line) {
            self.started(init);
            return Known::Yes;
        }
        if let Some(nodes) = field(rest, b"nNodes ") {
            self.nodes = self.nodes.max(nodes);
            return Known::Yes;
        }
        if let Some(at) = memchr::memmem::find(rest, b" coll channels") {
            self.channels = digits(rest.get(..at).unwrap_or_default());
            return Known::Yes;
        }
        if memchr::memmem::find(rest, b"retrying").is_some() {
            self.retries += 1;
            self.retry_line = line;
            return Known::Yes;
        }
        if let Some(version) = rest.strip_prefix(b"NCCL version ") {
            self.version = Some(text(version));
            return Known::Yes;
        }
        Known::No
    }

    fn network_line(&mut self, rest: &[u8]) -> Option<Known> {
        if rest.starts_with(b"NET : Using interface ") {
            let name = rest.get(22..)?;
            let colon = memchr::memchr(b':', name).filter(|at| *at <= 32)?;
            self.interface = Some(text(name.get(..colon)?));
            return Some(Known::Yes);
        }
        if let Some(version) = version(rest).filter(|_| rest.starts_with(b"NCCL version ")) {
            self.version = Some(version.to_owned());
            return Some(Known::Yes);
        }
        let (name, message) = split(rest.strip_prefix(b"NET/")?, b" : ")
            .or_else(|| split(rest.strip_prefix(b"NET/")?, b": "))?;
        if let Some(devices) = message.strip_prefix(b"Using ") {
            if name.starts_with(b"IB") {
                self.infiniband |= memchr::memmem::find(devices, b"/IB").is_some();
                self.roce |= memchr::memmem::find(devices, b"/RoCE").is_some();
            }
            return Some(Known::Yes);
        }
        if message.starts_with(b"No device found") {
            self.no_verbs_device = true;
            return Some(Known::Yes);
        }
        if message.starts_with(b"GPU Direct RDMA") {
            let disabled = memchr::memmem::find(message, b"Disabled").is_some();
            let count = if disabled {
                &mut self.gdr_disabled
            } else {
                &mut self.gdr_enabled
            };
            *count = count.saturating_add(1);
            return Some(Known::Yes);
        }
        None
    }

    /// A line that begins with `Channel`, `CollNet` or `Ring`.
    fn channel(&mut self, rest: &[u8]) -> bool {
        let Some(via) = memchr::memmem::find(rest, b" via ") else {
            // The order of ranks in a channel.
            return rest.starts_with(b"Channel ");
        };
        let transport = rest.get(via + 5..).unwrap_or_default();
        let mut name = [0; 48];
        let name = transport_name(transport, &mut name);
        if name.is_empty() {
            return true;
        }
        let room = self.transports.len() < MAX_TRANSPORTS;
        let mut known = self.transports.iter_mut();
        if let Some((_, count)) = known.find(|(known, _)| known.as_bytes() == name) {
            *count = count.saturating_add(1);
        } else if room {
            self.transports.push((text(name), 1));
        }
        true
    }

    fn started(&mut self, init: Init) {
        if init.complete {
            self.retries = 0;
            let begun = self.inits.iter_mut().rev().find(|known| {
                !known.complete
                    && known.ranks == init.ranks
                    && known.rank == init.rank
                    && (known.id == init.id || init.id.is_none())
            });
            if let Some(begun) = begun {
                begun.complete = true;
                return;
            }
        }
        if self.inits.len() == MAX_INITS {
            let oldest = self
                .inits
                .iter()
                .position(|known| known.complete)
                .unwrap_or(0);
            self.inits.remove(oldest);
        }
        self.inits.push(init);
    }

    /// Rank and size of the largest communicator: in a world with groups, the world.
    pub(super) fn world(&self) -> Option<(u32, u32)> {
        let largest = self.inits.iter().max_by_key(|init| init.ranks)?;
        Some((largest.rank, largest.ranks))
    }

    /// How many lines report a channel of this kind.
    pub(super) fn channels_via(&self, wanted: impl Fn(&str) -> bool) -> u32 {
        let counts = self.transports.iter().filter(|(name, _)| wanted(name));
        counts.map(|(_, count)| count).sum()
    }

    /// The counts by name.
    pub(super) fn transport_counts(&self) -> BTreeMap<String, u32> {
        self.transports.iter().cloned().collect()
    }
}

/// The transport without its device: `NET/IB/3/GDRDMA` is `NET/IB/GDRDMA`.
fn transport_name<'a>(transport: &[u8], into: &'a mut [u8; 48]) -> &'a [u8] {
    let mut length = 0;
    let mut push = |part: &[u8]| {
        let separator: &[u8] = if length == 0 { b"" } else { b"/" };
        for byte in separator.iter().chain(part) {
            if let Some(place) = into.get_mut(length) {
                *place = *byte;
                length += 1;
            }
        }
    };
    if transport.starts_with(b"direct shared memory") || transport.starts_with(b"SHM") {
        push(b"SHM");
    } else if transport.starts_with(b"P2P/")
        || transport.starts_with(b"NET/")
        || transport.starts_with(b"COLLNET/")
        || transport.starts_with(b"NVLS")
    {
        let mut parts = transport.split(|byte| *byte == b'/');
        for part in parts.by_ref().take(2) {
            push(trim(part));
        }
        if parts.any(|part| part.starts_with(b"GDRDMA")) {
            push(b"GDRDMA");
        }
    }
    &into[..length]
}

/// `… rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 200000 commId 0x56be - Init START`.
fn init(rest: &[u8], line: u64) -> Option<Init> {
    let complete = if ends(rest, b"Init COMPLETE") {
        true
    } else if ends(rest, b"Init START") {
        false
    } else {
        return None;
    };
    let id = memchr::memmem::find(rest, b"commId 0x").and_then(|at| {
        let digits = rest.get(at + 9..)?;
        let end = digits.iter().position(|byte| !byte.is_ascii_hexdigit())?;
        u64::from_str_radix(std::str::from_utf8(digits.get(..end)?).ok()?, 16).ok()
    });
    Some(Init {
        id,
        rank: field(rest, b" rank ")?,
        ranks: field(rest, b" nranks ").or_else(|| field(rest, b" nRanks "))?,
        complete,
        line,
    })
}

/// The bus of the GPU in a line about a start.
pub(super) fn bus(rest: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(rest, b" busId ")? + 7;
    let word = rest.get(at..)?.split(|byte| *byte == b' ').next()?;
    (word.len() <= 16).then(|| text(word))
}

fn ends(rest: &[u8], with: &[u8]) -> bool {
    let trimmed = trim(rest);
    trimmed.ends_with(with)
}

/// `Using eth0:10.0.0.1<0>`, `Using [0]ib0:10.148.0.76<0> [1]ib1:…`.
fn interface(rest: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(rest, b"Using ")? + 6;
    let mut name = rest.get(at..)?;
    if let Some(close) = name
        .strip_prefix(b"[")
        .and_then(|inside| memchr::memchr(b']', inside))
    {
        name = name.get(close + 2..)?;
    }
    let colon = memchr::memchr(b':', name).filter(|at| *at <= 32)?;
    Some(text(name.get(..colon)?))
}

/// The number behind `key`.
fn field(rest: &[u8], key: &[u8]) -> Option<u32> {
    let at = memchr::memmem::find(rest, key)? + key.len();
    let rest = rest.get(at..)?;
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(rest.len());
    digits(rest.get(..end)?)
}

fn digits(text: &[u8]) -> Option<u32> {
    if text.is_empty() || text.len() > 9 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |value: u32, digit: &u8| value * 10 + u32::from(digit - b'0');
    Some(text.iter().fold(0, add))
}

fn split<'a>(text: &'a [u8], by: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text.get(..text.len().min(40))?, by)?;
    Some((text.get(..at)?, text.get(at + by.len()..)?))
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

fn text(bytes: &[u8]) -> String {
    let cut = bytes.get(..bytes.len().min(64)).unwrap_or(bytes);
    String::from_utf8_lossy(trim(cut)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings() {
        let line = b"node-1:77231:77291 [3] transport.cc:253 NCCL WARN Cannot";
        let found = header(line).unwrap();
        assert_eq!(
            (found.host, found.pid, found.device),
            ("node-1", 77231, Some(3))
        );
        assert!(found.warning);
        assert_eq!(found.rest, b"Cannot");
        let old =
            header(b"node-1:272067:272276 [0] INFO NET : Using interface lo:127.0.0.1<0>").unwrap();
        assert_eq!((old.host, old.device), ("node-1", Some(0)));
        let nameless = header(b":7:9 [2] NCCL INFO Using network IB").unwrap();
        assert_eq!((nameless.host, nameless.pid), ("", 7));
        let mut facts = NcclFacts::default();
        assert_eq!(facts.note(old.rest, 1), Known::Yes);
        assert_eq!(facts.interface.as_deref(), Some("lo"));
        for line in [
            "NCCL version 2.7.8+cuda10.2",
            "CL INFO Channel 09",
            "a NCCL INFO x",
            "",
        ] {
            assert_eq!(header(line.as_bytes()), None, "{line}");
        }
        assert_eq!(
            version(b"NCCL version 2.7.8+cuda10.2"),
            Some("2.7.8+cuda10.2")
        );
        assert_eq!(version(b"NCCL version mismatch"), None);
    }

    #[test]
    fn transports() {
        let cases = [
            (
                "Channel 00 : 63[8a000] -> 0[1a000] [receive] via NET/IB/3",
                "NET/IB",
            ),
            (
                "Channel 00/0 : 57[2] -> 0[1] [send] via NET/IBext/0/GDRDMA",
                "NET/IBext/GDRDMA",
            ),
            (
                "Channel 02/0 : 1[1] -> 5[1] [receive] via NET/AWS Libfabric/5/GDRDMA(PCI)",
                "NET/AWS Libfabric/GDRDMA",
            ),
            ("Ring 00 : 9 -> 0 [receive] via NET/Socket/0", "NET/Socket"),
            (
                "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
                "P2P/CUMEM",
            ),
            (
                "Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read",
                "P2P/direct pointer",
            ),
            (
                "Channel 00 : 1[14000] -> 2[48000] via direct shared memory",
                "SHM",
            ),
            ("Channel 00 : 1[1] -> 2[2] via SHM/direct/direct", "SHM"),
            (
                "CollNet 00 : 0 [receive] via COLLNET/SHARP/0/GDRDMA",
                "COLLNET/SHARP/GDRDMA",
            ),
        ];
        for (line, want) in cases {
            let mut facts = NcclFacts::default();
            assert_eq!(facts.note(line.as_bytes(), 1), Known::Yes);
            assert_eq!(facts.transports, [(want.to_owned(), 1)], "{line}");
        }
        let mut facts = NcclFacts::default();
        facts.note(b"Channel 00/04 :    0   1   2   3", 1);
        assert!(facts.transports.is_empty());
    }

    #[test]
    fn starts() {
        let mut facts = NcclFacts::default();
        facts.note(b"ncclCommInitRankConfig comm 0x5 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 200000 commId 0x56bea185a98d5193 - Init START", 7);
        assert_eq!(facts.inits.len(), 1);
        assert!(!facts.inits[0].complete);
        assert_eq!(facts.inits[0].id, Some(0x56be_a185_a98d_5193));
        facts.note(b"comm 0x5 rank 1 nranks 2 cudaDev 1 busId 200000 commId 0x56bea185a98d5193 - Init COMPLETE", 9);
        assert_eq!(facts.inits.len(), 1);
        assert!(facts.inits[0].complete);
        facts.note(
            b"comm 0x147 rank 27 nranks 64 cudaDev 3 busId 8a000 - Init COMPLETE",
            10,
        );
        assert_eq!(facts.world(), Some((27, 64)));
        assert_eq!(
            facts.note(b"Bootstrap : Using [0]ib0:10.148.0.76<0> [1]ib1:1<0>", 1),
            Known::Yes
        );
        assert_eq!(facts.interface.as_deref(), Some("ib0"));
        facts.note(
            b"NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
            1,
        );
        assert!(facts.roce && !facts.infiniband);
        facts.note(b"NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", 1);
        facts.note(
            b"NET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 0 'mlx5_0",
            1,
        );
        assert_eq!((facts.gdr_disabled, facts.gdr_enabled), (1, 1));
        assert_eq!(
            facts.note(b"NCCL_P2P_DISABLE set by environment to 1", 1),
            Known::No
        );
    }
}
