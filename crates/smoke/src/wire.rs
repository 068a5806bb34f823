//! The wire protocol between ranks.
//!
//! A connection opens with one [`Hello`] of fixed size, so that a stray or an older program is
//! recognized before anything of variable size is read. Rank 0 answers with [`Answer`]s; frames of the
//! ring are [`Header`] and payload. Numbers are little-endian.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const MAGIC: [u8; 8] = *b"TYSMOKE\n";
const VERSION: u32 = 1;

pub(crate) const HELLO_BYTES: usize = 54;
pub(crate) const HEADER_BYTES: usize = 12;
/// Payload of a frame at most. Small enough for the buffers of a socket, which is what keeps a ring
/// where everybody writes before reading from standing still.
pub(crate) const FRAME_MAX: usize = 8 << 10;

/// The first message on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Checksum of all settings that ranks must share.
    pub(crate) token: u64,
    /// Number of this meeting, 0 before rank 0 has assigned it. It distinguishes attempts.
    pub(crate) session: u64,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    /// Where the next rank of the ring can be reached.
    pub(crate) address: SocketAddr,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// Not this trainer at all.
    NotATrainer,
    /// This trainer, of another version.
    Version(u32),
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [
            MAGIC.as_slice(),
            &VERSION.to_le_bytes(),
            &self.token.to_le_bytes(),
            &self.session.to_le_bytes(),
            &short(self.rank),
            &short(self.size),
            &encode_address(self.address),
        ]
        .concat()
    }

    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Stranger> {
        let mut rest = bytes.as_slice();
        if take(&mut rest) != MAGIC {
            return Err(Stranger::NotATrainer);
        }
        let version = u32::from_le_bytes(take(&mut rest));
        if version != VERSION {
            return Err(Stranger::Version(version));
        }
        Ok(Self {
            token: u64::from_le_bytes(take(&mut rest)),
            session: u64::from_le_bytes(take(&mut rest)),
            rank: long(take(&mut rest)),
            size: long(take(&mut rest)),
            address: decode_address(take(&mut rest)),
        })
    }
}

/// Messages between rank 0 and another rank, before the ring is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// All ranks have joined: the session, and each rank's address.
    Welcome {
        session: u64,
        addresses: Vec<SocketAddr>,
    },
    /// The rank cannot take part; why.
    Refused(String),
    /// From a rank: its two connections of the ring stand.
    Ready,
    /// All connections of the ring stand.
    Go,
    /// Rank 0 was asked to stop.
    Leave,
}

pub(crate) const ANSWER_HEADER_BYTES: usize = 5;
/// Payload of an answer at most: addresses of the largest world.
pub(crate) const ANSWER_MAX: usize = 8 + ADDRESS_BYTES * crate::world::SIZE_MAX;
const ADDRESS_BYTES: usize = 18;

impl Answer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, payload) = match self {
            Self::Welcome { session, addresses } => {
                let mut payload = session.to_le_bytes().to_vec();
                payload.extend(addresses.iter().flat_map(|at| encode_address(*at)));
                (1, payload)
            }
            Self::Refused(why) => (2, why.as_bytes().to_vec()),
            Self::Ready => (3, Vec::new()),
            Self::Go => (4, Vec::new()),
            Self::Leave => (5, Vec::new()),
        };
        let mut bytes = vec![kind];
        bytes.extend(short(payload.len()));
        bytes.extend(payload);
        bytes
    }

    /// Kind and length of the payload.
    pub(crate) fn decode_header(bytes: [u8; ANSWER_HEADER_BYTES]) -> (u8, usize) {
        let [kind, length @ ..] = bytes;
        (kind, long(length))
    }

    pub(crate) fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        match (kind, payload) {
            (1, payload) => {
                let (session, addresses) = payload.split_first_chunk()?;
                let (addresses, []) = addresses.as_chunks() else {
                    return None;
                };
                Some(Self::Welcome {
                    session: u64::from_le_bytes(*session),
                    addresses: addresses.iter().map(|at| decode_address(*at)).collect(),
                })
            }
            (2, why) => Some(Self::Refused(printable(why))),
            (3, []) => Some(Self::Ready),
            (4, []) => Some(Self::Go),
            (5, []) => Some(Self::Leave),
            _ => None,
        }
    }
}

/// What a frame of the ring carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    /// The group is broken: the payload is the rank that is lost, and how.
    Abort,
    /// The sender is well, and waits for another itself. Not counted in the sequence.
    Waiting,
}

impl Kind {
    pub(crate) fn encode(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Abort => 2,
            Self::Waiting => 3,
        }
    }

    pub(crate) fn decode(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Abort),
            3 => Some(Self::Waiting),
            _ => None,
        }
    }
}

/// What stands before each frame of the ring. Its first byte is the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Counts the data frames of a connection, and wraps.
    pub(crate) sequence: u32,
    pub(crate) length: usize,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind.encode();
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..].copy_from_slice(&short(self.length));
        bytes
    }

    /// Nothing if it is not a header, or of a frame larger than there are.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut rest = bytes.as_slice();
        let [kind, 0, 0, 0] = take(&mut rest) else {
            return None;
        };
        let header = Self {
            kind: Kind::decode(kind)?,
            sequence: u32::from_le_bytes(take(&mut rest)),
            length: long(take(&mut rest)),
        };
        (header.length <= FRAME_MAX).then_some(header)
    }
}

/// A text from the network, fit for a terminal and of bounded length.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(500).collect()
}

fn encode_address(address: SocketAddr) -> Vec<u8> {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    [ip.octets().as_slice(), &address.port().to_le_bytes()].concat()
}

fn decode_address(bytes: [u8; ADDRESS_BYTES]) -> SocketAddr {
    let mut rest = bytes.as_slice();
    let ip = Ipv6Addr::from_octets(take(&mut rest)).to_canonical();
    SocketAddr::new(ip, u16::from_le_bytes(take(&mut rest)))
}

/// A rank, size or length; all are bounded far below 32 bits.
fn short(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

fn long(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (head, tail) = rest
        .split_first_chunk()
        .expect("the fixed sizes of the fields add up to the buffer");
    *rest = tail;
    *head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(address: &str) -> Hello {
        Hello {
            token: 1,
            session: 2,
            rank: 3,
            size: 4,
            address: address.parse().unwrap(),
        }
    }

    #[test]
    fn messages_round_trip() {
        for address in ["10.1.2.3:4567", "[fd00::7]:80"] {
            let hello = hello(address);
            let bytes = hello.encode().try_into().expect("the size is fixed");
            assert_eq!(Hello::decode(&bytes), Ok(hello));
        }
        let answers = [
            Answer::Welcome {
                session: 9,
                addresses: vec![hello("127.0.0.1:1").address, hello("[::1]:2").address],
            },
            Answer::Refused("because".to_owned()),
            Answer::Ready,
            Answer::Go,
            Answer::Leave,
        ];
        for answer in answers {
            let bytes = answer.encode();
            let (header, payload) = bytes.split_first_chunk().unwrap();
            let (kind, length) = Answer::decode_header(*header);
            assert_eq!(length, payload.len());
            assert_eq!(Answer::decode(kind, payload), Some(answer));
        }
        let header = Header {
            kind: Kind::Abort,
            sequence: u32::MAX,
            length: FRAME_MAX,
        };
        assert_eq!(Header::decode(&header.encode()), Some(header));
    }

    #[test]
    fn strangers_are_recognized() {
        let mut older = [0; HELLO_BYTES];
        older[..MAGIC.len()].copy_from_slice(&MAGIC);
        assert_eq!(Hello::decode(&older), Err(Stranger::Version(0)));
        let mut request = [b' '; HELLO_BYTES];
        request[..14].copy_from_slice(b"GET / HTTP/1.1");
        assert_eq!(Hello::decode(&request), Err(Stranger::NotATrainer));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(Answer::decode(1, &[0; 7]), None);
        assert_eq!(Answer::decode(1, &[0; 9]), None);
        assert_eq!(Answer::decode(3, b"more"), None);
        assert_eq!(Answer::decode(0, b""), None);
        let good = Header {
            kind: Kind::Data,
            sequence: 0,
            length: 1,
        }
        .encode();
        for (at, byte) in [(0, 9), (2, 1), (10, 1)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Header::decode(&bad), None, "byte {at}");
        }
        assert_eq!(
            Answer::decode(2, b"\x1b[31mred\n"),
            Some(Answer::Refused("[31mred".to_owned()))
        );
    }
}
