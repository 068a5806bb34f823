//! etcd, the API server, the controller manager and the scheduler.
//!
//! They use the ports and addresses that they would have in a cluster of their own, since the
//! network is theirs alone. The API server answers on the first address of the Services and on the
//! port that Services give it, so pods reach it by its Service without a proxy.
//!
//! Invariant: every identity has a token of its own that no message shows, in files that only
//! their owner can read; permissions are those of RBAC.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::Read as _,
    path::Path,
    time::Duration,
};

use super::{Cluster, piece, piece::Piece, simulated, wait};
use crate::{Failure, cache::cannot};

/// The address of the control plane and of the node that would run it.
pub(super) const ADDRESS: &str = "10.89.0.1";
/// The first address of the Services: the API server's own.
pub(super) const SERVICE_ADDRESS: &str = "10.96.0.1";
const SERVICES: &str = "10.96.0.0/16";
const ETCD: &str = "http://127.0.0.1:2379";

/// Seen: 6 s on two idle cores.
const LIMIT: Duration = Duration::from_mins(3);
/// How often the controller manager and the scheduler are started again before `up` gives up.
const RESTARTS: u32 = 3;

/// Who may talk to the API server: a name for files, the user, and its groups.
const IDENTITIES: &[(&str, &str, &str)] = &[
    ("admin", "trainyard:admin", "system:masters"),
    (
        "kube-controller-manager",
        "system:kube-controller-manager",
        "",
    ),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kwok", "trainyard:kwok", "system:masters"),
    ("dns", "trainyard:dns", ""),
    ("node-a", "system:node:node-a", "system:nodes"),
    ("node-b", "system:node:node-b", "system:nodes"),
];

/// Starts what does not run, and waits until all of it is ready.
pub(super) fn up(cluster: &Cluster, simulated: usize) -> Result<(), Failure> {
    write_keys(cluster)?;
    etcd(cluster).start(cluster)?;
    api_server(cluster).start(cluster)?;
    // The others read these where they start.
    wait::until("the keys of the API server", LIMIT, || {
        piece::must_run(cluster, "kube-apiserver")?;
        Ok(["keys/apiserver.crt", "keys/apiserver.key"]
            .iter()
            .all(|file| {
                fs::read_to_string(cluster.state.file(file))
                    .is_ok_and(|text| text.contains("-----END "))
            }))
    })?;
    // The controller manager gives up after ten seconds of an API server that has not yet made the
    // roles of RBAC, so it and the scheduler start where that has answered.
    ready(cluster, "kube-apiserver")?;
    for piece in [controller_manager(cluster, simulated)?, scheduler(cluster)?] {
        piece.start(cluster)?;
    }
    for name in ["kube-controller-manager", "kube-scheduler"] {
        ready(cluster, name)?;
    }
    // Pods are refused before their account is there, which the controller manager makes.
    wait::until("the account of the default namespace", LIMIT, || {
        Ok(cluster.kubectl_succeeds(&["get", "serviceaccount", "default"]))
    })
}

/// Waits until a piece is ready. One of the two clients that ended meanwhile is started again, as a
/// kubelet would, a bounded number of times: they leave where the API server does not answer in time.
fn ready(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let mut starts_left = match name {
        "kube-apiserver" => 0,
        _ => RESTARTS,
    };
    wait::until(&format!("`{name}` to be ready"), LIMIT, || {
        for server in ["etcd", "kube-apiserver"] {
            piece::must_run(cluster, server)?;
        }
        match piece::must_run(cluster, name) {
            Ok(()) => Ok(is_ready(cluster, name)),
            Err(_) if starts_left > 0 => {
                starts_left -= 1;
                piece::start(cluster, name)?;
                Ok(false)
            }
            Err(ended) => Err(ended),
        }
    })
}

/// Where each piece reports that it is ready, in the order in which they start.
const PROBES: &[(&str, &str, &str)] = &[
    ("kube-apiserver", "127.0.0.1:443", "/readyz"),
    ("kube-controller-manager", "127.0.0.1:10257", "/healthz"),
    ("kube-scheduler", "127.0.0.1:10259", "/readyz"),
];

/// Whether a piece reports that it is ready; one without a probe is ready as soon as it runs.
pub(super) fn is_ready(cluster: &Cluster, piece: &str) -> bool {
    let Some((_, server, path)) = PROBES.iter().find(|(name, ..)| *name == piece) else {
        return true;
    };
    cluster.kubectl_succeeds(&[
        "--kubeconfig=/dev/null",
        &format!("--server=https://{server}"),
        "--insecure-skip-tls-verify",
        // Anyone may ask, but `kubectl` asks for a name if it has none.
        "--username=anyone",
        "--password=none",
        "--request-timeout=5s",
        "get",
        &format!("--raw={path}"),
    ])
}

fn etcd(cluster: &Cluster) -> Piece {
    Piece::new("etcd", "etcd")
        .with(format!("--data-dir={}", cluster.state.text("etcd")))
        .with(format!("--listen-client-urls={ETCD}"))
        .with(format!("--advertise-client-urls={ETCD}"))
        .with("--listen-peer-urls=http://127.0.0.1:2380")
        .with("--log-level=warn")
        // Enough for the objects of ten thousand jobs and their history.
        .with("--quota-backend-bytes=8589934592")
        // Nothing of a test cluster outlives the machine's last crash.
        .with("--unsafe-no-fsync")
}

fn api_server(cluster: &Cluster) -> Piece {
    let state = &cluster.state;
    Piece::new("kube-apiserver", "kube-apiserver")
        .with(format!("--etcd-servers={ETCD}"))
        .with("--bind-address=0.0.0.0")
        .with(format!("--advertise-address={ADDRESS}"))
        .with("--secure-port=443")
        .with(format!("--cert-dir={}", state.text("keys")))
        .with(format!("--service-cluster-ip-range={SERVICES}"))
        .with("--service-account-issuer=https://kubernetes.default.svc")
        // It makes this pair for its certificate before it reads it as the key of tokens.
        .with(format!(
            "--service-account-key-file={}",
            state.text("keys/apiserver.crt")
        ))
        .with(format!(
            "--service-account-signing-key-file={}",
            state.text("keys/apiserver.key")
        ))
        .with(format!("--token-auth-file={}", state.text("keys/tokens")))
        .with("--authorization-mode=Node,RBAC")
        .with("--enable-admission-plugins=NodeRestriction")
        .with("--kubelet-preferred-address-types=InternalIP")
        // Webhooks that name a Service are called at its endpoints: no proxy serves its address.
        .with("--enable-aggregator-routing=true")
        .with("--allow-privileged=true")
        // Kubernetes' own API for gangs, which nobody serves by default yet.
        .with("--feature-gates=GenericWorkload=true")
        .with("--runtime-config=scheduling.k8s.io/v1alpha1=true")
}

fn controller_manager(cluster: &Cluster, simulated: usize) -> Result<Piece, Failure> {
    let state = &cluster.state;
    let config = client_config(cluster, "kube-controller-manager")?;
    Ok(
        Piece::new("kube-controller-manager", "kube-controller-manager")
            .with(format!("--kubeconfig={config}"))
            .with("--bind-address=127.0.0.1")
            .with(format!(
                "--cert-dir={}",
                state.text("keys/controller-manager")
            ))
            .with("--leader-elect=false")
            // Longer than a lease lasts; 50 s by default.
            .with(format!(
                "--node-monitor-grace-period={}s",
                simulated::lease_seconds(simulated) + 10
            ))
            // Tests wait for it; it looks every 15 s otherwise.
            .with("--horizontal-pod-autoscaler-sync-period=2s")
            .with("--use-service-account-credentials=true")
            .with(format!(
                "--service-account-private-key-file={}",
                state.text("keys/apiserver.key")
            ))
            .with(format!(
                "--root-ca-file={}",
                state.text("keys/apiserver.crt")
            ))
            // Its default of 20 requests a second would be what is measured.
            .with("--kube-api-qps=1000")
            .with("--kube-api-burst=2000"),
    )
}

fn scheduler(cluster: &Cluster) -> Result<Piece, Failure> {
    let config = client_config(cluster, "kube-scheduler")?;
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\n\
         kind: KubeSchedulerConfiguration\n\
         clientConnection:\n  kubeconfig: {config}\n  qps: 1000\n  burst: 2000\n\
         leaderElection:\n  leaderElect: false\n"
    );
    let path = cluster.state.write("config/scheduler.yaml", &text)?;
    Ok(Piece::new("kube-scheduler", "kube-scheduler")
        .with(format!("--config={}", path.display()))
        .with("--bind-address=127.0.0.1")
        .with("--feature-gates=GenericWorkload=true,GangScheduling=true")
        .with(format!(
            "--cert-dir={}",
            cluster.state.text("keys/scheduler")
        )))
}

/// Writes the tokens of all identities and the admin's configuration, unless they are there.
fn write_keys(cluster: &Cluster) -> Result<(), Failure> {
    if cluster.state.file("keys/tokens").is_file() {
        return Ok(());
    }
    let mut lines = String::new();
    for (name, user, groups) in IDENTITIES {
        let token = random_token()?;
        cluster.state.write(&format!("keys/token-{name}"), &token)?;
        writeln!(lines, "{token},{user},{name},\"{groups}\"")
            .expect("a string takes whatever is written");
    }
    let admin = configuration(cluster, "admin", &token_of(cluster, "admin")?);
    cluster.state.write("kubeconfig", &admin)?;
    // Last, since it says that all of them are there.
    cluster.state.write("keys/tokens", &lines)?;
    Ok(())
}

/// Writes how `identity` reaches the API server, and says where.
pub(super) fn client_config(cluster: &Cluster, identity: &str) -> Result<String, Failure> {
    let text = configuration(cluster, identity, &token_of(cluster, identity)?);
    let path = cluster
        .state
        .write(&format!("keys/{identity}.kubeconfig"), &text)?;
    Ok(path.display().to_string())
}

fn configuration(cluster: &Cluster, identity: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         current-context: trainyard\n\
         clusters:\n\
         - name: trainyard\n  cluster:\n    server: https://{ADDRESS}:443\n    \
         certificate-authority: {}\n\
         users:\n\
         - name: {identity}\n  user:\n    token: {token}\n\
         contexts:\n\
         - name: trainyard\n  context:\n    cluster: trainyard\n    user: {identity}\n",
        cluster.state.text("keys/apiserver.crt"),
    )
}

fn token_of(cluster: &Cluster, identity: &str) -> Result<String, Failure> {
    let path = cluster.state.file(&format!("keys/token-{identity}"));
    fs::read_to_string(&path).map_err(cannot("read", &path))
}

fn random_token() -> Result<String, Failure> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0_u8; 16];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(cannot("read", path))?;
    let mut token = String::new();
    for byte in bytes {
        write!(token, "{byte:02x}").expect("a string takes whatever is written");
    }
    Ok(token)
}
