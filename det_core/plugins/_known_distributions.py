"""The project's own distributions and what they offer, from which errors suggest a pip command."""

from __future__ import annotations

DISTRIBUTIONS: dict[str, dict[str, str]] = {
    "framework": {"pytorch": "det-torch", "estimator": "det-estimator", "keras": "det-keras"},
    "backend": {
        "torch_distributed": "det-torch-distributed",
        "horovod": "det-horovod",
        "deepspeed": "det-deepspeed",
    },
    "storage": {"s3": "det-storage-s3", "gcs": "det-storage-gcs"},
    "launcher": {"slurm": "det-slurm", "ray": "det-ray"},
    "observer": {"mlflow": "det-mlflow"},
    "command": {"master": "det-master"},
}
"""Kinds of plugins mapped to names, and names to the distribution that offers them."""
