"""A script that ends with a save in flight: ends.py ROOT [alone]; with `alone` the other rank never comes."""

import sys

import trainyard_checkpoint._checkpointer as inner
from trainyard_checkpoint import Checkpointer

is_alone = len(sys.argv) > 2
if is_alone:
    inner._EXIT_SECONDS = 0.5
checkpointer = Checkpointer(sys.argv[1], **({"rank": 0, "world": 2, "attempt": 1} if is_alone else {}))
checkpointer.save(9, x=list(range(100_000)))
