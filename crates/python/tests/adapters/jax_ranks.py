"""One process of a test with several: jax_ranks.py WHAT ROOT PORT RANK WORLD DEVICES; the last line is the result as JSON."""

import json
import os
import signal
import sys

what, root, port, rank, world, devices = sys.argv[1:]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from trainyard_checkpoint.jax import Checkpointer  # noqa: E402

if int(world) > 1:
    jax.distributed.initialize(f"127.0.0.1:{port}", int(world), int(rank))

mesh = Mesh(np.array(jax.devices()), ("all",))
table = np.arange(24 * 5, dtype=np.float32).reshape(24, 5)
# Every process has devices that are not neighbours: two boxes of one array that are not one box.
apart = Mesh(np.array(jax.devices()).reshape(int(world), -1).T.reshape(-1), ("all",))


def on(value: np.ndarray, *axes: object, devices: Mesh = mesh) -> jax.Array:
    return jax.make_array_from_callback(value.shape, NamedSharding(devices, PartitionSpec(*axes)), lambda index: value[index])


def made(number: int) -> dict:
    """A state whose every value depends on the number."""
    values = table * number
    return {
        "rows": on(values, "all"),
        "columns": on(values.T.copy(), None, "all"),
        "apart": on(values, "all", devices=apart),
        "everywhere": on(values),
        "own": jnp.full(3, float(number)),
        "host": np.full(4, number),
        "key": jax.random.key(number),
        "key everywhere": jax.random.wrap_key_data(on(np.asarray(jax.random.key_data(jax.random.key(number))))),
        "count": number,
    }


state = made(3)
checkpointer = Checkpointer(root)
if what == "save":
    start, _ = checkpointer.restore(state)
    save = checkpointer.save(9, state, wait=True)
    assert start is None and save.committed(), save.failed
    print(json.dumps(checkpointer.counts))
elif what == "sigterm":
    # Rank 0 gets it, and all save at a step that JAX chooses.
    checkpointer.restore(state)
    for step in range(1, 100_000):
        if step == 5 and rank == "0":
            os.kill(os.getpid(), signal.SIGTERM)
        # Ranks of a training job are in step.
        multihost_utils.sync_global_devices("step")
        checkpointer.step(step, state)
        if checkpointer.preempted:
            break
    print(json.dumps({"step": step, **checkpointer.counts}))
else:
    step, found = checkpointer.restore(made(0))

    def is_same(one: object, other: object) -> bool:
        if not isinstance(one, jax.Array):
            return bool(np.array_equal(one, other))
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        parts = zip(one.addressable_shards, other.addressable_shards, strict=True)
        return one.sharding == other.sharding and all(a.index == b.index and np.array_equal(a.data, b.data) for a, b in parts)

    print(json.dumps({"step": step, "different": [name for name in state if not is_same(state[name], found[name])]}))
checkpointer.close()
if int(world) > 1:
    jax.distributed.shutdown()
