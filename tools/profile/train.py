"""Two ranks or more that train over gloo, of which one is slow.

Used by the suite `frameworks`. It knows nothing of profilers and calls no library of ours: it is recorded from outside. It trains until it is
ended.

usage: train.py SLEEP_SECONDS SLOW_RANK
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SLEEP_SECONDS = float(sys.argv[1])
SLOW_RANK = int(sys.argv[2])


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    layers = nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch, labels = torch.randn(64, 512), torch.randint(10, (64,))
    step = 0
    while True:
        if dist.get_rank() == SLOW_RANK:
            time.sleep(SLEEP_SECONDS)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0 and os.environ.get("RANK") == "0":
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
