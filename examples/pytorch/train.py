"""Data-parallel PyTorch on CPUs: is a point inside the ring or outside?

Every rank holds its share of the same generated points; DistributedDataParallel averages the
gradients over gloo. Rank 0 saves every 20 steps and hands what it finds there to the others, so
that a restart with any number of ranks resumes where the last attempt was.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

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


def load(path: str) -> dict | None:
    """What rank 0 finds, handed to all."""
    found = [None]
    if dist.get_rank() == 0 and os.path.exists(path):
        found = [torch.load(path, weights_only=True)]
    dist.broadcast_object_list(found, src=0)
    return found[0]


def save(path: str, state: dict) -> None:
    """All or nothing: a kill at any moment leaves the last whole file."""
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    path = os.path.join(os.environ.get("CHECKPOINT_DIR", "."), "model.pt")

    plain = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(plain)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loss_of = torch.nn.BCEWithLogitsLoss()
    start = 0
    if state := load(path):
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
        print(f"rank {rank} of {world} resumed from step {start}", flush=True)
    else:
        print(f"rank {rank} of {world} starts", flush=True)

    places, labels = points(4096, seed=2)
    places, labels = places[rank::world], labels[rank::world]
    for step in range(start + 1, STEPS + 1):
        optimizer.zero_grad()
        loss = loss_of(model(places), labels)
        loss.backward()
        optimizer.step()
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            save(path, state)
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)

    places, labels = points(1024, seed=3)
    with torch.no_grad():
        accuracy = ((plain(places) > 0) == (labels > 0.5)).float().mean().item()
    dist.destroy_process_group()
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
