"""Paddle's `Model.fit`, with an evaluation in each epoch."""

import sys

import numpy as np
import paddle
import truth

paddle.seed(1)


class Sums(paddle.io.Dataset):
    """Numbers and their sum."""

    def __init__(self, count: int) -> None:
        self.inputs = np.random.default_rng(1).normal(size=(count, 8)).astype("float32")

    def __getitem__(self, at: int):
        return self.inputs[at], self.inputs[at].sum(keepdims=True)

    def __len__(self) -> int:
        return len(self.inputs)


class Count(paddle.callbacks.Callback):
    """Steps and losses, which Paddle itself counts only within an epoch."""

    steps, loss = 0, 0.0

    def on_train_batch_end(self, step, logs=None):
        Count.steps += 1
        Count.loss = float(np.asarray(logs["loss"]).reshape(-1)[0])


model = paddle.Model(paddle.nn.Linear(8, 1))
model.prepare(paddle.optimizer.SGD(0.01, parameters=model.parameters()), paddle.nn.MSELoss())
model.fit(Sums(240), Sums(80), batch_size=8, epochs=3, log_freq=5, verbose=int(sys.argv[2]), callbacks=[Count()])
truth.write(step=Count.steps, totalSteps=90, epoch=3, loss=Count.loss)
