"""Break training processes on purpose without a GPU, and keep what they printed.

How to run (PyTorch for CPUs is all it needs; about two minutes):

    python3 testdata/doctor/cpu/break_cpu.py OUT_FOLDER [CASE ...]

Each case runs in processes of its own, two ranks unless it says otherwise, and all of them write to
OUT_FOLDER/<case>.log.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import time

CASES = {}


def case(ranks=2, seconds=60, torchrun=False, **environment):
    def register(function):
        CASES[function.__name__] = (function, ranks, seconds, torchrun, environment)
        return function

    return register


def join(seconds=10):
    import datetime

    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds))
    return torch, dist


@case()
def healthy():
    torch, dist = join()
    for step in range(20):
        dist.all_reduce(torch.ones(8))
        print(f"step {step} loss {1.0 / (step + 1):.4f}", flush=True)
    dist.destroy_process_group()
    print("Training completed", flush=True)


@case(TORCH_DISTRIBUTED_DEBUG="DETAIL")
def mismatch_detail():
    torch, dist = join()
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(8))
    else:
        dist.broadcast(torch.ones(8), 0)


@case()
def mismatch_size():
    torch, dist = join()
    dist.all_reduce(torch.ones(8 if dist.get_rank() == 0 else 16))


@case(ranks=1)
def port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        os.environ["MASTER_PORT"] = str(taken.getsockname()[1])
        join()


@case(ranks=1, MASTER_ADDR="job-master-0.job.example.invalid")
def name_unknown():
    os.environ["RANK"], os.environ["WORLD_SIZE"] = "1", "2"
    join(5)


@case(ranks=1)
def no_peer():
    os.environ["WORLD_SIZE"] = "2"
    join(5)


@case(ranks=1)
def no_master():
    os.environ["RANK"], os.environ["WORLD_SIZE"] = "1", "2"
    join(5)


@case(torchrun=True)
def nan_loss():
    torch, dist = join()
    weight = torch.ones(4, requires_grad=True)
    for step in range(12):
        loss = (weight * 1e30).pow(2).sum() - (weight * 1e30).pow(2).sum() if step > 4 else weight.sum()
        print(f"step: {step} loss: {loss.item()}", flush=True)


@case(ranks=1)
def out_of_memory():
    import torch

    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    torch.ones(1 << 34)


@case(ranks=1)
def corrupt_checkpoint():
    import torch

    path = "/tmp/doctor-checkpoint.pt"
    torch.save({"weight": torch.ones(100_000)}, path)
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)
    torch.load(path)


@case(ranks=1)
def empty_checkpoint():
    import torch

    path = "/tmp/doctor-checkpoint.pt"
    open(path, "wb").close()
    torch.load(path)


@case(ranks=1)
def disk_full():
    import torch

    torch.save({"weight": torch.ones(100_000)}, "/dev/full")


@case(torchrun=True, seconds=30)
def told_to_stop():
    join()
    print("step 1 loss 0.5", flush=True)
    if os.environ["RANK"] == "0":
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(20)


@case(GLOO_SOCKET_IFNAME="nosuch0")
def no_interface():
    join()


@case(GLOO_SOCKET_IFNAME="^lo,docker0")
def excluded_interface():
    join()


@case(torchrun=True)
def data_missing():
    join()
    open("/data/train/shard-00000.tar")


@case(torchrun=True)
def exception():
    torch, dist = join()
    if dist.get_rank() == 1:
        table = {"a": 1}
        print(table["learning_rate"])
    dist.all_reduce(torch.ones(8))


@case(torchrun=True)
def segfault():
    import ctypes

    join()
    if os.environ["RANK"] == "1":
        ctypes.string_at(0)
    time.sleep(20)


@case(torchrun=True)
def killed():
    join()
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(20)


@case(torchrun=True)
def exit_only():
    join()
    if os.environ["RANK"] == "1":
        os._exit(3)
    time.sleep(20)


@case()
def peer_left():
    torch, dist = join()
    if dist.get_rank() == 1:
        os._exit(0)
    time.sleep(1)
    dist.all_reduce(torch.ones(8))


@case(seconds=40)
def late_rank():
    torch, dist = join(5)
    if dist.get_rank() == 1:
        time.sleep(15)
        return
    dist.all_reduce(torch.ones(8))


@case(seconds=40)
def late_barrier():
    import datetime

    torch, dist = join(5)
    if dist.get_rank() == 1:
        time.sleep(15)
        return
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=4))


@case(ranks=1)
def bad_import():
    from torch import definitely_not_there  # noqa: F401


@case(ranks=1)
def rendezvous_elastic():
    os.execvp(
        sys.executable,
        [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1",
         "--rdzv_backend=c10d", "--rdzv_id=trial", "--rdzv_endpoint=127.0.0.1:29877",
         "--rdzv_conf=join_timeout=5,timeout=5", __file__, "--case", "healthy"],
    )


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(name, folder):
    _, ranks, seconds, torchrun, environment = CASES[name]
    port = str(free_port())
    with open(os.path.join(folder, name + ".log"), "wb") as log:
        children = []
        for rank in range(1 if torchrun else ranks):
            values = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, PYTHONUNBUFFERED="1")
            values.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
            values.update(environment)
            command = [sys.executable]
            if torchrun:
                command += ["-m", "torch.distributed.run", f"--nproc_per_node={ranks}", f"--master_port={port}"]
            command += [os.path.abspath(__file__), "--case", name]
            children.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=values))
        for child in children:
            try:
                child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def main():
    if sys.argv[1:2] == ["--case"]:
        CASES[sys.argv[2]][0]()
        return
    folder = os.path.abspath(sys.argv[1])
    os.makedirs(folder, exist_ok=True)
    for name in sys.argv[2:] or list(CASES):
        print("case", name, flush=True)
        run(name, folder)


if __name__ == "__main__":
    main()
