//! The variables of NCCL: which there are, and which there were.
//!
//! From NCCL's own sources: every name that a release from 2.3.5 to 2.30.7 reads, found by searching
//! the sources of each of them. Names that only other libraries read are marked.

use super::super::{
    Rule,
    scene::{Pod, Scene},
};
use crate::{
    finding::Fix,
    spec::{Place, nearest},
};

/// What became of a variable that NCCL no longer reads.
struct Removed {
    name: &'static str,
    /// The last release that reads it.
    last: &'static str,
    /// What to do instead.
    instead: &'static str,
}

const REMOVED: [Removed; 6] = [
    Removed {
        name: "NCCL_IB_CUDA_SUPPORT",
        last: "2.3.7",
        instead: "GPUDirect is used where it is found; `NCCL_NET_GDR_LEVEL` restricts it",
    },
    Removed {
        name: "NCCL_IB_GDR_LEVEL",
        last: "2.3.7",
        instead: "write `NCCL_NET_GDR_LEVEL`",
    },
    Removed {
        name: "NCCL_LL_THRESHOLD",
        last: "2.4.8",
        instead: "remove it: the protocol is chosen by size and topology",
    },
    Removed {
        name: "NCCL_RINGS",
        last: "2.4.8",
        instead: "remove it: rings are found from the topology; `NCCL_GRAPH_FILE` fixes them",
    },
    Removed {
        name: "NCCL_THREAD_THRESHOLD",
        last: "2.4.8",
        instead: "remove it, or write `NCCL_THREAD_THRESHOLDS`, which has another form",
    },
    Removed {
        name: "NCCL_TREE_THRESHOLD",
        last: "2.4.8",
        instead: "remove it: rings or trees are chosen by size and topology",
    },
];

/// Variables that advice on the web names and that no release has read, with what does what they are set for.
const NEVER_READ: [(&str, &str); 5] = [
    (
        "NCCL_ENABLE_IB",
        "remove it: InfiniBand is used where it is found; `NCCL_IB_DISABLE` switches it off",
    ),
    (
        "NCCL_IB_ENABLE",
        "remove it: InfiniBand is used where it is found; `NCCL_IB_DISABLE` switches it off",
    ),
    (
        "NCCL_SOCKET_TIMEOUT",
        "set the timeout in the program: `init_process_group(timeout=…)`",
    ),
    (
        "NCCL_TIMEOUT",
        "set the timeout in the program: `init_process_group(timeout=…)`",
    ),
    (
        "NCCL_USE_RDMA",
        "remove it: RDMA is used where a device is found",
    ),
];

/// Variables that still work under an old name, which the sources call legacy.
pub(super) const RENAMED: [(&str, &str); 2] = [
    ("NCCL_MAX_NRINGS", "NCCL_MAX_NCHANNELS"),
    ("NCCL_MIN_NRINGS", "NCCL_MIN_NCHANNELS"),
];

/// Variables that force a choice which NCCL makes better for each size and topology.
const TUNING: [&str; 9] = [
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MAX_NRINGS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MIN_NRINGS",
    "NCCL_NTHREADS",
    "NCCL_PROTO",
    "NCCL_THREAD_THRESHOLDS",
];

/// Variables that switch a fast path off, to find out whether it is at fault.
const SWITCHES: [&str; 4] = [
    "NCCL_CUMEM_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_NVLS_ENABLE",
];

pub(super) fn removed(rule: &Rule, scene: &Scene<'_>) {
    each(scene, |_, name, place| {
        if let Some(found) = REMOVED.iter().find(|removed| removed.name == name) {
            let message = format!("NCCL has not read `{name}` since {}", found.last);
            place.of().report_with(rule, message, found.instead);
        }
    });
}

pub(super) fn renamed(rule: &Rule, scene: &Scene<'_>) {
    each(scene, |pod, name, place| {
        if let Some((_, new)) = RENAMED.iter().find(|(old, _)| *old == name) {
            // Where both are set the new name wins, so the old one is not to become a second.
            let can = matches!(place, At::Name(_)) && !pod.has_variable(new);
            let fix = can.then(|| Fix::Scalar((*new).to_owned()));
            place.of().report_fix(
                rule,
                format!("`{name}` is the old name of `{new}`"),
                format!("write `{new}`"),
                fix,
            );
        }
    });
}

pub(super) fn unknown(rule: &Rule, scene: &Scene<'_>) {
    each(scene, |_, name, place| {
        let Some(short) = name.strip_prefix("NCCL_") else {
            return;
        };
        let known = KNOWN.binary_search(&short).is_ok()
            || REMOVED.iter().any(|removed| removed.name == name);
        if let Some((_, instead)) = NEVER_READ.iter().find(|(never, _)| *never == name) {
            let message = format!("no release of NCCL reads `{name}`");
            place.of().report_with(rule, message, *instead);
            return;
        }
        // Only a near name is reported: plugins have variables of their own.
        if let (false, Some(meant)) = (known, nearest(short, KNOWN.iter().copied())) {
            place.of().report_with(
                rule,
                format!("no release of NCCL reads `{name}`"),
                format!("did you mean `NCCL_{meant}`?"),
            );
        }
    });
}

pub(super) fn tuning(rule: &Rule, scene: &Scene<'_>) {
    // Values are tried out by measuring.
    if scene.only_measures() {
        return;
    }
    for pod in &scene.pods {
        for (name, value, place) in settings(pod).filter(|(name, _, _)| TUNING.contains(name)) {
            place.report_with(
                rule,
                format!("`{name}` is fixed to `{value}` for every size and every topology"),
                "remove it, or keep it with the measurement on this cluster that asks for it",
            );
        }
    }
}

pub(super) fn switches(rule: &Rule, scene: &Scene<'_>) {
    if scene.only_measures() {
        return;
    }
    for pod in &scene.pods {
        for (name, value, place) in settings(pod) {
            let off = if name.ends_with("_DISABLE") { "1" } else { "0" };
            if SWITCHES.contains(&name) && value == off {
                place.report_with(
                    rule,
                    format!("`{name}` is `{value}`: a fast path of NCCL is switched off"),
                    "remove it once the cause is found",
                );
            }
        }
    }
}

/// Where the name of a variable stands.
enum At<'a> {
    /// By itself, in `env`.
    Name(Place<'a>),
    /// Somewhere in the command.
    Command(Place<'a>),
}

impl<'a> At<'a> {
    fn of(&self) -> &Place<'a> {
        match self {
            Self::Name(place) | Self::Command(place) => place,
        }
    }
}

/// The variables of the training container and those that its command sets, with their values.
fn settings<'a>(pod: &Pod<'a>) -> impl Iterator<Item = (&'a str, &'a str, Place<'a>)> {
    pod.variables().chain(pod.assigned())
}

/// Calls `look` with the name and the place of every variable of every training container.
fn each<'a>(scene: &Scene<'a>, look: impl Fn(&Pod<'a>, &str, At<'a>)) {
    for pod in &scene.pods {
        let list = pod.trainer_at().key("env");
        for (index, variable) in pod.trainer.env.iter().flatten().enumerate() {
            look(pod, &variable.name, At::Name(list.index(index).key("name")));
        }
        for (name, _, place) in pod.assigned() {
            look(pod, name, At::Command(place));
        }
    }
}

/// Without `NCCL_`. `ASYNC_ERROR_HANDLING`, `BLOCKING_WAIT` and `DESYNC_DEBUG` are `PyTorch`'s, `HOME`
/// and `VERSION` are of the images, `TUNER_CONFIG_PATH` is of a plugin.
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "AGG_ALLOC_MODE", "AGG_CHANNEL_SIZE", "ALGO", "ALLGATHERV_ENABLE", "ALLOC_P2P_NET_LL_BUFFERS",
    "ASYNC_ERROR_HANDLING", "BLOCKING_WAIT", "BUFFSIZE", "CGA_CLUSTER_SIZE", "CHECK_MODE",
    "CHECK_POINTERS", "CHUNK_SIZE", "COLLNET_ENABLE", "COLLNET_NODE_THRESHOLD", "COMM_BLOCKING",
    "COMM_ID", "COMM_SHRINK_SHARE_RESOURCES", "COMM_SPLIT_SHARE_RESOURCES", "CONF_FILE",
    "CONNECT_ROUND_MAX_PEERS", "CREATE_THREAD_CONTEXT", "CROSS_NIC", "CTA_POLICY", "CUDA_PATH",
    "CUMEM_ENABLE", "CUMEM_HOST_ENABLE", "DEBUG", "DEBUG_FILE", "DEBUG_SUBSYS",
    "DEBUG_TIMESTAMP_FORMAT", "DEBUG_TIMESTAMP_LEVELS", "DESYNC_DEBUG", "DEV_API_JIT",
    "DISABLE_MEM_MANAGER", "DMABUF_ENABLE", "ELASTIC_BUFFER_REGISTER", "ENABLE_VERSION_CHECK",
    "ENV_PLUGIN", "GDAKI_USE_RELIABLE_DB", "GDRCOPY_ENABLE", "GDRCOPY_FIFO_ENABLE",
    "GDRCOPY_FLUSH_ENABLE", "GDRCOPY_SYNC_ENABLE", "GDRCOPY_TAIL_ENABLE", "GDR_FLUSH_DISABLE",
    "GIN_CONNECTION_RAIL", "GIN_COUNTER_POOL_SIZE", "GIN_ENABLE", "GIN_ERROR_QUERY_SEC",
    "GIN_EXCLUSIVE_CONTEXTS", "GIN_GDAKI_MAX_DEST_RD_ATOMIC", "GIN_GDAKI_MAX_QP_RD_ATOMIC",
    "GIN_GDAKI_NIC_HANDLER", "GIN_GDAKI_QP_DEPTH", "GIN_IB_TC", "GIN_NCONNECTIONS",
    "GIN_NCONTEXTS", "GIN_PLUGIN", "GIN_PLUGIN_REF_COUNT", "GIN_PROXY_QUEUE_SIZE",
    "GIN_SIGNAL_POOL_SIZE", "GIN_TYPE", "GRAPH_DUMP_FILE", "GRAPH_DUMP_FILE_RANK", "GRAPH_FILE",
    "GRAPH_HELPER_DISABLE", "GRAPH_MIXING_SUPPORT", "GRAPH_REGISTER", "GRAPH_STREAM_ORDERING",
    "GROUP_CUDA_STREAM", "HOME", "HOSTID", "IBVERBS_LIB", "IB_ADAPTIVE_ROUTING", "IB_ADDR_FAMILY",
    "IB_ADDR_RANGE", "IB_AR_THRESHOLD", "IB_DATA_DIRECT", "IB_DEVICE_PCI_ORDER", "IB_DISABLE",
    "IB_ECE_ENABLE", "IB_FIFO_TC", "IB_GID_INDEX", "IB_HCA", "IB_MERGE_NICS", "IB_MERGE_VFS",
    "IB_MQP_RETRY_ALL", "IB_MQP_RETRY_CNT", "IB_MQP_RETRY_SLEEP_MSEC", "IB_OOO_RQ",
    "IB_PCI_RELAXED_ORDERING", "IB_PKEY", "IB_PREPOST_RECEIVE_WORK_REQUESTS",
    "IB_QPS_PER_CONNECTION", "IB_QUERY_PORT_SPEED", "IB_RECEIVER_SIDE_MATCHING_SCHEME",
    "IB_RESILIENCY_PORT_FAILOVER", "IB_RESILIENCY_PORT_FAILOVER_MAX_ATTEMPTS",
    "IB_RESILIENCY_PORT_FAILOVER_PROBE_DELAY", "IB_RESILIENCY_PORT_RECOVERY",
    "IB_RESILIENCY_PORT_RECOVERY_ACK_TIMEOUT",
    "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_INTERVAL",
    "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_BATCH_SIZE",
    "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_SEQUENCE_SIZE",
    "IB_RESILIENCY_PORT_RECOVERY_ALIVE_MSG_TIMEOUT", "IB_RESILIENCY_PORT_RECOVERY_ATTEMPTS_MAX",
    "IB_RESILIENCY_PORT_RECOVERY_START_DELAY", "IB_RETRY_CNT", "IB_RETURN_ASYNC_EVENTS",
    "IB_ROCE_VERSION_NUM", "IB_ROUTABLE_FLID_GID_INDEX", "IB_SL", "IB_SPLIT_DATA_ON_QPS",
    "IB_SUBNET_AWARE_ROUTING", "IB_SUBNET_PREFIX_LEN", "IB_TC", "IB_TIMEOUT", "IB_USE_INLINE",
    "IB_WARN_RAIL_LOCAL", "IGNORE_COLLNET_MISMATCH", "IGNORE_CPU_AFFINITY", "IGNORE_DISABLED_P2P",
    "IGNORE_NET_MISMATCH", "IPC_USE_ABSTRACT_SOCKET", "L1_SHARED_MEMORY_CARVEOUT", "LAUNCH_MODE",
    "LAUNCH_ORDER_IMPLICIT", "LAUNCH_RACE_FATAL", "LEGACY_CUDA_REGISTER", "LL128_BUFFSIZE",
    "LL128_C2C", "LL128_NTHREADS", "LL_BUFFSIZE", "LOCAL_REGISTER", "LSA_TEAM_SIZE", "MAX_CTAS",
    "MAX_NCHANNELS", "MAX_NRINGS", "MAX_P2P_NCHANNELS", "MEM_SYNC_DOMAIN", "MIN_CTAS",
    "MIN_NCHANNELS", "MIN_NRINGS", "MIN_P2P_NCHANNELS", "MLOPART_RDMA_ENABLE", "MNNVL",
    "MNNVL_CLIQUE_ID", "MNNVL_CROSS_CLIQUE", "MNNVL_ENABLE", "MNNVL_RAIL_PER_HOST",
    "MNNVL_SCATTER_NETS_ENABLE", "MNNVL_UUID", "MULTI_RANK_GPU_ENABLE", "MULTI_SEGMENT_REGISTER",
    "NCHANNELS_PER_NET_PEER", "NET", "NETDEVS_POLICY", "NET_DISABLE_INTRA", "NET_FORCE_FLUSH",
    "NET_FORCE_MERGE", "NET_GDR_C2C", "NET_GDR_LEVEL", "NET_GDR_MLOPART", "NET_GDR_READ",
    "NET_MERGE_LEVEL", "NET_MERGE_POLICY", "NET_OPTIONAL_RECV_COMPLETION", "NET_OVERHEAD",
    "NET_PLUGIN", "NET_PLUGIN_REF_COUNT", "NET_SHARED_BUFFERS", "NET_SHARED_COMMS", "NO_CACHE",
    "NSOCKS_PERTHREAD", "NTHREADS", "NUM_RMA_CTX", "NVB_DISABLE", "NVB_PRECONNECT",
    "NVLINK_UTIL_CENTRIC_SCHED_ENABLE", "NVLSTREE_MAX_CHUNKSIZE", "NVLS_CHUNKSIZE", "NVLS_ENABLE",
    "NVLS_NCHANNELS", "NVTX_DISABLE", "OOB_NET_ENABLE", "OOB_NET_IFNAME", "P2P_DIRECT_DISABLE",
    "P2P_DISABLE", "P2P_EPOCH_ENABLE", "P2P_LEVEL", "P2P_LL_THRESHOLD", "P2P_MAX_PEERS",
    "P2P_NET_CHUNKSIZE", "P2P_NVL_CHUNKSIZE", "P2P_PCI_CHUNKSIZE", "P2P_PER_CHANNEL_NET_BW",
    "P2P_PXN_LEVEL", "P2P_READ_ENABLE", "P2P_SCHEDULE_GROUP_SIZE", "P2P_USE_CUDA_MEMCPY",
    "PARAM_DUMP_ALL", "PAT_ENABLE", "PROFILER_PLUGIN", "PROGRESS_APPENDOP_FREQ", "PROTO",
    "PROXY_APPEND_BATCH_SIZE", "PROXY_CPUSET", "PROXY_DUMP_SIGNAL", "PROXY_PROFILE", "PXN_C2C",
    "PXN_DISABLE", "RAS_ADDR", "RAS_ENABLE", "RAS_TIMEOUT_FACTOR", "REPORT_CONNECT_PROGRESS",
    "RMA_DISABLE", "RMA_PLUGIN", "RMA_PLUGIN_REF_COUNT", "RMA_PROXY_DUMP_SIGNAL",
    "RMA_PROXY_QUEUE_SIZE", "RUNTIME_CONNECT", "SET_CPU_STACK_SIZE", "SET_STACK_SIZE",
    "SET_THREAD_NAME", "SHADOW_MEMPOOL_MAX_SIZE", "SHARED_BUFF_COUNT", "SHM_DISABLE",
    "SHM_LOCALITY", "SHM_MEMCPY_MODE", "SHM_USE_CUDA_MEMCPY", "SINGLE_PROC_MEM_REG_ENABLE",
    "SOCKET_FAMILY", "SOCKET_IFNAME", "SOCKET_INLINE", "SOCKET_MIN_TASKSIZE", "SOCKET_NTHREADS",
    "SOCKET_POLL_TIMEOUT_MSEC", "SOCKET_RCVBUF", "SOCKET_RETRY_CNT", "SOCKET_RETRY_SLEEP_MSEC",
    "SOCKET_SNDBUF", "SYM_CE_THRESHOLD", "SYM_CTAS", "SYM_GIN_KERNELS_ENABLE", "SYM_KERNEL",
    "SYM_NOWIN_ENABLE", "SYM_REUSE_SYSMEM_HANDLES", "SYM_RS_GIN_CHUNK_SIZE", "SYM_TMA_ENABLE",
    "THREAD_THRESHOLDS", "TOPO_DUMP_FILE", "TOPO_DUMP_FILE_RANK", "TOPO_FILE",
    "TOPO_SPLIT_MLOPART", "TUNER_CONFIG_PATH", "TUNER_PLUGIN", "UID_STAGGER_RATE",
    "UID_STAGGER_THRESHOLD", "UNPACK_DOUBLE_NCHANNELS", "VERSION", "WARN_ENABLE_DEBUG_INFO",
    "WIN_ENABLE", "WIN_STRIDE", "WORK_ARGS_BYTES", "WORK_FIFO_BYTES", "WORK_FIFO_DEPTH",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_for_the_search() {
        assert!(KNOWN.is_sorted());
        for name in TUNING.iter().chain(&SWITCHES) {
            let short = name.strip_prefix("NCCL_").unwrap();
            assert!(KNOWN.contains(&short), "{name}");
        }
    }
}
