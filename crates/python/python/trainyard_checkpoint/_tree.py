"""Nested state as JSON, with tensors taken out of it.

Values that JSON has stay as they are. Everything else is an object with one key that begins with `$`, so a file can be read by
people. A float is written as text, because its bits must not depend on who parses it.
"""

from __future__ import annotations

import base64
import collections
from collections.abc import Callable, Mapping
from typing import Any

from ._engine import CheckpointError

# What a tensor becomes: the function gets its path and returns the node, or None where the value is no tensor.
Take = Callable[[str, Any], "dict[str, Any] | None"]
# The way back: gets the node of a tensor.
Give = Callable[[str, dict[str, Any]], Any]

_INT64 = 1 << 63
_MAX_DEPTH = 64


def encode(path: str, value: Any, take: Take, depth: int = 0) -> Any:
    """The node of a value; raises with the path of what cannot be saved."""
    if depth > _MAX_DEPTH:
        raise CheckpointError(f"cannot save `{path[:200]}`: it is nested deeper than {_MAX_DEPTH} levels")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_INT64 <= value < _INT64 else {"$int": str(value)}
    if kind is float:
        return {"$float": repr(value)}
    if kind is complex:
        return {"$complex": [repr(value.real), repr(value.imag)]}
    if kind in (bytes, bytearray):
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is list:
        return [encode(f"{path}.{place}", one, take, depth + 1) for place, one in enumerate(value)]
    if kind is tuple:
        return {"$tuple": [encode(f"{path}.{place}", one, take, depth + 1) for place, one in enumerate(value)]}
    if kind in (set, frozenset):
        parts = sorted(value, key=repr)
        return {"$set": [encode(f"{path}.{place}", one, take, depth + 1) for place, one in enumerate(parts)]}
    if kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
        return _encode_dict(path, value, take, depth)
    node = take(path, value)
    if node is None:
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        raise CheckpointError(
            f"cannot save `{path}`: objects of type `{name}` are not supported; "
            "give a tensor, an array, a number, a string, a list or dict of these, or an object with `state_dict`"
        )
    return node


def _encode_dict(path: str, value: Mapping[Any, Any], take: Take, depth: int) -> Any:
    is_plain = all(type(key) is str and not key.startswith("$") for key in value)
    if is_plain and type(value) is not collections.Counter:
        return {key: encode(f"{path}.{key}", one, take, depth + 1) for key, one in value.items()}
    pairs = []
    for key, one in value.items():
        if type(key) not in (str, int, float, bool, tuple, type(None)):
            raise CheckpointError(f"cannot save `{path}`: a key of type `{type(key).__name__}` is not supported")
        pairs.append([encode(f"{path} (a key)", key, take, depth + 1), encode(f"{path}.{key}", one, take, depth + 1)])
    return {"$counter" if type(value) is collections.Counter else "$dict": pairs}


def decode(path: str, node: Any, give: Give) -> Any:
    """The value of a node."""
    if isinstance(node, list):
        return [decode(f"{path}.{place}", one, give) for place, one in enumerate(node)]
    if not isinstance(node, dict):
        return node
    mark = next(iter(node), "")
    if not mark.startswith("$"):
        return {key: decode(f"{path}.{key}", one, give) for key, one in node.items()}
    inner = node[mark]
    if mark == "$int":
        return int(inner)
    if mark == "$float":
        return float(inner)
    if mark == "$complex":
        return complex(float(inner[0]), float(inner[1]))
    if mark == "$bytes":
        return base64.b64decode(inner)
    if mark in ("$tuple", "$set"):
        parts = [decode(f"{path}.{place}", one, give) for place, one in enumerate(inner)]
        return tuple(parts) if mark == "$tuple" else set(parts)
    if mark in ("$dict", "$counter"):
        pairs = {}
        for key, one in inner:
            key = decode(path, key, give)
            pairs[key] = decode(f"{path}.{key}", one, give)
        return collections.Counter(pairs) if mark == "$counter" else pairs
    return give(path, node)


def tensors(node: Any) -> dict[str, bool]:
    """The names of the tensors below a node, and whether each is an array of numpy."""
    found: dict[str, bool] = {}
    open_nodes = [node]
    while open_nodes:
        one = open_nodes.pop()
        if isinstance(one, list):
            open_nodes.extend(one)
        elif isinstance(one, dict):
            name = one.get("$tensor") or one.get("$array")
            if isinstance(name, str) and len(one) == 1:
                found[name] = "$array" in one
            else:
                open_nodes.extend(one.values())
    return found
