"""Context in a forked child, such as a worker that loads data."""

from __future__ import annotations

from pathlib import Path

import pytest
from det_keras import TFKerasTrialContext

from plugins.tensorflow.tests.forked_contexts import call_context_in_child


def test_each_method_works_in_a_forked_child_or_says_where_to_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path))
    outcomes = call_context_in_child(TFKerasTrialContext)
    assert "belongs to process" in outcomes.pop("context.get_tensorboard_path")
    assert {one: outcome for one, outcome in outcomes.items() if outcome} == {}
