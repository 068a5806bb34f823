"""Checkpoints of training jobs: saved in the background, committed all or nothing, restored on any number of ranks.

Importing this starts no thread, opens no file and needs neither torch nor numpy.
"""

from ._checkpointer import Checkpointer, CheckpointWarning
from ._engine import Abandoned, CheckpointError, Damaged, Fenced, NoRoom, NotFound
from ._save import Save

__all__ = [
    "Abandoned",
    "CheckpointError",
    "CheckpointWarning",
    "Checkpointer",
    "Damaged",
    "Fenced",
    "NoRoom",
    "NotFound",
    "Save",
]
