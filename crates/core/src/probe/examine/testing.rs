//! A machine with eight GPUs and eight RDMA ports on which every check passes, to be broken.

use std::collections::{BTreeMap, BTreeSet};

use crate::probe::{
    Gid, Gpu, Interface, Limits, Memory, Needs, Pcie, Probed, Processors, RdmaPort, Reading,
    RemappedRows, Space, Versions, VolumeNeeds, VolumeTrial,
};

use Probed::Read;

const MODEL: &str = "NVIDIA H100 80GB HBM3";

/// What a job on such machines needs, everything stated.
pub(in crate::probe) fn needs() -> Needs {
    Needs {
        asked_by: Some("PyTorchJob `llama`, Worker".to_owned()),
        cpu_milli: Some(64_000),
        memory_bytes: Some(512 << 30),
        disk_bytes: Some(100 << 30),
        shm_bytes: Some(32 << 30),
        gpus: Some(8),
        gpu_model: Some("NVIDIA-H100-80GB-HBM3".to_owned()),
        interface: Some("net1".to_owned()),
        address_range: Some("10.10.0.0/16".to_owned()),
        mtu: Some(9000),
        bandwidth_gbps: Some(3200),
        transport: Some("roce".to_owned()),
        rdma_devices: Some(8),
        hcas: Some("mlx5".to_owned()),
        gid_index: Some(3),
        locks_memory: None,
        names: Some(vec!["rendezvous.example.com".to_owned()]),
        ports: Some(vec![23456]),
        volumes: Some(vec![VolumeNeeds {
            path: Some("/ckpt".to_owned()),
            written: Some(true),
            free_bytes: Some(1 << 40),
            write_bytes_per_second: Some(500_000_000),
            read_bytes_per_second: Some(500_000_000),
            ..VolumeNeeds::default()
        }]),
    }
}

/// A machine that has all of it.
pub(in crate::probe) fn reading() -> Reading {
    let place = |index: usize, device: &str| Pcie {
        path: vec![
            format!("pci0000:{index}0"),
            format!("0000:{index}0:01.0"),
            format!("0000:{index}{device}:00.0"),
        ],
        numa: Read(i64::from(index >= 4)),
        generation: Read(5),
        generation_most: Read(5),
        width: Read(16),
        width_most: Read(16),
    };
    let gpu = |index: usize| Gpu {
        bus: bus(index),
        model: Read(MODEL.to_owned()),
        split: Read(false),
        memory: Read(80 << 30),
        memory_used: Read(0),
        ecc: Read(true),
        uncorrected: Read(0),
        rows: Read(RemappedRows::default()),
        clock: Read(345),
        clock_most: Read(1980),
        throttled_by: Read(BTreeSet::from(["GPU_IDLE".to_owned()])),
        nvlinks: Read(vec![true; 18]),
        pcie: place(index, "7"),
    };
    let port = |index: usize| RdmaPort {
        state: Read("ACTIVE".to_owned()),
        physical: Read("LinkUp".to_owned()),
        rate_mbps: Read(400_000),
        link_layer: Read("Ethernet".to_owned()),
        gids: Read(BTreeMap::from([
            (0, gid("fe80::1", "IB/RoCE v1")),
            (3, gid(&format!("10.10.{index}.5"), "RoCE v2")),
        ])),
        device_file: Read(format!("uverbs{index}")),
        moved: still("symbol_error"),
        pcie: place(index, "9"),
    };
    let interface = Interface {
        state: Read("up".to_owned()),
        mtu: Read(9000),
        speed_mbps: Read(400_000),
        addresses: Read(BTreeSet::from([
            "10.10.0.5".to_owned(),
            "fe80::1".to_owned(),
        ])),
        moved: still("rx_errors"),
        pcie: place(0, "9"),
    };
    let address = |text: &str| Read(BTreeSet::from([text.to_owned()]));
    Reading {
        processors: Read(Processors {
            online: Read(96),
            allowed: Read(96),
            quota_milli: Read(90_000),
            periods: Read(5000),
            throttled: Read(3),
        }),
        memory: Read(Memory {
            total: Read(1 << 40),
            available: Read(900 << 30),
            limit: Read(1 << 40),
        }),
        limits: Read(Limits {
            locked_memory: Read(None),
            open_files: Read(Some(1_048_576)),
            may_lock: Read(false),
        }),
        modules: Read(BTreeSet::from(
            ["ib_uverbs", "nvidia_peermem", "gdrdrv"].map(str::to_owned),
        )),
        versions: Read(Versions {
            kernel: Read("6.8.0".to_owned()),
            driver: Read("550.54.15".to_owned()),
            cuda: Read("12.4".to_owned()),
            nccl: Read("2.21.5".to_owned()),
        }),
        shm: Read(Space {
            kind: "tmpfs".to_owned(),
            total: Read(64 << 30),
            free: Read(64 << 30),
        }),
        disk: Read(Space {
            kind: "ext4".to_owned(),
            total: Read(1 << 40),
            free: Read(500 << 30),
        }),
        hostname: Read("gpu-0".to_owned()),
        names: BTreeMap::from([
            ("gpu-0".to_owned(), address("10.0.0.5")),
            ("rendezvous.example.com".to_owned(), address("10.0.0.9")),
        ]),
        listening: Read(BTreeSet::from([22, 10250])),
        clock_ahead_micros: Some(0),
        gpus: Read((0..8).map(gpu).collect()),
        gpus_on_bus: Read((0..8).map(bus).collect()),
        xids: Read(Vec::new()),
        interfaces: Read(BTreeMap::from([
            ("eth0".to_owned(), interface.clone()),
            ("net1".to_owned(), interface),
        ])),
        rdma: Read(
            (0..8)
                .map(|index| (format!("mlx5_{index}/1"), port(index)))
                .collect(),
        ),
        volumes: BTreeMap::from([(
            "/ckpt".to_owned(),
            Read(VolumeTrial {
                space: Space {
                    kind: "lustre".to_owned(),
                    total: Read(1 << 50),
                    free: Read(1 << 49),
                },
                bytes: 64 << 20,
                write_micros: Read(50_000),
                read_micros: Read(30_000),
                rename: Read(true),
            }),
        )]),
    }
}

/// The address of GPU `index`.
pub(in crate::probe) fn bus(index: usize) -> String {
    format!("0000:{index}7:00.0")
}

fn gid(address: &str, kind: &str) -> Gid {
    Gid {
        address: address.to_owned(),
        kind: Read(kind.to_owned()),
        interface: Read("eth2".to_owned()),
    }
}

fn still(counter: &str) -> Probed<BTreeMap<String, u64>> {
    Read(BTreeMap::from([(counter.to_owned(), 0)]))
}

/// What was read, to be changed.
pub(in crate::probe) fn value<T>(probed: &mut Probed<T>) -> &mut T {
    match probed {
        Read(value) => value,
        _ => panic!("the machine has it"),
    }
}
