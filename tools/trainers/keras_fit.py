"""Keras: `fit` with a validation, then `evaluate` and `predict`, which have bars too."""

import keras
import numpy as np
import truth

keras.utils.set_random_seed(1)


class Count(keras.callbacks.Callback):
    """The steps, which Keras itself counts only within an epoch."""

    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        Count.steps += 1


inputs = np.random.default_rng(1).normal(size=(240, 8)).astype("float32")
wanted = inputs.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
history = model.fit(
    inputs, wanted, batch_size=8, epochs=3, validation_data=(inputs[:80], wanted[:80]), callbacks=[Count()]
)
model.evaluate(inputs, wanted)
model.predict(inputs)
truth.write(step=Count.steps, totalSteps=90, epoch=3, loss=history.history["loss"][-1])
