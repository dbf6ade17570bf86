"""Copies of the trial's code in its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

import det_core as det
from det_core.config import Length
from det_core.trial import TrainingPlan, TrialContext, TrialLoop
from tests.trial.test_checkpoint_saver import Counting


@pytest.mark.parametrize("wanted", [True, False])
def test_code_is_stored_if_checkpoint_code_is_set(
    wanted: bool, det_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is stored even if training changes the working directory."""
    project = tmp_path / "project"
    (project / "package").mkdir(parents=True)
    (project / "model_def.py").write_text("import package")
    (project / "package" / "__init__.py").write_text("")
    (project / "weights.bin").write_text("large")
    (project / "dangling").symlink_to("nowhere")
    (project / ".detignore").write_text("*.bin\n")
    monkeypatch.chdir(project)

    def on_batch(count: int) -> None:
        (project / f"output-{count}").touch()
        monkeypatch.chdir(tmp_path)

    with det.core.init() as core:
        plan = TrainingPlan(length=Length.parse(3), checkpoint_code=wanted)
        TrialLoop(Counting(on_batch=on_batch), core, TrialContext.from_core(core), plan=plan).run()
        (saved,) = core._store.checkpoints(trial_id=core.trial.trial_id)
        with core.checkpoint.restore_path(saved.uuid) as path:
            code = {str(file.relative_to(path / "code")) for file in (path / "code").rglob("*") if file.is_file()}
    assert code == ({"model_def.py", "package/__init__.py", ".detignore"} if wanted else set())
