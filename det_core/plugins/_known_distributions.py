"""The project's own distributions and what they offer, from which errors suggest a pip command."""

from __future__ import annotations

DISTRIBUTIONS: dict[str, dict[str, str]] = {
    "framework": {"pytorch": "det-torch", "estimator": "det-estimator", "keras": "det-keras", "jax": "det-jax"},
    "backend": {
        "torch_distributed": "det-torch-distributed",
        "horovod": "det-horovod",
        "deepspeed": "det-deepspeed",
    },
    "storage": {
        "s3": "det-storage-s3",
        "gcs": "det-storage-gcs",
        "azure": "det-storage-azure",
        "fsspec": "det-storage-fsspec",
    },
    "search_method": {"optuna": "det-optuna"},
    "launcher": {"slurm": "det-slurm", "ray": "det-ray", "kubernetes": "det-kubernetes"},
    "observer": {"mlflow": "det-mlflow", "trackio": "det-trackio", "wandb": "det-wandb"},
    "command": {"server": "det-server", "user": "det-server"},
}
"""Kinds of plugins mapped to names, and names to the distribution that offers them."""

SUBSTITUTES: dict[str, dict[str, str]] = {
    "storage": {
        "hdfs": "det has no store for HDFS; mount it on all hosts and set type: shared_fs, "
        "or copy the checkpoints to a bucket, with their directories, and set type: s3 or gcs",
    },
    "command": {"master": "det server, of det-server, shows experiments in a browser and shares the tracking store"},
}
"""Kinds of plugins mapped to names of the original that no distribution offers, and names to what to use instead."""
