"""Saves and loads of one state by Trainyard and by its peers, in turns; prints one figure a line: table, name, value.

`cargo xtask bench checkpoints` runs it on the processor. On a machine with a GPU:

    python bench.py FOLDER --device cuda --tensors 298 --mebibytes 64 --steps 6

A stall is what training loses: on the processor the time of the calls, on a device the time of some steps with a save less the time of
the same steps without one. A total ends when the bytes are durable. `dcp.async_save` is measured as it is by default, and with a
writer (device) or a stager (processor) that is kept, which is its best; that one's first save is kept apart.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from trainyard_checkpoint import Checkpointer

warnings.filterwarnings("ignore")


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device(options.device)
        self.folder = options.folder
        elements = options.mebibytes * (1 << 20) // 4
        torch.manual_seed(7)
        self.state = {
            f"layers.{number}.weight": torch.rand(elements, device=self.device)
            for number in range(options.tensors)
        }
        # The same memory as a model, whose parameters change in the update alone: copies of other tensors are waited for.
        self.model = as_model(self.state.values())
        self.bytes = sum(tensor.nbytes for tensor in self.state.values())
        self.number = 0
        self.kept_writer = None
        self.kept_stager = None
        self.checkpointer = None
        if self.device.type == "cuda":
            self.left = torch.rand(8192, 8192, device=self.device).bfloat16()
            self.right = torch.empty_like(self.left)

    # Steps of a training loop.

    def one_step(self, before_update=None) -> None:
        """Computes, and then changes all state in place."""
        if self.device.type == "cuda":
            for _ in range(self.options.products):
                torch.mm(self.left, self.left, out=self.right)
        if before_update is not None:
            before_update()
        for tensor in self.state.values():
            tensor.mul_(0.999)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def steps(self, save=None, before_update=None) -> float:
        """Seconds of some steps, with a save after the second one."""
        self.wait()
        begin = time.perf_counter()
        for step in range(self.options.steps):
            self.one_step(before_update)
            if save is not None and step == 1:
                save()
        self.wait()
        return time.perf_counter() - begin

    def measure(self, save, finish, before_update=None) -> tuple[float, float]:
        """Stall and total of one save."""
        gc.collect()
        if self.device.type == "cuda":
            plain = [self.steps() for _ in range(3)]
            saved = []

            def begin_save():
                self.begun = time.perf_counter()
                saved.append(save())

            took = self.steps(begin_save, before_update)
            # The spread of the steps without a save is what a stall below it cannot be told from.
            without = ", ".join(f"{seconds:.3f}" for seconds in sorted(plain))
            print(f"  {self.options.steps} steps without a save: {without} s; with it: {took:.3f} s", file=sys.stderr, flush=True)
            stall = took - statistics.median(plain)
            finish(saved[0])
            return stall, time.perf_counter() - self.begun
        begin = time.perf_counter()
        saved = save()
        stall = time.perf_counter() - begin
        finish(saved)
        return stall, time.perf_counter() - begin

    # Those that save.

    def fresh(self, name: str) -> str:
        self.number += 1
        path = os.path.join(self.folder, f"{name}-{self.number}")
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def torch_save(self) -> tuple[float, float]:
        path = os.path.join(self.fresh("torch"), "state.pt")
        return self.measure(lambda: torch.save(self.state, path), lambda _: synced(path))

    def safetensors(self) -> tuple[float, float]:
        path = os.path.join(self.fresh("safetensors"), "state.safetensors")
        self.last_safetensors = path
        return self.measure(lambda: save_file(self.state, path), lambda _: synced(path))

    def dcp_save(self) -> tuple[float, float]:
        path = self.fresh("dcp")
        self.last_dcp = path
        return self.measure(lambda: dcp.save(self.state, checkpoint_id=path), lambda _: None)

    def dcp_async(self) -> tuple[float, float]:
        path = self.fresh("dcp-async")
        return self.measure(lambda: dcp.async_save(self.state, checkpoint_id=path), lambda future: future.result())

    def dcp_best(self) -> tuple[float, float]:
        path = self.fresh("dcp-best")
        if self.device.type == "cuda":
            from torch.distributed.checkpoint import FileSystemWriter

            if self.kept_writer is None:
                self.kept_writer = FileSystemWriter(path, cache_staged_state_dict=True)
            self.kept_writer.path = self.kept_writer.fs.init_path(path)

            def save():
                return dcp.async_save(self.state, storage_writer=self.kept_writer)
        else:
            from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

            if self.kept_stager is None:
                self.kept_stager = DefaultStager(StagingOptions(False, True, False, False))

            def save():
                return dcp.async_save(self.state, checkpoint_id=path, async_stager=self.kept_stager)

        def finish(response):
            getattr(response, "upload_completion", response).result()

        return self.measure(save, finish)

    def trainyard(self) -> tuple[float, float]:
        if self.checkpointer is None:
            self.checkpointer = Checkpointer(self.fresh("trainyard"), keep=2, sigterm=False)
            self.checkpointer.restore(model=self.model)
            # As in a training loop: memory is made ready while the first steps run.
            self.checkpointer.prepare(model=self.model)
            time.sleep(self.options.warm)
        self.number += 1
        step = self.number

        def finish(save):
            if not save.committed(600):
                raise save.failed or RuntimeError("the save was not committed")

        return self.measure(
            lambda: self.checkpointer.save(step, model=self.model), finish, self.checkpointer.before_update
        )

    # Loading.

    def load_of(self, name: str) -> float:
        return {"safetensors": self.load_safetensors, "dcp.save": self.load_dcp, "trainyard": self.load_trainyard}[name]()

    def load_safetensors(self) -> float:
        return self.load(os.path.dirname(self.last_safetensors), lambda: load_file(self.last_safetensors, str(self.device)))

    def load_dcp(self) -> float:
        empty = {name: torch.empty_like(tensor) for name, tensor in self.state.items()}
        return self.load(self.last_dcp, lambda: dcp.load(empty, checkpoint_id=self.last_dcp))

    def load_trainyard(self) -> float:
        empty = as_model(torch.zeros_like(tensor) for tensor in self.state.values())
        root = self.checkpointer.root
        # A later attempt would fence the one that saves, so it reads a copy of the last step, by links.
        copy = self.fresh("trainyard-copy")
        shutil.rmtree(copy)
        shutil.copytree(root, copy, copy_function=os.link)

        def restore():
            checkpointer = Checkpointer(copy, sigterm=False, rng=False)
            if checkpointer.restore(model=empty) is None:
                raise RuntimeError("nothing was restored")
            checkpointer.close()

        seconds = self.load(copy, restore)
        if not torch.any(empty[0] != 0):
            raise RuntimeError("zeros were restored")
        shutil.rmtree(copy)
        return seconds

    def load(self, folder: str, work) -> float:
        if self.options.cold:
            forget(folder)
        gc.collect()
        self.wait()
        begin = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - begin

    def copy(self) -> float:
        """Seconds of one copy of the whole state with all cores, into memory that is there already."""
        if not hasattr(self, "copied"):
            self.copied = [torch.empty_like(tensor, device="cpu") for tensor in self.state.values()]
            for tensor in self.copied:
                tensor.zero_()
        begin = time.perf_counter()
        for target, tensor in zip(self.copied, self.state.values(), strict=True):
            target.copy_(tensor)
        self.wait()
        return time.perf_counter() - begin

    def clean(self) -> None:
        """Removes what peers wrote, and all but the newest step of ours."""
        root = self.checkpointer.root if self.checkpointer is not None else None
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if path != root and os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
        if root is not None and os.path.isdir(os.path.join(root, "steps")):
            steps = os.path.join(root, "steps")
            for name in sorted(os.listdir(steps))[:-1]:
                shutil.rmtree(os.path.join(steps, name), ignore_errors=True)


def as_model(tensors) -> torch.nn.ParameterList:
    return torch.nn.ParameterList(torch.nn.Parameter(tensor, requires_grad=False) for tensor in tensors)


def synced(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def forget(folder: str) -> None:
    """Drops the files of a folder from the page cache."""
    for root, _, names in os.walk(folder):
        for name in names:
            file = os.open(os.path.join(root, name), os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def memory() -> int:
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tensors", type=int, default=256)
    parser.add_argument("--mebibytes", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--products", type=int, default=450)
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of steps before the first save")
    parser.add_argument("--saves", type=int, default=0, help="measure the memory over so many saves as well")
    parser.add_argument("--once", default="", help="those that are measured in the first run only, with commas between")
    parser.add_argument("--only", default="", help="measure these only, with commas between")
    parser.add_argument("--cold", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    options.folder = tempfile.mkdtemp(dir=options.folder)
    store = tempfile.NamedTemporaryFile(dir=options.folder)
    dist.init_process_group("gloo" if options.device == "cpu" else "cpu:gloo,cuda:nccl", init_method=f"file://{store.name}", rank=0, world_size=1)
    bench = Bench(options)
    named = {
        "torch.save": bench.torch_save,
        "safetensors": bench.safetensors,
        "dcp.save": bench.dcp_save,
        "dcp.async_save": bench.dcp_async,
        "dcp.async_save kept": bench.dcp_best,
        "trainyard": bench.trainyard,
    }
    named = {name: save for name, save in named.items() if not options.only or name in options.only.split(",")}
    stalls: dict[str, list[float]] = {name: [] for name in named}
    totals: dict[str, list[float]] = {name: [] for name in named}
    first: dict[str, float] = {}
    loads: dict[str, list[float]] = {"safetensors": [], "dcp.save": [], "trainyard": []}
    copies, failed = [], {}
    for run in range(options.runs):
        for name, save in named.items():
            if name in failed or (run > 0 and name in options.once.split(",")):
                continue
            try:
                stall, total = save()
                print(f"run {run + 1} of {options.runs}: {name}: stall {stall:.3f} s, total {total:.3f} s", file=sys.stderr, flush=True)
            except Exception as error:  # noqa: BLE001 - a peer that fails is a figure, too
                if name == "trainyard":
                    raise
                failed[name] = f"{type(error).__name__}: {error}"[:200]
                continue
            # The first save of those that keep memory makes it; it is a figure of its own.
            if run == 0:
                first[name] = stall
            if run > 0 or options.runs == 1 or name in options.once.split(","):
                stalls[name].append(stall)
                totals[name].append(total)
            if name in loads:
                loads[name].append(bench.load_of(name))
                print(f"run {run + 1} of {options.runs}: {name}: load {loads[name][-1]:.3f} s", file=sys.stderr, flush=True)
            # Disks are small beside states: what was measured goes at once.
            bench.clean()
        copies.append(bench.copy())
        print(f"run {run + 1} of {options.runs}: one copy {copies[-1]:.3f} s", file=sys.stderr, flush=True)
    growth = None
    if options.saves:
        before = None
        for number in range(options.saves):
            bench.trainyard()
            if number == options.saves // 4:
                before = memory()
        growth = (memory() - before) / bench.bytes
    if bench.checkpointer is not None:
        bench.checkpointer.close()
    tables = {"first": first, "load": {name: statistics.median(values) for name, values in loads.items() if values}}
    tables["stall"] = {name: statistics.median(values) for name, values in stalls.items() if values}
    tables["total"] = {name: statistics.median(values) for name, values in totals.items() if values}
    tables["copy"] = {"all cores": statistics.median(copies)}
    if growth is not None:
        tables["growth"] = {"trainyard": growth}
    tables["failed"] = failed
    tables["about"] = {"bytes": bench.bytes, "torch": torch.__version__, "device": options.device}
    for table, values in tables.items():
        for name, value in values.items():
            print(table, name, value, sep="\t")
    sys.stdout.flush()
    shutil.rmtree(options.folder, ignore_errors=True)
    # Threads of peers may be in flight; everything is printed.
    os._exit(0)


if __name__ == "__main__":
    main()
