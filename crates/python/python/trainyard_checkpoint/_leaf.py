"""Tensors and arrays: what is saved of each, by whom, and how it gets into memory and back.

torch and numpy are looked up among the modules that the program has imported; nothing is imported for their sake.
"""

from __future__ import annotations

import base64
import sys
from typing import Any

from ._engine import CheckpointError

# Names in the files, by the names of torch and numpy, with bytes of one element.
TORCH = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e4m3fnuz": ("F8_E4M3FNUZ", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e5m2fnuz": ("F8_E5M2FNUZ", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
    "uint16": ("U16", 2),
    "int16": ("I16", 2),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "uint32": ("U32", 4),
    "int32": ("I32", 4),
    "float32": ("F32", 4),
    "uint64": ("U64", 8),
    "int64": ("I64", 8),
    "float64": ("F64", 8),
    "complex64": ("C64", 8),
}
_FROM_FILE = {name: torch for torch, (name, _) in TORCH.items()}
_ITEM = {name: item for name, item in TORCH.values()}

Shape = tuple[int, ...]


class Leaf:
    """A tensor, or the part of one that this rank has."""

    __slots__ = ("dtype", "local", "name", "offsets", "replicas", "shape", "split", "spread", "value")

    def __init__(
        self,
        name: str,
        dtype: str,
        shape: Shape,
        local: Shape,
        offsets: Shape,
        value: Any,
        replicas: list[int] | None = None,
        spread: bool = False,
    ) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape
        self.local, self.offsets, self.value = local, offsets, value
        # Ranks that have the same part; None: every rank has the whole.
        self.replicas = replicas
        # Whether the writer is chosen by a hash. Otherwise the first replica writes: buffers may differ between ranks.
        self.spread = spread
        # Where all ranks divide one dimension evenly: the dimension, how many ranks, and which one this is.
        self.split: tuple[int, int, int] | None = None

    @property
    def item(self) -> int:
        return _ITEM[self.dtype]

    @property
    def bytes(self) -> int:
        count = 1
        for size in self.local:
            count *= size
        return count * self.item

    def described(self) -> tuple[str, str, Shape, Shape, Shape]:
        """As the engine wants it. Where a rule gives the offsets they are left out, so that ranks share a layout."""
        offsets = self.offsets if self.split is None else ()
        return (self.name, self.dtype, self.shape, self.local, offsets)


def torch() -> Any:
    """torch, if the program has imported it."""
    module = sys.modules.get("torch")
    return module if module is not None and hasattr(module, "Tensor") else None


def numpy() -> Any:
    module = sys.modules.get("numpy")
    return module if module is not None and hasattr(module, "ndarray") else None


def is_tensor(value: Any) -> bool:
    module = torch()
    return module is not None and isinstance(value, module.Tensor)


def is_array(value: Any) -> bool:
    module = numpy()
    return module is not None and isinstance(value, module.ndarray)


def dtensor() -> Any:
    """The class of distributed tensors, if the program has imported it."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def is_dtensor(value: Any) -> bool:
    kind = dtensor()
    return kind is not None and isinstance(value, kind)


def leaf(name: str, value: Any, spread: bool) -> Leaf | None:
    """What is saved of a value; None where it is no tensor or array."""
    if is_tensor(value):
        return _torch_leaf(name, value, spread)
    if is_array(value):
        known = TORCH.get(value.dtype.name)
        if known is None or not value.dtype.isnative:
            raise CheckpointError(f"cannot save `{name}`: arrays of type `{value.dtype}` are not supported")
        shape = tuple(value.shape)
        return Leaf(name, known[0], shape, shape, (0,) * len(shape), value, None, spread)
    return None


def _torch_leaf(name: str, value: Any, spread: bool) -> Leaf:
    module = torch()
    known = TORCH.get(str(value.dtype).removeprefix("torch."))
    if known is None:
        raise CheckpointError(f"cannot save `{name}`: tensors of type `{value.dtype}` are not supported")
    if is_dtensor(value):
        return _distributed(name, value, known[0])
    if type(value) not in _plain():
        kind = type(value)
        raise CheckpointError(f"cannot save `{name}`: tensors of class `{kind.__module__}.{kind.__qualname__}` are not supported")
    if value.layout != module.strided or value.is_quantized or value.device.type == "meta":
        raise CheckpointError(f"cannot save `{name}`: it is sparse, quantized or on the device `meta`")
    shape = tuple(value.shape)
    return Leaf(name, known[0], shape, shape, (0,) * len(shape), value.detach(), None, spread)


def _distributed(name: str, value: Any, dtype: str) -> Leaf:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh = value.device_mesh
    for placement in value.placements:
        if type(placement) not in (Replicate, Shard):
            raise CheckpointError(f"cannot save `{name}`: the placement `{placement}` is not supported")
    shape = tuple(value.shape)
    local, offsets = compute_local_shape_and_global_offset(shape, mesh, value.placements)
    if not offsets and shape:
        # This rank is not in the mesh: it has nothing of it.
        local, offsets = (0,) * len(shape), (0,) * len(shape)
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    place = tuple(slice(None) if isinstance(placement, Replicate) else at for placement, at in zip(value.placements, coordinate))
    replicas = sorted(int(rank) for rank in mesh.mesh[place].reshape(-1).tolist())
    part = value.detach().to_local()
    if hasattr(part, "wait"):
        part = part.wait()
    # Where a rank has nothing the offsets may lie behind the end.
    if 0 in local:
        offsets = (0,) * len(shape)
    return Leaf(name, dtype, shape, tuple(local), tuple(offsets), part, replicas, True)


def memory(value: Any) -> memoryview | None:
    """The bytes of a tensor or an array, to be written; None where they are not contiguous, or not in the memory of the processor."""
    module = numpy()
    if module is None:
        return None
    if is_tensor(value):
        if type(value) not in _plain() or value.device.type != "cpu" or not value.is_contiguous() or value.is_conj() or value.is_neg():
            return None
        value = value.detach().reshape(-1).view(torch().uint8).numpy()
    elif not is_array(value) or not value.flags.c_contiguous or not value.flags.writeable:
        return None
    return memoryview(value.reshape(-1).view(module.uint8))


def _plain() -> tuple[Any, ...]:
    """The classes of tensors whose values are all that there is to them."""
    module = torch()
    return (module.Tensor, module.nn.Parameter, getattr(module.nn, "Buffer", module.Tensor))


def torch_type(dtype: str) -> Any:
    """The type of torch, by its name in the files."""
    return getattr(torch(), _FROM_FILE[dtype])


def empty(dtype: str, shape: Shape) -> Any:
    """A tensor for something that the program does not have yet."""
    module = torch()
    if module is None:
        raise CheckpointError("the step has tensors of torch: import torch before `restore`")
    return module.empty(shape, dtype=torch_type(dtype))


def empty_array(dtype: str, shape: Shape) -> Any:
    module = numpy()
    if module is None:
        raise CheckpointError("the step has arrays of numpy: import numpy before `restore`")
    return module.empty(shape, dtype=_FROM_FILE[dtype])


def scalar(value: Any) -> dict[str, Any] | None:
    """A number of numpy or a type of torch, as a node."""
    module = numpy()
    if module is not None and isinstance(value, module.generic) and value.dtype.name in TORCH:
        text = base64.b64encode(value.tobytes()).decode()
        return {"$scalar": [value.dtype.name, text]}
    module = torch()
    if module is not None:
        if isinstance(value, module.dtype):
            return {"$dtype": str(value).removeprefix("torch.")}
        if isinstance(value, module.Size):
            return {"$tuple": [int(one) for one in value]}
        if isinstance(value, module.device):
            return {"$device": str(value)}
    return None


def small(value: Any) -> dict[str, Any] | None:
    """A small array, written into the JSON itself: state of random numbers."""
    if is_tensor(value) and value.dtype == torch().uint8:
        return {"$uint8": base64.b64encode(bytes(value.cpu().numpy().tobytes() if numpy() else value.tolist())).decode()}
    if is_array(value) and value.dtype.name in TORCH:
        text = base64.b64encode(value.tobytes()).decode()
        return {"$inline": [value.dtype.name, list(value.shape), text]}
    return scalar(value)


def value_of(path: str, node: dict[str, Any]) -> Any:
    """The way back from `scalar` and `small`."""
    mark, inner = next(iter(node.items()))
    if mark == "$uint8":
        return torch().frombuffer(bytearray(base64.b64decode(inner)), dtype=torch().uint8)
    if mark in ("$scalar", "$inline"):
        module = numpy()
        if module is None:
            raise CheckpointError(f"`{path}` is of numpy: import numpy before `restore`")
        shape = () if mark == "$scalar" else tuple(inner[1])
        found = module.frombuffer(base64.b64decode(inner[-1]), dtype=inner[0]).reshape(shape)
        return found[()] if mark == "$scalar" else found.copy()
    if mark == "$dtype":
        return getattr(torch(), inner)
    if mark == "$device":
        return torch().device(inner)
    raise CheckpointError(f"`{path}` is of a kind that this version does not know: `{mark}`")
