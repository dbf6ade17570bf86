"""Test that several slots do not train copies of a trial."""

from __future__ import annotations

import pytest

from det_core.specs import FrameworkSpec
from det_core.testing.framework._framework_suite import FrameworkSuite
from det_core.testing.framework.trial_harness import TrialHarness


class FrameworkSlotTests(FrameworkSuite):
    """Test of frameworks that use several slots with any backend."""

    def test_slots_divide_each_batch(self, spec: FrameworkSpec, harness: TrialHarness) -> None:
        """Slots that train the same records waste all slots but one, and nothing else would show it."""
        if spec.needs_adapter:
            pytest.skip("the framework has several slots only with backends that adapt it")
        first, second = harness.train_on_two_slots(harness.prepare(resources={"slots_per_trial": 2}))
        same = [batch for batch, records in enumerate(first) if records == second[batch]]
        assert not same, f"both slots trained the same records in the batches {same}; each must train a part of a batch"
