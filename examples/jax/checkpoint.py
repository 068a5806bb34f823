"""The ring of train.py, with checkpoints by `trainyard_checkpoint.jax`: lines that end with `# +` are what it takes.

The hidden layer is sharded over the devices of all processes, and the points are moved by chance in every step. Each process
writes its own shards in the background. A restart resumes from the newest complete step, and its losses are those of an
uninterrupted run.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import os
import sys
import time

# Two devices in every process, as with GPUs.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from trainyard_checkpoint.jax import Checkpointer  # +

STEPS = 200
SAVE_EVERY = 15
HIDDEN = 64
TARGET_ACCURACY = 0.95
# So that there is something to watch, and a moment in which a rank can be killed.
STEP_SECONDS = 0.01


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.random.default_rng(seed).uniform(-2, 2, size=(count, 2)).astype(np.float32)
    radius = np.linalg.norm(places, axis=1)
    return places, ((radius > 0.7) & (radius < 1.5)).astype(np.float32)


def logits(weights: dict, places: jax.Array) -> jax.Array:
    hidden = jnp.tanh(places @ weights["in"] + weights["in_bias"])
    return hidden @ weights["out"] + weights["out_bias"]


def loss_of(weights: dict, places: jax.Array, labels: jax.Array) -> jax.Array:
    values = logits(weights, places)
    return jnp.mean(jnp.maximum(values, 0) - values * labels + jnp.log1p(jnp.exp(-jnp.abs(values))))


def train_step(state: dict, places: jax.Array, labels: jax.Array) -> tuple[dict, jax.Array]:
    """One step of Adam."""
    key, own = jax.random.split(state["key"])
    moved = places + 0.02 * jax.random.normal(own, places.shape)
    loss, gradient = jax.value_and_grad(loss_of)(state["weights"], moved, labels)
    step = state["step"] + 1
    mean = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["mean"], gradient)
    square = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new**2, state["square"], gradient)
    rate = 0.05 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    move = lambda value, mean, square: value - rate * mean / (jnp.sqrt(square) + 1e-8)
    weights = jax.tree.map(move, state["weights"], mean, square)
    return {"weights": weights, "mean": mean, "square": square, "step": step, "key": key}, loss


def main() -> int:
    environ = os.environ
    jax.distributed.initialize(
        coordinator_address=f"{environ['COORDINATOR_ADDRESS']}:{environ['COORDINATOR_PORT']}",
        num_processes=int(environ["NUM_PROCESSES"]),
        process_id=int(environ["PROCESS_ID"]),
    )
    rank, world = jax.process_index(), jax.process_count()
    devices = Mesh(np.array(jax.devices()), ("model",))
    axes = {"in": (None, "model"), "in_bias": ("model",), "out": ("model",), "out_bias": ()}
    shapes = {"in": (2, HIDDEN), "in_bias": (HIDDEN,), "out": (HIDDEN,), "out_bias": ()}
    on = lambda value, *axes: jax.make_array_from_callback(
        value.shape, NamedSharding(devices, PartitionSpec(*axes)), lambda index: value[index]
    )
    random = np.random.default_rng(1)
    initial = {name: random.normal(size=shape, scale=1.0).astype(np.float32) for name, shape in shapes.items()}
    weights = {name: on(np.asarray(value), *axes[name]) for name, value in initial.items()}
    zeros = {name: on(np.zeros(shape, np.float32), *axes[name]) for name, shape in shapes.items()}
    bits = on(np.asarray(jax.random.key_data(jax.random.key(1))))
    state = {"weights": weights, "mean": zeros, "square": jax.tree.map(jnp.copy, zeros), "step": on(np.float32(0))}
    state["key"] = jax.random.wrap_key_data(bits)

    checkpointer = Checkpointer(environ.get("CHECKPOINT_DIR", "."), every=SAVE_EVERY, keep=2)  # +
    start, state = checkpointer.restore(state)  # +
    begins = f"resumed from step {start}" if start else "starts"
    print(f"rank {rank} of {world} {begins}", flush=True)

    places, labels = (on(part) for part in points(4096, seed=2))
    # The state before a step is given up to it, though its save may be in flight: it is on the host already.
    train = jax.jit(train_step, donate_argnums=0)
    for step in range((start or 0) + 1, STEPS + 1):
        state, loss = train(state, places, labels)
        jax.block_until_ready(loss)
        time.sleep(STEP_SECONDS)
        checkpointer.step(step, state)  # +
        if rank == 0 and step % 10 == 0:
            print(f"step {step}/{STEPS} loss {float(loss.addressable_data(0))!r}", flush=True)
    checkpointer.close()  # +

    places, labels = points(1024, seed=3)
    whole = multihost_utils.process_allgather(state["weights"], tiled=True)
    accuracy = float(np.mean((np.asarray(logits(whole, places)) > 0) == (labels > 0.5)))
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    jax.distributed.shutdown()
    return 0 if accuracy >= TARGET_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
