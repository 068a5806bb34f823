"""LightGBM, with the lines of `log_evaluation`."""

import lightgbm
import numpy as np
import truth

inputs = np.random.default_rng(1).normal(size=(400, 8))
labels = (inputs.sum(axis=1) > 0).astype(float)
train = lightgbm.Dataset(inputs[:300], labels[:300])
valid = train.create_valid(inputs[300:], labels[300:])
results: dict = {}
booster = lightgbm.train(
    {"objective": "binary", "metric": ["auc", "binary_logloss"], "num_threads": 1, "min_data_in_leaf": 5},
    train,
    num_boost_round=40,
    valid_sets=[train, valid],
    callbacks=[lightgbm.log_evaluation(4), lightgbm.record_evaluation(results)],
)
truth.write(step=booster.current_iteration(), totalSteps=None, loss=results["training"]["binary_logloss"][-1])
