"""Ranks that train on one GPU with NCCL, one of which stops making progress at step 40 of the first attempt.

Where several ranks share one GPU each of them has a host name of its own for NCCL, which refuses a GPU that it sees twice on one host.
It calls no library of ours.

usage: train_gpu.py FOLDER KIND [STEPS]
KIND: sleep (the rank sleeps), kernel (a kernel that never ends, in the stream of the collective), event (the stream waits for an event that
comes after such a kernel), none.
"""

import os
import sys
import time

AT_STEP = 40
# Longer than anybody waits: about six days of a GPU's clock.
CYCLES = 10**15


def sleep_without_end() -> None:
    time.sleep(10**6)


def main() -> None:
    folder, kind = sys.argv[1], sys.argv[2]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ.setdefault("NCCL_HOSTID", f"host-{rank}")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_IB_DISABLE", "1")

    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    used = torch.cuda.device_memory_used(0) >> 20
    print(f"rank {rank}: {used} MiB of GPU memory are in use at the start", flush=True)
    dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
    culprit = world - 1
    mark = os.path.join(folder, "hung")
    is_first = not os.path.exists(mark)
    # What a model would hold.
    weights = torch.ones(8 << 30, dtype=torch.uint8, device="cuda")
    gradients = torch.ones(1024, device="cuda")
    dist.barrier()
    for step in range(1, steps + 1):
        time.sleep(0.1)
        if is_first and step == AT_STEP and rank == culprit and kind != "none":
            with open(mark, "w") as file:
                file.write(str(time.time_ns()))
            if kind == "sleep":
                sleep_without_end()
            elif kind == "kernel":
                torch.cuda._sleep(CYCLES)
            elif kind == "event":
                other = torch.cuda.Stream()
                with torch.cuda.stream(other):
                    torch.cuda._sleep(CYCLES)
                    event = other.record_event()
                torch.cuda.current_stream().wait_event(event)
        dist.all_reduce(gradients)
        gradients /= world
        loss = gradients.mean().item()
        if rank == 0:
            print(f"step {step} loss {loss / step:.4f}", flush=True)
    del weights
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
