"""The example learns, and ends bitwise the same if its process is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from det_testing.comparison import bitwise_form

from det_core.interfaces.tracking import TrackingStore

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[3] / "examples" / "language_model_transformers"
KILLER = """
import os, signal
from transformers import TrainerCallback

class Kill(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        if state.global_step == 75 and not os.path.exists(os.environ["MARK"]):
            open(os.environ["MARK"], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_an_example_that_is_killed(store: TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = shutil.copytree(EXAMPLE, tmp_path / "killed")
    script = (killed / "train.py").read_text()
    assert "[callback]" in script
    (killed / "kill.py").write_text(KILLER)
    (killed / "train.py").write_text(
        script.replace("import det_core", "import kill\nimport det_core").replace(
            "[callback]", "[callback, kill.Kill()]"
        )
    )
    mark = tmp_path / "killed at step 75"
    monkeypatch.setenv("MARK", str(mark))
    monkeypatch.delenv("DET_INFO_DIR")
    for directory in (EXAMPLE, killed):
        command = [Path(sys.executable).parent / "det", "run", directory / "const.yaml"]
        options = ["searcher.max_length.batches=150", "checkpoint_storage.save_trial_latest=9"]
        ran = subprocess.run(
            [*command, *(part for option in options for part in ("--config", option))],
            env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert mark.exists()
    results = [result_of(store, trial_id) for trial_id in (1, 2)]
    assert results[0] == results[1]
    best = store.best_validation(1, "eval_loss", smaller_is_better=True)
    assert best
    assert best[0] < 2.75  # 3.27 knows only how frequent each character is


def result_of(store: TrackingStore, trial_id: int) -> object:
    row = store.checkpoints(trial_id=trial_id)[-1]
    directory = Path(row.storage["container_path"], row.uuid)
    state = torch.load(directory / "optimizer.pt", weights_only=True)
    metrics = [(report.group, report.steps_completed, report.metrics) for report in store.metrics(trial_id)]
    return bitwise_form([metrics, state]), (directory / "model.safetensors").read_bytes()
