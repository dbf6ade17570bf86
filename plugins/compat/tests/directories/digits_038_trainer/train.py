"""Runs on the cluster with `det experiment create const.yaml .`, and locally with `python3 train.py`."""

import logging
import pathlib

import determined as det
import model_def
import yaml
from determined import pytorch


def run(local: bool) -> None:
    info = det.get_cluster_info()
    if local:
        conf = yaml.safe_load(pathlib.Path("./const.yaml").read_text())
        hparams = conf["hyperparameters"]
        latest_checkpoint = None
    else:
        assert info is not None and info.task_type == "TRIAL"
        hparams = info.trial.hparams
        latest_checkpoint = info.latest_checkpoint

    with det.pytorch.init() as train_context:
        trial = model_def.DigitsTrial(train_context, hparams=hparams)
        trainer = pytorch.Trainer(trial, train_context)
        trainer.fit(
            max_length=pytorch.Epoch(1),
            checkpoint_period=pytorch.Batch(10),
            validation_period=pytorch.Batch(10),
            reporting_period=pytorch.Batch(5),
            checkpoint_policy="all",
            latest_checkpoint=latest_checkpoint,
        )


if __name__ == "__main__":
    # Configure logging
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    run(local=det.get_cluster_info() is None)
