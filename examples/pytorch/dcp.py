"""The ring of train.py sharded by FSDP2, saved by `torch.distributed.checkpoint` into a store of Trainyard: lines that end with `# +`.

`dcp.async_save` copies the state and returns; every save is one commit of all ranks. A restart with any number of ranks loads the
newest complete step.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from trainyard_checkpoint.dcp import Reader, Writer  # +

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
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    loss_of = torch.nn.BCEWithLogitsLoss()

    # Saves run in a thread: they have a group of their own, so that their messages never meet those of training.
    saving_group = dist.new_group(backend="gloo")
    root = os.environ.get("CHECKPOINT_DIR", ".")
    reader, writer = Reader(root), Writer(root)  # +
    # All ranks load what rank 0 sees.
    found, saving = [reader.step], None
    dist.broadcast_object_list(found)
    start = found[0]
    if start is not None:
        values, moments = get_state_dict(model, optimizer)
        state = {"model": values, "optimizer": moments}
        dcp.load(state, storage_reader=reader, checkpoint_id=str(start))  # +
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        print(f"rank {rank} of {world} resumed from step {start}", flush=True)
    else:
        print(f"rank {rank} of {world} starts", flush=True)

    places, labels = points(4096, seed=2)
    places, labels = places[rank::world], labels[rank::world]
    for step in range((start or 0) + 1, STEPS + 1):
        optimizer.zero_grad()
        loss = loss_of(model(places), labels)
        loss.backward()
        optimizer.step()
        if step % SAVE_EVERY == 0:
            if saving is not None:
                saving.result()
            values, moments = get_state_dict(model, optimizer)
            state = {"model": values, "optimizer": moments}
            saving = dcp.async_save(state, storage_writer=writer, checkpoint_id=str(step), process_group=saving_group)  # +
        time.sleep(STEP_SECONDS)
        if rank == 0 and step % SAVE_EVERY == 0:
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    if saving is not None:
        saving.result()

    places, labels = points(1024, seed=3)
    with torch.no_grad():
        accuracy = ((model(places) > 0) == (labels > 0.5)).float().mean().item()
    dist.destroy_process_group()
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
