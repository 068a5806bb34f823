"""Which rank this is, and how ranks agree: through a gloo group of their own, or through the files of the store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ._engine import CheckpointError

T = TypeVar("T")


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise CheckpointError(f"the variable `{name}` must be a number, found `{text[:40]}`") from None


def _distributed() -> Any:
    """torch.distributed, if the program has a process group."""
    module = sys.modules.get("torch.distributed")
    if module is not None and module.is_available() and module.is_initialized():
        return module
    return None


class World:
    """The ranks of this attempt."""

    def __init__(self, rank: int | None, world: int | None, group: Any, timeout: float) -> None:
        self._dist = None
        self._group: Any = None
        self._waiting: Any = None
        self._to_group: dict[int, int] = {}
        dist = _distributed() if rank is None else None
        if group is not None and dist is None:
            raise CheckpointError("`group` needs a process group: call `torch.distributed.init_process_group` before")
        if dist is not None:
            ranks = dist.get_process_group_ranks(group) if group is not None else list(range(dist.get_world_size()))
            self.rank, self.size = dist.get_rank(group), len(ranks)
            self._to_group = {one: place for place, one in enumerate(ranks)}
            if self.size > 1:
                from datetime import timedelta

                # A group of its own: nothing of ours waits behind messages of the program.
                self._group = dist.new_group(ranks=ranks, backend="gloo", timeout=timedelta(seconds=timeout))
                self._dist = dist
                self._first = ranks[0]
        else:
            self.rank = rank if rank is not None else _number("RANK") or 0
            self.size = world if world is not None else _number("WORLD_SIZE") or 1
        if not 0 <= self.rank < self.size:
            raise CheckpointError(f"rank {self.rank} of {self.size} ranks does not exist")

    @property
    def has_group(self) -> bool:
        return self._dist is not None

    def attempt(self) -> int | None:
        """The attempt that trainyard started this process for."""
        return _number("TRAINYARD_ATTEMPT")

    def job(self) -> str | None:
        """The job that counts those attempts, where it counts them itself: the store then counts on after the attempts of others."""
        uid = os.environ.get("TRAINYARD_JOB_UID", "")
        return uid[:128] or None

    def launch(self) -> str:
        """What all ranks of one start have in common, as far as the environment shows it."""
        run = os.environ.get("TORCHELASTIC_RUN_ID", "")
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
        return f"{run[:150]}.{restart[:20]}/"

    def holder(self) -> str:
        """Who takes a record: another name for every start, so that a restart never saves under the names of the one before."""
        where = os.environ.get("TRAINYARD_POD_UID") or os.uname().nodename
        return f"{self.launch()}{where[:200]}/{os.getpid()}/{os.urandom(4).hex()}"

    def to_rank(self, one: int) -> int:
        """A rank of the job as a rank of this world."""
        return self._to_group.get(one, one)

    def from_first(self, value: Any) -> Any:
        """What rank 0 has, on every rank."""
        if self._dist is None:
            return value
        values = [value]
        self._dist.broadcast_object_list(values, src=self._first, group=self._group)
        return values[0]

    def gather(self, value: Any) -> list[Any]:
        """What every rank has, on every rank."""
        if self._dist is None:
            return [value]
        values: list[Any] = [None] * self.size
        self._dist.all_gather_object(values, value, group=self._group)
        return values

    def on_all(self, failure: str, work: Callable[[], T]) -> T:
        """What `work` returns; where it fails on one rank, all of them raise, so that none waits for the others."""
        done, raised = None, None
        try:
            done = work()
        except CheckpointError as error:
            raised = error
        for rank, why in enumerate(self.gather(None if raised is None else str(raised))):
            if why is not None and raised is None:
                raised = CheckpointError(f"rank {rank} {failure}: {why}")
        if raised is not None:
            raise raised
        return cast(T, done)

    def same(self, number: int) -> bool:
        """Whether every rank has the same number; waits for all of them."""
        if self._dist is None:
            return True
        numbers = self._numbers([number, -number])
        self._dist.all_reduce(numbers, op=self._dist.ReduceOp.MAX, group=self._group)
        largest, smallest = numbers.tolist()
        return bool(largest == -smallest)

    def most(self, flags: list[int]) -> list[int]:
        """The largest of each number over all ranks; waits for all of them. The last number is of now, others may be of the step before."""
        if self._dist is None:
            return flags
        earlier = self.earlier()
        numbers = self._numbers(flags)
        self._dist.all_reduce(numbers, op=self._dist.ReduceOp.MAX, group=self._group)
        found: list[int] = numbers.tolist()
        if earlier is not None:
            found[:-1] = [max(one, other) for one, other in zip(found[:-1], earlier)]
        return found

    def start_most(self, flags: list[int]) -> None:
        """The same, without waiting: `earlier` has the result in the next step."""
        if self._dist is None:
            return
        numbers = self._numbers(flags)
        work = self._dist.all_reduce(numbers, op=self._dist.ReduceOp.MAX, group=self._group, async_op=True)
        self._waiting = (work, numbers)

    def earlier(self) -> list[int] | None:
        """The result of `start_most`. Ranks of a training job are in step, so it is there by now."""
        if self._waiting is None:
            return None
        work, numbers = self._waiting
        self._waiting = None
        work.wait()
        found: list[int] = numbers.tolist()
        return found

    def leave(self) -> None:
        """From here on this rank decides alone: another one is gone."""
        self._dist = None
        self._waiting = None

    def _numbers(self, flags: list[int]) -> Any:
        torch = sys.modules["torch"]
        return torch.tensor(flags, dtype=torch.int64)
