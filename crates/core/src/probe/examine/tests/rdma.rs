//! RDMA ports, broken one at a time.

use std::collections::BTreeMap;

use super::*;

pub(super) static CASES: &[Case] = &[
    (
        "no RDMA device at all",
        |r, _| r.rdma = Absent,
        &[("rdma-ports", "", Fail)],
    ),
    (
        "ports of the other kind",
        |_, n| n.transport = Some("ib".to_owned()),
        &[("rdma-ports", "", Fail)],
    ),
    (
        "a list that names no port",
        |_, n| n.hcas = Some("=mlx5".to_owned()),
        &[("rdma-ports", "", Fail)],
    ),
    (
        "a port without a cable",
        |r, n| {
            let p = port(r, 3);
            p.state = Read("DOWN".to_owned());
            p.physical = Read("Polling".to_owned());
            *n = Needs {
                bandwidth_gbps: None,
                rdma_devices: Some(1),
                hcas: None,
                ..n.clone()
            };
        },
        &[("rdma-ports", "mlx5_3/1", Warn)],
    ),
    (
        "a port that is named, without a cable",
        |r, _| {
            let p = port(r, 3);
            p.state = Read("DOWN".to_owned());
            p.physical = Read("Polling".to_owned());
        },
        &[
            ("rdma-ports", "", Fail),
            ("rdma-ports", "mlx5_3/1", Fail),
            ("rdma-rate", "", Fail),
        ],
    ),
    (
        "a port at a quarter of its rate",
        |r, _| port(r, 3).rate_mbps = Read(100_000),
        &[("rdma-rate", "", Fail), ("rdma-rate", "mlx5_3/1", Warn)],
    ),
    (
        "a rate that cannot be read",
        |r, n| {
            for p in value(&mut r.rdma).values_mut() {
                p.rate_mbps = Unreadable("is not text".to_owned());
            }
            n.bandwidth_gbps = None;
        },
        &[("rdma-rate", "", Warn)],
    ),
    (
        "an address at another index",
        |r, _| {
            let gids = value(&mut port(r, 3).gids);
            let gid = gids.remove(&3).unwrap();
            gids.insert(5, gid);
        },
        &[("rdma-gid", "mlx5_3/1", Fail)],
    ),
    (
        "an address at any index, with none stated",
        |r, n| {
            let gids = value(&mut port(r, 3).gids);
            let gid = gids.remove(&3).unwrap();
            gids.insert(5, gid);
            n.gid_index = None;
        },
        &[],
    ),
    (
        "an address of version 1",
        |r, _| {
            value(&mut port(r, 3).gids).get_mut(&3).unwrap().kind = Read("IB/RoCE v1".to_owned());
        },
        &[("rdma-gid", "mlx5_3/1", Fail)],
    ),
    (
        "a device that cannot be opened",
        |r, _| port(r, 3).device_file = Unreadable("permission denied".to_owned()),
        &[("rdma-device", "mlx5_3/1", Fail)],
    ),
    (
        "devices of other pods",
        |r, n| {
            port(r, 3).device_file = Absent;
            n.rdma_devices = Some(1);
        },
        &[],
    ),
    (
        "errors that go on",
        |r, _| {
            value(&mut port(r, 3).moved).insert("symbol_error".to_owned(), 12);
        },
        &[("error-counters", "mlx5_3/1", Warn)],
    ),
    (
        "a link that goes down and up",
        |r, _| {
            value(&mut port(r, 3).moved).insert("link_downed".to_owned(), 1);
        },
        &[("error-counters", "mlx5_3/1", Fail)],
    ),
    (
        "errors of an interface that is not used",
        |r, _| {
            value(&mut r.interfaces).get_mut("eth0").unwrap().moved =
                Read(BTreeMap::from([("rx_errors".to_owned(), 9)]));
        },
        &[],
    ),
];
