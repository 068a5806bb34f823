"""`torch.distributed.checkpoint` on a store of Trainyard: a writer, which is a stager as well, and a reader.

    dcp.save(state, storage_writer=Writer("/checkpoints/run1", step))
    dcp.async_save(state, storage_writer=Writer("/checkpoints/run1", step))
    dcp.load(state, storage_reader=Reader("/checkpoints/run1"))

Every save is one commit: each rank writes its part, and the coordinator commits once all of them have. What ranks must agree on travels
in the plans that dcp exchanges anyway. The first save of a process begins an attempt, which fences those before it; a reader fences nobody.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import threading
import time
import weakref
from typing import Any, NoReturn

import torch
from torch.distributed._state_dict_utils import _copy_state_dict, _create_cpu_state_dict
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from . import _arguments, _engine, _leaf, _memory, _restore, _tree
from ._engine import CheckpointError, NotFound
from ._leaf import Leaf
from ._world import World

__all__ = ["Reader", "Writer"]

# Values that dcp pickles are kept as bytes under this name.
_BYTES = "dcp.bytes/"
#: How long a commit may take to be seen through a network file system.
_VISIBLE_SECONDS = 60.0


class _Run:
    """What the writers and readers of one root share in a process: the attempt, and the memory."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.store: _engine.Store | None = None
        self.begun: tuple[int, int] | None = None
        #: The folder that was loaded, which the attempt then resumes from.
        self.loaded: str | None = None
        #: Steps that this process has begun to write. A second save under the same names would mix with what is there of the first.
        self.tried: set[int] = set()
        # One save after the other has the memory of the file image.
        self.writing = threading.Lock()
        self.memory: _memory.Memory | None = None
        self.staged: Any = None
        self.is_staged_free = True
        self.staging: weakref.ref[_Staged] | None = None

    def opened(self) -> _engine.Store:
        if self.store is None:
            self.store = _engine.Store(self.root)
        return self.store

    def begin(self, world: int, attempt: int | None, keep: int, keep_every: int | None) -> tuple[int, int]:
        """The attempt; taken by the coordinator before the first save."""
        if self.begun is None:
            store, ranks = self.opened(), World(0, world, None, 0.0)
            passed = store.later_than(self.loaded) if self.loaded is not None else {}
            job = None
            if attempt is None:
                attempt, job = ranks.attempt(), ranks.job()
            begun = store.begin(attempt, job, ranks.holder(), world, passed, keep, keep_every)
            self.begun = (begun.attempt, begun.restart)
            if self.loaded is not None:
                store.restored(*self.begun, self.loaded)
        return self.begun

    def memory_for(self, size: int) -> _memory.Memory:
        if self.memory is None or self.memory.capacity < size:
            self.memory = None
            self.memory = _memory.Memory(size)
        return self.memory


_runs: dict[tuple[int, str], _Run] = {}


def _run(root: str) -> _Run:
    # A forked process has no part in the attempt of its parent.
    key = (os.getpid(), os.path.abspath(root))
    return _runs.setdefault(key, _Run(root))


def _number(checkpoint_id: Any) -> int:
    text = str(checkpoint_id)
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise CheckpointError(f"`checkpoint_id` must be the number of a step, found `{text[:60]}`; the root belongs to the writer or reader")
    return int(text)


class _Staged(dict[str, Any]):
    """A staged copy; a class of its own, so that its end is seen."""


class Writer(StorageWriter, BlockingAsyncStager):
    """Saves a step. `checkpoint_id` of `dcp.save` and `dcp.async_save` gives the number where `step` does not.

    root: a folder that all ranks see. keep, keep_every: what stays, as for `Checkpointer`. attempt: by default that of
    `TRAINYARD_ATTEMPT`, else the next one. deadline: seconds until a save is abandoned.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        step: int | None = None,
        *,
        keep: int = 3,
        keep_every: int | None = None,
        attempt: int | None = None,
        deadline: float = 1800.0,
    ) -> None:
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=True)
        self._root = _arguments.root(root)
        _arguments.number("keep", keep, 1)
        for name, value, least in (("step", step, 0), ("keep_every", keep_every, 1), ("attempt", attempt, 0)):
            if value is not None:
                _arguments.number(name, value, least)
        _arguments.seconds("deadline", deadline)
        self._step, self._keep, self._keep_every = step, keep, keep_every
        self._attempt, self._deadline = attempt, float(deadline)
        self._session: _engine.Session | None = None
        self._info: dict[str, Any] | None = None
        self._stall = 0.0

    def __reduce__(self) -> NoReturn:
        raise CheckpointError("a writer belongs to its process: use `AsyncCheckpointerType.THREAD`")

    # The stager: what `dcp.async_save` calls before it returns.

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy on the processor, into memory that is kept from one save to the next."""
        begun = time.monotonic()
        run = _run(self._root)
        is_free = run.is_staged_free or (run.staging is not None and run.staging() is None)
        if not is_free:
            # The copy of the save before is still needed: this one gets memory of its own.
            fresh = _create_cpu_state_dict(state_dict)
            return _Staged(_copy_state_dict(state_dict, fresh, type_check=False))
        copied = None
        if run.staged is not None:
            try:
                copied = _copy_state_dict(state_dict, run.staged, type_check=False)
            except Exception:  # noqa: BLE001 - names or shapes have changed; what else is wrong shows below
                run.staged = None
        if copied is None:
            run.staged = _create_cpu_state_dict(state_dict, pin_memory=torch.cuda.is_available())
            copied = _copy_state_dict(state_dict, run.staged, type_check=False)
        found = _Staged(copied)
        run.staging, run.is_staged_free = weakref.ref(found), False
        self._stall = time.monotonic() - begun
        return found

    def close(self) -> None:
        """Gives the memory of copies back."""
        run = _run(self._root)
        if run.is_staged_free:
            run.staged = None

    # The writer, in the order of calls.

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return str(checkpoint_id).isdecimal()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._step = _number(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise CheckpointError("`use_collectives=False` cannot be saved: ranks would not commit together")
        _run(self._root).opened()

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        if self._step is None:
            raise CheckpointError("give the number of the step: `Writer(root, step)`, or `checkpoint_id=step`")
        if self._step in _run(self._root).tried:
            raise CheckpointError(f"step {self._step} was saved by this process before; a step is saved once")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        attempt, restart = _run(self._root).begin(len(plans), self._attempt, self._keep, self._keep_every)
        names: dict[str, Any] = {}
        for plan in plans:
            if isinstance(plan.planner_data, dict):
                names.update(plan.planner_data)
        found = []
        for rank, plan in enumerate(plans):
            info = {"attempt": attempt, "restart": restart, "rank": rank, "world": len(plans)}
            if rank == 0:
                info["names"] = names
            found.append(dataclasses.replace(plan, storage_data=info))
        return found

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        run, step = _run(self._root), self._step
        # Where dcp caches plans, those of a later save may come without it.
        self._info = plan.storage_data or self._info
        if self._info is None or step is None:
            raise CheckpointError("the plan has no attempt: every save needs a plan of the coordinator")
        info = self._info
        run.begun = (info["attempt"], info["restart"])
        self._session = _engine.Session(
            run.opened(), info["attempt"], info["restart"], info["rank"], info["world"], self._keep, self._keep_every
        )
        leaves, results = [], []
        for item in plan.items:
            leaf = _written(item, planner)
            results.append(WriteResult(index=item.index, size_in_bytes=leaf.bytes, storage_data=None))
            # A rank whose part is empty writes nothing.
            if leaf.bytes or 0 in leaf.shape:
                leaves.append(leaf)
        leaves = _memory.packed(leaves)
        with run.writing:
            run.tried.add(step)
            layout, described = _memory.layout_of(leaves, run.memory)
            memory = run.memory_for(layout.size)
            for leaf, view in zip(leaves, memory.lay_out(leaves, layout, described)):
                if view is not None:
                    view.copy_(leaf.value)
            run.is_staged_free = True
            self._session.write(step, memory.arena, layout, _objects(info), self._stall, self._deadline)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        assert self._session is not None and self._step is not None
        self._session.commit(self._step, self._deadline)


def _written(item: Any, planner: SavePlanner) -> Leaf:
    """What is written for an item of a plan."""
    name = item.index.fqn
    data: Any = planner.resolve_data(item)
    if item.type == WriteItemType.BYTE_IO:
        value = torch.frombuffer(bytearray(data.getvalue()), dtype=torch.uint8)
        shape = tuple(value.shape)
        return Leaf(_BYTES + name, "U8", shape, shape, (0,), value)
    known = _leaf.TORCH.get(str(data.dtype).removeprefix("torch."))
    if known is None:
        raise CheckpointError(f"cannot save `{name}`: tensors of type `{data.dtype}` are not supported")
    if name.startswith(_BYTES):
        raise CheckpointError(f"cannot save `{name}`: names must not begin with `{_BYTES}`")
    chunk = item.tensor_data.chunk
    return Leaf(name, known[0], tuple(item.tensor_data.size), tuple(chunk.sizes), tuple(chunk.offsets), data.detach())


def _objects(info: dict[str, Any]) -> str:
    names = info.get("names")
    if names is None:
        return "{}"
    # How nested names were joined; a planner of another kind may have more, which only it could read.
    is_plain = all(isinstance(path, tuple) and all(type(one) in (str, int) for one in path) for path in names.values())
    return json.dumps({"dcp": _tree.encode("dcp", names, lambda *_: None)} if is_plain else {})


class Reader(StorageReader):
    """Loads the newest complete step, or the one that `step` or `checkpoint_id` names, on any number of ranks."""

    def __init__(self, root: str | os.PathLike[str], step: int | None = None) -> None:
        super().__init__()
        self._root = _arguments.root(root)
        if step is not None:
            _arguments.number("step", step, 0)
        self._wanted = step
        self._opened: _engine.Checkpoint | None = None
        self._reference: tuple[str, str] | None = None

    @property
    def step(self) -> int | None:
        """The step that was loaded; before that the newest one, or None where there is none."""
        if self._opened is not None:
            return self._opened.step
        try:
            found = _engine.Store.existing(self._root).find(self._wanted, 1)
        except NotFound:
            return None
        return int(found[0].split("-")[0]) if found is not None else None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return str(checkpoint_id).isdecimal()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._wanted = _number(checkpoint_id)
        self._opened = None

    # Without `kwargs`: dcp would ask once more for metadata of a rank, which there are none of.
    def read_metadata(self) -> Metadata:  # type: ignore[override]
        store = _engine.Store.existing(self._root)
        self._reference = store.find(self._wanted, 1)
        if self._reference is None:
            what = "a complete step" if self._wanted is None else f"step {self._wanted}"
            raise NotFound(f"`{self._root}` does not have {what}; `trainyard checkpoints ls` shows what it has")
        self._opened = store.open(*self._reference, _VISIBLE_SECONDS)
        found: dict[str, Any] = {}
        for name, (dtype, sizes) in self._opened.tensors().items():
            if name.startswith(_BYTES):
                found[name.removeprefix(_BYTES)] = BytesStorageMetadata()
                continue
            size = torch.Size(sizes)
            # One box for the whole: which parts of which files hold a region is what the engine finds out.
            whole = ChunkStorageMetadata(torch.Size([0] * len(sizes)), size)
            found[name] = TensorStorageMetadata(TensorProperties(dtype=_leaf.torch_type(dtype)), size, [whole])
        saved = json.loads(self._opened.objects(0) or "{}").get("dcp")
        names = _tree.decode("dcp", saved, _leaf.value_of) if saved is not None else None
        return Metadata(found, planner_data=names, storage_meta=StorageMeta(checkpoint_id=self._root))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return dataclasses.replace(plan, storage_data=self._reference)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        for rank, plan in enumerate(plans):
            if plan.storage_data != plans[0].storage_data:
                raise CheckpointError(
                    f"rank {rank} would load `{plan.storage_data[0]}` and rank 0 `{plans[0].storage_data[0]}`; give the number of the step"
                )
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert self._opened is not None and self._reference is not None
        known = self._opened.tensors()
        wishes, finish = [], []
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                dtype, sizes = known[_BYTES + name]
                value = torch.empty(sizes, dtype=torch.uint8)
                wishes.append(Leaf(_BYTES + name, dtype, tuple(sizes), tuple(sizes), (0,), value))
                finish.append((item, None, value))
                continue
            dtype, shape = known[name]
            target = planner.resolve_tensor(item).detach()
            if target.shape != item.lengths:
                raise CheckpointError(f"`{name}` wants {list(target.shape)}, and the plan has {list(item.lengths)}")
            kind = _leaf.torch_type(dtype)
            value = target if target.dtype == kind else torch.empty(item.lengths, dtype=kind)
            wishes.append(Leaf(name, dtype, tuple(shape), tuple(item.lengths), tuple(item.storage_offsets), value))
            finish.append((item, target, value))
        _restore.read(self._opened, None, wishes)
        for item, target, value in finish:
            if target is None:
                planner.load_bytes(item, io.BytesIO(value.numpy().tobytes()))
                continue
            if value is not target:
                target.copy_(value)
            planner.commit_tensor(item, target)
        run = _run(self._root)
        if run.begun is None:
            run.loaded = self._reference[0]
        done: Future[None] = Future()
        done.set_result(None)
        return done
