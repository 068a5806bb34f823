"""Trees of JAX: saved by one layout of devices and processes, restored by another."""

import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing
import unittest
import unittest.mock

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from trainyard_checkpoint import CheckpointError  # noqa: E402
from trainyard_checkpoint.jax import Checkpointer  # noqa: E402

PATIENCE = 400
# What rank 0 prints before it ends where another program has its port.
TAKEN = "Failed to add port to server"


class Moments(typing.NamedTuple):
    """As the states of optax are."""

    count: jax.Array
    mu: dict


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    """As the TrainState of flax is."""

    step: int
    params: dict
    moments: Moments
    kept: dict = dataclasses.field(metadata={"static": True}, default_factory=dict)


class Adapter(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="trainyard-checkpoint-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = str(self.folder / "root")

    def saved(self, state: object, root: str | None = None) -> None:
        with Checkpointer(root or self.root) as checkpointer:
            save = checkpointer.save(1, state, wait=True)
            self.assertTrue(save.committed(), save.failed)

    def restored(self, like: object, root: str | None = None, **options: bool) -> typing.Any:
        with Checkpointer(root or self.root) as checkpointer:
            step, state = checkpointer.restore(like, **options)
        self.assertEqual(step, 1)
        return state

    def test_structures_and_types(self) -> None:
        types = ["float32", "bfloat16", "float16", "int8", "uint32", "bool", "complex64", "float8_e4m3fn"]
        params = {name: jnp.arange(6).reshape(2, 3).astype(name) for name in types}
        state = State(5, {"a": params, "b": [jnp.float32(2), (np.arange(3), 1.5, "x", None)]}, Moments(jnp.zeros((), "int32"), {"w": jnp.ones(0)}))
        self.saved(state)
        found = self.restored(jax.tree.map(lambda value: value, state))
        self.assertEqual(jax.tree.structure(found), jax.tree.structure(state))
        for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(found), strict=True):
            with self.subTest(jax.tree_util.keystr(path)):
                self.assertEqual(type(one), type(other))
                self.assertTrue(np.array_equal(np.asarray(one), np.asarray(other)))

    def test_restored_state_trains_in_jit(self) -> None:
        """What had no fixed device has none afterwards, so it goes with arrays on several devices."""
        mesh = Mesh(np.array(jax.devices()), ("x",))
        state = {"w": jax.device_put(jnp.ones((4, 2)), NamedSharding(mesh, PartitionSpec("x"))), "count": jnp.zeros(())}
        step = jax.jit(lambda state: {"w": state["w"] + state["count"], "count": state["count"] + 1}, donate_argnums=0)
        with Checkpointer(self.root, every=1) as checkpointer:
            self.assertEqual(checkpointer.restore(state)[0], None)
            save = checkpointer.step(1, state)
            # The buffers are gone before the step is committed.
            state = step(step(state))
            self.assertTrue(save.committed(PATIENCE), save.failed)
        found = step(self.restored(state))
        self.assertEqual((float(found["count"]), np.asarray(found["w"]).tolist()), (1.0, [[1.0, 1.0]] * 4))

    def test_grace_with_several_processes(self) -> None:
        """JAX finds the step at which all processes save; the copy to the root then gets what the grace time leaves, not the deadline."""
        # More than one chunk of 16 MiB, so that the limit of the copy shows.
        state = {"w": jnp.ones(9 << 20)}
        checkpointer = Checkpointer(self.root, local=str(self.folder / "local"), bandwidth=1000, grace=1, deadline=PATIENCE)
        with unittest.mock.patch("trainyard_checkpoint.jax.reached_preemption", return_value=True):
            checkpointer.step(1, state)
        begun = time.monotonic()
        with self.assertWarnsRegex(UserWarning, "the newest step is on the local tier only"):
            checkpointer.close()
        self.assertLess(time.monotonic() - begun, PATIENCE / 2)

    def test_other_shardings(self) -> None:
        devices = np.array(jax.devices())
        grid = Mesh(devices.reshape(2, 2), ("x", "y"))
        table = np.arange(8 * 6, dtype=np.float32).reshape(8, 6)
        specs = [PartitionSpec(), PartitionSpec("x"), PartitionSpec(None, "y"), PartitionSpec("x", "y"), PartitionSpec(("y", "x"))]
        for place, spec in enumerate(specs):
            root = f"{self.root}-{place}"
            self.saved({"w": jax.device_put(table, NamedSharding(grid, spec))}, root)
            for other in specs:
                with self.subTest(saved=str(spec), restored=str(other)):
                    like = jax.ShapeDtypeStruct(table.shape, table.dtype, sharding=NamedSharding(grid, other))
                    found = self.restored({"w": like}, root)["w"]
                    self.assertEqual(found.sharding, like.sharding)
                    self.assertTrue(np.array_equal(np.asarray(found), table))
            self.assertTrue(np.array_equal(self.restored({"w": np.zeros_like(table)}, root)["w"], table))

    def test_keys_of_random_numbers(self) -> None:
        state = {"key": jax.random.key(3), "keys": jax.random.split(jax.random.key(4), 3), "old": jax.random.PRNGKey(5)}
        self.saved(state)
        found = self.restored({"key": jax.random.key(0), "keys": jax.random.split(jax.random.key(0), 3), "old": jax.random.PRNGKey(0)})
        self.assertEqual(jax.random.uniform(found["key"]), jax.random.uniform(state["key"]))
        self.assertEqual(jax.random.uniform(found["keys"][2]), jax.random.uniform(state["keys"][2]))
        self.assertTrue(np.array_equal(found["old"], state["old"]))

    def test_what_does_not_fit(self) -> None:
        self.saved({"a": jnp.ones((2, 3)), "b": 1})
        cases = {
            "`a` has type F32 and shape [3, 2], and type F32 and shape [2, 3] were saved": {"a": jnp.ones((3, 2)), "b": 1},
            "`a` has type I32 and shape [2, 3], and type F32": {"a": jnp.ones((2, 3), "int32"), "b": 1},
            "not saved: `c`; saved and not in the tree: `b`": {"a": jnp.ones((2, 3)), "c": 1},
            "`b` is an array, and what was saved is not": {"a": jnp.ones((2, 3)), "b": jnp.ones(())},
            "`a` is a plain value, and what was saved is not": {"a": 1, "b": 1},
        }
        for message, like in cases.items():
            with self.subTest(message), self.assertRaises(CheckpointError) as raised:
                self.restored(like)
            self.assertIn(message, str(raised.exception))
        found = self.restored({"a": jnp.zeros((2, 3)), "c": 5}, strict=False)
        self.assertEqual((float(found["a"][1, 2]), found["c"]), (1.0, 5))
        refused = {
            "cannot save `state.a`: objects of type `object` are not supported": {"a": object()},
            "cannot save `a.b`: two leaves of the tree have this name": {"a.b": 1, "a": {"b": 2}},
            "cannot save `state.a`: arrays of type `int4` are not supported": {"a": jnp.ones(2, "int4")},
        }
        with Checkpointer(self.root) as checkpointer:
            for message, state in refused.items():
                with self.subTest(message), self.assertRaises(CheckpointError) as raised:
                    checkpointer.save(2, state)
                self.assertIn(message, str(raised.exception))
        with self.assertRaisesRegex(CheckpointError, "`rank` is decided by JAX"):
            Checkpointer(self.root, rank=0)

    def ranks(self, what: str, world: int, devices: int, port: int | None = None) -> list[dict]:
        if port is None:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        script = pathlib.Path(__file__).with_name("jax_ranks.py")
        commands = [[sys.executable, script, what, self.root, port, rank, world, devices] for rank in range(world)]
        started = [
            subprocess.Popen([str(one) for one in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands
        ]
        ended = []
        try:
            for one in started:
                ended.append(one.communicate(timeout=PATIENCE))
                if one.returncode != 0:
                    # The others would wait for it.
                    break
        finally:
            for one in started:
                one.kill()
                one.communicate()
        if started[0].returncode != 0 and TAKEN in ended[0][1]:
            # Somebody else took the port before rank 0 did. Nothing was saved or restored yet.
            return self.ranks(what, world, devices)
        for one, (_, error) in zip(started, ended):
            self.assertEqual(one.returncode, 0, error[-4000:])
        return [json.loads(output.splitlines()[-1]) for output, _ in ended]

    def test_port_that_is_taken(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            found = self.ranks("save", 2, 1, taken.getsockname()[1])
        self.assertEqual([one["committed"] for one in found], [1, 1])

    def test_several_processes(self) -> None:
        self.assertEqual(self.ranks("save", 2, 2), [{"committed": 1, "failed": 0, "skipped": 0}] * 2)
        [folder] = (self.folder / "root" / "steps").iterdir()
        sizes = [one.stat().st_size for one in folder.glob("*.safetensors")]
        self.assertEqual(len(sizes), 2)
        # Rows and columns are divided by a rule that both layouts have; boxes that are apart are listed.
        for layout in folder.glob("layout-*.json"):
            entries = json.loads(layout.read_text())["tensors"]
            splits = {entry["name"]: entry.get("split") for entry in entries}
            self.assertEqual([splits[f"state.{name}"] for name in ("rows", "columns", "apart")], [[[0, 0]], [[1, 0]], None])
            self.assertEqual(sum(entry["name"] == "state.apart" for entry in entries), 2)
        for world, devices in ((2, 2), (1, 3), (2, 1)):
            with self.subTest(world=world, devices=devices):
                self.assertEqual(self.ranks("load", world, devices), [{"step": 9, "different": []}] * world)

    def test_processes_must_have_the_same_arrays(self) -> None:
        """Rank 0 writes what every process has of its own: what it does not have would be written by nobody."""
        for rank, found in enumerate(self.ranks("uneven", 2, 1)):
            *missing, refused, good = found["errors"]
            for text in missing:
                self.assertIn("rank 1: it has `state.more`, and rank 0 does not have it", text)
            begin = "cannot save `state.count`" if rank == 1 else "rank 1 could not save: cannot save `state.count`"
            self.assertTrue(refused.startswith(begin), refused)
            self.assertEqual((good, found["committed"]), ("", 1))
        self.assertEqual([one.name[:12] for one in (self.folder / "root" / "steps").iterdir()], ["000000000004"])

    def test_sigterm(self) -> None:
        with self.assertRaises(SystemExit) as ended, Checkpointer(self.root) as checkpointer:
            checkpointer.step(3, {"a": jnp.ones(2)})
            os.kill(os.getpid(), signal.SIGTERM)
            checkpointer.step(4, {"a": jnp.ones(2)})
        self.assertEqual(ended.exception.code, 143)
        self.assertEqual([one.name[:12] for one in (self.folder / "root" / "steps").iterdir()], ["000000000004"])

    def test_sigterm_with_several_processes(self) -> None:
        found = self.ranks("sigterm", 2, 1)
        self.assertEqual(found, [{"step": found[0]["step"], "committed": 1, "failed": 0, "skipped": 0}] * 2)
        self.assertGreater(found[0]["step"], 5)


if __name__ == "__main__":
    unittest.main()
