"""What callers give, checked before anything is opened: one sentence with the name, what was found and what is expected."""

from __future__ import annotations

import math
import os
from typing import Any

from ._engine import CheckpointError

_MOST = {"keep": (1 << 32) - 1, "rank": (1 << 32) - 1, "world": (1 << 32) - 1, "attempt": (1 << 32) - 1}
_INT64 = (1 << 63) - 1
# Ten years; longer times do not fit every clock.
_MOST_SECONDS = 3.2e8


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def root(value: Any) -> str:
    """The root as text."""
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text:
        raise CheckpointError(f"`root` must be the path of a folder or `s3://bucket/prefix`, found `{_shown(value)}`")
    if text.startswith("s3:/") and not text.startswith("s3://"):
        # Such as `Path("s3://bucket/prefix")`, which would be a folder of this machine.
        raise CheckpointError(f"`{text}` is neither a folder nor an address; give `s3://bucket/prefix` as text, not as a `Path`")
    if "://" in text and not text.startswith("s3://"):
        raise CheckpointError(f"`{text}` is not supported; give a folder that all ranks see, or `s3://bucket/prefix`")
    return text


def local(value: Any) -> str:
    """The folder of the node as text."""
    try:
        text = os.fspath(value)
    except TypeError:
        text = None
    if not isinstance(text, str) or not text or "://" in text:
        raise CheckpointError(f"`local` must be the path of a folder of the node, found `{_shown(value)}`")
    return text


def number(name: str, value: Any, least: int) -> None:
    most = _MOST.get(name, _INT64)
    if type(value) is not int or value < least:
        raise CheckpointError(f"`{name}` must be a number of {least} or more, found `{_shown(value)}`")
    if value > most:
        raise CheckpointError(f"`{name}` must be {most} or less, found `{_shown(value)}`")


def optional(least: int, **numbers: Any) -> None:
    for name, value in numbers.items():
        if value is not None:
            number(name, value, least)


def seconds(name: str, value: Any) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= _MOST_SECONDS:
        raise CheckpointError(f"`{name}` must be seconds, 0 or more, found `{_shown(value)}`")


def one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if not any(value is one or (type(value) is str and value == one) for one in known):
        expected = ", ".join(f"`{one}`" for one in known)
        raise CheckpointError(f"unknown {name} `{value if type(value) is str else _shown(value)}`; expected one of {expected}")


def names(name: str, value: Any) -> frozenset[str]:
    # A text would be taken for the names of its letters.
    if not isinstance(value, (tuple, list, set, frozenset)) or not all(type(one) is str for one in value):
        raise CheckpointError(f"`{name}` must be a tuple of names, found `{_shown(value)}`")
    return frozenset(value)


def step(value: Any, state: dict[str, Any]) -> None:
    """The number of a step, and that there is something to save."""
    if type(value) is not int or not 0 <= value <= _INT64:
        raise CheckpointError(f"a step must be a number of 0 or more, found `{_shown(value)}`")
    if not state:
        raise CheckpointError("nothing to save: give the state as named arguments, such as `model=model`")
