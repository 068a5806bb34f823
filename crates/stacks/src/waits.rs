//! What the innermost calls of a thread wait in: the other ranks, data, storage, a timer.
//!
//! Two sources are read together. The stack names the library; but a call into C has no frame, so for a plain `time.sleep(60)`
//! only the kernel knows, and the state of the thread decides.
//!
//! Only calls inside of the user's innermost own frame count: a data loader that calls the user's code does not wait in a queue.
//! A library whose calls are C alone (mpi4py) shows no frame of its own, and its wait is [`Wait::Unknown`].

use crate::{
    Frame,
    digest::Origin,
    process::{State, Task},
};

/// What a thread waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// A collective or a rendezvous: the other ranks.
    Collective {
        /// Whose collective, such as `torch.distributed`.
        library: &'static str,
    },
    /// A backward pass or a wait for the device. Gradients are exchanged inside of it, so the thread may wait for other ranks.
    Device {
        /// Whose, such as `torch`.
        library: &'static str,
    },
    /// The queue of a data loader.
    DataLoader {
        /// Whose, such as `torch`.
        library: &'static str,
    },
    /// Files, sockets or another process.
    Io,
    /// A timer.
    Sleep,
    /// A lock, a queue or another thread.
    Lock,
    /// A signal has stopped it.
    Stopped,
    /// It runs.
    Running,
    /// None of these is known.
    Unknown,
}

/// A rule: a call in a file whose path ends so, or lies below such a folder, in one of these functions (any, if empty).
struct Rule {
    place: &'static str,
    functions: &'static [&'static str],
    wait: Wait,
}

const fn rule(place: &'static str, functions: &'static [&'static str], wait: Wait) -> Rule {
    Rule {
        place,
        functions,
        wait,
    }
}

const TORCH: Wait = Wait::Collective {
    library: "torch.distributed",
};
const HOROVOD: Wait = Wait::Collective { library: "horovod" };
const MPI4PY: Wait = Wait::Collective { library: "mpi4py" };
const JAX: Wait = Wait::Collective { library: "jax" };
const TENSORFLOW: Wait = Wait::Collective {
    library: "tensorflow",
};
const PADDLE: Wait = Wait::Collective { library: "paddle" };
const DEEPSPEED: Wait = Wait::Collective {
    library: "deepspeed",
};
const XGBOOST: Wait = Wait::Collective { library: "xgboost" };
const TORCH_DEVICE: Wait = Wait::Device { library: "torch" };
const JAX_DEVICE: Wait = Wait::Device { library: "jax" };
const TORCH_DATA: Wait = Wait::DataLoader { library: "torch" };
const TENSORFLOW_DATA: Wait = Wait::DataLoader {
    library: "tensorflow",
};

/// The first rule that a call meets decides, calls from the innermost outwards. A folder ends in `/`.
const RULES: &[Rule] = &[
    rule("torch/distributed/distributed_c10d.py", &[], TORCH),
    rule("torch/distributed/c10d_logger.py", &[], TORCH),
    rule("torch/distributed/_functional_collectives.py", &[], TORCH),
    rule("torch/distributed/nn/functional.py", &[], TORCH),
    rule("torch/distributed/rendezvous.py", &[], TORCH),
    rule("torch/distributed/device_mesh.py", &[], TORCH),
    rule("torch/distributed/elastic/utils/store.py", &[], TORCH),
    rule(
        "torch/distributed/utils.py",
        &["_sync_module_states", "_sync_params_and_buffers"],
        TORCH,
    ),
    rule(
        "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
        &[],
        TORCH,
    ),
    rule(
        "torch/nn/parallel/distributed.py",
        &[
            "_sync_buffers",
            "_sync_module_states",
            "_distributed_broadcast_coalesced",
        ],
        TORCH,
    ),
    rule("deepspeed/comm/comm.py", &[], DEEPSPEED),
    rule("deepspeed/comm/torch.py", &[], DEEPSPEED),
    rule("horovod/torch/mpi_ops.py", &[], HOROVOD),
    rule("horovod/tensorflow/mpi_ops.py", &[], HOROVOD),
    rule("horovod/common/basics.py", &["init", "shutdown"], HOROVOD),
    rule(
        "horovod/",
        &[
            "synchronize",
            "allreduce",
            "allgather",
            "broadcast",
            "barrier",
        ],
        HOROVOD,
    ),
    rule("mpi4py/util/", &[], MPI4PY),
    rule(
        "mpi4py/futures/",
        &["barrier", "client_sync", "server_sync"],
        MPI4PY,
    ),
    rule("jax/_src/distributed.py", &[], JAX),
    rule("jax/experimental/multihost_utils.py", &[], JAX),
    rule(
        "jax/_src/array.py",
        &["block_until_ready", "_value", "__array__"],
        JAX_DEVICE,
    ),
    rule("jax/_src/api.py", &["block_until_ready"], JAX_DEVICE),
    rule("tensorflow/python/ops/collective_ops.py", &[], TENSORFLOW),
    rule(
        "tensorflow/python/distribute/cross_device_ops.py",
        &[],
        TENSORFLOW,
    ),
    rule(
        "tensorflow/python/distribute/cross_device_utils.py",
        &[],
        TENSORFLOW,
    ),
    rule(
        "tensorflow/python/distribute/collective_all_reduce_strategy.py",
        &[],
        TENSORFLOW,
    ),
    rule(
        "tensorflow/python/data/ops/iterator_ops.py",
        &[],
        TENSORFLOW_DATA,
    ),
    rule("paddle/distributed/communication/", &[], PADDLE),
    rule(
        "paddle/distributed/parallel.py",
        &["init_parallel_env"],
        PADDLE,
    ),
    rule("xgboost/collective.py", &[], XGBOOST),
    rule(
        "torch/autograd/graph.py",
        &["_engine_run_backward"],
        TORCH_DEVICE,
    ),
    rule(
        "torch/autograd/__init__.py",
        &["backward", "grad"],
        TORCH_DEVICE,
    ),
    rule("torch/cuda/__init__.py", &["synchronize"], TORCH_DEVICE),
    rule(
        "torch/cuda/streams.py",
        &["synchronize", "wait"],
        TORCH_DEVICE,
    ),
    rule(
        "torch/utils/data/dataloader.py",
        &["_try_get_data", "_get_data", "_next_data"],
        TORCH_DATA,
    ),
    rule(
        "torch/utils/data/_utils/worker.py",
        &["_worker_loop"],
        TORCH_DATA,
    ),
    rule(
        "torch/utils/data/_utils/pin_memory.py",
        &["_pin_memory_loop", "do_one_step"],
        TORCH_DATA,
    ),
    rule("torch/distributed/checkpoint/", &[], Wait::Io),
    rule("torch/serialization.py", &[], Wait::Io),
    rule("asyncio/", &["_run_once", "run_forever"], Wait::Io),
    rule("selectors.py", &["select"], Wait::Io),
    rule(
        "socket.py",
        &["readinto", "accept", "create_connection", "connect"],
        Wait::Io,
    ),
    rule(
        "ssl.py",
        &["read", "recv_into", "do_handshake", "send"],
        Wait::Io,
    ),
    rule(
        "subprocess.py",
        &["wait", "_wait", "_try_wait", "communicate", "_communicate"],
        Wait::Io,
    ),
    rule(
        "shutil.py",
        &["copyfileobj", "copyfile", "_fastcopy_sendfile"],
        Wait::Io,
    ),
    rule(
        "multiprocessing/connection.py",
        &["_recv", "_send", "wait", "accept"],
        Wait::Io,
    ),
    rule(
        "multiprocessing/popen_fork.py",
        &["poll", "wait"],
        Wait::Lock,
    ),
    rule(
        "threading.py",
        &["wait", "join", "acquire", "_wait_for_tstate_lock"],
        Wait::Lock,
    ),
    rule("queue.py", &["get", "put", "join"], Wait::Lock),
    rule(
        "concurrent/futures/_base.py",
        &["result", "exception", "wait"],
        Wait::Lock,
    ),
];

/// What a thread waits in, by its calls (innermost first) and by what the kernel says of it, if that is known.
pub fn wait_of(frames: &[Frame], task: Option<&Task>) -> Wait {
    if task.is_some_and(|task| matches!(task.state, State::Stopped | State::Traced)) {
        return Wait::Stopped;
    }
    let called = frames
        .iter()
        .take_while(|frame| Origin::of(&frame.file) != Origin::Own);
    let matched: Vec<Wait> = called.filter_map(rule_of).collect();
    // `queue.get` inside of a data loader is the data loader's wait.
    let specific = matched
        .iter()
        .find(|wait| !matches!(wait, Wait::Io | Wait::Lock));
    match specific.or(matched.first()) {
        Some(wait) => *wait,
        None => task.map_or(Wait::Unknown, wait_in_kernel),
    }
}

fn rule_of(frame: &Frame) -> Option<Wait> {
    let function = frame.function.rsplit('.').next().unwrap_or_default();
    let met = RULES.iter().find(|rule| {
        in_place(&frame.file, rule.place)
            && (rule.functions.is_empty() || rule.functions.contains(&function))
    });
    met.map(|rule| rule.wait)
}

/// Whether `file` is `place`, or lies below it if it is a folder, at the border of a name.
fn in_place(file: &str, place: &str) -> bool {
    if place.ends_with('/') {
        let mut starts = file.match_indices(place).map(|(start, _)| start);
        return starts.any(|start| start == 0 || file.as_bytes().get(start - 1) == Some(&b'/'));
    }
    file.strip_suffix(place)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// Functions of the kernel, and the state of the wait.
const CHANNELS: &[(&str, Wait)] = &[
    ("hrtimer_nanosleep", Wait::Sleep),
    ("do_nanosleep", Wait::Sleep),
    ("futex", Wait::Lock),
    ("pipe_", Wait::Io),
    ("anon_pipe_", Wait::Io),
    ("folio_wait", Wait::Io),
    ("io_schedule", Wait::Io),
    ("wait_on_page", Wait::Io),
    ("rpc_wait", Wait::Io),
    ("nfs", Wait::Io),
    ("fuse", Wait::Io),
    ("request_wait_answer", Wait::Io),
    ("jbd2", Wait::Io),
    ("unix_stream_", Wait::Io),
    ("sk_wait_data", Wait::Io),
    ("inet_csk_accept", Wait::Io),
    ("n_tty_read", Wait::Io),
    ("do_wait", Wait::Io),
];

/// System calls: their numbers on x86-64 and on arm64 (`asm/unistd_64.h`, `asm-generic/unistd.h`), and the wait.
const CALLS: &[(u32, u32, Wait)] = &[
    (35, 101, Wait::Sleep),  // nanosleep
    (230, 115, Wait::Sleep), // clock_nanosleep
    (202, 98, Wait::Lock),   // futex
    (0, 63, Wait::Io),       // read
    (1, 64, Wait::Io),       // write
    (17, 67, Wait::Io),      // pread64
    (18, 68, Wait::Io),      // pwrite64
    (19, 65, Wait::Io),      // readv
    (20, 66, Wait::Io),      // writev
    (45, 207, Wait::Io),     // recvfrom
    (47, 212, Wait::Io),     // recvmsg
    (61, 260, Wait::Io),     // wait4
    (74, 82, Wait::Io),      // fsync
    (75, 83, Wait::Io),      // fdatasync
];

fn wait_in_kernel(task: &Task) -> Wait {
    match task.state {
        State::Running => return Wait::Running,
        State::DiskWait => return Wait::Io,
        State::Sleeping | State::Stopped | State::Traced | State::Zombie | State::Other(_) => {}
    }
    let channel = task.wait_channel.as_deref().unwrap_or_default();
    if let Some((_, wait)) = CHANNELS
        .iter()
        .find(|(start, _)| channel.starts_with(start))
    {
        return *wait;
    }
    let number = |call: &&(u32, u32, Wait)| {
        if cfg!(target_arch = "x86_64") {
            call.0
        } else {
            call.1
        }
    };
    let found = CALLS
        .iter()
        .find(|call| Some(number(call)) == task.system_call);
    found.map_or(Wait::Unknown, |call| call.2)
}

#[cfg(test)]
mod tests;
