"""A local tier in front of the root."""

import os
import pathlib
import shutil
import signal
import unittest
import warnings

import torch
from common import Case

from trainyard_checkpoint import Checkpointer, CheckpointError, CheckpointWarning


class Tiers(Case):
    def setUp(self) -> None:
        super().setUp()
        self.local = str(self.folder / "local")

    def data(self, root: str, step: int) -> pathlib.Path:
        (folder,) = pathlib.Path(root, "steps").glob(f"{step:012}-*")
        return folder / "00000.safetensors"

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

    def test_sigterm_saves_locally_and_copies_what_fits(self) -> None:
        for bandwidth, is_on_root in ((None, True), (1000, False)):
            root, local = str(self.folder / f"root-{bandwidth}"), str(self.folder / f"local-{bandwidth}")
            checkpointer = Checkpointer(root, local=local, bandwidth=bandwidth, grace=3.0)
            checkpointer.restore(strict=False)
            # More than one chunk of 16 MiB, so that the limit shows.
            state = torch.ones(9 << 20 if bandwidth else 1000)
            os.kill(os.getpid(), signal.SIGTERM)
            with warnings.catch_warnings(record=True) as caught, self.assertRaises(SystemExit) as ended:
                warnings.simplefilter("always")
                checkpointer.step(7, weight=state)
            self.assertEqual(ended.exception.code, 143)
            self.assertEqual(self.steps(local), [7])
            self.assertEqual(self.steps(root), [7] if is_on_root else [], [str(one.message) for one in caught])
            if not is_on_root:
                self.assertTrue(any("step 7 was not copied" in str(one.message) or "local tier only" in str(one.message) for one in caught))


if __name__ == "__main__":
    unittest.main()
