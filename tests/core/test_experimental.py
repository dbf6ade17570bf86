"""Reports of trials about the checkpoints that they use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from det_core import core


def test_the_use_of_checkpoints_and_model_versions_is_recorded(det_home: Path) -> None:
    with core.init() as context:
        checkpoint = SimpleNamespace(uuid="b")
        context.experimental.report_task_using_checkpoint("a")
        context.experimental.report_task_using_checkpoint(checkpoint)
        context.experimental.report_task_using_model_version(
            SimpleNamespace(checkpoint=SimpleNamespace(uuid="c"), model_id=1, model_version=2)
        )
        assert [context._store.trials_using(uuid) for uuid in "abcd"] == [[context.trial.trial_id]] * 3 + [[]]
