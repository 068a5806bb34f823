"""From a committed step back to the state of a program.

Everything is compared before the first byte is read: names, types and shapes. Tensors in CPU memory are read straight into their
own memory, each byte after its chunk was verified. Others are read batch by batch into bounded memory and copied to where they belong. What
the program does not have yet, such as the state of a new optimizer, is first made whole on the CPU, on every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import _leaf, _torch, _tree
from ._engine import Checkpoint, CheckpointError
from ._leaf import Leaf
from ._memory import Memory
from ._world import World

# Bytes of a batch; only a larger row is a batch of its own.
_BATCH_BYTES = 128 << 20
_ALIGN = 64


class Restored(NamedTuple):
    """What was found beside the state itself."""

    values: dict[str, Any]
    rng: dict[str, Any] | None
    about: dict[str, Any]
    skipped: list[str]


class Restorer:
    """Restores one step on one rank."""

    def __init__(self, step: Checkpoint, world: World, strict: bool, per_rank: frozenset[str], data: str) -> None:
        self._step = step
        self._strict = strict
        self._per_rank = per_rank
        self._data = data
        self._same_world = step.world == world.size
        self._rank = world.rank
        self._tensors = step.tensors()
        self._wishes: dict[str, Leaf] = {}
        self._finish: list[Callable[[], None]] = []
        self._values: dict[str, Any] = {}

    def restore(self, state: dict[str, Any]) -> Restored:
        import json

        text = self._step.objects(self._rank if self._same_world else 0)
        saved = json.loads(text) if text else {}
        nodes = saved.get("state", {})
        skipped = self._check_names(state, nodes)
        names = _torch.parameter_names(state)
        for name, value in state.items():
            if name in nodes and name not in skipped:
                self._plan(name, value, nodes[name], names)
        self._read()
        for finish in self._finish:
            finish()
        rng = saved.get("rng") if self._same_world else None
        return Restored(self._values, rng, saved.get("about", {}), skipped)

    def _check_names(self, state: dict[str, Any], nodes: dict[str, Any]) -> list[str]:
        missing, surplus = sorted(set(state) - set(nodes)), sorted(set(nodes) - set(state))
        if self._strict and (missing or surplus):
            raise CheckpointError(
                f"step {self._step.step} does not fit: not saved: {_torch.first(missing)}; saved and not asked for: "
                f"{_torch.first(surplus)}; `strict=False` restores what both have"
            )
        if self._same_world:
            return []
        own = [name for name in state if name in self._per_rank and name in nodes]
        if own and self._data != "restart-epoch":
            raise CheckpointError(
                f"{self._step.world} ranks saved step {self._step.step}, and the state of {_torch.first(own)} is that of one rank; "
                '`data="restart-epoch"` restores everything else'
            )
        return own

    def _plan(self, name: str, value: Any, node: Any, names: dict[int, str]) -> None:
        """What is read for a name, and what is done with it afterwards."""
        if _torch.is_module(value):
            self._plan_module(name, value, node)
        elif _torch.is_optimizer(value):
            self._plan_optimizer(name, value, node, names)
        elif _leaf.is_tensor(value) or _leaf.is_array(value):
            self._wish_into(name, value, node)
        else:
            for tensor, is_array in _tree.tensors(node).items():
                self._wish(tensor, is_array)
            self._finish.append(lambda: self._give_back(name, value, node))

    def _give_back(self, name: str, value: Any, node: Any) -> None:
        found = _tree.decode(name, node, self._give)
        if callable(getattr(value, "load_state_dict", None)):
            value.load_state_dict(found)
        elif isinstance(value, dict) and isinstance(found, dict):
            value.clear()
            value.update(found)
        elif isinstance(value, list) and isinstance(found, list):
            value[:] = found
        self._values[name] = found

    def _plan_module(self, name: str, model: Any, node: Any) -> None:
        current = _torch.module_state(model)
        self._compare(name, list(current), list(node))
        others = []
        for key, value in current.items():
            if key not in node:
                continue
            if _leaf.is_tensor(value):
                self._wish_into(f"{name}.{key}", value, node[key])
            else:
                others.append(key)
                for tensor, is_array in _tree.tensors(node[key]).items():
                    self._wish(tensor, is_array)
        if others:

            def load() -> None:
                inner = _torch.unwrapped(model)
                full = inner.state_dict()
                for key in full:
                    if _torch.clean(key) in others:
                        full[key] = _tree.decode(f"{name}.{key}", node[_torch.clean(key)], self._give)
                inner.load_state_dict(full)

            self._finish.append(load)

    def _compare(self, name: str, current: list[str], saved: list[str]) -> None:
        missing, surplus = sorted(set(current) - set(saved)), sorted(set(saved) - set(current))
        if self._strict and (missing or surplus):
            raise CheckpointError(
                f"`{name}` does not fit step {self._step.step}: not saved: {_torch.first(missing)}; saved and not in it: "
                f"{_torch.first(surplus)}"
            )

    def _plan_optimizer(self, name: str, optimizer: Any, node: Any, names: dict[int, str]) -> None:
        parameters = _torch.parameters_by_name(name, optimizer, names)
        wraps: dict[str, Any] = {}
        for own, values in node["state"].items():
            parameter = parameters.get(own)
            for tensor, is_array in _tree.tensors(values).items():
                _, shape = self._known(tensor)
                if parameter is not None and _torch.is_sharded_like(parameter, shape):
                    wraps[tensor] = parameter
                    self._wish(tensor, is_array, _leaf.leaf(own, parameter, True))
                else:
                    self._wish(tensor, is_array)
        for tensor, is_array in _tree.tensors(node["param_groups"]).items():
            self._wish(tensor, is_array)

        def give(path: str, one: dict[str, Any]) -> Any:
            found = self._give(path, one)
            tensor = one.get("$tensor")
            if isinstance(tensor, str) and tensor in wraps:
                return _torch.like_parameter(wraps[tensor], found, self._wishes[tensor].shape)
            return found

        def load() -> None:
            saved = _tree.decode(name, node, give)
            _torch.load_optimizer(name, optimizer, names, saved, self._strict)

        self._finish.append(load)

    def _known(self, tensor: str) -> tuple[str, tuple[int, ...]]:
        known = self._tensors.get(tensor)
        if known is None:
            raise CheckpointError(f"tensor `{tensor}` is not in step {self._step.step}")
        return known[0], tuple(known[1])

    def _wish_into(self, name: str, value: Any, node: Any) -> None:
        """Reads into a tensor that the program has."""
        tensor = next(iter(_tree.tensors(node)), None)
        if tensor is None:
            raise CheckpointError(f"`{name}` is a tensor, and what was saved is none")
        wish = _leaf.leaf(tensor, value, False)
        assert wish is not None
        dtype, shape = self._known(tensor)
        if (wish.dtype, wish.shape) != (dtype, shape):
            raise CheckpointError(
                f"`{name}` has type {wish.dtype} and shape {list(wish.shape)}, and type {dtype} and shape {list(shape)} were saved"
            )
        self._wishes[tensor] = wish

    def _wish(self, tensor: str, is_array: bool, like: Leaf | None = None) -> None:
        """Reads into a new tensor; with `like`, the part of it that this rank has of another one."""
        dtype, shape = self._known(tensor)
        local = like.local if like is not None else shape
        offsets = like.offsets if like is not None else (0,) * len(shape)
        value = _leaf.empty_array(dtype, local) if is_array else _leaf.empty(dtype, local)
        self._wishes[tensor] = Leaf(tensor, dtype, shape, local, offsets, value)

    def _give(self, path: str, node: dict[str, Any]) -> Any:
        tensor = node.get("$tensor") or node.get("$array")
        if isinstance(tensor, str):
            return self._wishes[tensor].value
        return _leaf.value_of(path, node)

    def _read(self) -> None:
        read(self._step, self._rank if self._same_world else None, list(self._wishes.values()))


def read(step: Checkpoint, prefer: int | None, wishes: list[Leaf]) -> None:
    """Reads regions of a step into their tensors and arrays; of replicas that of rank `prefer`."""
    direct: list[tuple[str, Any, Any, memoryview]] = []
    others: list[Leaf] = []
    for wish in wishes:
        memory = _leaf.memory(wish.value) if wish.bytes else None
        if memory is not None:
            direct.append((wish.name, wish.offsets, wish.local, memory))
        elif wish.bytes:
            others.extend(_parts(wish))
    if direct:
        step.read_into(direct, prefer)
    if others:
        Pipeline(step, prefer, others).run()


class Pipeline:
    """Reads batches into two memories in turns: one is being read while the other is being copied to where its tensors belong."""

    def __init__(self, step: Checkpoint, prefer: int | None, wishes: list[Leaf]) -> None:
        self._step, self._prefer = step, prefer
        sizes = [_aligned(wish.bytes) for wish in wishes]
        self._capacity = min(sum(sizes), max(_BATCH_BYTES, *sizes, 0))
        self._batches: list[list[tuple[Leaf, int]]] = [[]]
        end = 0
        for wish, size in zip(wishes, sizes):
            if end + size > self._capacity:
                self._batches.append([])
                end = 0
            self._batches[-1].append((wish, end))
            end += size
        devices = (wish.value.device for wish in wishes if _leaf.is_tensor(wish.value))
        self._device = next((one for one in devices if one.type == "cuda"), None)

    def run(self) -> None:
        # Not at import: it brings more modules than all of this package.
        import concurrent.futures

        memories = [self._memory() for _ in self._batches[:2]]
        try:
            with concurrent.futures.ThreadPoolExecutor(1, "checkpoint-read") as reader:
                reading = reader.submit(self._fill, memories[0], self._batches[0])
                for place, batch in enumerate(self._batches):
                    reading.result()
                    if place + 1 < len(self._batches):
                        reading = reader.submit(self._fill, memories[(place + 1) % 2], self._batches[place + 1])
                    self._copy(memories[place % 2], batch)
        finally:
            for memory in memories:
                memory.release()

    def _memory(self) -> Memory:
        memory = Memory(self._capacity)
        # Registered memory pays from a few batches on: to register takes about as long as to copy once.
        if self._device is not None and len(self._batches) > 2:
            memory.register(self._device)
        return memory

    def _fill(self, memory: Memory, batch: list[tuple[Leaf, int]]) -> None:
        wanted = [(wish.name, wish.offsets, wish.local, offset) for wish, offset in batch]
        self._step.read(memory.arena, wanted, self._prefer)

    def _copy(self, memory: Memory, batch: list[tuple[Leaf, int]]) -> None:
        """Returns when the memory may be used again."""
        torch = _leaf.torch()
        devices = set()
        for wish, offset in batch:
            view = memory.view(wish, offset)
            if _leaf.is_array(wish.value):
                wish.value[...] = view
                continue
            with torch.no_grad():
                wish.value.copy_(view, non_blocking=True)
            if wish.value.device.type != "cpu":
                devices.add(wish.value.device)
        for device in devices:
            torch.get_device_module(device).current_stream(device).synchronize()


def _parts(wish: Leaf) -> list[Leaf]:
    """A tensor that is larger than a batch, cut along its first dimension."""
    rows = wish.local[0] if wish.local else 1
    if wish.bytes <= _BATCH_BYTES or rows < 2:
        return [wish]
    each = max(_BATCH_BYTES * rows // wish.bytes, 1)
    found = []
    for start in range(0, rows, each):
        count = min(each, rows - start)
        local, offsets = (count, *wish.local[1:]), (wish.offsets[0] + start, *wish.offsets[1:])
        found.append(Leaf(wish.name, wish.dtype, wish.shape, local, offsets, wish.value[start : start + count]))
    return found


def _aligned(size: int) -> int:
    return size + -size % _ALIGN
