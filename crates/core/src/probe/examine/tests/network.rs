//! The interface, broken one part at a time.

use std::collections::BTreeSet;

use super::*;

pub(super) static CASES: &[Case] = &[
    (
        "no such interface",
        |r, _| {
            value(&mut r.interfaces).remove("net1");
        },
        &[("interface", "", Fail)],
    ),
    (
        "an address outside of the range",
        |r, _| net1(r).addresses = Read(BTreeSet::from(["10.11.0.5".to_owned()])),
        &[("address", "net1", Fail)],
    ),
    (
        "no address but that of the link",
        |r, _| net1(r).addresses = Read(BTreeSet::from(["fe80::1".to_owned()])),
        &[("address", "net1", Fail)],
    ),
    (
        "small packets",
        |r, _| net1(r).mtu = Read(1500),
        &[("mtu", "net1", Fail)],
    ),
    (
        "packets larger than promised",
        |r, _| net1(r).mtu = Read(9216),
        &[("mtu", "net1", Warn)],
    ),
    (
        "an interface that is down",
        |r, _| net1(r).state = Read("down".to_owned()),
        &[("link", "net1", Fail)],
    ),
    (
        "an interface that does not know",
        |r, _| net1(r).state = Read("unknown".to_owned()),
        &[],
    ),
    (
        "a tenth of the speed",
        |r, n| {
            net1(r).speed_mbps = Read(40_000);
            *n = Needs {
                transport: Some("socket".to_owned()),
                rdma_devices: None,
                bandwidth_gbps: Some(400),
                ..n.clone()
            };
        },
        &[("link-speed", "net1", Fail)],
    ),
    (
        "a virtual interface",
        |r, _| net1(r).speed_mbps = Absent,
        &[],
    ),
];
