"""A small training run that is the same in every run: prints the loss of each step in full precision.

train.py ROOT STEPS [EVERY]: with dropout and shuffled data, so that it depends on all random numbers.
"""

import random
import sys

import numpy
import torch

from trainyard_checkpoint import Checkpointer

root, steps = sys.argv[1], int(sys.argv[2])
every = int(sys.argv[3]) if len(sys.argv) > 3 else 5

torch.manual_seed(1)
random.seed(2)
numpy.random.seed(3)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.2), torch.nn.Tanh(), torch.nn.Linear(64, 1)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[7, 23], gamma=0.37)
progress = {"seen": 0}

checkpointer = Checkpointer(root, every=every)
state = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "progress": progress}
start = checkpointer.restore(**state)
print(f"start {start}", flush=True)
in_flight = None
for step in range((start or 0) + 1, steps + 1):
    optimizer.zero_grad()
    inputs = torch.randn(16, 8) + numpy.random.rand() + random.random()
    loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
    loss.backward()
    checkpointer.before_update()
    optimizer.step()
    scheduler.step()
    progress["seen"] += 16
    print(f"{step} {loss.item().hex()} {scheduler.get_last_lr()[0].hex()} {progress['seen']}", flush=True)
    save = checkpointer.step(step, **state)
    if save is not None and not save.skipped:
        in_flight = save
    if step % (2 * every) == 0 and in_flight is not None:
        in_flight.committed(60)  # Other saves are in flight while training continues.
checkpointer.close()
print("done", flush=True)
