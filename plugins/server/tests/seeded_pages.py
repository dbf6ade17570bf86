"""Paths of all pages over a seeded store, with a phrase that each must show."""

from __future__ import annotations

from .seeded_store import Seeded


def page_paths(seeded: Seeded) -> dict[str, str]:
    """Return the paths of pages mapped to a phrase on each."""
    return {
        "/experiments": "mnist asha",
        "/experiments?state=ERROR": "resnet fine-tuning",
        f"/experiments/{seeded.search}": "Learning curves",
        f"/experiments/{seeded.search}?order=hp.lr&series=training.loss": "training.loss",
        f"/experiments/{seeded.running}": "Pause",
        f"/experiments/{seeded.failed}": "CUDA out of memory",
        f"/experiments/{seeded.hostile}": "onerror=alert(1)",
        f"/experiments/{seeded.queued}": "No trials yet",
        f"/experiments/{seeded.search}/search": "Hyperparameters and val_loss",
        f"/experiments/{seeded.queued}/search": "No trials yet",
        f"/experiments/{seeded.hostile}/search": "Hyperparameters and val_loss",
        f"/experiments/{seeded.search}/code": "model_def.py",
        f"/experiments/{seeded.search}/code?file=0": "class MNistTrial",
        f"/experiments/{seeded.hostile}/code": "Config as written",
        f"/experiments/{seeded.running}/confirm/kill": "det experiment kill",
        f"/experiments/confirm?action=archive&experiments={seeded.search},{seeded.running}": "Archive 1 experiment?",
        "/experiments/confirm?action=kill": "Nothing to kill",
        "/experiments?where=lr+<+0.1+and+val_loss+<+9&order=lr&columns=lr,val_loss,project": "mnist asha",
        "/experiments?where=lr+<<+3": "position 5, '<': expected a number",
        f"/experiments/{seeded.search}?where=lr+<+1&order=accuracy&columns=accuracy": "1–8 of 8 trials",  # noqa: RUF001
        f"/experiments/{seeded.search}?where=lr+>+1": "No trial matches this filter",
        f"/trials/{seeded.best_trial}": "Load the best one",
        f"/trials/{seeded.best_trial}/media": "Nothing yet",
        f"/trials/{seeded.running_trial}": "has not ended",
        f"/trials/{seeded.hostile_trial}": "onerror=alert(1)",
        f"/trials/{seeded.running_trial}/confirm/kill": "det trial kill",
        f"/compare?trials={seeded.best_trial},{seeded.hostile_trial},{seeded.running_trial}": "Hyperparameters",
        f"/compare/code?experiments={seeded.search},{seeded.hostile}": "The code is the same",
        f"/compare?experiments={seeded.search},{seeded.failed},{seeded.hostile}&best=3&step=400": "or the last before",
        "/compare": "type their numbers above",
        "/models": "Classifier of handwritten digits",
        f"/models/{seeded.model}": "Load the newest one",
        f"/models/{seeded.hostile_model}": "No versions yet",
        f"/checkpoints/{seeded.free_checkpoint}/confirm/delete": "cannot be undone",
        f"/checkpoints/{seeded.checkpoint}/register": "a new model",
        "/plugins": "det-core",
        "/users": "No users yet",
        "/audit": "Nothing yet",
        "/experiments/999999": "no page",
    }
