"""A folder of the node in front of the root: saves commit there first, and are copied to the root in the background."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import _engine
from ._engine import CheckpointError, Damaged
from ._world import World


class Tiers:
    """What a checkpointer knows of its local tier.

    local: a folder of the node, the same path on every node. drain_every: only steps that this divides are copied to the root; the newest
    always is when the program ends. bandwidth: bytes per second that the copy may take.
    """

    def __init__(self, local: str, drain_every: int | None, bandwidth: int | None) -> None:
        self.folder = local
        self.drain_every, self.bandwidth = drain_every, bandwidth
        self._drain: _engine.Drain | None = None
        self._several_nodes = False
        self._reported: set[str] = set()

    def open(self, root: str, world: World) -> _engine.Store:
        """Opens both tiers."""
        # Without the number of ranks of this node, they may be on several: records then go through the root, which works for one node, too.
        self._several_nodes = world.size > 1 and _number("LOCAL_WORLD_SIZE") != world.size
        return _engine.Store(root, self.folder, self._several_nodes, self.drain_every)

    def nodes(self, world: World, store: _engine.Store) -> dict[str, Any]:
        """What the local tiers of other nodes hold. Every rank calls it where there is a group; without one, nothing is known of them."""
        if not self._several_nodes or not world.has_group:
            return {}
        holds = None
        if (_number("LOCAL_RANK") or 0) == 0 and world.rank != 0:
            try:
                holds = store.holds()
            except CheckpointError:
                # A tier that cannot be read has nothing to restore; the other ranks wait for this answer.
                pass
        found = world.gather(holds)
        return {f"node of rank {rank}": holds for rank, holds in enumerate(found) if holds}

    def begun(
        self,
        world: World,
        store: _engine.Store,
        session: _engine.Session,
        begun: tuple[int, int],
        keep: int,
        keep_every: int | None,
        deadline: float,
    ) -> None:
        """An attempt has its record: copies it to the local tier."""
        if world.rank != 0:
            store.adopt(*begun)
        seat, seats = _number("LOCAL_RANK") or 0, _number("LOCAL_WORLD_SIZE") or 1
        if seat >= seats:
            # Without both numbers every process copies all pieces of earlier attempts; who comes second finds them there.
            seat, seats = 0, 1
        self._drain = _engine.Drain(store, session, seat, seats, keep, keep_every, self.bandwidth, deadline)

    def bring(self, world: World, store: _engine.Store, folder: str, deadline: float) -> None:
        """Pieces of other nodes are read from the root: brings a step there that only local tiers have. Every rank calls it."""
        drain = self._drain
        if not self._several_nodes or drain is None:
            return
        if not world.has_group:
            if not store.is_shared(folder):
                drain.bring(folder, deadline)
            return

        def offer() -> None:
            if not store.is_shared(folder):
                drain.offer(folder, deadline)

        def publish() -> None:
            if world.rank == 0 and not store.is_shared(folder):
                drain.bring(folder, deadline)

        # Rank 0 waits for the pieces of the others, so it has to know first that all of them could be copied.
        _on_all(world, offer)
        _on_all(world, publish)

    def start(self) -> None:
        """Copies in the background from now on: after a restore, or with the first save."""
        if self._drain is not None:
            self._drain.start()

    def hold(self, is_held: bool) -> None:
        """Begins no copy before the end: the save that comes is the last one, and what fits is decided after it."""
        if self._drain is not None:
            self._drain.hold(is_held)

    def failures(self) -> list[str]:
        """Why steps were not copied to the root, each once."""
        if self._drain is None:
            return []
        failures = self._drain.failures()
        found = [why for folder, why in failures.items() if folder not in self._reported]
        self._reported = set(failures)
        return found

    def close(self, timeout: float) -> list[str]:
        """Copies the newest step if there is time. Returns what is to be reported: steps that failed, and why the newest is not on the root."""
        if self._drain is None:
            return []
        why = self._drain.close(timeout)
        found = [one for one in self.failures() if one != why]
        return found if why is None else [*found, f"the newest step is on the local tier only: {why}"]


def _on_all(world: World, work: Callable[[], None]) -> None:
    """Does `work`; where it fails on one rank, all raise. Where a step is damaged, that is what they raise: the one before is tried."""
    raised: Exception | None = None
    try:
        work()
    except Exception as error:  # noqa: BLE001 - raised below, once every rank knows of it
        raised = error
    found = world.gather(None if raised is None else (isinstance(raised, Damaged), str(raised)))
    if raised is not None:
        raise raised
    for rank, one in enumerate(found):
        if one is not None:
            raise (Damaged if one[0] else CheckpointError)(f"rank {rank} could not copy its pieces to the root: {one[1]}")


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None
