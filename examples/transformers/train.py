"""A tiny GPT-2 with the Hugging Face Trainer learns to count in fives, from 0 to 31 and around again.

Checkpoints go through `trainyard_checkpoint`: lines that end with `# +` are what it takes. A restart resumes from the newest
complete step, and every loss that it logs is the one that an uninterrupted run logs.

Exit code 0 only if the last loss is below the target.
"""

import os
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from trainyard_checkpoint.transformers import CheckpointCallback  # +

STEPS = 120
NUMBERS = 32
TARGET_LOSS = 0.2


def sequences(count: int) -> list[dict]:
    generator = torch.Generator().manual_seed(2)
    starts = torch.randint(0, NUMBERS, (count, 1), generator=generator)
    rows = (starts + 5 * torch.arange(12)) % NUMBERS
    return [{"input_ids": row, "labels": row} for row in rows]


class Print(TrainerCallback):
    """Losses in full precision: two runs can be compared."""

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "loss" in logs and state.is_world_process_zero:
            print(f"step {state.global_step}/{state.max_steps} loss {logs['loss']!r}", flush=True)


def main() -> int:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=NUMBERS, n_positions=12, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=STEPS,
            per_device_train_batch_size=8,
            learning_rate=0.01,
            logging_steps=10,
            # Not a multiple of `logging_steps`: what is logged after a restart is a mean over steps before and after it.
            save_strategy="steps",
            save_steps=15,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            ddp_backend="gloo" if "RANK" in os.environ else None,
        )
        trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=sequences(256), callbacks=[Print()])
        trainer.remove_callback(PrinterCallback)
        checkpoints = CheckpointCallback(os.environ.get("CHECKPOINT_DIR", "."), keep=2)  # +
        resumed = checkpoints.resume(trainer)  # +
        rank, world = trainer.args.process_index, trainer.args.world_size
        begins = f"resumed from step {checkpoints.step}" if resumed else "starts"
        print(f"rank {rank} of {world} {begins}", flush=True)
        trainer.train(resume_from_checkpoint=resumed)  # +

    loss = [log["loss"] for log in trainer.state.log_history if "loss" in log][-1]
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0 if loss < TARGET_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
