"""Checkpoints of a Lightning `Trainer`, of the package `lightning` or `pytorch_lightning`.

    checkpoints = TrainyardCheckpointIO("/checkpoints/run1")
    trainer = Trainer(plugins=[checkpoints], callbacks=[RngState(), ModelCheckpoint(every_n_train_steps=500, save_top_k=-1)])
    trainer.fit(model, ckpt_path=checkpoints.resume())

Lightning decides when to save. Rank 0 writes, in the background. Importing this imports Lightning.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import warnings
from importlib.util import find_spec
from typing import Any

from . import Checkpointer, CheckpointWarning, _arguments, _engine, _rng
from ._engine import CheckpointError, NotFound
from ._restore import Restorer
from ._world import World

# The two packages have classes of their own, and a Trainer accepts only those of its own package.
if "pytorch_lightning" in sys.modules or find_spec("lightning") is None:
    from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO
    from pytorch_lightning.callbacks import Callback
else:
    from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
    from lightning.pytorch.callbacks import Callback

_RANDOM = "trainyard_random_numbers"
# A file in the place of a checkpoint of Lightning, which names the step.
_MARK = "trainyard_checkpoint"
_MARK_BYTES = 4096
_VISIBLE_SECONDS = 60.0


class TrainyardCheckpointIO(TorchCheckpointIO):  # type: ignore[misc]
    """Saves what Lightning saves below one root. Other arguments are those of `Checkpointer`.

    Where Lightning expects the file of a checkpoint it finds a small one that names the step. Weights alone (`save_weights_only`) are
    written by Lightning itself.
    """

    def __init__(self, root: str | os.PathLike[str], **options: Any) -> None:
        super().__init__()
        for name in ("rank", "world", "group", "every", "rng", "sigterm", "per_rank", "data"):
            if name in options:
                raise CheckpointError(f"`{name}` is decided by Lightning and cannot be given")
        for name in ("local", "drain_every", "bandwidth"):
            if name in options:
                raise CheckpointError(f"`{name}`: the adapter for Lightning reads and writes the root only, without a local tier")
        self.root = _arguments.root(root)
        self._options = options
        self._checkpointer: Checkpointer | None = None
        self._last: Any = None
        #: The folder of a step that was loaded by its file, which the next attempt resumes from.
        self._loaded: str | None = None
        # Made here, so that a wrong argument is reported where it is given. Nothing is opened.
        self._made()

    def resume(self) -> str | None:
        """What `fit` needs as `ckpt_path`: the root, or None where it has no step."""
        try:
            found = _engine.Store.existing(self.root).find(None, 1)
        except NotFound:
            return None
        return self.root if found is not None else None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None) -> None:
        if storage_options is not None:
            raise CheckpointError("`storage_options` is not supported")
        if "optimizer_states" not in checkpoint:
            super().save_checkpoint(checkpoint, path)
            return
        step = int(checkpoint["global_step"])
        if self._last is None or self._last.step != step or self._last.failed is not None:
            checkpointer = self._attempt()
            if self._last is not None:
                # Lightning counts on every checkpoint that it asked for: none is skipped.
                self._last.committed(checkpointer._deadline)
            save = checkpointer.save(step, checkpoint=checkpoint)
            if save.skipped:
                raise CheckpointError(f"step {step} was not saved: the save before did not end in {checkpointer._deadline:g} s")
            self._last = save
            # No hook of an optimizer waits for copies from a device.
            save.snapshotted(checkpointer._deadline)
        place = pathlib.Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.part")
        part.write_text(json.dumps({_MARK: 1, "root": _place(self.root), "step": step}) + "\n")
        part.replace(place)

    def load_checkpoint(self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """The newest step of the root, or the step that a file names. A file that Lightning wrote is read by Lightning."""
        if _place(path) == _place(self.root):
            return self._load_newest()
        mark = _mark(path)
        if mark is None:
            found: dict[str, Any] = super().load_checkpoint(path, map_location, weights_only)
            return found
        reference = _find(mark["root"], mark["step"])
        loaded = _read(mark["root"], reference)
        if mark["root"] == _place(self.root) and self._made()._begun is None:
            self._loaded = reference[0]
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Removes the file of Lightning; which steps stay is decided by `keep` and `keep_every`."""
        if _place(path) == _place(self.root):
            return
        super().remove_checkpoint(path)

    def teardown(self) -> None:
        """Waits for the save in flight."""
        if self._checkpointer is not None:
            self._checkpointer.close()
            self._checkpointer = self._last = None

    def _made(self) -> Checkpointer:
        if self._checkpointer is None:
            self._checkpointer = Checkpointer(self.root, rank=0, world=1, rng=False, sigterm=False, **self._options)
        return self._checkpointer

    def _attempt(self) -> Checkpointer:
        """With an attempt that resumes from the step that was loaded, though there may be later ones."""
        checkpointer, loaded = self._made(), self._loaded
        if loaded is not None and checkpointer._begun is None:
            world, store = checkpointer._open()
            checkpointer._begin(store.later_than(loaded))
            if checkpointer._resumes_from is not None:
                checkpointer._is_restored(world, store, checkpointer._resumes_from)
        self._loaded = None
        return checkpointer

    def _load_newest(self) -> dict[str, Any]:
        """Rank 0 chooses the step and reads it; then every other rank does."""
        checkpointer = self._made()
        self._loaded = None
        # The others wait as long as a save may take, not as long as a commit needs to be seen: a step may be large.
        world = World(None, None, None, checkpointer._deadline)
        if world.size > 1 and not world.has_group:
            raise CheckpointError(f"{world.size} ranks cannot agree on a step: Lightning has no process group; use a strategy such as `ddp`")
        outcome: Any = None
        if world.rank == 0:
            try:
                step = checkpointer.restore(checkpoint={})
                outcome = checkpointer._resumes_from if step is not None else NotFound(f"`{self.root}` has no step to restore")
            except CheckpointError as error:
                outcome = error
            except Exception as error:
                world.from_first(CheckpointError(f"rank 0 could not restore: {error}"))
                raise
        outcome = world.from_first(outcome)
        if isinstance(outcome, CheckpointError):
            raise outcome
        if world.rank == 0:
            found: dict[str, Any] = checkpointer.values.pop("checkpoint")
            return found
        return _read(self.root, outcome)


class RngState(Callback):  # type: ignore[misc]
    """Adds the RNG state of every rank to checkpoints, so that a resumed run draws the numbers of one that was not interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[str, Any] | None = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        own = _rng.capture()
        checkpoint[_RANDOM] = _all(own) if trainer.world_size > 1 else [own]

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        found = checkpoint.get(_RANDOM)
        if found is None:
            return
        if len(found) == trainer.world_size:
            self._found = found[trainer.global_rank]
        else:
            why = f"{len(found)} ranks saved it, and {trainer.world_size} run"
            warnings.warn(CheckpointWarning(f"the RNG state was not restored: {why}"), stacklevel=2)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # The first batch is there: what loading it needed of random numbers was needed before the save, too.
        if self._found is not None:
            _rng.restore(self._found)
            self._found = None


def _all(own: Any) -> list[Any]:
    """What every rank has. Lightning asks all ranks for what is saved."""
    import torch.distributed as dist

    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    return found


def _mark(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What a small file says; None where it is none of ours."""
    try:
        if os.path.getsize(path) > _MARK_BYTES:
            return None
        found = json.loads(pathlib.Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    is_ours = isinstance(found, dict) and found.get(_MARK) == 1
    return found if is_ours and isinstance(found.get("root"), str) and isinstance(found.get("step"), int) else None


def _place(root: str | os.PathLike[str]) -> str:
    """A root by a name that every folder of the process gives it. An address is one as it is."""
    text = os.fspath(root)
    return text.rstrip("/") if "://" in text else os.path.abspath(text)


def _find(root: str, step: int) -> tuple[str, str]:
    """The folder of a step and the checksum of its commit."""
    found = _engine.Store.existing(root).find(step, 1)
    if found is None:
        raise NotFound(f"step {step} is not in `{root}`: it was not committed, or removed since (`keep`), or a later attempt resumed from before it")
    return found


def _read(root: str, reference: tuple[str, str]) -> dict[str, Any]:
    """A step, without being an attempt that could save."""
    opened = _engine.Store.existing(root).open(*reference, _VISIBLE_SECONDS)
    alone = World(0, 1, None, _VISIBLE_SECONDS)
    found: dict[str, Any] = Restorer(opened, alone, True, frozenset(), "exact").restore({"checkpoint": {}}).values["checkpoint"]
    return found
