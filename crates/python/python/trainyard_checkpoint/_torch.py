"""State of torch: modules and optimizers by the names of parameters, whatever wraps them."""

from __future__ import annotations

from typing import Any

from ._engine import CheckpointError
from ._leaf import dtensor, is_dtensor, torch


def is_module(value: Any) -> bool:
    module = torch()
    return module is not None and isinstance(value, module.nn.Module)


def is_optimizer(value: Any) -> bool:
    module = torch()
    return module is not None and isinstance(value, module.optim.Optimizer)


def unwrapped(model: Any) -> Any:
    """The module inside of DistributedDataParallel and torch.compile: a wrapper is no part of the state."""
    module = torch()
    parallel = (module.nn.DataParallel, module.nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, parallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def clean(name: str) -> str:
    return name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")


def module_state(model: Any) -> dict[str, Any]:
    """Tensors and other state by name."""
    return {clean(name): value for name, value in unwrapped(model).state_dict().items()}


def parameter_names(state: dict[str, Any]) -> dict[int, str]:
    """The name of every parameter of the modules in `state`, by its identity."""
    names: dict[int, str] = {}
    modules = {name: value for name, value in state.items() if is_module(value)}
    for outer, value in modules.items():
        prefix = "" if len(modules) == 1 else f"{outer}."
        for name, parameter in unwrapped(value).named_parameters():
            names.setdefault(id(parameter), prefix + clean(name))
    return names


def _group_names(path: str, optimizer: Any, names: dict[int, str]) -> list[list[str]]:
    groups = []
    for place, group in enumerate(optimizer.param_groups):
        own = group.get("param_names")
        found = []
        for at, parameter in enumerate(group["params"]):
            name = names.get(id(parameter)) or (clean(own[at]) if own else None)
            if name is None:
                raise CheckpointError(
                    f"cannot save `{path}`: parameter {at} of group {place} has no name; give the module that has it in the same call"
                )
            found.append(name)
        groups.append(found)
    return groups


def optimizer_state(path: str, optimizer: Any, names: dict[int, str]) -> dict[str, Any]:
    """The state of an optimizer by the names of parameters, never by their number."""
    groups = _group_names(path, optimizer, names)
    state: dict[str, Any] = {}
    settings = []
    for group, found in zip(optimizer.param_groups, groups):
        for parameter, name in zip(group["params"], found):
            if name in state:
                raise CheckpointError(f"cannot save `{path}`: two parameters have the name `{name}`")
            if parameter in optimizer.state:
                state[name] = dict(optimizer.state[parameter])
        setting = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        settings.append({**setting, "params": found})
    return {"state": state, "param_groups": settings}


def parameters_by_name(path: str, optimizer: Any, names: dict[int, str]) -> dict[str, Any]:
    groups = _group_names(path, optimizer, names)
    found: dict[str, Any] = {}
    for group, own in zip(optimizer.param_groups, groups):
        found.update(zip(own, group["params"]))
    return found


def load_optimizer(path: str, optimizer: Any, names: dict[int, str], saved: dict[str, Any], strict: bool) -> None:
    """Gives an optimizer its state back, bit for bit."""
    groups = _group_names(path, optimizer, names)
    if len(groups) != len(saved["param_groups"]):
        count = len(saved["param_groups"])
        raise CheckpointError(f"cannot restore `{path}`: it has {len(groups)} groups of parameters, and {count} were saved")
    known = [name for group in groups for name in group]
    then = [name for group in saved["param_groups"] for name in group["params"]]
    if strict and set(known) != set(then):
        missing, surplus = sorted(set(known) - set(then)), sorted(set(then) - set(known))
        raise CheckpointError(f"cannot restore `{path}`: not saved: {first(missing)}; not in the optimizer: {first(surplus)}")
    numbers = {name: number for number, name in enumerate(known)}
    current = optimizer.state_dict()["param_groups"]
    settings = []
    for own, now, group in zip(groups, current, saved["param_groups"]):
        setting = {key: value for key, value in group.items() if key != "params"}
        if "param_names" in now:
            setting["param_names"] = now["param_names"]
        settings.append({**setting, "params": [numbers[name] for name in own]})
    state = {numbers[name]: values for name, values in saved["state"].items() if name in numbers}
    optimizer.load_state_dict({"state": state, "param_groups": settings})
    # torch casts state to the type of the parameter; what was saved is what must be there.
    for name, parameter in zip(known, [one for group in optimizer.param_groups for one in group["params"]]):
        for key, value in saved["state"].get(name, {}).items():
            now = optimizer.state[parameter].get(key)
            if torch().is_tensor(value) and now is not None and now.dtype != value.dtype:
                optimizer.state[parameter][key] = value.to(now.device)


def like_parameter(parameter: Any, local: Any, shape: tuple[int, ...]) -> Any:
    """State of a distributed parameter, from the part of this rank."""
    return dtensor().from_local(
        local.to(parameter.to_local().device),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=torch().Size(shape),
        stride=torch().empty(shape, device="meta").stride(),
    )


def is_sharded_like(parameter: Any, shape: tuple[int, ...]) -> bool:
    return is_dtensor(parameter) and tuple(parameter.shape) == shape


def first(names: list[str]) -> str:
    """The first names of a list, for a sentence."""
    shown = ", ".join(f"`{name}`" for name in names[:5])
    return (shown or "nothing") + (f" and {len(names) - 5} more" if len(names) > 5 else "")
