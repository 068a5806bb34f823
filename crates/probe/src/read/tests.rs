pub(crate) mod node;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::symlink,
    path::PathBuf,
};

use trainyard_core::probe::{Check, Outcome, VolumeNeeds, examine};

use self::node::Node;
use super::*;

use Outcome::{Fail, Pass, Warn};

/// What a job on such nodes needs of what is read from files.
fn needs() -> Needs {
    Needs {
        asked_by: Some("PyTorchJob `llama`, Worker".to_owned()),
        cpu_milli: Some(128_000),
        memory_bytes: Some(1 << 39),
        shm_bytes: Some(32 << 30),
        gpus: Some(8),
        gpu_model: Some("NVIDIA-H100-80GB-HBM3".to_owned()),
        interface: Some("net1".to_owned()),
        mtu: Some(9000),
        bandwidth_gbps: Some(3200),
        transport: Some("roce".to_owned()),
        rdma_devices: Some(8),
        gid_index: Some(3),
        ports: Some(vec![23456]),
        ..Needs::default()
    }
}

/// Reads without a bound that a busy machine could reach.
fn read_calmly(root: &Path, needs: &Needs) -> Reading {
    let pace = Pace {
        passive: Duration::from_mins(5),
        active: Duration::from_mins(5),
        pause: || {},
    };
    read_at(root, needs, &pace)
}

fn checks(root: &Path, needs: &Needs) -> Vec<Check> {
    examine(&read_calmly(root, needs), needs)
}

/// The checks that did not pass: name, subject, outcome.
fn troubles(checks: Vec<Check>) -> Vec<(String, String, Outcome)> {
    let bad = checks.into_iter().filter(|check| check.outcome >= Warn);
    bad.map(|check| (check.name, check.subject, check.outcome))
        .collect()
}

const PORT: &str = "sys/class/infiniband/mlx5_3/ports/1";
const GPU: &str = "sys/bus/pci/devices/0000:43:00.0";

type Break = fn(&Node);
type Case = (
    &'static str,
    Break,
    &'static [(&'static str, &'static str, Outcome)],
);

#[test]
fn one_broken_thing_is_named_and_nothing_else() {
    let cases: &[Case] = &[
        ("nothing", |_| {}, &[]),
        (
            "processors of another pod",
            |n| n.write("sys/fs/cgroup/kubepods/cpu.max", "400000 100000"),
            &[("cpu-count", "", Fail)],
        ),
        (
            "a quota that runs out",
            |n| {
                n.write(
                    "sys/fs/cgroup/kubepods/pod1/cpu.stat",
                    "nr_periods 5000\nnr_throttled 4000\n",
                );
            },
            &[("cpu-throttling", "", Warn)],
        ),
        (
            "a limit of memory above the pod",
            |n| n.write("sys/fs/cgroup/kubepods/memory.max", "1073741824"),
            &[("memory", "", Fail)],
        ),
        (
            "little memory to pin",
            |n| {
                n.write("proc/self/limits", "Max open files  1048576  1048576  files\nMax locked memory  65536  65536  bytes\n");
                n.write(
                    "proc/self/status",
                    "CapEff:\t0000000000000000\nCpus_allowed_list:\t0-191\n",
                );
            },
            &[("memlock", "", Fail)],
        ),
        (
            "no verbs",
            |n| {
                n.remove("sys/module/ib_uverbs");
                n.remove("sys/class/infiniband_verbs");
                for index in 1..8 {
                    n.remove(&format!("sys/class/infiniband/mlx5_{index}"));
                }
            },
            &[
                ("kernel-modules", "", Fail),
                ("gpu-nic-affinity", "0000:23:00.0", Warn),
                ("gpu-nic-affinity", "0000:33:00.0", Warn),
                ("gpu-nic-affinity", "0000:43:00.0", Warn),
                ("gpu-nic-affinity", "0000:53:00.0", Warn),
                ("gpu-nic-affinity", "0000:63:00.0", Warn),
                ("gpu-nic-affinity", "0000:73:00.0", Warn),
                ("gpu-nic-affinity", "0000:83:00.0", Warn),
                ("rdma-ports", "", Fail),
                ("rdma-rate", "", Fail),
                ("rdma-device", "mlx5_0/1", Fail),
            ],
        ),
        (
            "no driver",
            |n| n.remove("proc/driver/nvidia"),
            &[("nvidia-driver", "", Fail), ("gpu-count", "", Fail)],
        ),
        (
            "small shared memory",
            |n| {
                n.write(
                    "proc/self/mounts",
                    "shm /dev/shm tmpfs rw,size=65536k 0 0\n",
                );
            },
            &[("shm", "", Fail)],
        ),
        (
            "a rank that was left behind",
            |n| n.write("proc/net/tcp", "head\n 0: 00000000:5BA0 00000000:0000 0A\n"),
            &[("ports", "", Fail)],
        ),
        (
            "a GPU that the driver lost",
            |n| n.remove("proc/driver/nvidia/gpus/0000:43:00.0"),
            &[("gpu-count", "", Fail)],
        ),
        (
            "another GPU",
            |n| {
                n.write(
                    "proc/driver/nvidia/gpus/0000:43:00.0/information",
                    "Model: \t NVIDIA A100\n",
                );
            },
            &[("gpu-model", "", Fail)],
        ),
        (
            "a GPU that fell off the bus",
            |n| {
                n.write(
                    "dev/kmsg",
                    "4,9,99000000000,-;NVRM: Xid (PCI:0000:43:00): 79, pid=1\n",
                );
            },
            &[("gpu-xid", "0000:43:00", Fail)],
        ),
        (
            "half of the lanes",
            |n| n.write(&format!("{GPU}/current_link_width"), "8"),
            &[("gpu-pcie", "0000:43:00.0", Warn)],
        ),
        (
            "an older generation",
            |n| n.write(&format!("{GPU}/current_link_speed"), "8.0 GT/s PCIe"),
            &[("gpu-pcie", "0000:43:00.0", Warn)],
        ),
        (
            "no interface",
            |n| n.remove("sys/class/net/net1"),
            &[("interface", "", Fail)],
        ),
        (
            "small packets",
            |n| n.write("sys/class/net/net1/mtu", "1500"),
            &[("mtu", "net1", Fail)],
        ),
        (
            "an interface that is down",
            |n| n.write("sys/class/net/net1/operstate", "down"),
            &[("link", "net1", Fail)],
        ),
        (
            "a port without a cable",
            |n| {
                n.write(&format!("{PORT}/state"), "1: DOWN");
                n.write(&format!("{PORT}/phys_state"), "2: Polling");
            },
            &[
                ("rdma-ports", "", Fail),
                ("rdma-ports", "mlx5_3/1", Warn),
                ("rdma-rate", "", Fail),
            ],
        ),
        (
            "a port of one lane",
            |n| n.write(&format!("{PORT}/rate"), "100 Gb/sec (1X NDR)"),
            &[("rdma-rate", "", Fail), ("rdma-rate", "mlx5_3/1", Warn)],
        ),
        (
            "an address that came late",
            |n| {
                n.write(
                    &format!("{PORT}/gids/3"),
                    "0000:0000:0000:0000:0000:0000:0000:0000",
                );
            },
            &[("rdma-gid", "mlx5_3/1", Fail)],
        ),
        (
            "a device that was not passed in",
            |n| n.remove("dev/infiniband/uverbs3"),
            &[("rdma-device", "mlx5_3/1", Fail)],
        ),
        (
            "a card that is gone",
            |n| n.remove("sys/class/infiniband/mlx5_3"),
            &[
                ("gpu-nic-affinity", "0000:43:00.0", Warn),
                ("rdma-ports", "", Fail),
                ("rdma-rate", "", Fail),
            ],
        ),
    ];
    for (name, break_it, want) in cases {
        let folder = tempfile::tempdir().unwrap();
        break_it(&Node::below(folder.path(), 8));
        let found = troubles(checks(folder.path(), &needs()));
        let found: Vec<(&str, &str, Outcome)> = found
            .iter()
            .map(|(name, subject, outcome)| (name.as_str(), subject.as_str(), *outcome))
            .collect();
        assert_eq!(found, *want, "{name}");
    }
}

#[test]
fn counters_that_move_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::below(folder.path(), 2);
    let root = Root::new(folder.path());
    let count = |path: &str| node.write(path, "40\n");
    let port = "sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error";
    let ports = rdma::ports(&root, || count(port));
    let moved = |name: &str| ports.value().unwrap()[name].moved.value().unwrap().clone();
    assert_eq!(moved("mlx5_1/1")["symbol_error"], 40);
    assert_eq!(moved("mlx5_1/1")["out_of_sequence"], 0);
    assert_eq!(moved("mlx5_0/1")["symbol_error"], 0);
    let statistic = "sys/class/net/net1/statistics/rx_errors";
    let interfaces = network::interfaces(&root, || count(statistic));
    let moved = interfaces.value().unwrap()["net1"].moved.value().unwrap();
    assert_eq!(moved["rx_errors"], 37);
    assert_eq!(moved["tx_errors"], 0);
}

#[test]
fn file_tree_leaves_other_probes_out() {
    let folder = tempfile::tempdir().unwrap();
    Node::below(folder.path(), 1);
    let reading = read_calmly(folder.path(), &Needs::default());
    let gpu = &reading.gpus.value().unwrap()[0];
    assert_eq!(gpu.ecc, Probed::NotAsked);
    assert_eq!(reading.disk, Probed::NotAsked);
    assert!(reading.names.is_empty());
    let interfaces = reading.interfaces.value().unwrap();
    let names: Vec<&str> = interfaces.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["lo", "net1", "rail0"],
        "files in the folder are not interfaces"
    );
    assert_eq!(interfaces["lo"].speed_mbps, Probed::Absent);
    assert_eq!(interfaces["rail0"].pcie.path.len(), 5);
}

#[test]
fn the_nccl_of_python_packages_comes_first() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::below(folder.path(), 1);
    let version = || {
        let reading = read_calmly(folder.path(), &Needs::default());
        reading.versions.value().unwrap().nccl.clone()
    };
    assert_eq!(version(), Probed::Read("2.21.5".to_owned()));
    let packages = "usr/local/lib/python3.12/site-packages";
    node.write(
        &format!("{packages}/nvidia_nccl_cu12-2.26.2.dist-info/METADATA"),
        "",
    );
    assert_eq!(version(), Probed::Read("2.26.2".to_owned()));
    node.remove("usr");
    assert_eq!(version(), Probed::Absent);
}

#[test]
fn hanging_probe_loses_only_its_value() {
    let folder = tempfile::tempdir().unwrap();
    Node::below(folder.path(), 1);
    let pace = Pace {
        passive: Duration::from_secs(2),
        active: Duration::from_secs(2),
        pause: || {
            loop {
                thread::park();
            }
        },
    };
    let reading = read_at(folder.path(), &needs(), &pace);
    assert_eq!(reading.interfaces, Probed::Hung(2000));
    assert_eq!(reading.rdma, Probed::Hung(2000));
    let failed = troubles(examine(&reading, &needs()));
    let hung = ("interface".to_owned(), String::new(), Fail);
    assert!(failed.contains(&hung), "{failed:?}");
}

/// Every plain file of the tree, one for each name that a file has.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_link = path.is_symlink();
            if path.is_dir() && !is_link {
                folders.push(path);
            } else if !is_link && known.insert(path.file_name().unwrap().to_owned()) {
                found.push(path);
            }
        }
    }
    found
}

type Damage = fn(&PathBuf);

#[test]
fn damaged_files_are_unreadable_and_nothing_else() {
    let damages: [(&str, Damage); 5] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("binary", |path| {
            fs::write(path, [0xff, 0, 0xfe, b'\n']).unwrap();
        }),
        ("nonsense", |path| {
            fs::write(path, "1: 2: 3,-9 ::\n:\n-1-\n18446744073709551616 0\n").unwrap();
        }),
        ("huge", |path| {
            File::create(path).unwrap().set_len(1 << 40).unwrap();
        }),
        ("a loop", |path| {
            fs::remove_file(path).unwrap();
            symlink(path, path).unwrap();
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    Node::below(folder.path(), 1);
    let needs = Needs {
        gpus: Some(1),
        rdma_devices: Some(1),
        bandwidth_gbps: Some(400),
        ..needs()
    };
    let passed = |checks: &[Check]| checks.iter().filter(|check| check.outcome == Pass).count();
    let well = checks(folder.path(), &needs);
    assert_eq!(troubles(well.clone()), []);
    for path in files(folder.path()) {
        let content = fs::read(&path).unwrap();
        for (damage, spoil) in &damages {
            spoil(&path);
            let reading = read_calmly(folder.path(), &needs);
            let text = format!("{reading:?}");
            assert!(
                !text.contains("panicked"),
                "{damage} {}: {text}",
                path.display()
            );
            assert!(
                !text.contains("Hung"),
                "{damage} {}: {text}",
                path.display()
            );
            let checks = examine(&reading, &needs);
            assert!(
                passed(&checks) <= passed(&well),
                "{damage} {}: {checks:?}",
                path.display()
            );
            fs::remove_file(&path).unwrap();
            fs::write(&path, &content).unwrap();
        }
    }
    assert_eq!(
        troubles(checks(folder.path(), &needs)),
        [],
        "the tree is whole again"
    );
}

#[test]
fn this_machine_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let needs = Needs {
        volumes: Some(vec![VolumeNeeds {
            path: Some(path.clone()),
            ..VolumeNeeds::default()
        }]),
        ..Needs::default()
    };
    let reading = read_calmly(Path::new("/"), &needs);
    assert!(
        reading
            .processors
            .value()
            .is_some_and(|all| all.online.value() > Some(&0))
    );
    assert!(
        reading
            .memory
            .value()
            .is_some_and(|all| all.total.value() > Some(&0))
    );
    let interfaces = reading.interfaces.value().unwrap();
    let addresses = interfaces["lo"].addresses.value().unwrap();
    assert!(addresses.contains("127.0.0.1"), "{addresses:?}");
    let space = &reading.volumes[&path].value().unwrap().space;
    assert!(!space.kind.is_empty(), "{space:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
