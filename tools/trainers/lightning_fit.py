"""Lightning, with the bar of tqdm or of rich, and a validation in each epoch.

In a pipe rich writes its bar once, at the end; `live` makes it write as it would on a terminal.
"""

import os
import sys
import tempfile

import lightning
import torch
import truth
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(1)


class Sum(lightning.LightningModule):
    """Learns to add."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        self.last = loss.item()
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


inputs = torch.randn(160, 8)
data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
if sys.argv[2] == "live":
    os.environ["TTY_COMPATIBLE"] = "1"
bar = TQDMProgressBar if sys.argv[2] == "tqdm" else RichProgressBar
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", default_root_dir=folder, callbacks=[bar()], log_every_n_steps=5
    )
    model = Sum()
    trainer.fit(model, DataLoader(data, batch_size=8), DataLoader(data, batch_size=16))
# The bar counts epochs from 0. It shows the length of one epoch, not of the training.
truth.write(step=trainer.global_step, totalSteps=None, epoch=trainer.current_epoch - 1, loss=model.last)
