"""Four MPI ranks, one of which sleeps without end at step 40 of the first attempt. The others spin while they wait.

usage: train_mpi.py FOLDER [STEPS]
"""

import os
import sys
import time

from mpi4py import MPI

CULPRIT = 2
AT_STEP = 40


def main() -> None:
    folder = sys.argv[1]
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    world = MPI.COMM_WORLD
    mark = os.path.join(folder, "hung")
    is_first = world.bcast(not os.path.exists(mark) if world.rank == 0 else None)
    for step in range(1, steps + 1):
        time.sleep(0.1)
        if is_first and step == AT_STEP and world.rank == CULPRIT:
            with open(mark, "w") as file:
                file.write(str(time.time_ns()))
            time.sleep(10**6)
        total = world.allreduce(1.0)
        if world.rank == 0:
            print(f"step {step} loss {total / step:.4f}", flush=True)


if __name__ == "__main__":
    main()
