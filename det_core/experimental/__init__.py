"""Python SDK to train trial classes and to work with experiments, trials, checkpoints and models."""

from __future__ import annotations

from det_core.experimental import client
from det_core.experimental._checkpoint import Checkpoint
from det_core.experimental._create import create, create_trial_instance
from det_core.experimental._determined import Determined
from det_core.experimental._experiment import ExperimentReference
from det_core.experimental._model import Model, ModelOrderBy, ModelSortBy, ModelVersion
from det_core.experimental._trial import TrialMetrics, TrialReference

__all__ = [
    "Checkpoint",
    "Determined",
    "ExperimentReference",
    "Model",
    "ModelOrderBy",
    "ModelSortBy",
    "ModelVersion",
    "TrialMetrics",
    "TrialReference",
    "client",
    "create",
    "create_trial_instance",
]
