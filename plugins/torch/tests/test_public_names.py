"""Public names of det_torch."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import det_torch
import pytest
from det_torch import samplers

DOCUMENTED: dict[str, list[str]] = {
    "init": ["hparams", "exp_conf", "distributed", "aggregation_frequency", "enable_tensorboard_logging"],
    "Trainer": ["trial", "context"],
    "Trainer.configure_profiler": ["self", "enabled", "sync_timings", "begin_on_batch", "end_after_batch"],
    "Trainer.fit": [
        *("self", "checkpoint_period", "validation_period", "max_length", "reporting_period", "checkpoint_policy"),
        *("latest_checkpoint", "step_zero_validation", "test_mode", "profiling_enabled"),
    ],
    "load_trial_from_checkpoint_path": ["path", "trial_class", "trial_kwargs", "torch_load_kwargs"],
    "load": ["path", "trial_class"],
}
"""Name -> its first arguments, in order."""


def test_all_lists_every_exported_name() -> None:
    names = [name for name in det_torch.__all__ if name != "__version__"]
    assert names == sorted(names)
    assert dir(det_torch) == sorted(det_torch.__all__)
    for name in names:
        value = getattr(det_torch, name)
        module = importlib.import_module(det_torch._EXPORTS[name])
        assert value is getattr(module, name)
        assert value.__module__.startswith("det_torch.") or name == "TorchData", "where it is defined"


def test_type_checkers_see_the_same_names() -> None:
    (block,) = [
        node
        for node in ast.parse(Path(det_torch.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module != "typing"
        for alias in node.names
    }
    assert imports == det_torch._EXPORTS


def test_members_that_older_trials_use_exist() -> None:
    assert {"AVG", "SUM", "MAX", "MIN"} == set(det_torch.Reducer.__members__)
    assert {"STEP_EVERY_BATCH", "STEP_EVERY_EPOCH", "MANUAL_STEP"} <= set(det_torch.LRScheduler.StepMode.__members__)
    assert hasattr(samplers, "DistributedBatchSampler") and hasattr(samplers, "ReproducibleShuffleSampler")


@pytest.mark.parametrize("path", DOCUMENTED)
def test_arguments_are_the_documented_ones(path: str) -> None:
    value: Any = det_torch
    for name in path.split("."):
        value = getattr(value, name)
    assert list(inspect.signature(value).parameters)[: len(DOCUMENTED[path])] == DOCUMENTED[path]


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'det_torch' has no attribute 'trainer'"):
        det_torch.trainer  # noqa: B018
