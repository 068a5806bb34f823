"""From the state of a program to nodes and tensors, and which of the tensors this rank writes."""

from __future__ import annotations

from typing import Any

from . import _engine, _leaf, _torch, _tree
from ._engine import CheckpointError
from ._leaf import Leaf
from ._world import World

#: Digests of tensors are added up below this bound, so that the sum is a number of 64 bits on every rank.
_DIGESTS = 1 << 62


class Collector:
    """Collects the state of one rank."""

    def __init__(self, world: World, per_rank: frozenset[str]) -> None:
        self._world = world
        self._per_rank = per_rank
        self._writers: dict[tuple[Any, ...], bool] = {}
        self._digests: dict[tuple[Any, ...], int] = {}
        #: Of the last `collect`: type and shape of the tensors that every rank must have, by name.
        self.common: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: Of the last `collect`: names of tensors that are neither parameters nor state of an optimizer, so anything may change them.
        self.loose: set[str] = set()

    def collect(self, state: dict[str, Any]) -> tuple[dict[str, Any], list[Leaf]]:
        """The node of each name, and the tensors that this rank writes."""
        names = _torch.parameter_names(state)
        nodes: dict[str, Any] = {}
        leaves: dict[str, Leaf] = {}
        self.loose = set()
        for name, value in state.items():
            is_own = name in self._per_rank
            spread: set[str] | bool = False
            if _torch.is_module(value):
                inner: Any = _torch.module_state(value)
                parameters = _torch.unwrapped(value).named_parameters(remove_duplicate=False)
                spread = {f"{name}.{_torch.clean(one)}" for one, _ in parameters}
            elif _torch.is_optimizer(value):
                inner = _torch.optimizer_state(name, value, names)
                spread = True
            elif callable(getattr(value, "state_dict", None)):
                inner = value.state_dict()
            else:
                inner = value
            nodes[name] = _tree.encode(name, inner, self._taker(leaves, is_own, spread))
        self.common = {leaf.name: (leaf.dtype, leaf.shape) for leaf in leaves.values() if leaf.replicas is None}
        return nodes, [leaf for leaf in leaves.values() if self._writes(leaf)]

    def digest(self) -> int:
        """A number that two ranks share if, as far as 56 bits show, they have the same tensors in common."""
        import hashlib

        total = 0
        for name, about in self.common.items():
            known = self._digests.get((name, about))
            if known is None:
                text = f"{name} {about}".encode()
                known = self._digests[(name, about)] = int.from_bytes(hashlib.blake2b(text, digest_size=7).digest())
            total += known
        return total % _DIGESTS

    def difference(self, first: dict[str, tuple[str, tuple[int, ...]]]) -> str:
        """What this rank has otherwise than rank 0, in words; empty where nothing is."""
        for name in sorted(first.keys() - self.common.keys()):
            return f"it does not have `{name[:100]}`, and rank 0 has it"
        for name in sorted(self.common.keys() - first.keys()):
            return f"it has `{name[:100]}`, and rank 0 does not have it"
        for name, (dtype, shape) in self.common.items():
            if first[name] != (dtype, shape):
                there = f"type {first[name][0]} and shape {list(first[name][1])}"
                return f"its `{name[:100]}` has type {dtype} and shape {list(shape)}, and that of rank 0 has {there}"
        return ""

    def _taker(self, leaves: dict[str, Leaf], is_own: bool, spread: set[str] | bool) -> _tree.Take:
        def take(path: str, value: Any) -> dict[str, Any] | None:
            name = f"ranks.{self._world.rank:05}.{path}" if is_own else path
            is_spread = spread if isinstance(spread, bool) else path in spread
            found = _leaf.leaf(name, value, is_spread)
            if found is None:
                return _leaf.scalar(value)
            if not is_spread:
                self.loose.add(name)
            if name in leaves:
                raise CheckpointError(f"cannot save `{path}`: two tensors have this name")
            if is_own:
                found.replicas = [self._world.rank]
            elif found.replicas is not None:
                found.replicas = [self._world.to_rank(one) for one in found.replicas]
            leaves[name] = found
            return {"$array" if _leaf.is_array(value) else "$tensor": name}

        return take

    def _writes(self, leaf: Leaf) -> bool:
        key = leaf.described()
        known = self._writers.get(key)
        if known is None:
            known = self._writers[key] = self._choose(leaf)
        return known

    def _choose(self, leaf: Leaf) -> bool:
        if 0 in leaf.local and 0 not in leaf.shape:
            return False
        replicas = list(range(self._world.size)) if leaf.replicas is None else leaf.replicas
        if not leaf.spread:
            return bool(self._world.rank == replicas[0])
        whole = (0,) * len(leaf.shape)
        return bool(_engine.owner(leaf.name, whole, leaf.shape, replicas) == self._world.rank)


def disagreement(world: World, collector: Collector, failure: Exception | None) -> str | None:
    """Why ranks cannot save together: one of them has failed, or they do not have the same tensors. Every rank of a group calls it."""
    if not world.has_group or world.same(collector.digest() if failure is None else -1):
        return None
    first = world.from_first(collector.common if failure is None else None)
    own = collector.difference(first) if failure is None and first is not None else ""
    found: list[tuple[str, str]] = world.gather(("differs", own) if failure is None else ("failed", str(failure)[:500]))
    for rank, (what, why) in enumerate(found):
        if what == "failed":
            return f"rank {rank} could not save: {why}"
    for rank, (_, why) in enumerate(found):
        if why:
            return f"ranks do not have the same tensors: rank {rank}: {why}; make it a `DTensor`, or give it under a name of `per_rank`"
    return None
