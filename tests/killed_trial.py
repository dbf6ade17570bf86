"""Trial under a runner that is killed again and again, for tests of what observers have recorded in the end."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from det_core.cli import main

STEPS = 30
_SCRIPT = """
import os, signal, sys
from pathlib import Path
import det_core as det

kills = {kills!r}
with det.core.init() as core:
    run_id, step = core.info.trial.trial_run_id, 0
    if core.info.latest_checkpoint:
        with core.checkpoint.restore_path(core.info.latest_checkpoint) as path:
            step = int((path / "step").read_text())
    with Path({reported!r}).open("a", buffering=1) as reported:
        for step in range(step + 1, {steps} + 1):
            reported.write(f"{{step}} {{run_id}}\\n")
            core.train.report_training_metrics(step, {{"run": run_id}})
            core.train.report_validation_metrics(step, {{"loss": 1 / step, "run": run_id}})
            if step % 3 == 0:
                with core.checkpoint.store_path({{"steps_completed": step}}) as (path, _):
                    (path / "step").write_text(str(step))
            if kills and run_id <= len(kills) and step >= kills[run_id - 1]:
                os.kill(os.getpid(), signal.SIGKILL)
"""


def train_with_kills(
    directory: Path, observers: Mapping[str, Any], kills: int, *, seed: int = 1, **keys: Any
) -> dict[int, int]:
    """Train a trial whose first runs kill themselves, and return the last run that has reported each step.

    Checkpoints are saved every 3 steps, and runs are killed at any step, even at once after they have reported it.

    Args:
        directory: directory for code, config and checkpoints.
        observers: the block ``observers`` of the config.
        kills: number of runs that are killed.
        seed: seed of the steps at which they are killed.
        **keys: further keys of the config.
    """
    steps = sorted(random.Random(seed).choices(range(1, STEPS), k=kills))
    reported = directory / "reported"
    config = {
        "name": "killed",
        "entrypoint": "python3 train.py",
        "hyperparameters": {"lr": 0.5},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
        "checkpoint_storage": {"type": "directory", "container_path": str(directory / "checkpoints")},
        "resources": {"slots_per_trial": 0},
        "max_restarts": kills,
        "observers": observers,
        **keys,
    }
    code = directory / "code"
    code.mkdir()
    (code / "train.py").write_text(_SCRIPT.format(kills=steps, reported=str(reported), steps=STEPS))
    (directory / "config.yaml").write_text(yaml.safe_dump(config))
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        status = main(["run", str(directory / "config.yaml"), str(code)])
    assert status == 0, output.getvalue()
    last = dict(tuple(map(int, line.split())) for line in reported.read_text().splitlines())
    assert list(last) == list(range(1, STEPS + 1)) and max(last.values()) == kills + 1
    return last
