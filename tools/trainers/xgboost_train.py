"""XGBoost, with the lines that it prints itself."""

import numpy as np
import truth
import xgboost

inputs = np.random.default_rng(1).normal(size=(400, 8))
labels = (inputs.sum(axis=1) > 0).astype(float)
train, valid = xgboost.DMatrix(inputs[:300], labels[:300]), xgboost.DMatrix(inputs[300:], labels[300:])
results: dict = {}
booster = xgboost.train(
    {"objective": "binary:logistic", "eval_metric": ["auc", "logloss"], "nthread": 1},
    train,
    num_boost_round=40,
    evals=[(train, "train"), (valid, "eval")],
    evals_result=results,
)
# Rounds are counted from 0.
truth.write(step=booster.num_boosted_rounds() - 1, totalSteps=None, loss=results["train"]["logloss"][-1])
