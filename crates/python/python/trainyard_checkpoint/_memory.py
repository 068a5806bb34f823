"""The memory that tensors are copied into before they are written, and out of when they are read.

Python maps the descriptor of an arena of the engine. The mapping is not inherited by forked processes such as the workers of a
DataLoader, and its pages are taken in a thread of its own before the first save needs them.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from typing import Any

from . import _leaf
from ._engine import Arena, Layout
from ._leaf import Leaf

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14
# Bytes whose pages are taken in one call; it holds the GIL.
_POPULATE_BYTES = 1 << 20
_PAGE = 4096


class Memory:
    """An arena and its mapping."""

    def __init__(self, size: int) -> None:
        self.arena = Arena(max(size + -size % _PAGE, _PAGE))
        self.map = mmap.mmap(self.arena.fileno(), self.arena.capacity)
        if hasattr(mmap, "MADV_DONTFORK"):
            self.map.madvise(mmap.MADV_DONTFORK)
        self._bytes: Any = None
        self._layout: Layout | None = None
        self._described: list[Any] = []
        self._views: list[Any] = []
        self._registered: Any = None

    @property
    def capacity(self) -> int:
        return self.arena.capacity

    def populate(self) -> None:
        """Takes the pages of the mapping, in small steps."""
        for start in range(0, self.capacity, _POPULATE_BYTES):
            try:
                self.map.madvise(_POPULATE_WRITE, start, min(_POPULATE_BYTES, self.capacity - start))
            except OSError:
                return  # A kernel without it: the first save takes the pages.

    def register(self, device: Any) -> None:
        """Lets a device copy into it without another copy on the way."""
        torch = _leaf.torch()
        if self._registered is not None or device.type != "cuda" or torch.version.cuda is None:
            return
        place = self.torch_bytes().data_ptr()
        if int(torch.cuda.cudart().cudaHostRegister(place, self.capacity, 0)) == 0:
            self._registered = weakref.finalize(self, _unregister, place, os.getpid())
            self._registered.atexit = False
            return
        # Without it copies are slower and still right. The next call of CUDA would report this error as its own.
        try:
            torch.zeros(1, device=device)
        except RuntimeError:
            pass

    def release(self) -> None:
        """Before the mapping goes: a device must not know it any longer, or it would copy into what is mapped there next."""
        if self._registered is not None:
            self._registered()
            self._registered = None

    def torch_bytes(self) -> Any:
        if self._bytes is None:
            torch = _leaf.torch()
            self._bytes = torch.frombuffer(self.map, dtype=torch.uint8)
        return self._bytes

    def view(self, leaf: Leaf, offset: int) -> Any:
        """The place of a tensor, as a tensor or an array."""
        end = offset + leaf.bytes
        if _leaf.is_array(leaf.value):
            numpy = _leaf.numpy()
            return numpy.frombuffer(self.map, dtype=leaf.value.dtype, count=leaf.bytes // leaf.item, offset=offset).reshape(leaf.local)
        return self.torch_bytes()[offset:end].view(leaf.value.dtype).view(leaf.local)

    def known(self, described: list[Any]) -> Layout | None:
        """The layout of these tensors, where they are those of the save before."""
        return self._layout if described == self._described else None

    def lay_out(self, leaves: list[Leaf], layout: Layout, described: list[Any]) -> list[Any]:
        """The place of each tensor of a layout. Nothing is computed twice while the layout stays the same."""
        if layout is not self._layout:
            self.arena.lay_out(layout)
            self._views = [self.view(leaf, offset) if leaf.bytes else None for leaf, offset in zip(leaves, layout.offsets)]
            self._layout, self._described = layout, described
        return self._views


def layout_of(leaves: list[Leaf], memory: Memory | None) -> tuple[Layout, list[Any]]:
    """The layout of tensors, and what it was made from."""
    described: list[Any] = [leaf.described() for leaf in leaves]
    splits = [leaf.split for leaf in leaves]
    key = [*described, *splits]
    known = memory.known(key) if memory is not None else None
    return known if known is not None else Layout(described, splits), key


def packed(leaves: list[Leaf]) -> list[Leaf]:
    """Large elements first, so that every tensor lies at a multiple of its element."""
    return sorted(leaves, key=lambda leaf: (-leaf.item, leaf.name))


def _unregister(place: int, pid: int) -> None:
    # CUDA does not survive a fork, and neither does what was registered.
    if pid == os.getpid():
        _leaf.torch().cuda.cudart().cudaHostUnregister(place)


class Preparation:
    """Memory that a thread gets ready."""

    def __init__(self, size: int, device: Any) -> None:
        self._made: Memory | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(size, device), name="checkpoint-memory", daemon=True)
        self._thread.start()

    def _run(self, size: int, device: Any) -> None:
        try:
            memory = Memory(size)
            memory.populate()
            if device is not None:
                memory.register(device)
            self._made = memory
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error

    def result(self) -> Memory:
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._made is not None
        return self._made
