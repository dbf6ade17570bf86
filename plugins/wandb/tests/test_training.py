"""Experiments of det that are recorded offline, with their runners and workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.killed_trial import STEPS, train_with_kills

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_each_step_is_recorded_once_with_the_value_of_its_last_run(tmp_path: Path, kills: int) -> None:
    from .history import offline_runs

    last = train_with_kills(tmp_path, {"wandb": {"mode": "offline", "dir": str(tmp_path)}}, kills)
    (run,) = offline_runs(tmp_path)
    assert (run.config["lr"], run.exit_code) == (0.5, 0)
    for name in ("training/run", "validation/run"):
        assert [(row["batches"], row[name]) for row in run.history if name in row] == list(last.items())
    assert len(run.history) == 2 * STEPS
