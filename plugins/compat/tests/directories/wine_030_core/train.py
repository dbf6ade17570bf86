"""Softmax regression on the wines, in numpy; the Core API records, saves and stops it."""

import argparse
import logging
import pickle
import sys

import determined as det
import numpy as np
from sklearn.datasets import load_wine


def load_data(seed):
    features, cultivars = load_wine(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(cultivars))
    return features[order], np.eye(3)[cultivars[order]]


def softmax(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def load_state(path, trial_id):
    with path.joinpath("state.pkl").open("rb") as f:
        state = pickle.load(f)
    # A trial that continues another one starts counting anew.
    return state["weights"], state["batch"] if state["trial_id"] == trial_id else 0


def main(core_context, info, args):
    hparams = info.trial.hparams
    x, y = load_data(args.seed)
    train_x, train_y, val_x, val_y = x[40:], y[40:], x[:40], y[:40]
    weights, batch = np.zeros((13, 3)), 0

    if info.latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(info.latest_checkpoint) as path:
            weights, batch = load_state(path, info.trial.trial_id)

    for op in core_context.searcher.operations():
        while batch < op.length:
            core_context.train.set_status(f"batch {batch}")
            p = softmax(train_x @ weights)
            loss = -np.mean(np.sum(train_y * np.log(p + 1e-9), axis=1))
            weights -= hparams["lr"] * (train_x.T @ (p - train_y) / len(train_x) + hparams["l2"] * weights)
            batch += 1

            if batch % 10 == 0:
                core_context.train.report_training_metrics(steps_completed=batch, metrics={"loss": loss})
                core_context.train.report_metrics("weights", batch, {"norm": np.linalg.norm(weights)})
                op.report_progress(batch)
            if batch % 25 == 0:
                accuracy = np.mean((val_x @ weights).argmax(1) == val_y.argmax(1))
                core_context.train.report_validation_metrics(steps_completed=batch, metrics={"accuracy": accuracy})
                metadata = {"steps_completed": batch, "kind": "softmax regression"}
                state = {"weights": weights, "batch": batch, "trial_id": info.trial.trial_id}
                with core_context.checkpoint.store_path(metadata) as (path, storage_id):
                    path.joinpath("state.pkl").write_bytes(pickle.dumps(state))
                logging.info(f"saved checkpoint {storage_id}")
                if core_context.preempt.should_preempt():
                    return
        op.report_completed(float(accuracy))


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=det.LOG_FORMAT)
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    info = det.get_cluster_info()
    assert info is not None, "this example only runs on-cluster"
    with det.core.init() as core_context:
        main(core_context, info, parser.parse_args())
