"""Runs of trials without a runner."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from det_core import get_cluster_info
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import build_run_info


def begin_run(store: TrackingStore, trial_id: int, directory: Path, *, latest: str | None = None) -> None:
    """Start a run and write the files that workers read from ``DET_INFO_DIR``, as a runner does before a launch.

    Args:
        store: tracking store.
        trial_id: id of the trial.
        directory: directory for the files.
        latest: checkpoint of another trial to start from if the trial has none of its own.
    """
    trial = store.trial(trial_id)
    run = store.start_run(trial_id, allocation_id=str(uuid.uuid4()))
    own = store.checkpoints(trial_id=trial_id)
    start = own[-1] if own else store.checkpoint(latest) if latest else None
    info = build_run_info(store, store.experiment(trial.experiment_id).config, trial, run, start)
    info["cluster.json"]["slot_ids"] = []
    for name, content in info.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")


@contextmanager
def worker_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Give this process the environment of a worker while the block runs.

    Args:
        variables: environment variables. If one of them names a directory of `begin_run`, the block sees that run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DET_AGENT_SOCKET", raising=False)
        for name, value in variables.items():
            patch.setenv(name, value)
        get_cluster_info.cache_clear()
        yield
    get_cluster_info.cache_clear()
