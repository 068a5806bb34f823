"""Boosted trees over several processes: is a point inside the ring or outside?

Every rank holds its share of the points; the histograms are summed by XGBoost's own all-reduce.
Rank 0 runs the tracker that the ranks connect to, and saves every 10 rounds; all resume from there.

Exit code 0 only if at least 95 % of points never seen before are classified correctly.
"""

import os
import socket
import sys
import time

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

ROUNDS = 40
SAVE_EVERY = 10
TARGET_ACCURACY = 0.95
# So that there is something to watch, and a moment in which a rank can be killed.
ROUND_SECONDS = 0.05
TREES = {"objective": "binary:logistic", "max_depth": 4, "eta": 0.3, "nthread": 1, "seed": 1}


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.random.default_rng(seed).uniform(-2, 2, size=(count, 2))
    radius = np.linalg.norm(places, axis=1)
    return places, ((radius > 0.7) & (radius < 1.5)).astype(float)


class Report(xgboost.callback.TrainingCallback):
    """Says how it goes, and saves: all or nothing, so that a kill leaves the last whole file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def after_iteration(self, model, epoch: int, evals_log: dict) -> bool:
        time.sleep(ROUND_SECONDS)
        rounds = model.num_boosted_rounds()
        if collective.get_rank() == 0 and rounds % SAVE_EVERY == 0:
            part = self.path.replace(".json", ".part.json")
            model.save_model(part)
            os.replace(part, self.path)
            print(f"step {rounds}/{ROUNDS} loss {evals_log['train']['logloss'][-1]:.4f}", flush=True)
        return False


def train(rank: int, world: int, path: str) -> int:
    before = None
    if os.path.exists(path):
        before = xgboost.Booster(model_file=path)
    # A save between two ranks' reads would make them start from different rounds.
    done = before.num_boosted_rounds() if before else 0
    rounds = collective.broadcast(done, root=0)
    if rounds != done:
        print(f"rank {rank} sees {done} rounds, rank 0 sees {rounds}", flush=True)
        return 1
    begins = f"resumed from step {done}" if done else "starts"
    print(f"rank {rank} of {world} {begins}", flush=True)

    places, labels = points(8192, seed=2)
    share = xgboost.DMatrix(places[rank::world], labels[rank::world])
    model = xgboost.train(
        TREES,
        share,
        num_boost_round=ROUNDS - done,
        evals=[(share, "train")],
        verbose_eval=False,
        xgb_model=before,
        callbacks=[Report(path)],
    )
    places, labels = points(1024, seed=3)
    accuracy = float(np.mean((model.predict(xgboost.DMatrix(places)) > 0.5) == (labels > 0.5)))
    if rank == 0:
        print(f"done: accuracy {accuracy:.3f} (target {TARGET_ACCURACY})", flush=True)
    return 0 if accuracy >= TARGET_ACCURACY else 1


def main() -> int:
    environ = os.environ
    rank, world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    address = socket.gethostbyname(environ["MASTER_ADDR"])
    port = int(environ["MASTER_PORT"])
    if rank == 0:
        tracker = RabitTracker(n_workers=world, host_ip=address, port=port, sortby="task")
        tracker.start()
    path = os.path.join(environ.get("CHECKPOINT_DIR", "."), "model.json")
    with collective.CommunicatorContext(
        dmlc_communicator="rabit",
        dmlc_tracker_uri=address,
        dmlc_tracker_port=port,
        dmlc_task_id=f"{rank:04}",
        # The tracker may come up after the others.
        dmlc_retry=60,
    ):
        code = train(rank, world, path)
    if rank == 0:
        tracker.wait_for()
    return code


if __name__ == "__main__":
    sys.exit(main())
