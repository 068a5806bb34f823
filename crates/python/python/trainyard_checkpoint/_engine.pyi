"""The engine, written in Rust. Every call that can wait releases the GIL."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, final

__all__ = [
    "Abandoned",
    "Arena",
    "Attempt",
    "Checkpoint",
    "CheckpointError",
    "Damaged",
    "Fenced",
    "Layout",
    "NoRoom",
    "NotFound",
    "Save",
    "Session",
    "Store",
    "owner",
]

class CheckpointError(Exception): ...
class Fenced(CheckpointError): ...
class NotFound(CheckpointError): ...
class Damaged(CheckpointError): ...
class NoRoom(CheckpointError): ...
class Abandoned(CheckpointError): ...

@final
class Layout:
    """The tensors of one rank: name, element type, shape, local shape and offsets of each, packed in this order.

    A tensor with a split has no offsets: all ranks divide one dimension evenly. The split is the dimension, how many ranks, and which
    one this is; the last two are equal in all splits of a layout. Parts of one tensor have the same name.
    """
    def __new__(
        cls,
        tensors: Sequence[tuple[str, str, Sequence[int], Sequence[int], Sequence[int]]],
        splits: Sequence[tuple[int, int, int] | None] = ...,
    ) -> Layout: ...
    @property
    def offsets(self) -> list[int]: ...
    @property
    def size(self) -> int: ...

@final
class Arena:
    """Memory behind a descriptor, of a fixed size."""
    def __new__(cls, size: int) -> Arena: ...
    def fileno(self) -> int: ...
    @property
    def capacity(self) -> int: ...
    def lay_out(self, layout: Layout) -> None: ...

@final
class Attempt:
    """An attempt that has its record."""
    @property
    def attempt(self) -> int: ...
    @property
    def restart(self) -> int: ...
    @property
    def resumes_from(self) -> tuple[str, str] | None: ...
    @property
    def passed(self) -> list[str]: ...

@final
class Checkpoint:
    """A committed step."""
    @property
    def step(self) -> int: ...
    @property
    def world(self) -> int: ...
    def tensors(self) -> dict[str, tuple[str, list[int]]]: ...
    def objects(self, rank: int) -> str | None: ...
    def read(
        self,
        arena: Arena,
        wishes: Sequence[tuple[str, Sequence[int], Sequence[int], int]],
        prefer: int | None,
    ) -> int: ...
    def read_into(self, wishes: Sequence[tuple[str, Sequence[int], Sequence[int], Any]], prefer: int | None) -> int: ...

@final
class Store:
    """A root of one run."""
    def __new__(cls, root: str | PathLike[str]) -> Store: ...
    @staticmethod
    def existing(root: str | PathLike[str]) -> Store: ...
    def find(self, step: int | None, world: int) -> tuple[str, str] | None: ...
    def later_than(self, folder: str) -> dict[str, str]: ...
    def begin(
        self,
        attempt: int | None,
        job: str | None,
        holder: str,
        world: int,
        unreadable: Mapping[str, str],
        keep: int,
        every: int | None,
    ) -> Attempt: ...
    def join(self, attempt: int, job: str | None, launch: str, timeout: float) -> Attempt: ...
    def open(self, folder: str, crc32c: str, timeout: float) -> Checkpoint: ...
    def restored(self, attempt: int, restart: int, folder: str) -> None: ...

@final
class Save:
    """A save under way."""
    @property
    def step(self) -> int: ...
    def done(self) -> bool: ...
    def wait(self, timeout: float) -> dict[str, float]: ...
    def abandon(self) -> None: ...

@final
class Session:
    """One rank of one attempt."""
    def __new__(cls, store: Store, attempt: int, restart: int, rank: int, world: int, keep: int, every: int | None) -> Session: ...
    def save(
        self,
        step: int,
        arena: Arena,
        layout: Layout,
        objects: str,
        snapshot: float,
        deadline: float,
    ) -> Save: ...
    def settle(self, timeout: float) -> bool: ...
    def removed(self) -> tuple[int, str | None]: ...
    def write(
        self,
        step: int,
        arena: Arena,
        layout: Layout,
        objects: str,
        snapshot: float,
        deadline: float,
    ) -> int: ...
    def commit(self, step: int, deadline: float) -> tuple[str, str, str | None]: ...

def owner(name: str, offsets: Sequence[int], sizes: Sequence[int], replicas: Sequence[int]) -> int | None: ...
