"""Data-parallel JAX on CPUs: is a point inside the ring or outside?

Every process holds its share of the points; the gradients are averaged by XLA's all-reduce over all
processes. Process 0 saves every 20 steps and hands what it finds there to the others.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS = 200
SAVE_EVERY = 20
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


@jax.jit
def train_step(state: dict, places: jax.Array, labels: jax.Array) -> tuple[dict, jax.Array]:
    """One step of Adam."""
    loss, gradient = jax.value_and_grad(loss_of)(state["weights"], places, labels)
    step = state["step"] + 1
    mean = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["mean"], gradient)
    square = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new**2, state["square"], gradient)
    rate = 0.05 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    move = lambda value, mean, square: value - rate * mean / (jnp.sqrt(square) + 1e-8)
    weights = jax.tree.map(move, state["weights"], mean, square)
    return {"weights": weights, "mean": mean, "square": square, "step": step}, loss


def load(path: str, state: dict) -> dict:
    """What process 0 finds, or else `state`, handed to all."""
    leaves, shape = jax.tree.flatten(state)
    if jax.process_index() == 0 and os.path.exists(path):
        with np.load(path) as found:
            leaves = [found[f"arr_{at}"] for at in range(len(leaves))]
    return jax.tree.unflatten(shape, multihost_utils.broadcast_one_to_all(leaves))


def save(path: str, state: dict) -> None:
    """All or nothing: a kill at any moment leaves the last whole file."""
    with open(path + ".part", "wb") as file:
        np.savez(file, *jax.tree.leaves(state))
    os.replace(path + ".part", path)


def main() -> int:
    environ = os.environ
    jax.distributed.initialize(
        coordinator_address=f"{environ['COORDINATOR_ADDRESS']}:{environ['COORDINATOR_PORT']}",
        num_processes=int(environ["NUM_PROCESSES"]),
        process_id=int(environ["PROCESS_ID"]),
    )
    rank, world = jax.process_index(), jax.process_count()
    path = os.path.join(environ.get("CHECKPOINT_DIR", "."), "model.npz")

    random = np.random.default_rng(1)
    shapes = {"in": (2, 32), "in_bias": (32,), "out": (32,), "out_bias": ()}
    weights = {name: random.normal(size=shape, scale=1.0) for name, shape in shapes.items()}
    weights = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    zeros = jax.tree.map(np.zeros_like, weights)
    state = {"weights": weights, "mean": zeros, "square": zeros, "step": np.float32(0)}
    state = jax.tree.map(np.asarray, load(path, state))
    start = int(state["step"])
    begins = f"resumed from step {start}" if start else "starts"
    print(f"rank {rank} of {world} {begins}", flush=True)

    devices = Mesh(np.array(jax.devices()), ("data",))
    spread, everywhere = (NamedSharding(devices, PartitionSpec(*axes)) for axes in (["data"], []))
    places, labels = (
        jax.make_array_from_process_local_data(spread, part[rank::world]) for part in points(4096, seed=2)
    )
    state = jax.tree.map(lambda value: jax.make_array_from_process_local_data(everywhere, value), state)
    own = lambda tree: jax.tree.map(lambda value: np.asarray(value.addressable_data(0)), tree)
    for step in range(start + 1, STEPS + 1):
        state, loss = train_step(state, places, labels)
        jax.block_until_ready(loss)
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            save(path, own(state))
            print(f"step {step}/{STEPS} loss {float(own(loss)):.4f}", flush=True)

    places, labels = points(1024, seed=3)
    guessed = np.asarray(logits(own(state["weights"]), places)) > 0
    accuracy = float(np.mean(guessed == (labels > 0.5)))
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    jax.distributed.shutdown()
    return 0 if accuracy >= TARGET_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
