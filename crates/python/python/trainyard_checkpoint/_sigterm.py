"""SIGTERM: the next step saves, then the process ends as it would have without us."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

# The share of the grace time that is used; the rest is for the end of the process.
_USED_SHARE = 0.9


class Sigterm:
    """What SIGTERM means for a checkpointer. grace: seconds from SIGTERM to SIGKILL."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._pid = os.getpid()
        self._at: float | None = None
        # Whether the save that SIGTERM asked for was made, and the program decides how it ends.
        self._is_heeded = False
        #: What SIGTERM did before us.
        self.handler: Any = None

    @property
    def came(self) -> bool:
        return self._at is not None

    @property
    def must_end(self) -> bool:
        """Whether it came, and the save that it asks for was not made yet."""
        return self.came and not self._is_heeded

    def left(self, seconds: float) -> float:
        """Of these seconds, those that the grace time leaves."""
        # One that a program survived had no SIGKILL behind it.
        if self._at is None or time.monotonic() > self._at + self._grace:
            return seconds
        return max(min(seconds, self._at + _USED_SHARE * self._grace - time.monotonic()), 0.0)

    def noticed(self) -> None:
        """Another handler got it, and the program makes the save that it asks for: the grace time counts from here."""
        if self._at is None:
            self._at = time.monotonic()
        self._is_heeded = True

    def take(self) -> None:
        """Python lets the main thread alone handle signals."""
        if threading.current_thread() is threading.main_thread():
            self.handler = signal.signal(signal.SIGTERM, self._on_signal)

    def give_back(self) -> None:
        if self.handler is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_signal:
                signal.signal(signal.SIGTERM, self.handler)
            self.handler = None

    def leave_to_program(self) -> bool:
        """After the save: true where the program has a handler of its own or ignores SIGTERM. It decides how it ends, and may save until then."""
        handler = self.handler
        if not callable(handler) and handler is not signal.SIG_IGN:
            return False
        self._is_heeded = True
        self.give_back()
        if callable(handler):
            handler(signal.SIGTERM, None)
        return True

    def _on_signal(self, number: int, frame: Any) -> None:
        if os.getpid() != self._pid:
            # A forked worker: what SIGTERM does there is not ours to decide.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        if self._at is None:
            self._at = time.monotonic()


def end(handler: Any) -> None:
    """What SIGTERM would have done without us."""
    if callable(handler):
        handler(signal.SIGTERM, None)
    elif handler is not signal.SIG_IGN:
        raise SystemExit(128 + signal.SIGTERM)
