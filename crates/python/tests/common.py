"""What several tests need: folders, processes and a look at the store."""

import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import runpy
import select
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator

HERE = pathlib.Path(__file__).parent
# Bound on every process of a test; on two busy cores the slowest takes about 20 s.
PATIENCE = 120


# Ranks of a test share the machine, and are forked from a process without threads.
os.environ["OMP_NUM_THREADS"] = "1"
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "torch",
        "numpy",
        "torch.distributed.tensor",
        "torch.distributed.fsdp",
        "torch.distributed.checkpoint.state_dict",
        "torch.optim",
        "trainyard_checkpoint",
    ]
)


def _run(script: str, arguments: list[str], environment: dict[str, str], output: multiprocessing.connection.Connection) -> None:
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    for name in ("RANK", "WORLD_SIZE", "TRAINYARD_ATTEMPT", "TRAINYARD_JOB_UID"):
        os.environ.pop(name, None)
    os.environ.update(environment)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


class Output:
    """What a process prints, read with a bound: a process that neither prints nor ends for `PATIENCE` seconds fails the test."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unread = b""

    def _more(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], PATIENCE)
        if not ready:
            raise TimeoutError(f"nothing was printed in {PATIENCE} s after: {self._unread[-500:].decode(errors='replace')}")
        found = os.read(self._descriptor, 1 << 16)
        self._unread += found
        return bool(found)

    def readline(self) -> str:
        """The next line; without its end, or empty, where the process has ended."""
        while b"\n" not in self._unread and self._more():
            pass
        line, end, self._unread = self._unread.partition(b"\n")
        return (line + end).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self.readline, "")

    def read(self) -> str:
        """Everything until the end of the process."""
        end = time.monotonic() + PATIENCE
        while self._more():
            if time.monotonic() > end:
                raise TimeoutError(f"still printing after {PATIENCE} s: {self._unread[-500:].decode(errors='replace')}")
        found, self._unread = self._unread, b""
        return found.decode()

    def close(self) -> None:
        os.close(self._descriptor)


class Child:
    """A process of a test."""

    def __init__(self, script: str, arguments: list[str], environment: dict[str, str]) -> None:
        reader, writer = _PROCESSES.Pipe(duplex=False)
        target = (str(HERE / script), arguments, environment, writer)
        self.process = _PROCESSES.Process(target=_run, args=target)
        self.process.start()
        writer.close()
        self.output = Output(os.dup(reader.fileno()))
        reader.close()

    def wait(self) -> int | None:
        self.process.join(PATIENCE)
        return self.process.exitcode

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.output.close()


class Case(unittest.TestCase):
    """A test with a root of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="trainyard-checkpoint-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = str(self.folder / "root")

    def steps(self, root: str | None = None) -> list[int]:
        """The committed steps, by number."""
        folders = pathlib.Path(root or self.root, "steps")
        names = [one.name for one in folders.iterdir() if (one / "COMMIT.json").exists()] if folders.exists() else []
        return sorted(int(name.split("-")[0]) for name in names)

    def start(self, script: str, *arguments: object, **environment: str) -> "Child":
        """A script in a process of its own, forked from one that has imported torch already."""
        child = Child(script, [str(one) for one in arguments], environment)
        self.addCleanup(child.end)
        return child

    def finish(self, child: "Child", code: int = 0) -> str:
        """Its output; fails where its exit code is another one."""
        output = child.output.read()
        self.assertEqual(child.wait(), code, output)
        return output

    def ranks(self, world: int, what: str, *arguments: object, code: int = 0, script: str = "ranks.py") -> list[dict[str, object]]:
        """Runs a script on so many processes; the last line of each is its result."""
        meeting = self.folder / f"meeting-{what}-{world}-{len(list(self.folder.iterdir()))}"
        processes = [
            self.start(script, what, self.root, meeting, *arguments, RANK=str(rank), WORLD_SIZE=str(world)) for rank in range(world)
        ]
        outputs = [self.finish(process, code) for process in processes]
        return [json.loads(output.splitlines()[-1]) for output in outputs] if code == 0 else []
