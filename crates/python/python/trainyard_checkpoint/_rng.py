"""State of random numbers: of Python, numpy and torch on the processor and on every device of this rank."""

from __future__ import annotations

from typing import Any

from . import _leaf
from ._tree import decode, encode


def capture() -> dict[str, Any]:
    import random

    state: dict[str, Any] = {"python": encode("rng.python", random.getstate(), _small)}
    numpy, torch = _leaf.numpy(), _leaf.torch()
    if numpy is not None:
        state["numpy"] = encode("rng.numpy", numpy.random.get_state(legacy=False), _small)
    if torch is not None:
        state["torch"] = _leaf.small(torch.get_rng_state())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = [_leaf.small(one) for one in torch.cuda.get_rng_state_all()]
    return state


def restore(state: dict[str, Any]) -> list[str]:
    """Sets what was saved; returns what could not be set, one sentence each."""
    import random

    missing = []
    numpy, torch = _leaf.numpy(), _leaf.torch()
    random.setstate(decode("rng.python", state["python"], _leaf.value_of))
    for name, module in (("numpy", numpy), ("torch", torch)):
        if name in state and module is None:
            missing.append(f"the random numbers of {name} were saved, and {name} is not imported")
    if "numpy" in state and numpy is not None:
        numpy.random.set_state(decode("rng.numpy", state["numpy"], _leaf.value_of))
    if "torch" in state and torch is not None:
        torch.set_rng_state(_leaf.value_of("rng.torch", state["torch"]))
    devices = state.get("cuda", [])
    if devices and torch is not None:
        if torch.cuda.is_available() and torch.cuda.device_count() == len(devices):
            torch.cuda.set_rng_state_all([_leaf.value_of("rng.cuda", one) for one in devices])
        else:
            missing.append(f"the random numbers of {len(devices)} devices were saved, and this process has another number")
    return missing


def _small(path: str, value: Any) -> dict[str, Any] | None:
    return _leaf.small(value)
