"""Hugging Face Trainer: a tiny GPT-2 from a config, with evaluations and checkpoints between the steps."""

import tempfile

import torch
import truth
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.set_num_threads(1)
torch.manual_seed(1)


def tokens(count: int) -> list[dict]:
    return [{"input_ids": row, "labels": row} for row in torch.randint(0, 32, (count, 16))]


model = GPT2LMHeadModel(
    GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
)
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=2,
            logging_steps=5,
            eval_strategy="steps",
            eval_steps=10,
            save_strategy="steps",
            save_steps=20,
            report_to=[],
            use_cpu=True,
        ),
        train_dataset=tokens(72),
        eval_dataset=tokens(30),
    )
    trainer.train()
    trainer.evaluate()

state = trainer.state
losses = [(log["loss"], log["epoch"]) for log in state.log_history if "loss" in log]
loss, epoch = losses[-1]
truth.write(step=state.global_step, totalSteps=state.max_steps, epoch=epoch, loss=float(loss))
