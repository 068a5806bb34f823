"""A folder of the node in front of the root: saves commit there first, and are copied to the root in the background."""

from __future__ import annotations

import os
import time
from typing import Any

from . import _engine
from ._engine import CheckpointError
from ._world import World


class Tiers:
    """What a checkpointer knows of its local tier.

    local: a folder of the node, the same path on every node. drain_every: only steps that this divides are copied to the root; the newest
    always is when the program ends. bandwidth: bytes per second that the copy may take. grace: seconds from SIGTERM to SIGKILL.
    """

    def __init__(self, local: str | os.PathLike[str], drain_every: int | None, bandwidth: int | None, grace: float) -> None:
        self.folder = os.fspath(local)
        if "://" in self.folder:
            raise CheckpointError(f"`local` must be a folder of the node, found `{self.folder}`")
        self.drain_every, self.bandwidth, self.grace = drain_every, bandwidth, grace
        self._drain: _engine.Drain | None = None
        self._several_nodes = False
        self._reported: set[str] = set()
        self._sigterm_at: float | None = None

    def open(self, root: str, world: World) -> _engine.Store:
        """Opens both tiers."""
        # Without the number of ranks of this node, they may be on several: records then go through the root, which works for one node, too.
        self._several_nodes = world.size > 1 and _number("LOCAL_WORLD_SIZE") != world.size
        os.makedirs(os.path.dirname(os.path.abspath(self.folder)), exist_ok=True)
        return _engine.Store(root, self.folder, self._several_nodes, self.drain_every)

    def nodes(self, world: World, store: _engine.Store) -> dict[str, Any]:
        """What the local tiers of other nodes hold. Every rank calls it where there is a group; without one, nothing is known of them."""
        if not self._several_nodes or not world.has_group:
            return {}
        is_first = (_number("LOCAL_RANK") or 0) == 0
        found = world.gather(store.holds() if is_first and world.rank != 0 else None)
        return {f"node of rank {rank}": holds for rank, holds in enumerate(found) if holds}

    def begun(self, world: World, store: _engine.Store, session: _engine.Session, begun: tuple[int, int], keep: int, keep_every: int | None, deadline: float) -> None:
        """An attempt has its record: copies it to the local tier."""
        if world.rank != 0:
            store.adopt(*begun)
        seats = _number("LOCAL_WORLD_SIZE") or 1
        seat = _number("LOCAL_RANK") or 0
        self._drain = _engine.Drain(store, session, seat, seats, keep, keep_every, self.bandwidth, deadline)

    def bring(self, store: _engine.Store, folder: str, deadline: float) -> None:
        """Pieces of other nodes are read from the root: brings a step there that only local tiers have."""
        if self._several_nodes and self._drain is not None and not store.is_shared(folder):
            self._drain.bring(folder, deadline)

    def start(self) -> None:
        """Copies in the background, from the first save on."""
        if self._drain is not None:
            self._drain.start()

    def sigterm(self) -> None:
        """The time of grace begins."""
        if self._sigterm_at is None:
            self._sigterm_at = time.monotonic()

    def left(self, timeout: float) -> float:
        """Seconds until the end."""
        if self._sigterm_at is None:
            return timeout
        return min(timeout, max(self.grace - (time.monotonic() - self._sigterm_at), 0.0))

    def failures(self) -> list[str]:
        """Why steps were not copied to the root, each once."""
        if self._drain is None:
            return []
        found = [why for folder, why in self._drain.failures().items() if folder not in self._reported]
        self._reported |= set(self._drain.failures())
        return found

    def close(self, timeout: float, figures: dict[str, float]) -> str | None:
        """Copies the newest step if there is time. Returns why it is not on the root, where that is so."""
        if self._drain is None:
            return None
        left = self.left(timeout)
        bytes_ = int(figures.get("bytes", 0))
        seconds = figures.get("write_seconds", 0.0)
        _, why = self._drain.plan(left, bytes_, bytes_ / seconds if seconds > 0 else None)
        return None if self._drain.close(left) else f"the newest step is on the local tier only ({why})"


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
