"""A training loop that gets SIGTERM: preempted.py ROOT LOCAL GRACE BANDWIDTH, where a bandwidth of 0 is no limit."""

import sys
import threading

import torch

from trainyard_checkpoint import Checkpointer

root, local, grace, bandwidth = sys.argv[1:]
checkpointer = Checkpointer(root, local=local, grace=float(grace), bandwidth=int(bandwidth) or None)
weight = torch.zeros(1 << 18)
start = checkpointer.restore(weight=weight)
print(f"start {start} {weight[0].item():.0f} {checkpointer.restored_from}", flush=True)
if start is None:
    step = 0
    while True:
        step += 1
        weight += 1
        checkpointer.step(step, weight=weight)
        threading.Event().wait(0.01)
checkpointer.close()
