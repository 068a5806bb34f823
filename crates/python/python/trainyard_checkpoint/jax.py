"""Checkpoints of JAX programs: pytrees of `jax.Array`, arrays of numpy and plain values.

    checkpointer = Checkpointer("/checkpoints/run1", every=500)
    start, state = checkpointer.restore(state)
    for step in range((start or 0) + 1, steps + 1):
        state = train_step(state)
        checkpointer.step(step, state)
        if checkpointer.preempted:
            break
    checkpointer.close()

Every process makes one, after `jax.distributed.initialize`, and calls it in the same order. Importing this imports JAX.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Self

import jax
import numpy

from . import _checkpointer, _engine, _jax_tree, _leaf, _torch, _tree
from ._collect import Collector
from ._engine import CheckpointError
from ._jax_world import JaxWorld, reached_preemption
from ._leaf import Leaf
from ._restore import Restored
from ._save import Save
from ._world import World

_NAME = "state"


class Checkpointer:
    """Saves and restores one pytree below one root. Other arguments are those of `trainyard_checkpoint.Checkpointer`.

    A save returns when the state is on the host, so its buffers may be donated afterwards. With several processes `grace` counts from the
    step at which all of them save, which JAX chooses after SIGTERM: give the seconds that the last steps leave of it.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Any) -> None:
        for name in ("rank", "world", "group", "per_rank", "data"):
            if name in options:
                raise CheckpointError(f"`{name}` is decided by JAX and cannot be given")
        self._inner = _Inner(root, **options)
        self._is_preempted = False

    def restore(self, state: Any, *, strict: bool = True) -> tuple[int | None, Any]:
        """The newest step that can be read and its state, or None and `state` itself where there is none.

        Arrays come back with the sharding that they have in `state`, whatever it was when they were saved. A
        `jax.ShapeDtypeStruct` with a sharding is enough.
        """
        step = self._inner.restore(strict=strict, **{_NAME: state})
        return (None, state) if step is None else (step, self._inner.values.pop(_NAME))

    def step(self, step: int, state: Any) -> Save | None:
        """Saves if the step is due, or if a process got SIGTERM and this is the step at which all of them save."""
        if reached_preemption(step):
            self._is_preempted = True
            self._inner._sigterm.noticed()
            return self._inner.save(step, wait=True, **{_NAME: state})
        return self._inner.step(step, **{_NAME: state})

    def save(self, step: int, state: Any, *, deadline: float | None = None, wait: bool = False) -> Save:
        """Saves now. With `wait`, returns when the step is committed."""
        return self._inner.save(step, deadline=deadline, wait=wait, **{_NAME: state})

    def close(self, timeout: float | None = None) -> bool:
        """Waits for the save in flight, at most for `timeout` seconds. Returns whether nothing is in flight."""
        return self._inner.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def counts(self) -> dict[str, int]:
        """What became of the saves so far."""
        return self._inner.counts

    @property
    def preempted(self) -> bool:
        """Whether SIGTERM came to one of several processes and all of them have saved, or have failed to: the program should end."""
        return self._is_preempted


class _Inner(_checkpointer.Checkpointer):
    """Collects and restores trees of JAX; everything else is as with torch."""

    def _make_world(self) -> World:
        if jax.process_count() > 1:
            # JAX has a handler of its own for SIGTERM, see `reached_preemption`.
            self._takes_sigterm = False
        return JaxWorld(self._deadline)

    def _make_collector(self, world: World) -> Collector:
        return _Collector(world, frozenset())

    def _snapshot(self, save: Save, nodes: dict[str, Any], leaves: list[Leaf], begun: float, deadline: float) -> None:
        _jax_tree.fill(leaves)
        super()._snapshot(save, nodes, leaves, begun, deadline)

    def _restored(self, opened: _engine.Checkpoint, world: World, strict: bool, state: dict[str, Any]) -> Restored:
        import json

        same_world = opened.world == world.size
        text = opened.objects(world.rank if same_world else 0)
        saved = json.loads(text) if text else {}
        nodes = saved.get("state", {}).get(_NAME)
        if not isinstance(nodes, dict):
            raise CheckpointError(f"step {opened.step} was not saved by `trainyard_checkpoint.jax`")
        like, structure = _jax_tree.named(state[_NAME])
        missing, surplus = sorted(set(like) - set(nodes)), sorted(set(nodes) - set(like))
        if strict and (missing or surplus):
            raise CheckpointError(
                f"step {opened.step} does not fit: not saved: {_torch.first(missing)}; saved and not in the tree: "
                f"{_torch.first(surplus)}; `strict=False` restores what both have"
            )
        reader = _jax_tree.Reader(opened, world.rank if same_world else None)
        makers = {name: _plan(reader, name, value, nodes[name]) for name, value in like.items() if name in nodes}
        reader.read()
        values = [makers[name]() if name in makers else value for name, value in like.items()]
        tree = jax.tree_util.tree_unflatten(structure, values)
        return Restored({_NAME: tree}, saved.get("rng") if same_world else None, saved.get("about", {}), [])


class _Collector(Collector):
    """The nodes of a tree, flat and by name, and what this process writes of its arrays."""

    def collect(self, state: dict[str, Any]) -> tuple[dict[str, Any], list[Leaf]]:
        named, _ = _jax_tree.named(state[_NAME])
        leaves: list[Leaf] = []
        self.common = {}
        nodes = {name: self._node(f"{_NAME}.{name}" if name else _NAME, value, leaves) for name, value in named.items()}
        return {_NAME: nodes}, leaves

    def _node(self, path: str, value: Any, leaves: list[Leaf]) -> Any:
        if _jax_tree.is_described(value):
            # Given to `restore`, which reserves memory; there is nothing to write yet.
            return None
        if _jax_tree.is_jax(value):
            bits = jax.random.key_data(value) if _jax_tree.is_key(value) else value
            if _jax_tree.is_local(bits, self._world.size):
                self.common[path] = (_jax_tree.dtype_name(path, bits.dtype), tuple(bits.shape))
            leaves.extend(_jax_tree.leaves_of(path, bits, self._world.rank, self._world.size))
            return {"$array": path}
        if isinstance(value, numpy.ndarray):
            found = _leaf.leaf(path, value, False)
            assert found is not None
            self.common[path] = (found.dtype, found.shape)
            if self._writes(found):
                leaves.append(found)
            return {"$array": path}
        return _tree.encode(path, value, lambda _, one: _leaf.scalar(one))


def _plan(reader: _jax_tree.Reader, name: str, like: Any, node: Any) -> Callable[[], Any]:
    """Has the boxes of a leaf read; what it returns makes the leaf from them."""
    tensor = node.get("$array") if isinstance(node, dict) else None
    is_array = _jax_tree.is_jax(like) or _jax_tree.is_described(like) or isinstance(like, numpy.ndarray)
    if is_array != isinstance(tensor, str):
        raise CheckpointError(f"`{name}` is {'an array' if is_array else 'a plain value'}, and what was saved is not")
    if not isinstance(tensor, str):
        return lambda: _tree.decode(name, node, _leaf.value_of)
    if _jax_tree.is_key(like):
        make, kind = _plan_array(reader, name, _bits(like), tensor), jax.random.key_impl(like)
        return lambda: jax.random.wrap_key_data(make(), impl=kind)
    return _plan_array(reader, name, like, tensor)


def _plan_array(reader: _jax_tree.Reader, name: str, like: Any, tensor: str) -> Callable[[], Any]:
    shape = tuple(like.shape)
    reader.check(name, tensor, _jax_tree.dtype_name(name, like.dtype), shape)
    # An array that no device was chosen for stays so: it may be used with arrays on any devices.
    is_free = _jax_tree.is_jax(like) and not getattr(like, "committed", True)
    sharding = None if is_free else getattr(like, "sharding", None)
    if sharding is None:
        whole = ((0,) * len(shape), shape)
        reader.want(tensor, whole, like.dtype)
        is_numpy = isinstance(like, numpy.ndarray)
        return lambda: reader.get(tensor, whole) if is_numpy else jax.numpy.asarray(reader.get(tensor, whole))
    for index in sharding.addressable_devices_indices_map(shape).values():
        reader.want(tensor, _jax_tree.box(index, shape), like.dtype)
    return lambda: jax.make_array_from_callback(shape, sharding, lambda index: reader.get(tensor, _jax_tree.box(index, shape)))


def _bits(like: Any) -> Any:
    """The array behind keys of random numbers. Its last dimension is in one piece, which a sharding need not say."""
    if _jax_tree.is_jax(like):
        return jax.random.key_data(like)
    bits = jax.eval_shape(jax.random.key_data, like)
    return jax.ShapeDtypeStruct(bits.shape, bits.dtype, sharding=like.sharding)
