"""One save, as the program that asked for it sees it."""

from __future__ import annotations

import threading
import time
from typing import Any

from . import _engine
from ._engine import CheckpointError


class Save:
    """A save that was asked for: in flight, committed, failed or skipped."""

    def __init__(self, step: int) -> None:
        self.step = step
        #: True where another save was in flight, so this one was not begun.
        self.skipped = False
        self._running: _engine.Save | None = None
        self._error: BaseException | None = None
        self._begun = threading.Event()
        self._copied = threading.Event()
        self._is_reported = False
        # Sources of copies that a device has not finished; their memory must not be used again before.
        self._sources: list[Any] = []

    def snapshotted(self, timeout: float = 0.0) -> bool:
        """Whether the state has been copied, so that changing it no longer matters."""
        return self._copied.wait(timeout)

    def committed(self, timeout: float = 0.0) -> bool:
        """Waits, and returns whether the step is committed and durable."""
        end = time.monotonic() + timeout
        if not self._begun.wait(timeout) or self._running is None:
            return False
        try:
            self._running.wait(max(end - time.monotonic(), 0.0))
        except (CheckpointError, TimeoutError):
            return False
        return True

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        if not self._begun.is_set():
            return False
        return self._running is None or self._running.done()

    @property
    def failed(self) -> BaseException | None:
        """Why it failed; None while it is in flight, and where it was committed or skipped."""
        if self._error is None and self._begun.is_set() and self._running is not None:
            try:
                self._running.wait(0.0)
            except TimeoutError:
                return None
            except CheckpointError as error:
                self._error = error
        return self._error

    @property
    def seconds(self) -> dict[str, float]:
        """Figures of a committed save: bytes of this rank, seconds until they were durable, seconds from there to the commit."""
        if self._running is None:
            return {}
        try:
            return self._running.wait(0.0)
        except (CheckpointError, TimeoutError):
            return {}

    def _begin(self, running: _engine.Save) -> None:
        self._running = running
        self._sources = []
        self._copied.set()
        self._begun.set()

    def _fail(self, error: BaseException) -> None:
        self._error = error
        self._sources = []
        self._copied.set()
        self._begun.set()

    def _skip(self) -> None:
        self.skipped = True
        self._copied.set()
        self._begun.set()

    def _abandon(self) -> None:
        if self._running is not None:
            self._running.abandon()
