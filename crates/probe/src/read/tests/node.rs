//! A tree of `proc`, `sys` and `dev` as a node with GPUs and RDMA devices has it.
//!
//! Written after the public descriptions of the kernel (`sysfs-class-infiniband`, `sysfs-class-net`,
//! `sysfs-bus-pci`, `proc(5)`, control groups version 2) and of NVIDIA's driver. Each GPU has its network card
//! beside it below one switch; the links of `/sys` are relative, as the kernel's are.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// The tree.
pub(crate) struct Node {
    folder: PathBuf,
    count: usize,
}

impl Node {
    /// A node with `count` GPUs and as many ports, at most nine of each, in `folder`.
    pub(crate) fn below(folder: &Path, count: usize) -> Self {
        let folder = folder.to_path_buf();
        let node = Self { folder, count };
        node.host();
        for index in 0..count {
            node.gpu(index);
            node.card(index);
        }
        node.network();
        node
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.join(path)
    }

    /// Puts a file there, with the folders above it.
    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.at(path);
        let above = path.parent().expect("a file lies in a folder");
        fs::create_dir_all(above).expect("the tree takes folders");
        fs::write(path, content).expect("the tree takes files");
    }

    /// Removes a file, or a folder with all that is in it.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).expect("the tree has it");
        } else {
            fs::remove_file(path).expect("the tree has it");
        }
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.at(path);
        let above = path.parent().expect("a link lies in a folder");
        fs::create_dir_all(above).expect("the tree takes folders");
        symlink(target, path).expect("the tree takes links");
    }

    /// The switch that GPU and card `index` share.
    fn switch(index: usize) -> String {
        let bus = index + 1;
        format!("devices/pci0000:{bus}0/0000:{bus}0:01.0/0000:{bus}1:00.0")
    }

    fn host(&self) {
        self.write("proc/sys/kernel/hostname", "gpu-0\n");
        self.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        self.write("proc/uptime", "100000.00 1000000.00\n");
        self.write(
            "proc/meminfo",
            "MemTotal:       2113548312 kB\nMemFree:        1900000000 kB\nMemAvailable:   2000000000 kB\n",
        );
        self.write("sys/devices/system/cpu/online", "0-191\n");
        self.write(
            "proc/self/status",
            "Name:\ttrainyard\nCapEff:\t0000000000004000\nCpus_allowed_list:\t0-95,96-191\n",
        );
        self.write(
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max open files            1048576              1048576              files     \n\
             Max locked memory         unlimited            unlimited            bytes     \n",
        );
        self.write("proc/self/cgroup", "0::/kubepods/pod1\n");
        let group = "sys/fs/cgroup/kubepods/pod1";
        self.write(&format!("{group}/cpu.max"), "18000000 100000\n");
        self.write(
            &format!("{group}/cpu.stat"),
            "usage_usec 10\nnr_periods 5000\nnr_throttled 2\nthrottled_usec 40\n",
        );
        self.write(&format!("{group}/memory.max"), "1099511627776\n");
        self.write("sys/fs/cgroup/kubepods/cpu.max", "max 100000\n");
        self.write("sys/fs/cgroup/kubepods/memory.max", "max\n");
        self.write(
            "proc/self/mounts",
            "overlay / overlay rw 0 0\ntmpfs /dev tmpfs rw,size=65536k 0 0\n\
             tmpfs /dev/shm tmpfs rw,nosuid,size=67108864k 0 0\n",
        );
        for module in ["ib_uverbs", "nvidia_peermem", "gdrdrv", "nvidia", "mlx5_ib"] {
            self.write(&format!("sys/module/{module}/refcnt"), "1\n");
        }
        self.write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n\
             GCC version:  gcc version 12.3.0\n",
        );
        self.write("usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5", "");
        self.link("usr/lib/x86_64-linux-gnu/libnccl.so.2", "libnccl.so.2.21.5");
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n";
        self.write(
            "proc/net/tcp",
            &format!(
                "{head}   0: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n\
                 \x20  1: 0500000A:D431 0900000A:01BB 01 00000000:00000000 00:00000000 00000000\n"
            ),
        );
        self.write(
            "proc/net/tcp6",
            &format!(
                "{head}   0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A\n"
            ),
        );
        self.write(
            "dev/kmsg",
            "6,1,100,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n",
        );
    }

    fn pci(&self, folder: &str, index: usize, vendor: &str, class: &str) {
        let numa = usize::from(index * 2 >= self.count && self.count > 1);
        let files = [
            ("vendor", vendor),
            ("class", class),
            ("numa_node", &numa.to_string()),
            ("current_link_speed", "32.0 GT/s PCIe"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
        ];
        for (name, content) in files {
            self.write(&format!("sys/{folder}/{name}"), &format!("{content}\n"));
        }
        let address = folder.rsplit('/').next().unwrap_or_default();
        self.link(
            &format!("sys/bus/pci/devices/{address}"),
            &format!("../../../{folder}"),
        );
    }

    /// The address of GPU `index`.
    fn bus(index: usize) -> String {
        format!("0000:{}3:00.0", index + 1)
    }

    fn gpu(&self, index: usize) {
        let bus = Self::bus(index);
        let folder = format!("{}/0000:{}2:00.0/{bus}", Self::switch(index), index + 1);
        self.pci(&folder, index, "0x10de", "0x030200");
        self.write(
            &format!("proc/driver/nvidia/gpus/{bus}/information"),
            &format!(
                "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 64\nBus Location: \t {bus}\nGPU Excluded:\t No\n"
            ),
        );
    }

    fn card(&self, index: usize) {
        let number = index + 1;
        let folder = format!(
            "{}/0000:{number}2:01.0/0000:{number}4:00.0",
            Self::switch(index)
        );
        self.pci(&folder, index, "0x15b3", "0x020000");
        let device = format!("{folder}/infiniband/mlx5_{index}");
        let port = format!("sys/{device}/ports/1");
        let files = [
            ("state", "4: ACTIVE"),
            ("phys_state", "5: LinkUp"),
            ("rate", "400 Gb/sec (4X NDR)"),
            ("link_layer", "Ethernet"),
            (
                "gids/0",
                &format!("fe80:0000:0000:0000:ba3f:d2ff:fe00:000{index}"),
            ),
            (
                "gids/1",
                &format!("fe80:0000:0000:0000:ba3f:d2ff:fe00:000{index}"),
            ),
            (
                "gids/2",
                &format!("0000:0000:0000:0000:0000:ffff:0a0a:0{index}05"),
            ),
            (
                "gids/3",
                &format!("0000:0000:0000:0000:0000:ffff:0a0a:0{index}05"),
            ),
            ("gids/4", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("gid_attrs/types/0", "IB/RoCE v1"),
            ("gid_attrs/types/1", "RoCE v2"),
            ("gid_attrs/types/2", "IB/RoCE v1"),
            ("gid_attrs/types/3", "RoCE v2"),
            ("counters/symbol_error", "0"),
            ("counters/link_downed", "1"),
            ("counters/port_rcv_errors", "0"),
            ("hw_counters/out_of_sequence", "7"),
        ];
        for (name, content) in files {
            self.write(&format!("{port}/{name}"), &format!("{content}\n"));
        }
        for gid in 0..4 {
            let name = format!("{port}/gid_attrs/ndevs/{gid}");
            self.write(&name, &format!("rail{index}\n"));
        }
        self.link(
            &format!("sys/{device}/device"),
            &format!("../../../0000:{number}4:00.0"),
        );
        self.link(
            &format!("sys/class/infiniband/mlx5_{index}"),
            &format!("../../{device}"),
        );
        let verbs = format!("{folder}/infiniband_verbs/uverbs{index}");
        self.write(&format!("sys/{verbs}/ibdev"), &format!("mlx5_{index}\n"));
        self.link(
            &format!("sys/class/infiniband_verbs/uverbs{index}"),
            &format!("../../{verbs}"),
        );
        self.write(&format!("dev/infiniband/uverbs{index}"), "");
        self.interface(&format!("{folder}/net/rail{index}"), "400000", "9000");
        let net = format!("sys/{folder}/net/rail{index}/device");
        self.link(&net, &format!("../../../0000:{number}4:00.0"));
    }

    fn interface(&self, folder: &str, speed: &str, mtu: &str) {
        let files = [
            ("operstate", "up"),
            ("mtu", mtu),
            ("speed", speed),
            ("statistics/rx_errors", "3"),
            ("statistics/tx_errors", "0"),
            ("statistics/rx_crc_errors", "0"),
        ];
        for (name, content) in files {
            self.write(&format!("sys/{folder}/{name}"), &format!("{content}\n"));
        }
        let name = folder.rsplit('/').next().unwrap_or_default();
        self.link(&format!("sys/class/net/{name}"), &format!("../../{folder}"));
    }

    fn network(&self) {
        self.interface("devices/virtual/net/lo", "-1", "65536");
        self.interface("devices/virtual/net/net1", "400000", "9000");
        self.write("sys/class/net/bonding_masters", "\n");
    }
}
