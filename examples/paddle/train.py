"""Data-parallel least squares with Paddle on CPUs, the gradients averaged over gloo.

Rank 0 saves every 20 steps; all resume from there after a restart.

Exit code 0 only if the error on points never seen before is at most 0.02, with noise of 0.01 in them.
"""

import os
import sys
import time

import numpy as np
import paddle
import paddle.distributed as dist

STEPS = 200
SAVE_EVERY = 20
TARGET_LOSS = 0.02
# So that there is something to watch, and a moment in which a rank can be killed: the launcher
# passes lines on a second late.
STEP_SECONDS = 0.03
FEATURES = 16


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    truth = np.random.default_rng(1).normal(size=FEATURES)
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(count, FEATURES))
    wanted = inputs @ truth + 0.1 * random.normal(size=count)
    return inputs.astype(np.float32), wanted.astype(np.float32)


def save(path: str, weights: np.ndarray, step: int) -> None:
    """All or nothing: a kill at any moment leaves the last whole file."""
    with open(path + ".part", "wb") as file:
        np.savez(file, weights=weights, step=step)
    os.replace(path + ".part", path)


def main() -> int:
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join(os.environ.get("CHECKPOINT_DIR", "."), "model.npz")
    first, start = np.zeros(FEATURES, np.float32), 0
    if os.path.exists(path):
        with np.load(path) as found:
            first, start = found["weights"], int(found["step"])
    begins = f"resumed from step {start}" if start else "starts"
    print(f"rank {rank} of {world} {begins}", flush=True)

    weights = paddle.to_tensor(first, stop_gradient=False)
    inputs, wanted = (paddle.to_tensor(part[rank::world]) for part in points(4096, seed=2))
    for step in range(start + 1, STEPS + 1):
        loss = paddle.mean((paddle.mv(inputs, weights) - wanted) ** 2)
        loss.backward()
        gradient = weights.grad
        dist.all_reduce(gradient)
        weights = paddle.to_tensor(
            weights.numpy() - 0.025 * gradient.numpy() / world, stop_gradient=False
        )
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            save(path, weights.numpy(), step)
            print(f"step {step}/{STEPS} loss {float(loss):.4f}", flush=True)

    inputs, wanted = points(1024, seed=3)
    loss = float(np.mean((inputs @ weights.numpy() - wanted) ** 2))
    if rank == 0:
        print(f"done: loss {loss:.4f} (target {TARGET_LOSS})", flush=True)
    return 0 if loss <= TARGET_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
