"""A Lightning Trainer that is stopped and continued trains as one that was never stopped; with both names of the package."""

import importlib
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch

# Called again with the other name.
PACKAGE = os.environ.get("LIGHTNING_PACKAGE", "lightning.pytorch")
pl = importlib.import_module(PACKAGE)
callbacks = importlib.import_module(f"{PACKAGE}.callbacks")

from trainyard_checkpoint import CheckpointError, NotFound  # noqa: E402
from trainyard_checkpoint.lightning import RandomNumbers, TrainyardCheckpointIO  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")
for name in ("lightning.pytorch", "pytorch_lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)


class Stopped(Exception):
    pass


class Batches:
    """Five batches in an epoch, with a state."""

    def __init__(self) -> None:
        self.taken = 0

    def __len__(self) -> int:
        return 5

    def __iter__(self):
        while self.taken < 5:
            self.taken += 1
            yield torch.full((4, 3), float(self.taken))
        self.taken = 0

    def state_dict(self) -> dict:
        return {"taken": self.taken}

    def load_state_dict(self, state: dict) -> None:
        self.taken = state["taken"]


class Model(pl.LightningModule):
    def __init__(self, stop: int | None) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        self.stop, self.losses = stop, {}

    def training_step(self, batch, _):
        loss = (self.layers(batch) - torch.randn(4, 1)).square().mean()
        self.losses[self.trainer.global_step + 1] = loss.item()
        return loss

    def on_train_batch_end(self, *_):
        if self.trainer.global_step == self.stop:
            raise Stopped

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)]


class Adapter(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="trainyard-checkpoint-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def fit(self, root: str, stop: int | None = None, path: str | None = None, **saves: object) -> tuple[Model, "pl.Trainer"]:
        torch.manual_seed(1)
        model = Model(stop)
        plugin = TrainyardCheckpointIO(self.folder / root, keep=2)
        keeper = callbacks.ModelCheckpoint(self.folder / f"{root} of Lightning", save_top_k=-1, **saves)
        trainer = pl.Trainer(
            plugins=[plugin],
            callbacks=[RandomNumbers(), keeper],
            accelerator="cpu",
            max_steps=18,
            default_root_dir=self.folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        try:
            trainer.fit(model, Batches(), ckpt_path=path or plugin.resume())
        finally:
            plugin.teardown()
        return model, trainer

    def test_same_losses_after_a_stop(self) -> None:
        cases = {"in an epoch": ({"every_n_train_steps": 3}, 9), "at ends of epochs": ({"every_n_epochs": 1}, 10)}
        for name, (saves, step) in cases.items():
            with self.subTest(name):
                whole, _ = self.fit(f"{name} whole", **saves)
                self.assertEqual(sorted(whole.losses), list(range(1, 19)))
                with self.assertRaises(Stopped):
                    self.fit(name, stop=11, **saves)
                resumed, _ = self.fit(name, **saves)
                self.assertEqual(sorted(resumed.losses), list(range(step + 1, 19)))
                self.assertEqual(resumed.losses, {at: loss for at, loss in whole.losses.items() if at > step})
                for one, other in zip(resumed.parameters(), whole.parameters()):
                    self.assertTrue(torch.equal(one, other))

    def test_files_name_steps(self) -> None:
        with self.assertRaises(Stopped):
            self.fit("root", stop=11, every_n_train_steps=3)
        found = sorted((self.folder / "root of Lightning").iterdir(), key=lambda one: json.loads(one.read_text())["step"])
        self.assertEqual([json.loads(one.read_text())["step"] for one in found], [3, 6, 9])
        plugin = TrainyardCheckpointIO(self.folder / "root")
        loaded = plugin.load_checkpoint(found[1])
        self.assertEqual((loaded["global_step"], len(loaded["optimizer_states"])), (6, 1))
        with self.assertRaisesRegex(NotFound, "step 3 is not in .* it was not committed, or removed since"):
            plugin.load_checkpoint(found[0])
        model, _ = self.fit("root", path=str(found[1]), every_n_train_steps=3)
        self.assertEqual(min(model.losses), 7)
        plugin.remove_checkpoint(found[1])
        self.assertFalse(found[1].exists())

    def test_weights_alone_are_written_by_lightning(self) -> None:
        _, trainer = self.fit("root", every_n_train_steps=6)
        path = self.folder / "weights.ckpt"
        trainer.save_checkpoint(path, weights_only=True)
        self.assertIn("state_dict", torch.load(path, weights_only=False))
        self.assertIn("state_dict", TrainyardCheckpointIO(self.folder / "root").load_checkpoint(path, weights_only=False))

    def test_refused(self) -> None:
        with self.assertRaisesRegex(CheckpointError, "`every` is decided by Lightning"):
            TrainyardCheckpointIO(self.folder / "root", every=5)
        with self.assertRaisesRegex(CheckpointError, "`keep` must be a number of 1 or more"):
            TrainyardCheckpointIO(self.folder / "root", keep=0)
        plugin = TrainyardCheckpointIO(self.folder / "root")
        self.assertIsNone(plugin.resume())
        with self.assertRaisesRegex(NotFound, "has no step to restore"):
            plugin.load_checkpoint(self.folder / "root")
        with self.assertRaises(FileNotFoundError):
            plugin.load_checkpoint(self.folder / "absent.ckpt")

    @unittest.skipIf("LIGHTNING_PACKAGE" in os.environ, "this is the other name")
    def test_other_name_of_the_package(self) -> None:
        command = [sys.executable, __file__, "Adapter.test_same_losses_after_a_stop"]
        ended = subprocess.run(command, env={**os.environ, "LIGHTNING_PACKAGE": "pytorch_lightning"}, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr[-4000:])


if __name__ == "__main__":
    unittest.main()
