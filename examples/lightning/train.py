"""The ring of examples/pytorch with Lightning: is a point inside the ring or outside?

Checkpoints go through `trainyard_checkpoint`: lines that end with `# +` are what it takes. A restart resumes from the newest
complete step in the middle of an epoch, and its losses are those of an uninterrupted run.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import logging
import os
import sys
import tempfile
import time
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import KubeflowEnvironment
from trainyard_checkpoint.lightning import RandomNumbers, TrainyardCheckpointIO  # +

STEPS = 200
EPOCH_BATCHES = 16
TARGET_ACCURACY = 0.95
# So that there is something to watch, and a moment in which a rank can be killed.
STEP_SECONDS = 0.01


def points(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(count, 2, generator=generator) * 4 - 2
    radius = places.norm(dim=1)
    return places, ((radius > 0.7) & (radius < 1.5)).float().unsqueeze(1)


class Batches:
    """The share of one rank in another order in each epoch. Its state is how far it is."""

    def __init__(self, rank: int, world: int) -> None:
        self.places, self.labels = (part[rank::world] for part in points(4096, seed=2))
        self.epoch = self.taken = 0

    def __len__(self) -> int:
        return EPOCH_BATCHES

    def __iter__(self):
        order = torch.randperm(len(self.places), generator=torch.Generator().manual_seed(self.epoch)).chunk(EPOCH_BATCHES)
        while self.taken < EPOCH_BATCHES:
            part = order[self.taken]
            self.taken += 1
            yield self.places[part], self.labels[part]
        self.epoch, self.taken = self.epoch + 1, 0

    def state_dict(self) -> dict:
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state: dict) -> None:
        self.epoch, self.taken = state["epoch"], state["taken"]


class Ring(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 64),
            torch.nn.Tanh(),
            torch.nn.Linear(64, 64),
            torch.nn.Tanh(),
            torch.nn.Dropout(0.02),
            torch.nn.Linear(64, 1),
        )

    def on_train_start(self):
        start = self.trainer.global_step
        begins = f"resumed from step {start}" if start else "starts"
        print(f"rank {self.global_rank} of {self.trainer.world_size} {begins}", flush=True)

    def training_step(self, batch, _):
        return torch.nn.functional.binary_cross_entropy_with_logits(self.layers(batch[0]), batch[1])

    def on_train_batch_end(self, outputs, *_):
        time.sleep(STEP_SECONDS)
        step = self.trainer.global_step
        if step % 10 == 0 and self.global_rank == 0:
            print(f"step {step}/{STEPS} loss {outputs['loss'].item()!r}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    checkpoints = TrainyardCheckpointIO(os.environ.get("CHECKPOINT_DIR", "."), keep=2)  # +
    torch.manual_seed(1)
    model = Ring()
    torch.manual_seed(10 + rank)
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            plugins=[checkpoints, KubeflowEnvironment()] if world > 1 else [checkpoints],  # +
            callbacks=[RandomNumbers(), ModelCheckpoint(folder, every_n_train_steps=15, save_top_k=-1)],  # +
            strategy="ddp" if world > 1 else "auto",
            num_nodes=world,
            devices=1,
            accelerator="cpu",
            max_steps=STEPS,
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, Batches(rank, world), ckpt_path=checkpoints.resume())  # +

    places, labels = points(1024, seed=3)
    with torch.no_grad():
        accuracy = ((model.eval().layers(places) > 0) == (labels > 0.5)).float().mean().item()
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
