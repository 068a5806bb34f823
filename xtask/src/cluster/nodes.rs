//! Two real nodes, `node-a` and `node-b`: pods are processes with addresses of their own.
//!
//! Each has its own containerd, kubelet, control group, bridge and subnet, and the ports that a
//! kubelet has anywhere, on an address of its own. Between the subnets the namespace forwards.
//! A name server answers for Services; those with an address of their own have no proxy, so only
//! the API server's and the name server's answer there, which are given to the namespace itself.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    Cluster, cgroups, control_plane, image, piece, piece::Piece, simulated, state::State, wait,
};
use crate::{Failure, cache::cannot, step};

/// The address of the name server, by custom the tenth of the Services.
pub(super) const NAME_SERVER: &str = "10.96.0.10";
/// Seen: 6 s on two idle cores.
const LIMIT: Duration = Duration::from_mins(3);

/// One real node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) address: &'static str,
    subnet: &'static str,
    bridge: &'static str,
    pub(super) containerd: &'static str,
    kubelet: &'static str,
}

pub(super) const NODES: [Node; 2] = [
    Node {
        name: "node-a",
        address: "10.89.0.11",
        subnet: "10.88.1.0/24",
        bridge: "bridge-a",
        containerd: "containerd-a",
        kubelet: "kubelet-a",
    },
    Node {
        name: "node-b",
        address: "10.89.0.12",
        subnet: "10.88.2.0/24",
        bridge: "bridge-b",
        containerd: "containerd-b",
        kubelet: "kubelet-b",
    },
];

/// What the programs write to paths that no option changes goes to memory: the links
/// to logs of the kubelet, and what the plugins of the network remember.
const PREPARE: &str = "
set -eu
[ ! -e /run/trainyard/prepared ] || exit 0
mkdir -p /run/trainyard/upper /run/trainyard/work
mount -t tmpfs tmpfs /var/log
mount -t overlay -o lowerdir=/var/lib,upperdir=/run/trainyard/upper,workdir=/run/trainyard/work \
  overlay /var/lib
: >/run/trainyard/prepared
";

/// Starts what does not run, and waits until both nodes are ready.
pub(super) fn up(cluster: &Cluster) -> Result<(), Failure> {
    let mut prepare = cluster.namespaces.command(Path::new("/"), "sh");
    step::run(prepare.args(["-c", PREPARE]))?;
    for node in &NODES {
        cgroups::make(&cluster.state, node.name)?;
        node.containerd(&cluster.state)?.start(cluster)?;
    }
    name_server(cluster)?;
    for node in &NODES {
        node.kubelet(cluster)?.start(cluster)?;
    }
    image::base(cluster)?;
    await_ready(cluster)
}

/// Waits until both nodes are ready.
pub(super) fn await_ready(cluster: &Cluster) -> Result<(), Failure> {
    wait::until("the real nodes to be ready", LIMIT, || {
        for node in &NODES {
            piece::must_run(cluster, node.containerd)?;
            piece::must_run(cluster, node.kubelet)?;
        }
        piece::must_run(cluster, "dns")?;
        let seen = node_readiness(cluster);
        Ok(NODES
            .iter()
            .all(|node| seen.contains(&(node.name.to_owned(), true))))
    })
}

/// Every node that the API server knows, real or simulated, and whether it is ready.
pub(super) fn node_readiness(cluster: &Cluster) -> Vec<(String, bool)> {
    let template = "{range .items[*]}{.metadata.name}{\" \"}\
                    {.status.conditions[?(@.type==\"Ready\")].status}{\"\\n\"}{end}";
    let output = cluster
        .command("kubectl")
        .args(["get", "nodes", "--request-timeout=5s"])
        .arg(format!("--output=jsonpath={template}"))
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, status)| (name.to_owned(), status == "True"))
        .collect()
}

/// The node that the piece is the kubelet of.
pub(super) fn of_kubelet(piece: &str) -> Option<&'static Node> {
    NODES.iter().find(|node| node.kubelet == piece)
}

impl Node {
    /// The socket of its containerd, in memory of the namespace: paths of sockets must be short.
    fn socket(&self) -> PathBuf {
        PathBuf::from(format!("/run/trainyard/{}/containerd.sock", self.name))
    }

    /// A call of its containerd.
    fn call(&self, cluster: &Cluster) -> Command {
        let mut command = cluster.command("ctr");
        command
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io"]);
        command
    }

    /// The network of its pods.
    fn bridge_config(&self) -> String {
        let name = self.name;
        format!(
            r#"{{
  "cniVersion": "1.0.0",
  "name": "{name}",
  "plugins": [{{
    "type": "bridge",
    "bridge": "{bridge}",
    "isGateway": true,
    "hairpinMode": true,
    "ipam": {{
      "type": "host-local",
      "dataDir": "/run/trainyard/{name}/addresses",
      "ranges": [[{{ "subnet": "{subnet}" }}]],
      "routes": [{{ "dst": "0.0.0.0/0" }}]
    }}
  }}]
}}
"#,
            bridge = self.bridge,
            subnet = self.subnet
        )
    }

    /// Puts Multus in front of that network; whether it was not there before. Of the files of the folder
    /// the first by name counts.
    pub(super) fn write_multus(&self, state: &State) -> Result<bool, Failure> {
        let name = self.name;
        let file = format!("{name}/cni/00-multus.conf");
        if state.file(&file).exists() {
            return Ok(false);
        }
        state.write(
            &file,
            &format!(
                r#"{{
  "cniVersion": "1.0.0",
  "name": "{name}-multus",
  "type": "multus",
  "kubeconfig": "{kubeconfig}",
  "binDir": "{bin}",
  "cniDir": "/run/trainyard/{name}/multus",
  "confDir": "{folder}",
  "delegates": [{bridge}]
}}
"#,
                kubeconfig = state.text("kubeconfig"),
                bin = state.text("bin"),
                folder = state.text(&format!("{name}/cni")),
                bridge = self.bridge_config(),
            ),
        )?;
        Ok(true)
    }

    fn containerd(&self, state: &State) -> Result<Piece, Failure> {
        let name = self.name;
        state.write(
            &format!("{name}/cni/bridge.conflist"),
            &self.bridge_config(),
        )?;
        let path = state.write(
            &format!("{name}/containerd.toml"),
            &format!(
                r#"version = 3
root = "{root}"
state = "/run/trainyard/{name}/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{socket}"

[ttrpc]
address = "{socket}.ttrpc"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
# Root of a container may not protect more than it is protected itself.
restrict_oom_score_adj = true
disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{bin}"]
conf_dir = "{cni}"
use_internal_loopback = true
"#,
                root = state.text(&format!("{name}/containerd")),
                socket = self.socket().display(),
                pause = image::PAUSE,
                runc = state.program("runc").display(),
                bin = state.text("bin"),
                cni = state.text(&format!("{name}/cni")),
            ),
        )?;
        Ok(Piece::new(self.containerd, "containerd").with(format!("--config={}", path.display())))
    }

    fn kubelet(&self, cluster: &Cluster) -> Result<Piece, Failure> {
        let (state, name) = (&cluster.state, self.name);
        let config = control_plane::client_config(cluster, name)?;
        let path = state.write(
            &format!("{name}/kubelet.yaml"),
            &format!(
                r#"apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: {address}
healthzBindAddress: {address}
authentication: {{ anonymous: {{ enabled: true }}, webhook: {{ enabled: false }} }}
authorization: {{ mode: AlwaysAllow }}
containerRuntimeEndpoint: unix://{socket}
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {{ memory.available: 100Mi }}
# No registry could provide a deleted image again.
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
clusterDNS: ["{NAME_SERVER}"]
clusterDomain: cluster.local
resolvConf: ""
podLogsDir: {logs}
volumePluginDir: {plugins}
"#,
                address = self.address,
                socket = self.socket().display(),
                cgroup = cgroups::path(state, name),
                logs = state.text(&format!("{name}/pod-logs")),
                plugins = state.text(&format!("{name}/plugins")),
            ),
        )?;
        Ok(Piece::new(self.kubelet, "kubelet")
            .with(format!("--config={}", path.display()))
            .with(format!("--kubeconfig={config}"))
            .with(format!("--hostname-override={name}"))
            .with(format!("--node-ip={}", self.address))
            .with(format!("--node-labels={}=real", simulated::KIND))
            .with(format!(
                "--root-dir={}",
                state.text(&format!("{name}/kubelet"))
            ))
            .with(format!(
                "--cert-dir={}",
                state.text(&format!("{name}/keys"))
            )))
    }
}

/// Starts the name server of the Services.
fn name_server(cluster: &Cluster) -> Result<(), Failure> {
    let rights = cluster.state.write(
        "config/dns-rights.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRole\n\
         metadata: { name: trainyard-dns }\n\
         rules:\n\
         - { apiGroups: [\"\"], resources: [namespaces, pods, services], verbs: [list, watch] }\n\
         - { apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch] }\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRoleBinding\n\
         metadata: { name: trainyard-dns }\n\
         roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainyard-dns }\n\
         subjects: [{ kind: User, apiGroup: rbac.authorization.k8s.io, name: \"trainyard:dns\" }]\n",
    )?;
    cluster.kubectl(&["apply", &format!("--filename={}", rights.display())])?;
    let client = control_plane::client_config(cluster, "dns")?;
    let config = cluster.state.write(
        "config/dns",
        &format!(
            ".:53 {{\n    errors\n    ready 127.0.0.1:8181\n    \
             kubernetes cluster.local in-addr.arpa {{\n        kubeconfig {client}\n        \
             pods disabled\n    }}\n}}\n"
        ),
    )?;
    Piece::new("dns", "coredns")
        .with("-quiet")
        .with("-conf")
        .with(config.display().to_string())
        .start(cluster)
}

/// Imports an image into both nodes.
pub(super) fn import(cluster: &Cluster, archive: &Path) -> Result<(), Failure> {
    for node in &NODES {
        wait::until(&format!("`{}` to answer", node.containerd), LIMIT, || {
            piece::must_run(cluster, node.containerd)?;
            Ok(node
                .call(cluster)
                .arg("version")
                .output()
                .is_ok_and(|output| output.status.success()))
        })?;
        let output = node
            .call(cluster)
            .args(["images", "import", "--local"])
            .arg(archive)
            .output()
            .map_err(cannot("import", archive))?;
        if !output.status.success() {
            return Err(Failure::Failed(format!(
                "cannot import `{}` into `{}`: {}",
                archive.display(),
                node.name,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
    }
    Ok(())
}
