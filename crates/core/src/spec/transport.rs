//! What ranks on different nodes talk over, by the names that NCCL gives it.
//!
//! Owns which names are the same network, and what `trainyard.dev/require-transport` may ask for. Does not
//! read logs; that is `diagnose`.

use std::fmt;

use super::{
    SettingError,
    nearest::{nearest, one_of},
};

/// A network between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Network {
    /// Verbs: InfiniBand and `RoCE`, by NCCL itself or by a plugin.
    Ib,
    /// Libfabric, such as EFA.
    Ofi,
    /// UCX.
    Ucx,
    /// Google's `GPUDirect-TCPXO`.
    FasTrak,
    /// Google's plugin for `RoCE`.
    Gib,
    /// TCP.
    Socket,
}

impl Network {
    /// Every one.
    const ALL: [Self; 6] = [
        Self::Ib,
        Self::Ofi,
        Self::Ucx,
        Self::FasTrak,
        Self::Gib,
        Self::Socket,
    ];

    /// How it is called in the annotation.
    fn name(self) -> &'static str {
        match self {
            Self::Ib => "NET/IB",
            Self::Ofi => "NET/OFI",
            Self::Ucx => "NET/UCX",
            Self::FasTrak => "NET/FasTrak",
            Self::Gib => "NET/gIB",
            Self::Socket => "NET/Socket",
        }
    }

    /// The network of a transport such as `NET/IBext/GDRDMA` or `NET/AWS Libfabric`.
    fn of(transport: &str) -> Option<Self> {
        let plugin = transport.strip_prefix("NET/")?;
        // Plugins append versions to their names: `IBext_v8`.
        let begins: [(&str, Self); 8] = [
            ("IB", Self::Ib),
            ("AWS Libfabric", Self::Ofi),
            ("Libfabric", Self::Ofi),
            ("OFI", Self::Ofi),
            ("UCX", Self::Ucx),
            ("FasTrak", Self::FasTrak),
            ("gIB", Self::Gib),
            ("Socket", Self::Socket),
        ];
        let mut begins = begins.into_iter();
        let found = begins.find(|(begin, _)| plugin.starts_with(begin));
        found.map(|(_, network)| network)
    }
}

/// What NCCL writes behind a transport that goes from GPU to network without the host's memory.
const DIRECT: &str = "/GDRDMA";

/// Whether a transport goes between nodes.
pub fn is_between_nodes(transport: &str) -> bool {
    transport.starts_with("NET/")
}

/// Whether a transport uses `GPUDirect` RDMA.
pub fn is_direct(transport: &str) -> bool {
    transport.ends_with(DIRECT)
}

/// A transport between nodes that a job requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredTransport {
    /// The network.
    network: Network,
    /// With `GPUDirect` RDMA.
    direct: bool,
}

impl RequiredTransport {
    /// Reads a list such as `NET/IB,NET/OFI/GDRDMA`: any of them will do.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, SettingError> {
        let words = text.split(',').map(str::trim);
        let mut list = Vec::new();
        for word in words.filter(|word| !word.is_empty()) {
            let required = Self::parse(word)?;
            if !list.contains(&required) {
                list.push(required);
            }
        }
        if list.is_empty() {
            return Err(SettingError::Nothing(Self::choice()));
        }
        Ok(list)
    }

    fn parse(word: &str) -> Result<Self, SettingError> {
        let (name, direct) = match word.strip_suffix(DIRECT) {
            Some(name) => (name, true),
            None => (word, false),
        };
        let mut networks = Network::ALL.into_iter();
        let known = networks.find(|network| network.name() == name);
        if let Some(network) = known.filter(|network| !(direct && *network == Network::Socket)) {
            return Ok(Self { network, direct });
        }
        let names: Vec<String> = Self::all().map(|known| known.to_string()).collect();
        let meant = nearest(word, names.iter().map(String::as_str));
        Err(match meant {
            Some(meant) => SettingError::Misspelled {
                what: "transport",
                found: word.to_owned(),
                meant: meant.to_owned(),
            },
            None => SettingError::not(Self::choice(), word),
        })
    }

    fn all() -> impl Iterator<Item = Self> {
        Network::ALL.into_iter().flat_map(|network| {
            let plain = Self {
                network,
                direct: false,
            };
            let direct = Self {
                network,
                direct: true,
            };
            let direct = Some(direct).filter(|_| network != Network::Socket);
            [plain].into_iter().chain(direct)
        })
    }

    fn choice() -> String {
        let names: Vec<&str> = Network::ALL.map(Network::name).into();
        format!("{}, with or without `{DIRECT}`", one_of(names))
    }

    /// Whether a transport between nodes goes over the network that is required.
    pub fn allows(self, transport: &str) -> bool {
        Network::of(transport) == Some(self.network)
    }

    /// Whether it is to be used with `GPUDirect` RDMA.
    pub fn is_direct(self) -> bool {
        self.direct
    }
}

impl fmt::Display for RequiredTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direct = if self.direct { DIRECT } else { "" };
        write!(f, "{}{direct}", self.network.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_required() {
        let cases: [(&str, Result<&str, &str>); 9] = [
            ("NET/IB", Ok("NET/IB")),
            (" NET/IB/GDRDMA , NET/OFI,", Ok("NET/IB/GDRDMA NET/OFI")),
            ("NET/IB,NET/IB", Ok("NET/IB")),
            ("net/ib", Err("did you mean `NET/IB`?")),
            ("NET/Sockets", Err("did you mean `NET/Socket`?")),
            ("NET/IB/GDRMDA", Err("did you mean `NET/IB/GDRDMA`?")),
            ("NET/Socket/GDRDMA", Err("found `NET/Socket/GDRDMA`")),
            (
                "P2P/CUMEM",
                Err(
                    "must be `NET/IB`, `NET/OFI`, `NET/UCX`, `NET/FasTrak`, `NET/gIB` or `NET/Socket`",
                ),
            ),
            (" , ", Err("found nothing")),
        ];
        for (text, want) in cases {
            let found = RequiredTransport::parse_list(text);
            match (found, want) {
                (Ok(list), Ok(want)) => {
                    let names: Vec<String> = list.iter().map(ToString::to_string).collect();
                    assert_eq!(names.join(" "), want, "{text}");
                }
                (Err(error), Err(part)) => {
                    let message = error.to_string();
                    assert!(message.contains(part), "{text}: {message}");
                }
                (found, want) => assert_eq!(format!("{found:?}"), format!("{want:?}"), "{text}"),
            }
        }
    }

    #[test]
    fn plugins_are_known_by_their_network() {
        let cases = [
            ("NET/IB", Some(Network::Ib)),
            ("NET/IBext_v8/GDRDMA", Some(Network::Ib)),
            ("NET/AWS Libfabric/GDRDMA", Some(Network::Ofi)),
            ("NET/Libfabric", Some(Network::Ofi)),
            ("NET/Socket", Some(Network::Socket)),
            ("NET/gIB/GDRDMA", Some(Network::Gib)),
            ("NET/Other", None),
            ("P2P/IPC", None),
        ];
        for (transport, want) in cases {
            assert_eq!(Network::of(transport), want, "{transport}");
        }
    }
}
