"""Data-parallel least squares with mpi4py: every rank has its share of the points, and the gradients
are summed by MPI's all-reduce. Rank 0 saves every 20 steps; all resume from there after a restart.

Exit code 0 only if the error on points never seen before is at most 0.02, with noise of 0.01 in them.
"""

import os
import sys
import time

import numpy as np
from mpi4py import MPI

STEPS = 200
SAVE_EVERY = 20
TARGET_LOSS = 0.02
# So that there is something to watch, and a moment in which a rank can be killed.
STEP_SECONDS = 0.01
FEATURES = 16


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    truth = np.random.default_rng(1).normal(size=FEATURES)
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(count, FEATURES))
    return inputs, inputs @ truth + 0.1 * random.normal(size=count)


def save(path: str, weights: np.ndarray, step: int) -> None:
    """All or nothing: a kill at any moment leaves the last whole file."""
    with open(path + ".part", "wb") as file:
        np.savez(file, weights=weights, step=step)
    os.replace(path + ".part", path)


def main() -> int:
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    path = os.path.join(os.environ.get("CHECKPOINT_DIR", "."), "model.npz")

    state = None
    if rank == 0 and os.path.exists(path):
        with np.load(path) as found:
            state = (found["weights"], int(found["step"]))
    state = world.bcast(state, root=0)
    weights, start = state or (np.zeros(FEATURES), 0)
    begins = f"resumed from step {start}" if state else "starts"
    print(f"rank {rank} of {size} {begins}", flush=True)

    inputs, wanted = points(4096, seed=2)
    inputs, wanted = inputs[rank::size], wanted[rank::size]
    for step in range(start + 1, STEPS + 1):
        error = inputs @ weights - wanted
        # The gradient, and behind it the sum of squares and the number of points.
        own = np.concatenate([inputs.T @ error, [error @ error, len(error)]])
        total = np.empty_like(own)
        world.Allreduce(own, total, op=MPI.SUM)
        weights = weights - 0.05 * total[:FEATURES] / total[-1]
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            save(path, weights, step)
            print(f"step {step}/{STEPS} loss {total[-2] / total[-1]:.4f}", flush=True)

    inputs, wanted = points(1024, seed=3)
    loss = float(np.mean((inputs @ weights - wanted) ** 2))
    if rank == 0:
        print(f"done: loss {loss:.4f} (target {TARGET_LOSS})", flush=True)
    return 0 if loss <= TARGET_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
