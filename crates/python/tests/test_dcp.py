"""torch.distributed.checkpoint on our store."""

import json
import logging
import pathlib
import pickle
import warnings

import torch
import torch.distributed.checkpoint as dcp
from common import Case
from torch.distributed.checkpoint.api import CheckpointException

from trainyard_checkpoint import Checkpointer, CheckpointError
from trainyard_checkpoint.dcp import Reader, Writer


class Dcp(Case):
    def setUp(self) -> None:
        super().setUp()
        catching = warnings.catch_warnings()
        catching.__enter__()
        self.addCleanup(catching.__exit__, None, None, None)
        warnings.simplefilter("ignore")
        # dcp logs a traceback for every step that it does not find.
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)

    def each(self, world: int, what: str, *arguments: object) -> list[dict[str, object]]:
        return self.ranks(world, what, *arguments, script="dcp_rank.py")

    def test_other_numbers_of_ranks(self) -> None:
        """2 ranks save along one dimension, 4 load along the other and save, 3 load that."""
        for number, (saved, loaded, dims) in enumerate(((2, 4, (0, 1)), (4, 3, (1, 0))), start=1):
            for found in self.each(saved, "save", dims[0], number):
                self.assertEqual(found, {"collectives": []})
            self.assertEqual(self.steps(), list(range(1, number + 1)))
            for found in self.each(loaded, "load", dims[1], saved):
                self.assertEqual(found, {"step": number, "same": True, "collectives": []})

    def test_fsdp(self) -> None:
        saved = self.each(2, "fsdp-save")
        for found in self.each(3, "fsdp-load"):
            self.assertEqual(found, saved[0])

    def test_async_save(self) -> None:
        for found in self.each(2, "async"):
            self.assertEqual(found["found"], [[[float(step)], [float(step)]] for step in (1, 2, 3)])

    def test_staging_memory(self) -> None:
        """Kept from one save to the next; a save that still needs it never loses it."""
        state = {"weight": torch.ones(4000), "list": [1]}
        writer = Writer(self.root, 1)
        first = writer.stage(state)
        state["weight"].fill_(2)
        second = writer.stage(state)
        self.assertNotEqual(first["weight"].data_ptr(), second["weight"].data_ptr())
        self.assertEqual((first["weight"][0].item(), second["weight"][0].item()), (1.0, 2.0))
        place = first["weight"].data_ptr()
        dcp.save(first, storage_writer=writer)
        self.assertEqual(writer.stage(state)["weight"].data_ptr(), place)
        # The save of that copy never came, and nobody has it any longer.
        self.assertEqual(writer.stage(state)["weight"].data_ptr(), place)
        del first, second
        grown = writer.stage({**state, "more": torch.ones(2), "weight": torch.ones(9)})
        self.assertEqual((grown["weight"].shape, grown["more"].tolist()), ((9,), [1.0, 1.0]))

    def test_kill_before_the_commit(self) -> None:
        for moment in ("before", "after"):
            with self.subTest(moment):
                root = self.root = str(self.folder / moment)
                meeting = self.folder / f"meeting-{moment}"
                children = [
                    self.start("dcp_rank.py", "killed", root, meeting, moment, RANK=str(rank), WORLD_SIZE="2") for rank in (0, 1)
                ]
                for child in children:
                    child.output.read()
                    self.assertNotEqual(child.wait(), 0)
                self.assertEqual(self.steps(), [1])
                state = {"weight": torch.zeros(1000)}
                dcp.load(state, storage_reader=Reader(root))
                self.assertEqual(state["weight"].unique().tolist(), [1.0])

    def test_one_process(self) -> None:
        state = {"weight": torch.arange(6.0).reshape(2, 3), "empty": torch.empty(0, 4), "text": {"a": [1, "b"]}}
        dcp.save(state, storage_writer=Writer(self.root), checkpoint_id="3")
        found = {"weight": torch.zeros(2, 3).t().contiguous().t(), "empty": torch.empty(0, 4), "text": {"a": [0, ""]}}
        reader = Reader(self.root)
        self.assertEqual(reader.step, 3)
        dcp.load(found, storage_reader=reader)
        self.assertTrue(torch.equal(found["weight"], state["weight"]))
        self.assertEqual(found["text"], state["text"])
        # Another type is cast, as dcp does.
        other = {"weight": torch.zeros(2, 3, dtype=torch.float64)}
        dcp.load(other, storage_reader=Reader(self.root))
        self.assertEqual(other["weight"].tolist(), state["weight"].tolist())
        # The files are those of every other save: tensors can be read without dcp.
        weight = torch.zeros(2, 3)
        self.assertRaisesRegex(CheckpointError, "does not fit", Checkpointer(self.root).restore, weight=weight)

    def refused(self, want: str, call: object) -> None:
        with self.subTest(want), self.assertRaises((CheckpointError, CheckpointException)) as raised:
            call()
        self.assertRegex(str(raised.exception), want)

    def test_mistakes(self) -> None:
        state = {"weight": torch.ones(4)}
        self.refused("`root` must be the path", lambda: Writer(None, 1))
        self.refused("`step` must be a number", lambda: Writer(self.root, "1"))
        self.refused("`checkpoint_id` must be the number of a step, found `x`", lambda: dcp.save(state, storage_writer=Writer(self.root), checkpoint_id="x"))
        self.refused("give the number of the step", lambda: dcp.save(state, storage_writer=Writer(self.root)))
        self.refused("cannot be opened", lambda: dcp.load(state, storage_reader=Reader(str(self.folder / "none"))))
        self.refused("use `AsyncCheckpointerType.THREAD`", lambda: pickle.dumps(Writer(self.root, 1)))
        dcp.save(state, storage_writer=Writer(self.root, 1))
        self.refused("step 1 was saved by this process before", lambda: dcp.save(state, storage_writer=Writer(self.root, 1)))
        self.refused("does not have step 9", lambda: dcp.load(state, storage_reader=Reader(self.root, 9)))
        self.refused(
            "tensors of type `torch.complex128` are not supported",
            lambda: dcp.save({"w": torch.zeros(1, dtype=torch.complex128)}, storage_writer=Writer(self.root, 2)),
        )
        data = next(pathlib.Path(self.root, "steps").glob("*/*.safetensors"))
        bytes_ = bytearray(data.read_bytes())
        bytes_[-1] ^= 1
        data.write_bytes(bytes_)
        self.refused("is damaged in chunk 0", lambda: dcp.load(state, storage_reader=Reader(self.root)))

    def test_fence(self) -> None:
        """A later attempt fences a writer; a reader fences nobody; what was loaded is what the attempt resumes from."""
        state = {"weight": torch.ones(4)}
        for step in (1, 2):
            dcp.save(state, storage_writer=Writer(self.root, step))
        dcp.load(state, storage_reader=Reader(self.root, 1))
        dcp.save(state, storage_writer=Writer(self.root, 3))
        with Checkpointer(self.root) as other:
            other.save(4, x=1, wait=True)
        self.refused("fenced: attempt 1.0 has begun", lambda: dcp.save(state, storage_writer=Writer(self.root, 5)))
        self.assertEqual(self.steps(), [2, 3, 4])

    def test_resumes_from_what_was_loaded(self) -> None:
        import trainyard_checkpoint.dcp as inner

        state = {"weight": torch.ones(4)}
        for step in (1, 2):
            dcp.save(state, storage_writer=Writer(self.root, step))
        inner._runs.clear()  # As in a new process.
        dcp.load(state, storage_reader=Reader(self.root, 1))
        dcp.save(state, storage_writer=Writer(self.root, 7))
        record = json.loads(sorted(pathlib.Path(self.root, "attempts").glob("*1.0000.json"))[-1].read_text())
        self.assertIn("0001-", record["resumesFrom"]["folder"])
        self.assertEqual(Reader(self.root).step, 7)
