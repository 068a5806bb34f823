"""One rank of a test with several: ranks.py WHAT ROOT MEETING [ARGUMENT]...; the last line is the result as JSON."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from trainyard_checkpoint import Checkpointer, CheckpointError

what, root, meeting, *arguments = sys.argv[1:]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)


def digest(values: dict[str, torch.Tensor]) -> dict[str, str]:
    return {name: value.detach().double().sum().item().hex() for name, value in values.items()}


def replicated(seed: int) -> tuple[torch.nn.Module, DistributedDataParallel, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    plain = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 3))
    model = DistributedDataParallel(plain)
    return plain, model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 6, generator=generator)).square().mean().backward()
        optimizer.step()


def of_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{place}.{key}": value for place, values in state.items() for key, value in values.items()}


def report(**values: object) -> None:
    print(json.dumps(values), flush=True)


def table() -> torch.Tensor:
    return torch.arange(7 * 5, dtype=torch.float32).reshape(7, 5)


if what == "save":
    plain, model, optimizer = replicated(1)
    train(model, optimizer, 3)
    checkpointer = Checkpointer(root)
    checkpointer.restore(model=model, optimizer=optimizer, progress={"step": 0})
    save = checkpointer.save(3, model=model, optimizer=optimizer, progress={"step": 3}, wait=True)
    assert save.failed is None, save.failed
    report(model=digest(plain.state_dict()), optimizer=digest(of_optimizer(optimizer)), random=torch.rand(1).item().hex())
elif what == "load":
    plain, model, optimizer = replicated(99)
    checkpointer = Checkpointer(root)
    progress: dict[str, int] = {}
    step = checkpointer.restore(model=model, optimizer=optimizer, progress=progress)
    report(
        step=step,
        progress=progress,
        model=digest(plain.state_dict()),
        optimizer=digest(of_optimizer(optimizer)),
        random=torch.rand(1).item().hex(),
    )
elif what == "save-sharded":
    mesh = init_device_mesh("cpu", (world,))
    dim = int(arguments[0])
    rows = distribute_tensor(table(), mesh, [Shard(dim)])
    parameter = torch.nn.Parameter(rows)
    module = torch.nn.Module()
    module.register_parameter("rows", parameter)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.5)
    parameter.grad = distribute_tensor(table() * 2, mesh, [Shard(dim)])
    optimizer.step()
    checkpointer = Checkpointer(root)
    checkpointer.save(1, model=module, optimizer=optimizer, wait=True)
    report(committed=checkpointer.counts["committed"])
elif what == "load-sharded":
    mesh = init_device_mesh("cpu", (world,))
    dim = int(arguments[0])
    module = torch.nn.Module()
    module.register_parameter("rows", torch.nn.Parameter(distribute_tensor(torch.zeros(7, 5), mesh, [Shard(dim)])))
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.5)
    checkpointer = Checkpointer(root)
    step = checkpointer.restore(model=module, optimizer=optimizer)
    momentum = optimizer.state[module.rows]["momentum_buffer"]
    same = torch.equal(module.rows.full_tensor(), table() - table() * 2) and torch.equal(momentum.full_tensor(), table() * 2)
    report(step=step, same=same)
elif what == "per-rank":
    # A sampler has a state of its own on every rank.
    sampler = {"position": 100 + rank, "order": torch.full((4,), rank)}
    checkpointer = Checkpointer(root, data=arguments[0])
    step = checkpointer.restore(weight=torch.zeros(1), sampler=sampler)
    if step is None:
        checkpointer.save(1, weight=torch.ones(1), sampler=sampler, wait=True)
    report(step=step, position=sampler["position"], order=sampler["order"].tolist())
elif what in ("node-save", "node-lost", "node-load"):
    # Each rank is a node with a disk of its own.
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    checkpointer = Checkpointer(root, local=f"{arguments[0]}-{rank}", drain_every=1000 if what == "node-lost" else None)
    sampler = {"step": 0, "rank": rank}
    start = checkpointer.restore(sampler=sampler, weight=torch.zeros(5000))
    for step in map(int, arguments[1:]):
        save = checkpointer.save(step, sampler={"step": step, "rank": rank}, weight=torch.full((5000,), float(step)), wait=True)
        assert save.committed(), save.failed
    if what != "node-lost":
        checkpointer.close()
    report(start=start, sampler=sampler, source=checkpointer.restored_from)
    if what == "node-lost":
        # All end at once, and nothing is copied at the end.
        dist.barrier()
        os._exit(0)
elif what == "node-refused":
    # The local tier of rank 1 fails after it was opened.
    import trainyard_checkpoint._tiers as tiers

    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    checkpointer = Checkpointer(root, local=f"{arguments[0]}-{rank}")
    adopt = tiers.Tiers.begun

    def fail(*_: object) -> None:
        raise CheckpointError("no disk")

    if rank == 1:
        tiers.Tiers.begun = fail
    refused = ""
    try:
        checkpointer.restore(weight=torch.zeros(1))
    except CheckpointError as error:
        refused = str(error)
    # Nobody saves without a local tier: the next call begins again.
    tiers.Tiers.begun = adopt
    save = checkpointer.save(1, weight=torch.ones(1), wait=True)
    report(refused=refused, committed=save.committed(60))
elif what == "one-fails":
    # Rank 1 cannot write its part; rank 0 must not wait for it until the deadline, and the next save must succeed.
    import warnings

    warnings.simplefilter("ignore")
    checkpointer = Checkpointer(root)
    checkpointer.restore(sampler={"x": 0})
    before = None
    if rank == 1:
        import trainyard_checkpoint._checkpointer as inner

        def refuse(*_: object) -> None:
            raise OSError("no memory")

        before, inner.Checkpointer._snapshot = inner.Checkpointer._snapshot, refuse
    checkpointer.save(1, sampler={"x": rank})
    if rank == 1:
        inner.Checkpointer._snapshot = before
    step = 2
    while checkpointer.counts["committed"] == 0:
        checkpointer.save(step, sampler={"x": rank}, wait=step > 2)
        if step > 2:
            break
        if rank == 0:
            # Abandoned: it ends, and not as a commit.
            assert not checkpointer._last.committed(60) and checkpointer._last.done
        dist.barrier()
        step += 1
    report(counts=checkpointer.counts)
elif what == "uneven":
    # A tensor that only some ranks have, as a stage of a pipeline; then a state that one rank cannot save; then a good one.
    checkpointer = Checkpointer(root)
    checkpointer.restore(weight=torch.zeros(1))
    states = [
        {"weight": torch.ones(1), f"stage{rank}": torch.ones(2)},
        {"weight": torch.ones(1 + rank)},
        {"weight": object() if rank == 1 else torch.ones(1)},
        {"weight": torch.ones(1), "sampler": {f"stage{rank}": torch.ones(2)}},
    ]
    errors = []
    for place, state in enumerate(states, start=1):
        try:
            checkpointer.save(place, wait=True, **state)
            errors.append("")
        except CheckpointError as error:
            errors.append(str(error))
    report(errors=errors, counts=checkpointer.counts)
checkpointer.close()
dist.destroy_process_group()
