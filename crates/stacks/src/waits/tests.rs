//! Stacks as the libraries make them.

use super::*;

const SITE: &str = "/venv/lib/python3.11/site-packages";
const LIB: &str = "/usr/lib/python3.11";

/// `function@file`, innermost first; `~` is the folder of packages, `^` the standard library.
fn stack(calls: &str) -> Vec<Frame> {
    let calls = calls.split_whitespace().map(|call| {
        let (function, file) = call.split_once('@').unwrap();
        let file = file.replace('~', SITE).replace('^', LIB);
        Frame {
            file,
            function: function.to_owned(),
            line: Some(1),
        }
    });
    calls.collect()
}

fn task(state: State, channel: &str, call: Option<(u32, u32)>) -> Task {
    let call = call.map(|call| {
        if cfg!(target_arch = "x86_64") {
            call.0
        } else {
            call.1
        }
    });
    Task {
        id: 1,
        name: "python3".to_owned(),
        state,
        cpu_ticks: 0,
        wait_channel: (!channel.is_empty()).then(|| channel.to_owned()),
        system_call: call,
    }
}

#[test]
fn waits_by_stack() {
    let cases = [
        (
            "all-reduce",
            "all_reduce@~/torch/distributed/distributed_c10d.py wrapper@~/torch/distributed/c10d_logger.py step@/me/train.py",
            TORCH,
        ),
        (
            "rendezvous",
            "_env_rendezvous_handler@~/torch/distributed/rendezvous.py main@/me/train.py",
            TORCH,
        ),
        (
            "qualified",
            "DistributedDataParallel._sync_buffers@~/torch/nn/parallel/distributed.py f@/me/t.py",
            TORCH,
        ),
        (
            "ddp computes",
            "forward@~/torch/nn/modules/linear.py forward@~/torch/nn/parallel/distributed.py f@/me/t.py",
            Wait::Unknown,
        ),
        (
            "backward",
            "_engine_run_backward@~/torch/autograd/graph.py backward@~/torch/autograd/__init__.py f@/me/t.py",
            TORCH_DEVICE,
        ),
        (
            "synchronize",
            "synchronize@~/torch/cuda/__init__.py f@/me/t.py",
            TORCH_DEVICE,
        ),
        (
            "horovod",
            "synchronize@~/horovod/torch/mpi_ops.py step@~/horovod/torch/optimizer.py f@/me/t.py",
            HOROVOD,
        ),
        (
            "mpi4py",
            "allreduce@~/mpi4py/util/pkl5.py f@/me/t.py",
            MPI4PY,
        ),
        (
            "jax",
            "process_allgather@~/jax/experimental/multihost_utils.py f@/me/t.py",
            JAX,
        ),
        (
            "jax device",
            "ArrayImpl.block_until_ready@~/jax/_src/array.py f@/me/t.py",
            JAX_DEVICE,
        ),
        (
            "tensorflow",
            "all_reduce@~/tensorflow/python/distribute/cross_device_utils.py f@/me/t.py",
            TENSORFLOW,
        ),
        (
            "tensorflow data",
            "_next_internal@~/tensorflow/python/data/ops/iterator_ops.py f@/me/t.py",
            TENSORFLOW_DATA,
        ),
        (
            "paddle",
            "all_reduce@~/paddle/distributed/communication/all_reduce.py f@/me/t.py",
            PADDLE,
        ),
        (
            "deepspeed",
            "all_reduce@~/deepspeed/comm/comm.py f@/me/t.py",
            DEEPSPEED,
        ),
        (
            "xgboost",
            "broadcast@~/xgboost/collective.py f@/me/t.py",
            XGBOOST,
        ),
        (
            "data loader",
            "wait@^/threading.py get@^/queue.py _MultiProcessingDataLoaderIter._try_get_data@~/torch/utils/data/dataloader.py f@/me/t.py",
            TORCH_DATA,
        ),
        (
            "data loader without workers",
            "decode@/me/data.py __getitem__@/me/data.py _next_data@~/torch/utils/data/dataloader.py f@/me/t.py",
            Wait::Unknown,
        ),
        (
            "queue of the user",
            "wait@^/threading.py get@^/queue.py f@/me/t.py",
            Wait::Lock,
        ),
        ("join", "join@^/threading.py f@/me/t.py", Wait::Lock),
        (
            "save",
            "_save@~/torch/serialization.py save@~/torch/serialization.py f@/me/t.py",
            Wait::Io,
        ),
        (
            "checkpoint",
            "write_data@~/torch/distributed/checkpoint/filesystem.py f@/me/t.py",
            Wait::Io,
        ),
        (
            "event loop",
            "select@^/selectors.py _run_once@^/asyncio/base_events.py main@/me/t.py",
            Wait::Io,
        ),
        (
            "child",
            "_try_wait@^/subprocess.py wait@^/subprocess.py f@/me/t.py",
            Wait::Io,
        ),
        (
            "a name that ends so",
            "wait@~/mythreading.py f@/me/t.py",
            Wait::Unknown,
        ),
        (
            "a file of the user",
            "all_reduce@/me/torch/distributed/distributed_c10d.py",
            Wait::Unknown,
        ),
        (
            "other function",
            "start@^/threading.py f@/me/t.py",
            Wait::Unknown,
        ),
        ("empty", "", Wait::Unknown),
    ];
    for (name, calls, expected) in cases {
        assert_eq!(wait_of(&stack(calls), None), expected, "{name}");
    }
}

#[test]
fn waits_by_kernel() {
    let own = stack("step@/me/train.py");
    let sleeping = State::Sleeping;
    let cases = [
        (
            "sleep",
            task(sleeping, "hrtimer_nanosleep", Some((230, 115))),
            Wait::Sleep,
        ),
        (
            "sleep without a channel",
            task(sleeping, "", Some((230, 115))),
            Wait::Sleep,
        ),
        (
            "futex",
            task(sleeping, "futex_do_wait", Some((202, 98))),
            Wait::Lock,
        ),
        (
            "pipe",
            task(sleeping, "anon_pipe_read", Some((0, 63))),
            Wait::Io,
        ),
        ("read", task(sleeping, "", Some((0, 63))), Wait::Io),
        ("disk", task(State::DiskWait, "", None), Wait::Io),
        ("busy", task(State::Running, "", None), Wait::Running),
        (
            "stopped",
            task(State::Stopped, "do_signal_stop", None),
            Wait::Stopped,
        ),
        (
            "unknown",
            task(sleeping, "do_epoll_wait", None),
            Wait::Unknown,
        ),
    ];
    for (name, task, expected) in cases {
        assert_eq!(wait_of(&own, Some(&task)), expected, "{name}");
    }
}

#[test]
fn the_stack_is_stronger_than_the_kernel() {
    let calls = stack("all_reduce@~/torch/distributed/distributed_c10d.py f@/me/t.py");
    let futex = task(State::Sleeping, "futex_do_wait", Some((202, 98)));
    assert_eq!(wait_of(&calls, Some(&futex)), TORCH);
    let stopped = task(State::Stopped, "do_signal_stop", None);
    assert_eq!(
        wait_of(&calls, Some(&stopped)),
        Wait::Stopped,
        "but a stopped one waits for nobody"
    );
}

#[test]
fn every_rule_can_be_met() {
    for (index, rule) in RULES.iter().enumerate() {
        let file = if rule.place.ends_with('/') {
            "x.py"
        } else {
            ""
        };
        let file = format!("{SITE}/{}{file}", rule.place);
        let function = rule.functions.first().copied().unwrap_or("x");
        let function = function.to_owned();
        let found = RULES.iter().position(|other| {
            in_place(&file, other.place)
                && (other.functions.is_empty() || other.functions.contains(&function.as_str()))
        });
        assert_eq!(
            found,
            Some(index),
            "`{}` is hidden by an earlier rule",
            rule.place
        );
    }
}
