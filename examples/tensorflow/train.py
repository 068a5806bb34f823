"""Data-parallel least squares with TensorFlow's MultiWorkerMirroredStrategy on CPUs.

TensorFlow finds the workers in TF_CONFIG. Every worker has its share of the points; a change of a
mirrored variable is averaged over all workers by the ring all-reduce. Worker 0 saves every 20
steps; all resume from there after a restart.

Exit code 0 only if the error on points never seen before is at most 0.02, with noise of 0.01 in them.
"""

import json
import os
import sys
import time

import numpy as np
import tensorflow as tf

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
    wanted = inputs @ truth + 0.1 * random.normal(size=count)
    return inputs.astype(np.float32), wanted.astype(np.float32)


def save(path: str, weights: np.ndarray, step: int) -> None:
    """All or nothing: a kill at any moment leaves the last whole file."""
    with open(path + ".part", "wb") as file:
        np.savez(file, weights=weights, step=step)
    os.replace(path + ".part", path)


def main() -> int:
    config = json.loads(os.environ["TF_CONFIG"])
    rank, world = config["task"]["index"], len(config["cluster"]["worker"])
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
    )
    path = os.path.join(os.environ.get("CHECKPOINT_DIR", "."), "model.npz")
    first, start = np.zeros(FEATURES, np.float32), 0
    if os.path.exists(path):
        with np.load(path) as found:
            first, start = found["weights"], int(found["step"])
    with strategy.scope():
        weights = tf.Variable(first, aggregation=tf.VariableAggregation.MEAN)
    begins = f"resumed from step {start}" if start else "starts"
    print(f"rank {rank} of {world} {begins}", flush=True)

    inputs, wanted = points(4096, seed=2)
    inputs, wanted = tf.constant(inputs[rank::world]), tf.constant(wanted[rank::world])

    def replica_step() -> tf.Tensor:
        error = tf.linalg.matvec(inputs, weights) - wanted
        gradient = tf.linalg.matvec(inputs, error, transpose_a=True) / len(wanted)
        weights.assign_sub(0.05 * gradient)
        return tf.reduce_mean(error**2)

    @tf.function
    def train_step() -> tf.Tensor:
        losses = strategy.run(replica_step)
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    for step in range(start + 1, STEPS + 1):
        loss = float(train_step())
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            save(path, weights.numpy(), step)
            print(f"step {step}/{STEPS} loss {loss:.4f}", flush=True)

    inputs, wanted = points(1024, seed=3)
    loss = float(np.mean((inputs @ weights.numpy() - wanted) ** 2))
    if rank == 0:
        print(f"done: loss {loss:.4f} (target {TARGET_LOSS})", flush=True)
    return 0 if loss <= TARGET_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
