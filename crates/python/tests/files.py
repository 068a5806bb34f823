"""One rank without torch and without a group: files.py ROOT."""

import os
import sys

from trainyard_checkpoint import Checkpointer

checkpointer = Checkpointer(sys.argv[1])
sampler = [int(os.environ["RANK"]), 7]
start = checkpointer.restore(sampler=sampler)
if start is None:
    save = checkpointer.save(5, sampler=sampler, wait=True)
    assert save.committed(), save.failed
checkpointer.close()
print(start, sampler)
