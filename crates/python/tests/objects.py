"""A script that saves into a bucket until it is killed: objects.py ROOT; prints each step that is committed."""

import sys

import torch

from trainyard_checkpoint import Checkpointer

weight = torch.zeros(100_000)
checkpointer = Checkpointer(sys.argv[1], keep=2, on_error="raise")
first = checkpointer.restore(weight=weight) or 0
for step in range(first + 1, 100_000):
    weight += 1
    if checkpointer.save(step, weight=weight).committed(60):
        print(step, flush=True)
