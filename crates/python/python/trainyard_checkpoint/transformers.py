"""Checkpoints of a Hugging Face `Trainer`.

    checkpoints = CheckpointCallback("/checkpoints/run1")
    trainer = Trainer(...)
    trainer.train(resume_from_checkpoint=checkpoints.resume(trainer))

The trainer decides when to save (`save_strategy`, `save_steps`), or `every` does; what it would write into its own folder goes
through a `Checkpointer` instead. Importing this imports transformers.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import transformers
from transformers.trainer_callback import ExportableState

from . import _rng
from ._checkpointer import Checkpointer
from ._engine import CheckpointError

# Methods of a trainer that are replaced in the one that is given; no class is changed.
_REPLACED = (
    "_run_epoch",
    "_save_checkpoint",
    "_maybe_log_save_evaluate",
    "_load_from_checkpoint",
    "_load_optimizer_and_scheduler",
    "_load_scaler",
    "_load_rng_state",
)
_STATE_FILE = "trainer_state.json"


class CheckpointCallback(transformers.TrainerCallback):
    """Saves and restores a `Trainer`: model, optimizer, scheduler, scaler, its state and all random numbers.

    every: saves when this divides the step, besides what the trainer asks for; with `save_strategy="no"` it is all there is.
    Other arguments are those of `Checkpointer`.
    """

    def __init__(self, root: str | os.PathLike[str], *, every: int | None = None, **options: Any) -> None:
        if every is not None and (type(every) is not int or every < 1):
            raise CheckpointError(f"`every` must be a number of 1 or more, found `{every}`")
        self.checkpointer = Checkpointer(root, **options)
        self._every = every
        #: The step that is resumed from; None at a new start.
        self.step: int | None = None
        self._trainer: Any = None
        self._is_wanted = False
        self._saved_step = -1
        self._original: dict[str, Callable[..., Any]] = {}
        # Of the step that is restored: the trainer's state, its folder for `train`, and random numbers.
        self._found: dict[str, Any] | None = None
        self._folder: str | None = None
        self._random: dict[str, Any] | None = None

    def resume(self, trainer: Any) -> str | None:
        """Takes over the checkpoints of a trainer. Returns what `train` needs as `resume_from_checkpoint`: None at a new start."""
        if self._trainer is not None:
            raise CheckpointError("this callback has a trainer already; make another one for another trainer")
        _check(trainer)
        self._trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        for name in _REPLACED:
            self._original[name] = getattr(trainer, name)
            setattr(trainer, name, getattr(self, f"_instead_of{name}"))
        found: dict[str, Any] = {}
        self.step = self.checkpointer.restore(strict=False, trainer=found)
        if self.step is None:
            return None
        self._found = found
        self._saved_step = self.step
        self._folder = tempfile.mkdtemp(prefix="trainyard-checkpoint-")
        transformers.TrainerState(**found["state"]).save_to_json(os.path.join(self._folder, _STATE_FILE))
        return self._folder

    # Events of the trainer.

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._trainer is None:
            raise CheckpointError("the callback has no trainer: call `trainer.train(resume_from_checkpoint=callback.resume(trainer))`")
        if not self._original:
            raise CheckpointError("the callback ended with the last call of `train`; make another one, and another trainer")
        self._remove_folder()
        found, self._found = self._found, None
        if found is None:
            return
        if self._random is None:
            raise CheckpointError(f"step {self.step} was not restored: give `train` what `resume` returned")
        # The loss since the last log was counted before; the average of this call is over its own steps.
        trainer = self._trainer
        trainer._tr_loss += found["loss"]
        trainer._total_loss_scalar -= found["loss"]
        trainer._globalstep_last_logged = found["logged"]
        trainer.current_flos = found["flos"]

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.checkpointer.close()
        for name in self._original:
            delattr(self._trainer, name)
        self._original = {}

    # Instead of methods of the trainer.

    def _instead_of_run_epoch(self, *arguments: Any, **named: Any) -> Any:
        trainer = self._trainer
        if trainer.state.global_step >= trainer.state.max_steps:
            # The trainer looks at its last step after one more.
            trainer.control.should_training_stop = True
            return None
        return self._original["_run_epoch"](*arguments, **named)

    def _instead_of_save_checkpoint(self, *_: Any, **__: Any) -> None:
        self._is_wanted = True

    def _instead_of_maybe_log_save_evaluate(self, *arguments: Any, **named: Any) -> Any:
        """After the log and the evaluation of a step, so that what is saved has both."""
        result = self._original["_maybe_log_save_evaluate"](*arguments, **named)
        step = self._trainer.state.global_step
        is_due = self._is_wanted or (self._every is not None and step % self._every == 0)
        self._is_wanted = False
        if step == self._saved_step:
            return result
        if is_due:
            self._saved_step = step
            self.checkpointer.save(step, **self._state())
        else:
            # Saves at once after SIGTERM, when all ranks know of it.
            self.checkpointer.step(step, **self._state())
        return result

    def _instead_of_load_from_checkpoint(self, *_: Any, **__: Any) -> None:
        """The model is restored with the optimizer, once both are there."""

    def _instead_of_load_scaler(self, *_: Any, **__: Any) -> None:
        """The scaler is restored with the model."""

    def _instead_of_load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        if checkpoint != self._folder or self._found is None:
            raise CheckpointError(f"`{checkpoint}` is not what `resume` returned")
        step = self.checkpointer.restore(**self._state())
        if step != self.step:
            # The trainer has counted its epochs from the state by now. The store knows which step is next.
            raise CheckpointError(f"step {self.step} could not be restored; start again to resume from step {step}")
        self._random = _rng.capture()

    def _instead_of_load_rng_state(self, checkpoint: str | None) -> None:
        """Called by the trainer once more after it has skipped the data of earlier steps."""
        if checkpoint is not None and self._random is not None:
            _rng.restore(self._random)

    # What is saved.

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        # Accelerate wraps the optimizer in one that has no hooks.
        optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        state = {"model": trainer.model, "optimizer": optimizer, "scheduler": trainer.lr_scheduler, "trainer": _Progress(trainer)}
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None:
            state["scaler"] = scaler
        return state

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Progress:
    """What the trainer itself knows, read only when a step is saved: the loss is on the device."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        callbacks: dict[str, list[Any]] = {}
        for one in [*trainer.callback_handler.callbacks, trainer.control]:
            if isinstance(one, ExportableState):
                callbacks.setdefault(type(one).__name__, []).append(one.state())
        single = {name: states[0] if len(states) == 1 else states for name, states in callbacks.items()}
        state = {field.name: getattr(trainer.state, field.name) for field in dataclasses.fields(trainer.state)}
        return {
            "state": {**state, "stateful_callbacks": single},
            # Not there before the first step.
            "loss": float(getattr(trainer, "_tr_loss", 0.0)),
            "logged": getattr(trainer, "_globalstep_last_logged", 0),
            # Of this rank, since the last log.
            "flos": float(trainer.current_flos),
        }

    def load_state_dict(self, _: dict[str, Any]) -> None:
        """The trainer has its state from the file that `resume` made."""


def _check(trainer: Any) -> None:
    """Refuses what would be saved wrongly, or not at all."""
    absent = [name for name in _REPLACED if not callable(getattr(trainer, name, None))]
    if absent:
        raise CheckpointError(f"transformers {transformers.__version__} is not supported: its Trainer has no `{absent[0]}`")
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        raise CheckpointError("the trainer uses DeepSpeed or FSDP, which this callback does not support; it supports DistributedDataParallel")
    if trainer.args.load_best_model_at_end:
        raise CheckpointError("`load_best_model_at_end=True` needs the trainer's own checkpoints; set it to False")
