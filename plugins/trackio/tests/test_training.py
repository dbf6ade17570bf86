"""Experiments of det that are recorded in Trackio, with their runners and workers."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.killed_trial import STEPS, train_with_kills

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_each_step_is_recorded_once_with_the_value_of_its_last_run(tmp_path: Path, kills: int) -> None:
    from .history import history, runs

    project = f"killed-{uuid.uuid4().hex}"
    last = train_with_kills(tmp_path, {"trackio": {"project": project}}, kills)
    (run,) = runs(project)
    assert run.config["lr"] == 0.5
    rows = history(project, run)
    for name in ("training/run", "validation/run"):
        assert [(row["step"], row[name]) for row in rows if name in row] == list(last.items())
    assert len(rows) == 2 * STEPS
