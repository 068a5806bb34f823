"""One rank that saves or loads through torch.distributed.checkpoint: dcp_rank.py WHAT ROOT MEETING [ARGUMENT]..."""

import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from trainyard_checkpoint.dcp import Reader, Writer

warnings.simplefilter("ignore")
what, root, meeting, *arguments = sys.argv[1:]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
calls: list[str] = []


def count_collectives() -> None:
    """Counts what this module asks of the group; dcp has its own calls."""
    for name in ("all_reduce", "all_gather_object", "broadcast_object_list", "barrier", "new_group"):
        before = getattr(dist, name)

        def counted(*given: object, _name: str = name, _before=before, **named: object) -> object:
            if "trainyard_checkpoint" in str(sys._getframe(1).f_globals.get("__name__")):
                calls.append(_name)
            return _before(*given, **named)

        setattr(dist, name, counted)


def table() -> torch.Tensor:
    return torch.arange(7 * 12, dtype=torch.float32).reshape(7, 12)


def tensors(filled: bool, dim: int) -> dict[str, object]:
    """Split along a dimension, replicated, plain, on a mesh of two dimensions (as tensor parallelism has it), and values."""

    def of(value: torch.Tensor) -> torch.Tensor:
        return value if filled else torch.zeros_like(value)

    mesh = init_device_mesh("cpu", (world,))
    state: dict[str, object] = {
        "rows": distribute_tensor(of(table()), mesh, [Shard(dim)]),
        "same": distribute_tensor(of(table() + 1), mesh, [Replicate()]),
        "plain": of(table().bfloat16()),
        "scalar": of(torch.tensor(2.5)),
        "nested": {"list": [of(torch.arange(3)), "text" if filled else ""], "number": 7 if filled else 0},
    }
    if world == 4:
        grid = init_device_mesh("cpu", (2, 2))
        state["grid"] = distribute_tensor(of(table() * 3), grid, [Shard(0), Shard(1)])
    return state


def is_same(state: dict[str, object]) -> bool:
    def whole(value: torch.Tensor) -> torch.Tensor:
        return value.full_tensor() if hasattr(value, "full_tensor") else value

    nested = state["nested"]
    return (
        torch.equal(whole(state["rows"]), table())
        and torch.equal(whole(state["same"]), table() + 1)
        and torch.equal(state["plain"], table().bfloat16())
        and state["scalar"].item() == 2.5
        and nested["list"][0].tolist() == [0, 1, 2]
        and (nested["list"][1], nested["number"]) == ("text", 7)
        and ("grid" not in state or torch.equal(whole(state["grid"]), table() * 3))
    )


def trained(seed: int, steps: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        model(torch.full((4, 6), 1.0 + step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def digest(tensors: list[torch.Tensor]) -> list[str]:
    return [value.full_tensor().double().sum().item().hex() for value in tensors]


def moments(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [one["exp_avg"] for one in optimizer.state.values()]


def report(**values: object) -> None:
    print(json.dumps(values), flush=True)


count_collectives()
if what == "save":
    state = tensors(True, int(arguments[0]))
    dcp.save(state, storage_writer=Writer(root, int(arguments[1])))
    report(collectives=calls)
elif what == "load":
    state = tensors(False, int(arguments[0]))
    if world == 4 and arguments[1] != "4":
        del state["grid"]
    reader = Reader(root)
    dcp.load(state, storage_reader=reader)
    report(step=reader.step, same=is_same(state), collectives=calls)
elif what == "async":
    # Changed at once after each call: what is saved is from before.
    state = {"weight": torch.full((5000,), 1.0), "list": [1.0]}
    writer = Writer(root, keep=9)
    for step in (1, 2, 3):
        state["weight"].fill_(step)
        state["list"][0] = float(step)
        saving = dcp.async_save(state, storage_writer=writer, checkpoint_id=str(step))
        state["weight"].fill_(-1)
        state["list"][0] = -1.0
        saving.result()
    found = []
    for step in (1, 2, 3):
        dcp.load(state, storage_reader=Reader(root, step))
        found.append([state["weight"].unique().tolist(), state["list"]])
    report(found=found)
elif what == "fsdp-save":
    model, optimizer = trained(1, 2)
    values, settings = get_state_dict(model, optimizer)
    dcp.save({"model": values, "optimizer": settings}, storage_writer=Writer(root, 5))
    report(model=digest(list(model.state_dict().values())), moments=digest(moments(optimizer)))
elif what == "fsdp-load":
    model, optimizer = trained(99, 1)
    values, settings = get_state_dict(model, optimizer)
    state = {"model": values, "optimizer": settings}
    dcp.load(state, storage_reader=Reader(root))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    report(model=digest(list(model.state_dict().values())), moments=digest(moments(optimizer)))
elif what == "killed":
    # Rank 1 ends before it writes its part, or rank 0 once all parts are written and before the commit.
    dcp.save({"weight": torch.ones(1000)}, storage_writer=Writer(root, 1))

    class Dies(Writer):
        def write_data(self, plan: object, planner: object) -> object:
            if arguments[0] == "before" and rank == 1:
                os._exit(9)
            return super().write_data(plan, planner)

        def finish(self, metadata: object, results: object) -> None:
            os._exit(9)

    dcp.save({"weight": torch.full((1000,), 2.0)}, storage_writer=Dies(root, 2))
dist.destroy_process_group()
