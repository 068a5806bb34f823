"""A Hugging Face Trainer that is stopped and continued logs what one logs that was never stopped."""

import functools
import os
import pathlib
import signal
import tempfile
import unittest
import warnings

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

from trainyard_checkpoint import CheckpointError
from trainyard_checkpoint.transformers import CheckpointCallback

torch.set_num_threads(1)
# The step of an optimizer is three batches, and neither saves nor logs divide an epoch of eight.
BASE = {"max_steps": 20, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 4}


class Stopped(Exception):
    pass


class Stop(TrainerCallback):
    """Ends the program in the middle of a step, or sends it SIGTERM."""

    def __init__(self, step: int, number: int | None = None) -> None:
        self.step, self.number = step, number

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            if self.number is None:
                raise Stopped
            os.kill(os.getpid(), self.number)


class Waiting(CheckpointCallback):
    """Waits for every commit: steps of a test are so short that saves would be skipped."""

    def on_step_begin(self, args, state, control, **_):
        if self.checkpointer._last is not None:
            self.checkpointer._last.committed(60)


class Adapter(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="trainyard-checkpoint-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def trainer(self, *callbacks: TrainerCallback, **arguments: object) -> Trainer:
        torch.manual_seed(1)
        config = GPT2Config(vocab_size=8, n_positions=6, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        rows = torch.randint(0, 8, (48, 6), generator=torch.Generator().manual_seed(2))
        data = [{"input_ids": row, "labels": row} for row in rows]
        given = {"report_to": [], "disable_tqdm": True, "use_cpu": True, **BASE, **arguments}
        settings = TrainingArguments(str(self.folder / "own"), **given)
        trainer = Trainer(GPT2LMHeadModel(config), settings, train_dataset=data, eval_dataset=data[:4], callbacks=list(callbacks))
        trainer.remove_callback(PrinterCallback)
        return trainer

    @functools.cache
    def whole(self) -> Trainer:
        """A run without checkpoints that nothing stops."""
        trainer = self.trainer(save_strategy="no")
        trainer.train()
        return trainer

    def train(self, root: str, stop: Stop | None = None, every: int | None = None, **arguments: object) -> tuple[Trainer, CheckpointCallback]:
        trainer = self.trainer(*([stop] if stop else []), **arguments)
        checkpoints = Waiting(self.folder / root, every=every)
        try:
            trainer.train(resume_from_checkpoint=checkpoints.resume(trainer))
        finally:
            checkpoints.checkpointer.close()
        return trainer, checkpoints

    def test_same_logs_after_a_stop(self) -> None:
        cases = {
            "steps": {"save_strategy": "steps", "save_steps": 3},
            "own interval": {"save_strategy": "no", "every": 5},
            "ends of epochs": {"save_strategy": "epoch"},
        }
        whole = self.whole()
        for name, case in cases.items():
            with self.subTest(name):
                with self.assertRaises(Stopped):
                    self.train(name, Stop(11), **case)
                resumed, checkpoints = self.train(name, **case)
                self.assertIn(checkpoints.step, (8, 9, 10))
                self.assertEqual(logs(resumed), logs(whole))
                for one, other in zip(resumed.model.parameters(), whole.model.parameters()):
                    self.assertTrue(torch.equal(one, other))
                self.assertEqual(list((self.folder / "own").glob("checkpoint-*")), [], "the trainer saved, too")
                self.assertAlmostEqual(resumed.state.total_flos, whole.state.total_flos)

    def test_finished_run_trains_no_more(self) -> None:
        case = {"save_strategy": "steps", "save_steps": 5}
        whole, _ = self.train("root", **case)
        self.assertEqual(logs(whole), logs(self.whole()))
        again, checkpoints = self.train("root", **case)
        self.assertEqual((checkpoints.step, again.state.global_step), (20, 20))
        self.assertEqual(logs(again), logs(whole))
        with self.assertRaisesRegex(CheckpointError, "the callback ended with the last call of `train`"):
            again.train()

    def test_sigterm_saves_at_once(self) -> None:
        case = {"save_strategy": "no"}
        with self.assertRaises(SystemExit) as ended:
            self.train("root", Stop(7, signal.SIGTERM), **case)
        self.assertEqual(ended.exception.code, 143)
        resumed, checkpoints = self.train("root", **case)
        self.assertEqual(checkpoints.step, 7)
        self.assertEqual(logs(resumed), logs(self.whole()))

    def test_damaged_step(self) -> None:
        case = {"save_strategy": "steps", "save_steps": 4}
        with self.assertRaises(Stopped):
            self.train("root", Stop(11), **case)
        trainer = self.trainer(**case)
        checkpoints = CheckpointCallback(self.folder / "root")
        found = checkpoints.resume(trainer)
        self.assertEqual(checkpoints.step, 8)
        [file] = (self.folder / "root" / "steps").glob("000000000008-*/00000.safetensors")
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        with warnings.catch_warnings(), self.assertRaisesRegex(CheckpointError, "step 8 could not be restored; start again to resume from step 4"):
            warnings.simplefilter("ignore")
            trainer.train(resume_from_checkpoint=found)
        checkpoints.checkpointer.close()
        resumed, checkpoints = self.train("root", **case)
        self.assertEqual(checkpoints.step, 4)
        self.assertEqual(logs(resumed), logs(self.whole()))

    def test_refused(self) -> None:
        best = self.trainer(load_best_model_at_end=True, eval_steps=5, save_steps=5)
        with self.assertRaisesRegex(CheckpointError, "load_best_model_at_end"):
            CheckpointCallback(self.folder / "root").resume(best)
        with self.assertRaisesRegex(CheckpointError, r"the callback has no trainer: call `trainer.train\(resume_from_checkpoint"):
            self.trainer(CheckpointCallback(self.folder / "root")).train()
        with self.assertRaisesRegex(CheckpointError, "`every` must be a number of 1 or more, found `0`"):
            CheckpointCallback(self.folder / "root", every=0)
        with self.assertRaises(Stopped):
            self.train("root", Stop(11), save_strategy="steps", save_steps=4)
        trainer = self.trainer()
        checkpoints = CheckpointCallback(self.folder / "root")
        self.addCleanup(checkpoints.checkpointer.close)
        checkpoints.resume(trainer)
        with self.assertRaisesRegex(CheckpointError, "step 8 was not restored: give `train` what `resume` returned"):
            trainer.train()
        with self.assertRaisesRegex(CheckpointError, "has a trainer already"):
            checkpoints.resume(trainer)


def logs(trainer: Trainer) -> list[dict[str, float]]:
    """What was logged, without times."""
    kept = ("loss", "grad_norm", "learning_rate", "epoch", "step", "eval_loss")
    found = [{key: value for key, value in log.items() if key in kept} for log in trainer.state.log_history]
    return [log for log in found if "loss" in log or "eval_loss" in log]


if __name__ == "__main__":
    unittest.main()
