"""A local tier in front of the root."""

import os
import pathlib
import shutil
import signal
import unittest
import warnings

import torch
from common import PATIENCE, Case

from trainyard_checkpoint import Checkpointer, CheckpointError, CheckpointWarning


class Tiers(Case):
    def setUp(self) -> None:
        super().setUp()
        self.local = str(self.folder / "local")

    def data(self, root: str, step: int, rank: int = 0) -> pathlib.Path:
        (folder,) = pathlib.Path(root, "steps").glob(f"{step:012}-*")
        return folder / f"{rank:05}.safetensors"

    def restored(self, **arguments: object) -> tuple[int | None, float, str | None]:
        weight = torch.zeros(1000)
        with Checkpointer(self.root, local=self.local, **arguments) as checkpointer:  # type: ignore[arg-type]
            step = checkpointer.restore(weight=weight)
            return step, weight[0].item(), checkpointer.restored_from

    def save(self, *steps: int, **arguments: object) -> None:
        with Checkpointer(self.root, local=self.local, **arguments) as checkpointer:  # type: ignore[arg-type]
            checkpointer.restore(strict=False)
            for step in steps:
                self.assertTrue(checkpointer.save(step, weight=torch.full((1000,), float(step))).committed(60))

    def test_end_brings_the_newest_to_the_root(self) -> None:
        self.save(1, 2, 3, drain_every=2)
        self.assertEqual(self.steps(self.local)[-1], 3)
        self.assertIn(3, self.steps())
        self.assertEqual(self.restored(), (3, 3.0, "from local, step 3; shared has 3"))

    def test_lost_local_tier(self) -> None:
        self.save(1)
        shutil.rmtree(self.local)
        self.assertEqual(self.restored(), (1, 1.0, "from shared, step 1; local has none"))

    def test_flipped_byte_is_read_from_the_root(self) -> None:
        self.save(1)
        data = self.data(self.local, 1)
        content = bytearray(data.read_bytes())
        content[-5] ^= 1
        data.write_bytes(content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertEqual(self.restored()[:2], (1, 1.0))
        said = [str(one.message) for one in caught if one.category is CheckpointWarning]
        self.assertTrue(any("on local; read from shared" in one for one in said), said)

    def test_local_tier_of_another_run(self) -> None:
        with Checkpointer(self.local) as other:
            other.save(1, wait=True, weight=torch.ones(3))
        with self.assertRaisesRegex(CheckpointError, "cannot use the local tier .* are of run"):
            self.restored()

    def test_end_names_a_step_that_stays_behind(self) -> None:
        # More than one chunk of 16 MiB, so that the limit of the copy shows.
        weight = torch.ones(9 << 20)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            checkpointer = Checkpointer(self.root, local=self.local, bandwidth=1000)
            self.assertTrue(checkpointer.save(7, weight=weight).committed(60))
            checkpointer.close(timeout=0.5)
        said = [str(one.message) for one in caught]
        self.assertEqual((self.steps(self.local), self.steps()), ([7], []), said)
        self.assertTrue(any(one.startswith("the newest step is on the local tier only") for one in said), said)
        # The next attempt copies it, also where it saves nothing.
        with Checkpointer(self.root, local=self.local) as checkpointer:
            self.assertEqual(checkpointer.restore(weight=weight), 7)
        self.assertEqual(self.steps(), [7])

    def test_arguments(self) -> None:
        for arguments, why in (
            ({"local": 5}, "`local` must be the path of a folder of the node, found `5`"),
            ({"local": "s3://bucket/x"}, "`local` must be the path of a folder of the node"),
            ({"drain_every": 5}, "`local` is not given"),
            ({"local": "x", "bandwidth": 0}, "`bandwidth` must be a number of 1 or more"),
            ({"local": "x", "grace": -1}, "`grace` must be seconds, 0 or more"),
        ):
            with self.assertRaisesRegex(CheckpointError, why):
                Checkpointer(self.root, **arguments)  # type: ignore[arg-type]

    def preempted(self, local: str, root: str, grace: int, bandwidth: int) -> str:
        """Sends SIGTERM to a training loop; what it printed after."""
        child = self.start("preempted.py", root, local, grace, bandwidth)
        self.assertEqual(child.output.readline(), "start None 0 None\n")
        assert child.process.pid is not None
        os.kill(child.process.pid, signal.SIGTERM)
        return self.finish(child, 143)

    def test_deadline_chooses_the_tier_that_fits(self) -> None:
        # The limit of the copy gives the shared tier three times as long as SIGKILL does. The test waits for neither.
        said = self.preempted(self.local, self.root, PATIENCE, (1 << 20) // (3 * PATIENCE))
        (step,) = self.steps(self.local)
        self.assertEqual(self.steps(), [], said)
        self.assertRegex(said, rf"on the local tier only: step {step} is not copied: it takes .* s, .* left")
        again = self.finish(self.start("preempted.py", self.root, self.local, 30, 0))
        self.assertEqual(again, f"start {step} {step} from local, step {step}; shared has none\n")
        self.assertEqual(self.steps(), [step])

    def test_deadline_leaves_time_for_both(self) -> None:
        said = self.preempted(self.local, self.root, PATIENCE, 0)
        self.assertEqual(self.steps(), self.steps(self.local), said)
        self.assertEqual(len(self.steps()), 1)
        self.assertNotIn("only", said)

    def locals(self) -> list[str]:
        return [f"{self.local}-{rank}" for rank in range(2)]

    def test_nodes_save_and_bring_together(self) -> None:
        self.ranks(2, "node-save", self.local, 1, 2)
        self.assertIn(2, self.steps())
        self.ranks(2, "node-lost", self.local, 3)
        self.assertEqual([self.steps(local)[-1] for local in self.locals()], [3, 3])
        self.assertEqual(self.steps()[-1], 2)
        # Only the two disks together have step 3: it is brought to the root, from which each reads what the other wrote.
        found = self.ranks(2, "node-load", self.local)
        for rank, one in enumerate(found):
            self.assertEqual((one["start"], one["sampler"]), (3, {"step": 3, "rank": rank}))
        self.assertEqual(found[0]["source"], "from local and peer, step 3; shared has 2")
        self.assertEqual(self.steps()[-1], 3)

    def test_lost_node(self) -> None:
        self.ranks(2, "node-save", self.local, 1)
        self.ranks(2, "node-lost", self.local, 2)
        shutil.rmtree(self.locals()[1])
        found = self.ranks(2, "node-load", self.local)
        for rank, one in enumerate(found):
            self.assertEqual((one["start"], one["sampler"]), (1, {"step": 1, "rank": rank}))
        self.assertRegex(str(found[0]["source"]), "^from local and shared, step 1; 1 step is lost: step 2 .*: no tier has the piece of rank 1 in full")

    def test_refused_local_tier_stops_all_ranks(self) -> None:
        found = self.ranks(2, "node-refused", self.local)
        self.assertEqual([one["refused"] for one in found], ["rank 1 cannot use its local tier: no disk", "no disk"])
        self.assertEqual([one["committed"] for one in found], [True, True])

    def test_damaged_piece_of_another_node(self) -> None:
        self.ranks(2, "node-save", self.local, 1)
        self.ranks(2, "node-lost", self.local, 2)
        data = self.data(self.locals()[1], 2, 1)
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        found = self.ranks(2, "node-load", self.local)
        self.assertEqual([one["start"] for one in found], [1, 1])


if __name__ == "__main__":
    unittest.main()
