"""The copy of a state: its memory, and the streams in which devices copy into it."""

from __future__ import annotations

from typing import Any

from . import _leaf, _memory
from ._leaf import Leaf
from ._save import Save


class Snapshots:
    """Memory that one save after the other uses, and copies that devices have not finished."""

    def __init__(self) -> None:
        self.memory: _memory.Memory | None = None
        self._preparation: _memory.Preparation | None = None
        self._pending: list[Any] = []
        self._streams: dict[Any, Any] = {}

    def prepare(self, leaves: list[Leaf]) -> None:
        """Gets memory for these tensors ready in a thread, unless there is enough."""
        layout, _ = _memory.layout_of(_memory.packed(leaves), self.memory)
        if leaves and self._preparation is None and (self.memory is None or self.memory.capacity < layout.size):
            self._preparation = _memory.Preparation(layout.size, device_of(leaves))

    def memory_for(self, size: int, device: Any) -> _memory.Memory:
        if self._preparation is not None:
            preparation, self._preparation = self._preparation, None
            self.drop_memory()
            self.memory = preparation.result()
        if self.memory is None or self.memory.capacity < size:
            self.drop_memory()
            self.memory = _memory.Memory(size)
        if device is not None:
            self.memory.register(device)
        return self.memory

    def drop_memory(self) -> None:
        """Gives memory back that no save reads."""
        if self.memory is not None:
            self.memory.release()
            self.memory = None

    def copy(self, save: Save, leaves: list[Leaf], views: list[Any], loose: Any) -> list[Any]:
        """Copies tensors to their places. Returns the events of devices that have not finished."""
        torch = _leaf.torch()
        on_devices: dict[Any, list[tuple[Any, Any, bool]]] = {}
        for leaf, view in zip(leaves, views):
            if view is None:
                continue
            if _leaf.is_array(leaf.value):
                view[...] = leaf.value
            elif leaf.value.device.type == "cpu":
                with torch.no_grad():
                    view.copy_(leaf.value)
            else:
                on_devices.setdefault(leaf.value.device, []).append((view, leaf.value, leaf.name in loose))
        return [self._copy_from(device, copies, save) for device, copies in on_devices.items()]

    def _copy_from(self, device: Any, copies: list[tuple[Any, Any, bool]], save: Save) -> Any:
        """Copies in a stream of its own, behind everything that has been asked of the device so far.

        Buffers and other tensors that the step of an optimizer does not change are copied in the stream of the program: a forward may
        change them before that step.
        """
        torch = _leaf.torch()
        module = torch.get_device_module(device)
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = module.Stream(device=device)
        with module.stream(module.current_stream(device)), torch.no_grad():
            for view, source, is_loose in copies:
                if is_loose:
                    view.copy_(source, non_blocking=True)
        stream.wait_stream(module.current_stream(device))
        with module.stream(stream), torch.no_grad():
            for view, source, is_loose in copies:
                if not is_loose:
                    view.copy_(source, non_blocking=True)
            event = module.Event()
            event.record(stream)
        save._sources.extend(source for _, source, _ in copies)
        self._pending.append((module, device, event))
        return event

    def before_update(self) -> None:
        """Lets devices wait until they have copied what is about to change. The host does not wait."""
        pending, self._pending = self._pending, []
        for module, device, event in pending:
            module.current_stream(device).wait_event(event)


def device_of(leaves: list[Leaf]) -> Any:
    """The device of the first tensor that is on one."""
    for leaf in leaves:
        if _leaf.is_tensor(leaf.value) and leaf.value.device.type != "cpu":
            return leaf.value.device
    return None
