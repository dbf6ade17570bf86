"""Our own distributions by what they offer, so that an error can name the pip command."""

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
    "command": {"master": "det-master"},
}
