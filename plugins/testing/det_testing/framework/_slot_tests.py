"""Tests that several slots train one trial together."""

from __future__ import annotations

import pytest

from det_core.specs import FrameworkSpec
from det_testing.framework._framework_suite import FrameworkSuite
from det_testing.framework._incidents import Incident
from det_testing.framework.trial_harness import TrainedSlot, TrialHarness


class FrameworkSlotTests(FrameworkSuite):
    """Tests of frameworks that use several slots with any backend."""

    def test_slots_divide_each_batch(self, spec: FrameworkSpec, harness: TrialHarness) -> None:
        """Slots that train the same records waste all slots but one, and nothing else would show it."""
        first, second = self._train(spec, harness, self._prepare(harness))
        pairs = enumerate(zip(first.records, second.records, strict=True))
        same = [batch for batch, (one, other) in pairs if one == other]
        assert not same, f"both slots trained the same records in the batches {same}; each must train a part of a batch"
        assert first.weights == second.weights, "the slots have different weights; combine their gradients"
        assert first.validations == second.validations, "validate() must return the same metrics on all slots"

    def test_slots_resume_exactly(self, spec: FrameworkSpec, harness: TrialHarness) -> None:
        """A checkpoint contains the state of all slots, although only one of them writes it."""
        undisturbed = self._train(spec, harness, self._prepare(harness))
        trial_id = self._prepare(harness)
        left, _ = self._train(spec, harness, trial_id, ("training", 1, "leave"))
        assert left.records != undisturbed[0].records, "the slots did not stop when they were asked to"
        for resumed, expected in zip(self._train(spec, harness, trial_id), undisturbed, strict=True):
            assert resumed.records == expected.records[len(left.records) :]
            assert (resumed.validations, resumed.weights) == (expected.validations, expected.weights)

    @staticmethod
    def _prepare(harness: TrialHarness) -> int:
        return harness.prepare(resources={"slots_per_trial": 2})

    @staticmethod
    def _train(spec: FrameworkSpec, harness: TrialHarness, trial_id: int, *incidents: Incident) -> list[TrainedSlot]:
        if spec.needs_adapter:
            pytest.skip("the framework has several slots only with backends that adapt it")
        return harness.train_on_two_slots(trial_id, *incidents)
