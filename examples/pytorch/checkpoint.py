"""The ring of train.py, with checkpoints by `trainyard_checkpoint`: lines that end with `# +` are what it takes.

Every rank calls the same methods. Each writes its part of the state in the background, and a restart with any number of ranks
resumes from the newest complete step: model, optimizer and random numbers.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from trainyard_checkpoint import Checkpointer  # +

STEPS = 200
SAVE_EVERY = 20
TARGET_ACCURACY = 0.95
# So that there is something to watch, and a moment in which a rank can be killed.
STEP_SECONDS = 0.01


def points(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(count, 2, generator=generator) * 4 - 2
    radius = places.norm(dim=1)
    return places, ((radius > 0.7) & (radius < 1.5)).float().unsqueeze(1)


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    plain = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loss_of = torch.nn.BCEWithLogitsLoss()
    checkpointer = Checkpointer(os.environ.get("CHECKPOINT_DIR", "."), every=SAVE_EVERY)  # +
    start = checkpointer.restore(model=model, optimizer=optimizer)  # +
    begins = f"resumed from step {start}" if start else "starts"
    print(f"rank {rank} of {world} {begins}", flush=True)

    places, labels = points(4096, seed=2)
    places, labels = places[rank::world], labels[rank::world]
    for step in range((start or 0) + 1, STEPS + 1):
        optimizer.zero_grad()
        loss = loss_of(model(places), labels)
        loss.backward()
        optimizer.step()
        checkpointer.step(step, model=model, optimizer=optimizer)  # +
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    checkpointer.close()  # +

    places, labels = points(1024, seed=3)
    with torch.no_grad():
        accuracy = ((plain(places) > 0) == (labels > 0.5)).float().mean().item()
    dist.destroy_process_group()
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
