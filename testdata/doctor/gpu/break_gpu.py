"""Break a training process on purpose on one GPU, and keep what it printed.

How to run (torch with CUDA and NCCL is all it needs; about three minutes):

    python3 testdata/doctor/gpu/break_gpu.py OUT_FOLDER

Each case runs in processes of its own; what they print goes to OUT_FOLDER/<case>.log, Flight
Recorder dumps to OUT_FOLDER/<case>.fr.*. A case that cannot be made on this machine writes why.
`dmesg` is added where this user may read it. Nothing is installed and nothing outside OUT_FOLDER is written.
"""

import os
import socket
import subprocess
import sys
import tempfile

CASES = {}


def case(ranks=1, seconds=60, **environment):
    """Register a function as a case: how many processes, how long at most, which variables."""

    def register(function):
        CASES[function.__name__] = (function, ranks, seconds, environment)
        return function

    return register


def join(backend="nccl", seconds=20):
    """Join the world that the environment describes."""
    import datetime

    import torch
    import torch.distributed as dist

    if backend == "nccl":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=seconds))
    return torch, dist


@case()
def single_rank():
    """A healthy world of one, with NCCL's own words."""
    torch, dist = join()
    tensor = torch.ones(1024, device="cuda")
    for step in range(3):
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        print(f"step {step} loss {1.0 / (step + 1):.4f}", flush=True)
    dist.destroy_process_group()
    print("Training Completed", flush=True)


@case(ranks=2)
def duplicate_gpu():
    """Two ranks on one GPU."""
    torch, dist = join()
    tensor = torch.ones(8, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()


@case()
def cuda_oom():
    import torch

    keep = []
    while True:
        keep.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))


@case()
def device_assert():
    import torch

    table = torch.zeros(4, 4, device="cuda")
    index = torch.tensor([7], device="cuda")
    print(table.index_select(0, index).sum().item())


@case()
def illegal_access():
    """A kernel that writes where it may not; needs a compiler at run time (torch's own)."""
    import ctypes

    import torch

    torch.zeros(1, device="cuda")
    source = b'extern "C" __global__ void wild(int *p) { p[threadIdx.x + (1ll << 40)] = 1; }'
    nvrtc = None
    for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        try:
            nvrtc = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if nvrtc is None:
        import glob

        import nvidia

        base = list(nvidia.__path__)[0]
        found = glob.glob(base + "/**/libnvrtc.so.*", recursive=True)
        nvrtc = ctypes.CDLL(sorted(found, key=len)[0])
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"wild.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 0, None) == 0
    size = ctypes.c_size_t()
    assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
    ptx = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetPTX(program, ptx) == 0
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), ptx) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"wild") == 0
    pointer = ctypes.c_void_p(torch.zeros(32, dtype=torch.int32, device="cuda").data_ptr())
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(pointer), ctypes.c_void_p))
    driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)
    torch.cuda.synchronize()


@case(
    ranks=2,
    seconds=150,
    TORCH_NCCL_TRACE_BUFFER_SIZE="2000",
    TORCH_FR_BUFFER_SIZE="2000",
    TORCH_NCCL_DUMP_ON_TIMEOUT="1",
    TORCH_NCCL_ENABLE_MONITORING="1",
    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="30",
    TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
)
def watchdog_timeout():
    """Rank 1 never enters: the communicator of rank 0 waits, the watchdog fires and dumps."""
    import time

    torch, dist = join(seconds=15)
    if dist.get_rank() == 1:
        time.sleep(60)
        print("rank 1 slept while rank 0 waited", flush=True)
        return
    tensor = torch.ones(1024, device="cuda")
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    torch.cuda.synchronize()


@case(
    seconds=120,
    TORCH_NCCL_TRACE_BUFFER_SIZE="2000",
    TORCH_FR_BUFFER_SIZE="2000",
    TORCH_NCCL_DUMP_ON_TIMEOUT="1",
    TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
)
def stuck_stream():
    """One rank whose collective waits behind a kernel that takes longer than the limit."""
    torch, dist = join(seconds=10)
    tensor = torch.ones(1024, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    torch.cuda._sleep(60 * 1_800_000_000)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    torch.cuda.synchronize()


@case(TORCH_NCCL_TRACE_BUFFER_SIZE="2000", TORCH_FR_BUFFER_SIZE="2000")
def flight_recorder():
    """A dump that the program asks for itself, as pickle and as JSON."""
    torch, dist = join()
    tensor = torch.ones(1024, device="cuda")
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    dist.barrier()
    torch.cuda.synchronize()
    base = os.environ["DOCTOR_DUMP"]
    with open(base + "asked_rank_0", "wb") as file:
        file.write(torch._C._distributed_c10d._dump_nccl_trace())
    try:
        with open(base + "asked_rank_0.json", "wb") as file:
            text = torch._C._distributed_c10d._dump_nccl_trace_json()
            file.write(text if isinstance(text, bytes) else text.encode())
    except AttributeError as absent:
        print("no JSON dump in this version:", absent)
    dist.destroy_process_group()


@case(seconds=60, NCCL_SOCKET_IFNAME="nosuch0")
def no_interface():
    torch, dist = join()
    dist.all_reduce(torch.ones(8, device="cuda"))
    torch.cuda.synchronize()


@case(seconds=90)
def missing_peer():
    """A world of two of which one never starts: the store waits, and says so."""
    os.environ["WORLD_SIZE"] = "2"
    join(seconds=15)


@case(seconds=60, CUDA_VISIBLE_DEVICES="")
def no_gpu():
    torch, dist = join()
    dist.all_reduce(torch.ones(8, device="cuda"))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(name, folder):
    _, ranks, seconds, environment = CASES[name]
    port = free_port()
    running = []
    for rank in range(ranks):
        values = dict(os.environ)
        values.update(
            NCCL_DEBUG="INFO",
            TORCH_CPP_LOG_LEVEL="INFO",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            RANK=str(rank),
            LOCAL_RANK="0",
            WORLD_SIZE=str(ranks),
            DOCTOR_DUMP=os.path.join(folder, name + ".fr."),
            TORCH_NCCL_DEBUG_INFO_TEMP_FILE=os.path.join(folder, name + ".fr.rank_"),
            TORCH_FR_DUMP_TEMP_FILE=os.path.join(folder, name + ".fr.rank_"),
            TMPDIR=tempfile.gettempdir(),
        )
        values.update(environment)
        suffix = f".rank{rank}" if ranks > 1 else ""
        log = open(os.path.join(folder, f"{name}{suffix}.log"), "wb")
        child = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--case", name],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=values,
        )
        running.append((child, log))
    for child, log in running:
        try:
            code = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        log.write(f"exit code {code}\n".encode())
        log.close()


def main():
    if sys.argv[1:2] == ["--case"]:
        CASES[sys.argv[2]][0]()
        return
    folder = os.path.abspath(sys.argv[1])
    os.makedirs(folder, exist_ok=True)
    chosen = sys.argv[2:] or list(CASES)
    for name in chosen:
        print("case", name, flush=True)
        run(name, folder)
    kernel = subprocess.run(["dmesg"], capture_output=True, check=False)
    lines = [line for line in kernel.stdout.splitlines() if b"NVRM" in line or b"Xid" in line]
    if lines:
        with open(os.path.join(folder, "dmesg.log"), "wb") as file:
            file.write(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
