"""Tests of the rehearsal before the first batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.errors import InvalidExperimentException, InvalidTrial
from det_core.interfaces.framework import TrialAdapter
from det_testing.framework._framework_suite import FrameworkSuite, UndisturbedTraining
from det_testing.framework.trial_harness import LENGTH, TrialHarness


class FrameworkRehearsalTests(FrameworkSuite):
    """Tests that a rehearsal finds problems and leaves no trace. The other parts of the suite train without one."""

    def test_a_rehearsal_changes_nothing(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """Weights, metrics and reports are those of a trial without it, because it restores what it touches."""
        trial_id = harness.prepare(rehearsal=True)
        harness.train(trial_id)
        assert harness.outcome(trial_id) == undisturbed.outcome
        assert len(harness.checkpoints(trial_id)) == 1

    def test_a_rehearsal_finds_a_wrong_metric(self, harness: TrialHarness, undisturbed: UndisturbedTraining) -> None:
        """Otherwise a typing error in the config would cost the time until the first validation."""
        if type(undisturbed.recorder.adapter).rehearse is TrialAdapter.rehearse:
            pytest.skip("the framework evaluates no batch in rehearsals")
        searcher = {"name": "single", "metric": f"{self.metric}s", "max_length": LENGTH}
        with pytest.raises(InvalidTrial, match=f"did you mean '{self.metric}'"):
            harness.train(harness.prepare(rehearsal=True, searcher=searcher))
        assert harness.counts["training"] == 0

    def test_a_rehearsal_finds_an_unusable_storage(self, harness: TrialHarness, tmp_path: Path) -> None:
        """Otherwise training would fail at its first checkpoint."""
        (tmp_path / "file").touch()
        storage = {"type": "directory", "container_path": str(tmp_path / "file" / "checkpoints")}
        with pytest.raises(InvalidExperimentException, match="could not store a checkpoint"):
            harness.train(harness.prepare(rehearsal=True, checkpoint_storage=storage))
        assert harness.counts["training"] == 0
