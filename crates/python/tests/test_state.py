"""What can be saved, what comes back, and what is refused."""

import collections
import math
import random
import subprocess
import sys
import warnings

import numpy
import torch
from common import Case

from trainyard_checkpoint import Checkpointer, CheckpointError, CheckpointWarning, Damaged, Fenced, Save


class Stateful:
    """Anything with a state."""

    def __init__(self, state: object) -> None:
        self.state = state

    def state_dict(self) -> object:
        return self.state

    def load_state_dict(self, state: object) -> None:
        self.state = state


class State(Case):
    def saved(self, step: int = 1, **state: object) -> Save:
        with Checkpointer(self.root) as checkpointer:
            save = checkpointer.save(step, wait=True, **state)
            self.assertIsNone(save.failed)
            self.assertTrue(save.committed())
            return save

    def test_nested_values(self) -> None:
        state = {
            "none": None,
            "truth": [True, False],
            "numbers": (1, -(2**62), 2**70, 0.1, -0.0, math.inf, 1e-320),
            "text": "π $ \n",
            "bytes": b"\x00\xff",
            "complex": 1.5 - 2j,
            "set": {3, 1},
            "keys": {1: "one", (2, "b"): "pair", "$tensor": "no tensor"},
            "counter": collections.Counter({7: 2}),
            "scalar": numpy.float64(0.3),
            "type": torch.bfloat16,
            "size": torch.Size([2, 3]),
        }
        self.saved(thing=Stateful(state))
        found = Stateful(None)
        self.assertEqual(Checkpointer(self.root).restore(thing=found), 1)
        self.assertEqual(found.state, {**state, "size": (2, 3)})
        self.assertEqual(math.copysign(1, found.state["numbers"][4]), -1)
        self.assertIs(type(found.state["counter"]), collections.Counter)
        self.assertIs(type(found.state["scalar"]), numpy.float64)
        nan = Stateful({"nan": math.nan})
        self.saved(2, thing=nan)
        Checkpointer(self.root).restore(thing=found)
        self.assertTrue(math.isnan(found.state["nan"]))

    def test_tensors_of_every_type(self) -> None:
        generator = torch.Generator().manual_seed(4)
        state = {}
        for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"):
            state[name] = (torch.rand(3, 5, generator=generator) * 100 - 20).to(getattr(torch, name))
        for name in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex64"):
            state[name] = torch.ones(3).to(getattr(torch, name))
        state["scalar"] = torch.tensor(2.5)
        state["empty"] = torch.empty(0, 4)
        state["strided"] = torch.arange(12.0).reshape(3, 4).t()
        state["array"] = numpy.arange(6, dtype="int16").reshape(2, 3)
        self.saved(tensors=state)
        found: dict[str, object] = {}
        Checkpointer(self.root).restore(tensors=found)
        self.assertEqual(set(found), set(state))
        for name, value in state.items():
            with self.subTest(name):
                if isinstance(value, numpy.ndarray):
                    numpy.testing.assert_array_equal(found[name], value)
                    self.assertEqual(found[name].dtype, value.dtype)
                    continue
                self.assertEqual(found[name].dtype, value.dtype)
                self.assertEqual(found[name].shape, value.shape)
                self.assertEqual(
                    found[name].double().tolist() if not value.is_complex() else found[name].tolist(),
                    value.double().tolist() if not value.is_complex() else value.tolist(),
                )

    def test_batches(self) -> None:
        """Tensors that cannot be read in place, in batches of two memories; one is larger than a batch."""
        import trainyard_checkpoint._restore as inner

        self.addCleanup(setattr, inner, "_BATCH_BYTES", inner._BATCH_BYTES)
        inner._BATCH_BYTES = 4096
        state = {f"w{size}": torch.randn(size, 30) for size in (1, 7, 40, 200)}
        self.saved(**state)
        found = {name: torch.zeros(30, len(value)).t() for name, value in state.items()}
        self.assertFalse(found["w200"].is_contiguous())
        Checkpointer(self.root).restore(**found)
        for name, value in state.items():
            self.assertTrue(torch.equal(found[name], value), name)
        array = numpy.zeros((30, 200), dtype="float32").T
        Checkpointer(self.root).restore(**{**found, "w200": array})
        numpy.testing.assert_array_equal(array, state["w200"].numpy())

    def test_state_may_change_after_save(self) -> None:
        weight = torch.arange(300_000, dtype=torch.float32)
        want = weight.clone()
        with Checkpointer(self.root) as checkpointer:
            save = checkpointer.save(1, weight=weight)
            self.assertTrue(save.snapshotted())
            weight.zero_()
            self.assertTrue(save.committed(60))
        Checkpointer(self.root).restore(weight=weight)
        self.assertTrue(torch.equal(weight, want))

    def test_random_numbers(self) -> None:
        def draw() -> list[float]:
            return [random.random(), float(numpy.random.rand()), torch.rand(1).item()]

        random.seed(1), numpy.random.seed(2), torch.manual_seed(3)
        draw()
        self.saved(x=1)
        want = draw()
        draw()
        Checkpointer(self.root).restore(x=0)
        self.assertEqual(draw(), want)

    def test_foreign_objects_are_refused_with_their_path(self) -> None:
        module = torch.nn.Linear(2, 2)
        cases = [
            ({"a": {"b": [1, object()]}}, "cannot save `a.b.1`: objects of type `object` are not supported"),
            ({"a": torch.zeros(2).to_sparse()}, "cannot save `a`: it is sparse"),
            ({"a": {"b": torch.zeros(2, dtype=torch.complex128)}}, "cannot save `a.b`: tensors of type `torch.complex128`"),
            ({"a": numpy.array(["text"])}, "cannot save `a`: arrays of type"),
            ({"a": {"b.c": torch.zeros(1), "b": {"c": torch.ones(1)}}}, "cannot save `a.b.c`: two tensors have this name"),
            ({"optimizer": torch.optim.SGD(module.parameters())}, "cannot save `optimizer`: parameter 0 of group 0 has no name"),
            ({}, "nothing to save"),
        ]
        with Checkpointer(self.root) as checkpointer:
            for state, want in cases:
                with self.subTest(want), self.assertRaises(CheckpointError) as raised:
                    checkpointer.save(1, **state)
                self.assertIn(want, str(raised.exception))
            self.assertTrue(checkpointer.save(2, a=1).committed(60))

    def test_mismatch_is_named(self) -> None:
        self.saved(model=torch.nn.Linear(3, 2), extra=1)
        cases = [
            ({"model": torch.nn.Linear(3, 2)}, "saved and not asked for: `extra`"),
            ({"model": torch.nn.Linear(3, 4), "extra": 1}, "`model.weight` has type F32 and shape [4, 3]"),
            ({"model": torch.nn.Linear(3, 2, bias=False), "extra": 1}, "saved and not in it: `bias`"),
            ({"model": torch.nn.Linear(3, 2), "extra": 1, "more": 2}, "not saved: `more`"),
            ({"model": torch.nn.Linear(3, 2).double(), "extra": 1}, "type F32 and shape [2, 3] were saved"),
        ]
        for state, want in cases:
            with self.subTest(want), self.assertRaises(CheckpointError) as raised:
                Checkpointer(self.root).restore(**state)
            self.assertIn(want, str(raised.exception))
        self.assertEqual(Checkpointer(self.root).restore(strict=False, model=torch.nn.Linear(3, 2)), 1)

    def test_arguments(self) -> None:
        cases = [
            ({"drain_every": 10}, "and `local` is not given"),
            ({"local": "s3://bucket/run"}, "`local` must be the path of a folder of the node"),
            ({"local": "/nowhere", "bandwidth": 0}, "`bandwidth` must be a number of 1 or more"),
            ({"rank": 1}, "`rank` and `world` go together"),
        ]
        for arguments, want in cases:
            with self.subTest(want), self.assertRaises(CheckpointError) as raised:
                Checkpointer(self.root, **arguments)
            self.assertIn(want, str(raised.exception))
        with self.assertRaisesRegex(CheckpointError, "is not supported; give a folder that all ranks see, or `s3://bucket/prefix`"):
            Checkpointer("gs://bucket/run")
        with self.assertRaisesRegex(CheckpointError, "rank 3 of 2 ranks does not exist"):
            Checkpointer(self.root, rank=3, world=2).restore(x=1)

    def test_damaged_step_is_passed_over(self) -> None:
        weight = torch.full((1000,), 1.0)
        with Checkpointer(self.root) as checkpointer:
            for step in (1, 2):
                self.assertTrue(checkpointer.save(step, weight=weight * step).committed(60))
        newest = next((self.folder / "root" / "steps").glob("*0002-*"))
        data = newest / "00000.safetensors"
        bytes_ = bytearray(data.read_bytes())
        bytes_[-1] ^= 1
        data.write_bytes(bytes_)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(Checkpointer(self.root).restore(weight=weight), 1)
        self.assertEqual(weight.tolist(), [1.0] * 1000)
        self.assertTrue(any("is damaged in chunk 0" in str(one.message) for one in caught), caught)
        self.assertTrue(all(one.category is CheckpointWarning for one in caught))
        for data in (self.folder / "root" / "steps").glob("*/*.safetensors"):
            data.write_bytes(b"")
        # To begin at step 0 would hide what may still be recovered.
        with self.assertRaisesRegex(Damaged, "no step can be restored: step 1 "):
            Checkpointer(self.root).restore(weight=weight)

    def test_commit_that_cannot_be_read_is_not_ignored(self) -> None:
        def flip(step: int) -> None:
            commit = next((self.folder / "root" / "steps").glob(f"*{step:04}-*")) / "COMMIT.json"
            bytes_ = bytearray(commit.read_bytes())
            bytes_[40] ^= 1
            commit.write_bytes(bytes_)

        with Checkpointer(self.root) as checkpointer:
            for step in (1, 2):
                self.assertTrue(checkpointer.save(step, x=step).committed(60))
        flip(1), flip(2)
        with self.assertRaisesRegex(Damaged, "no step can be restored: step 2 .*: its commit cannot be read: "):
            Checkpointer(self.root).restore(x=0)
        flip(1)
        with self.assertWarnsRegex(CheckpointWarning, "passed over step 2 .*: its commit cannot be read: "):
            self.assertEqual(Checkpointer(self.root).restore(x=0), 1)

    def test_two_attempts(self) -> None:
        first = Checkpointer(self.root, attempt=4)
        self.assertIsNone(first.restore(x=1))
        self.assertTrue(first.save(1, x=1).committed(60))
        second = Checkpointer(self.root, attempt=5)
        self.assertEqual(second.restore(x=1), 1)
        late = first.save(2, x=2)
        self.assertFalse(late.committed(60))
        self.assertIsInstance(late.failed, Fenced)
        with self.assertRaisesRegex(Fenced, "attempt 5.* has begun"):
            first.save(3, x=3)
        with self.assertRaises(Fenced):
            Checkpointer(self.root, attempt=3).restore(x=1)
        self.assertTrue(second.save(2, x=5).committed(60))
        third = Checkpointer(self.root)
        third.restore(x=1)
        self.assertEqual((third.values["x"], self.steps()), (5, [1, 2]))

    def test_retention(self) -> None:
        with Checkpointer(self.root, keep=2, keep_every=4) as checkpointer:
            for step in range(1, 9):
                self.assertTrue(checkpointer.save(step, x=step).committed(60))
        self.assertEqual(self.steps(), [4, 7, 8])

    def test_nothing_happens_before_the_first_call(self) -> None:
        Checkpointer(self.root)
        self.assertFalse((self.folder / "root").exists())

    def test_import_is_light(self) -> None:
        script = (
            "import sys, threading; import trainyard_checkpoint;"
            "assert threading.active_count() == 1;"
            "assert not {'torch', 'numpy', 'jax'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_numbers_without_torch(self) -> None:
        script = (
            "import sys; from trainyard_checkpoint import Checkpointer;"
            "ck = Checkpointer(sys.argv[1]); state = {'x': [1, 2.5]};"
            "print(ck.restore(state=state), ck.values); assert ck.save(3, state=state).committed(60); assert 'torch' not in sys.modules"
        )
        command = [sys.executable, "-c", script, self.root]
        first = subprocess.run(command, check=True, capture_output=True, text=True)
        self.assertEqual(first.stdout, "None {}\n")
        second = subprocess.run(command, check=True, capture_output=True, text=True)
        self.assertEqual(second.stdout, "3 {'state': {'x': [1, 2.5]}}\n")

    def test_everything_damaged(self) -> None:
        self.saved(weight=torch.ones(10))
        data = next((self.folder / "root" / "steps").glob("*/*.safetensors"))
        bytes_ = bytearray(data.read_bytes())
        bytes_[-1] ^= 1
        data.write_bytes(bytes_)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self.assertRaisesRegex(Damaged, "no step can be restored: .*is damaged in chunk 0"):
                Checkpointer(self.root).restore(weight=torch.zeros(10))
