"""Rank 0 of two waits for the other one, which never comes: waits.py ROOT."""

import signal
import sys
import time

from trainyard_checkpoint import Checkpointer

# A shell that starts tests in the background has them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

checkpointer = Checkpointer(sys.argv[1], rank=0, world=2, attempt=1)
save = checkpointer.save(1, x=1)
begun = time.monotonic()
try:
    print("waiting", flush=True)
    save.committed(60)
except KeyboardInterrupt:
    print(f"interrupted after {time.monotonic() - begun:.1f} s", flush=True)
    save._abandon()
