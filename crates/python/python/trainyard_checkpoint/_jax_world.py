"""The processes of a JAX program, which agree through the service of `jax.distributed`: no device takes part."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import jax
from jax._src import distributed

from ._world import World

# Programs make their checkpointers in the same order on all ranks.
_NUMBERS = itertools.count()


class JaxWorld(World):
    """Rank and number of ranks are those of the processes. Rank 0 collects and hands out."""

    def __init__(self, timeout: float) -> None:
        super().__init__(jax.process_index(), jax.process_count(), None, timeout)
        self._client: Any = distributed.global_state.client if self.size > 1 else None
        self._milliseconds = max(int(timeout * 1000), 1)
        self._prefix = f"trainyard_checkpoint/{next(_NUMBERS)}"
        self._round = 0

    @property
    def has_group(self) -> bool:
        return self._client is not None

    def from_first(self, value: Any) -> Any:
        return self.gather(value)[0]

    def gather(self, value: Any) -> list[Any]:
        if self._client is None:
            return [value]
        self._round += 1
        place = f"{self._prefix}/{self._round}"
        if self.rank != 0:
            self._client.key_value_set_bytes(f"{place}/{self.rank}", pickle.dumps(value))
            handed: list[Any] = self._get(f"{place}/all")
            return handed
        values = [value] + [self._get(f"{place}/{rank}") for rank in range(1, self.size)]
        self._client.key_value_set_bytes(f"{place}/all", pickle.dumps(values))
        # Whoever takes part in this round has read the one before.
        self._client.key_value_delete(f"{self._prefix}/{self._round - 1}/")
        return values

    def most(self, flags: list[int]) -> list[int]:
        return [max(one) for one in zip(*self.gather(flags))]

    def start_most(self, flags: list[int]) -> None:
        """Nothing between saves: JAX has a service of its own for SIGTERM, which finds a step that all processes reach."""

    def earlier(self) -> list[int] | None:
        return None

    def leave(self) -> None:
        self._client = None

    def _get(self, key: str) -> Any:
        # What it reads was written by this program on another process, as with the object collectives of torch.
        return pickle.loads(self._client.blocking_key_value_get_bytes(key, self._milliseconds))


def reached_preemption(step: int) -> bool:
    """Whether this is the step at which all processes save because one of them got SIGTERM; asked for at every step."""
    if jax.process_count() == 1 or getattr(distributed.global_state, "preemption_sync_manager", None) is None:
        return False
    from jax.experimental import multihost_utils

    return bool(multihost_utils.reached_preemption_sync_point(step))
