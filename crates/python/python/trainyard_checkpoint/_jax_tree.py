"""Pytrees of JAX: the name of each leaf, which boxes of it this process writes, and the way back onto a sharding."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy

from . import _leaf
from ._engine import Checkpoint, CheckpointError
from ._leaf import Leaf, Shape
from ._memory import Memory

# The least bytes of a batch that is read; a larger box is a batch of its own.
_BATCH_BYTES = 256 << 20
_ALIGN = 64

# Where a box begins and its sizes.
Box = tuple[Shape, Shape]


def named(tree: Any) -> tuple[dict[str, Any], Any]:
    """The leaves of a tree by name, and its structure."""
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    found: dict[str, Any] = {}
    for path, leaf in pairs:
        name = ".".join(_key(one) for one in path)
        if name in found:
            raise CheckpointError(f"cannot save `{name}`: two leaves of the tree have this name")
        found[name] = leaf
    return found, structure


def _key(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def is_jax(value: Any) -> bool:
    return isinstance(value, jax.Array)


def is_described(value: Any) -> bool:
    """Whether it is only type, shape and sharding: what `restore` may be given."""
    return isinstance(value, jax.ShapeDtypeStruct)


def is_key(value: Any) -> bool:
    """Whether it is a key of random numbers, whose bits are an array."""
    return hasattr(value, "dtype") and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def dtype_name(path: str, dtype: Any) -> str:
    known = _leaf.TORCH.get(numpy.dtype(dtype).name)
    if known is None:
        raise CheckpointError(f"cannot save `{path}`: arrays of type `{dtype}` are not supported")
    return known[0]


def leaves_of(name: str, value: Any, rank: int, world: int) -> list[Leaf]:
    """What this process writes of an array: boxes whose first replica it has. Values are filled in by `fill`."""
    shape = tuple(value.shape)
    dtype = dtype_name(name, value.dtype)
    if value.is_fully_addressable and world > 1:
        # An array of this process alone, as every process has one.
        parts = [((0,) * len(shape), shape, [(((0,) * len(shape), shape), value)])] if rank == 0 else []
    else:
        shards = [shard for shard in value.addressable_shards if shard.replica_id == 0]
        parts = list(_joined([(box(shard.index, shape), shard.data) for shard in shards]))
    found = []
    for offsets, sizes, pieces in parts:
        if 0 in sizes and 0 not in shape:
            continue
        leaf = Leaf(name, dtype, shape, sizes, offsets, pieces)
        leaf.split = _split(shape, (offsets, sizes), rank, world)
        found.append(leaf)
    return found


def box(index: Any, shape: Shape) -> Box:
    """The slices of a shard as a box."""
    ranges = [one.indices(size)[:2] for one, size in zip(index, shape)]
    return tuple(start for start, _ in ranges), tuple(max(end - start, 0) for start, end in ranges)


def _joined(pieces: list[tuple[Box, Any]]) -> Iterator[tuple[Shape, Shape, list[tuple[Box, Any]]]]:
    """The boxes of one process as one box, where they fill it; otherwise each by itself."""
    if not pieces:
        return
    low = tuple(min(starts) for starts in zip(*(offsets for (offsets, _), _ in pieces)))
    ends = [[start + size for start, size in zip(offsets, sizes)] for (offsets, sizes), _ in pieces]
    sizes = tuple(max(end) - start for end, start in zip(zip(*ends), low))
    if sum(math.prod(sizes) for (_, sizes), _ in pieces) == math.prod(sizes):
        yield low, sizes, pieces
        return
    for (offsets, own), data in sorted(pieces, key=lambda piece: piece[0]):
        yield offsets, own, [((offsets, own), data)]


def _split(shape: Shape, part: Box, rank: int, world: int) -> tuple[int, int, int] | None:
    """The rule that gives this box, where all ranks divide one dimension evenly: then they share a layout."""
    offsets, sizes = part
    divided = [dim for dim, size in enumerate(shape) if sizes[dim] != size]
    if world == 1 or len(divided) != 1:
        return None
    dim = divided[0]
    chunk = -(-shape[dim] // world)
    start = min(chunk * rank, shape[dim])
    is_even = (offsets[dim], sizes[dim]) == (start, min(chunk, shape[dim] - start))
    return (dim, world, rank) if is_even else None


def fill(leaves: list[Leaf]) -> None:
    """Copies boxes to the host. All copies are begun before the first one is waited for."""
    for leaf in leaves:
        if isinstance(leaf.value, list):
            for _, data in leaf.value:
                data.copy_to_host_async()
    for leaf in leaves:
        if isinstance(leaf.value, list):
            leaf.value = _put_together(leaf)


def _put_together(leaf: Leaf) -> Any:
    pieces = leaf.value
    if len(pieces) == 1:
        return numpy.asarray(pieces[0][1])
    whole = numpy.empty(leaf.local, dtype=pieces[0][1].dtype)
    for (offsets, sizes), data in pieces:
        place = tuple(slice(at - low, at - low + size) for at, low, size in zip(offsets, leaf.offsets, sizes))
        whole[place] = numpy.asarray(data)
    return whole


class Reader:
    """Reads boxes of a step, each once, verified by the engine."""

    def __init__(self, step: Checkpoint, prefer: int | None) -> None:
        self._step, self._prefer = step, prefer
        self._tensors = step.tensors()
        self._wanted: dict[tuple[str, Box], Any] = {}

    def check(self, path: str, tensor: str, dtype: str, shape: Shape) -> None:
        known = self._tensors.get(tensor)
        if known is None:
            raise CheckpointError(f"tensor `{tensor}` is not in step {self._step.step}")
        if (known[0], tuple(known[1])) != (dtype, shape):
            raise CheckpointError(
                f"`{path}` has type {dtype} and shape {list(shape)}, and type {known[0]} and shape {list(known[1])} were saved"
            )

    def want(self, tensor: str, part: Box, dtype: Any) -> None:
        self._wanted[tensor, part] = numpy.dtype(dtype)

    def get(self, tensor: str, part: Box) -> Any:
        return self._wanted[tensor, part]

    def read(self) -> None:
        sizes = {key: _bytes(key, dtype) for key, dtype in self._wanted.items()}
        for key, size in sizes.items():
            if size == 0:
                self._wanted[key] = numpy.empty(key[1][1], self._wanted[key])
        left = [key for key, size in sizes.items() if size]
        if not left:
            return
        aligned = {key: sizes[key] + -sizes[key] % _ALIGN for key in left}
        memory = Memory(min(sum(aligned.values()), max(_BATCH_BYTES, *aligned.values())))
        batch: list[tuple[tuple[str, Box], int]] = []
        end = 0
        for key in left:
            if end + aligned[key] > memory.capacity:
                self._read_batch(memory, batch)
                batch, end = [], 0
            batch.append((key, end))
            end += aligned[key]
        self._read_batch(memory, batch)

    def _read_batch(self, memory: Memory, batch: list[tuple[tuple[str, Box], int]]) -> None:
        wishes = [(tensor, offsets, sizes, place) for (tensor, (offsets, sizes)), place in batch]
        self._step.read(memory.arena, wishes, self._prefer)
        for key, place in batch:
            dtype = self._wanted[key]
            view = numpy.frombuffer(memory.map, dtype=dtype, count=math.prod(key[1][1]), offset=place)
            # A copy: JAX may use the memory of an array of numpy for its own.
            self._wanted[key] = view.reshape(key[1][1]).copy()


def _bytes(key: tuple[str, Box], dtype: Any) -> int:
    size: int = math.prod(key[1][1]) * dtype.itemsize
    return size
