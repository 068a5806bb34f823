"""Four ranks that train in step, one of which stops making progress at step 40 of the first attempt.

Used by the suite `frameworks`, and under other launchers to compare. It calls no library of ours: what is found is found from
outside. Every rank writes the time of its first line, and rank 2 that of its
hang, to a folder, so that clocks are read by the ranks and not by whoever watches them.

usage: train.py FOLDER KIND [STEPS]
KIND: sleep, stop, busy, none; `save` and `evaluate` are silent for a while without a hang.
"""

import os
import signal
import sys
import time

RANKS = 4
CULPRIT = 2
AT_STEP = 40
SILENCE = float(os.environ.get("SILENCE_SECONDS", "8"))


def stamp(folder: str, name: str) -> None:
    file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"%d\n" % time.time_ns())
    os.close(file)


def sleep_without_end() -> None:
    time.sleep(10**6)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def loop_without_end() -> None:
    # On one line, so that a look from outside finds it there at any moment.
    while True: pass  # fmt: skip


def save(folder: str) -> None:
    """Writes all the time, and prints nothing."""
    end = time.monotonic() + SILENCE
    with open(os.path.join(folder, "checkpoint"), "wb") as file:
        while time.monotonic() < end:
            file.seek(0)
            file.write(b"x" * (1 << 20))
            file.flush()
            time.sleep(0.05)


HANGS = {"sleep": sleep_without_end, "stop": stop, "busy": loop_without_end}


def main() -> None:
    folder, kind = sys.argv[1], sys.argv[2]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    stamp(folder, "main")

    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    seconds = float(os.environ.get("GROUP_TIMEOUT", "0"))
    if seconds:
        from datetime import timedelta

        dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    else:
        dist.init_process_group("gloo")
    monitor = None
    if os.environ.get("USE_NVRX"):
        from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

        monitor = RankMonitorClient()
        monitor.init_workload_monitoring()
    with open(os.path.join(folder, "main")) as file:
        is_first = len(file.readlines()) <= RANKS
    gradients = torch.ones(1024)
    for step in range(1, steps + 1):
        if monitor is not None:
            monitor.start_section("step")
        time.sleep(0.1)
        if is_first and step == AT_STEP and rank == CULPRIT:
            stamp(folder, "hang")
            if kind in HANGS:
                HANGS[kind]()
            elif kind == "save":
                save(folder)
        dist.all_reduce(gradients)
        gradients /= RANKS
        if monitor is not None:
            monitor.end_section("step")
        if rank == 0:
            print(f"step {step} loss {1.0 / step:.4f}", flush=True)
    if monitor is not None:
        monitor.shutdown_workload_monitoring()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
