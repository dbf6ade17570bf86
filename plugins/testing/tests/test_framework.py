"""Every test of the framework suite notices a framework with a defect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import test_descent
from det_testing.framework import FrameworkCompliance, _stop_tests
from det_testing.framework._slot_tests import FrameworkSlotTests

from det_core.tracking import _sqlite
from det_core.trial import Trial
from plugins.testing.tests import broken_frameworks
from plugins.testing.tests.broken_frameworks import CAUGHT_BY, LosesItsStarter
from plugins.testing.tests.defects import caught_tests, list_tests, make_defect_tests

pytestmark = pytest.mark.integration

PLUGIN = broken_frameworks.__name__


class BrokenFrameworks(FrameworkCompliance):
    plugin = PLUGIN
    hyperparameters: ClassVar = {"global_batch_size": 4, "learning_rate": 0.01}

    @pytest.fixture(autouse=True)
    def _hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wait less long for threads that do not end, beside that of the tracking store."""
        monkeypatch.setattr(_sqlite, "SYNC_INTERVAL", 0.1)
        monkeypatch.setattr(_stop_tests, "_STOP_SECONDS", 2.0)

    weights = test_descent.TestDescent.weights
    replace_weights = test_descent.TestDescent.replace_weights


def describe(adapter: type) -> dict[str, Any]:
    """Return the attributes of the suite for a framework."""
    marks = [pytest.mark.usefixtures("registered")] if adapter is LosesItsStarter else []
    return {"trial_class": getattr(broken_frameworks, f"{adapter.__name__}Trial"), "pytestmark": marks}


INTEGRATION = {
    "test_killed_is_as_if_undisturbed",
    "test_slots_divide_each_batch",
    "test_slots_resume_exactly",
    "test_the_plugin_is_light",
    "test_the_starter_trains",
}
globals().update(make_defect_tests(BrokenFrameworks, CAUGHT_BY, describe, integration=INTEGRATION))


@pytest.mark.integration
class TestSharesBatches(FrameworkSlotTests):
    plugin = PLUGIN
    trial_class = broken_frameworks.SharesBatchesTrial  # type: ignore[attr-defined]
    hyperparameters = BrokenFrameworks.hyperparameters
    weights = BrokenFrameworks.weights


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(FrameworkCompliance)


def test_a_missing_or_local_trial_class_and_missing_weights_are_errors() -> None:
    class Local(Trial):
        pass

    mine = type("TestMine", (FrameworkCompliance,), {})
    with pytest.raises(AssertionError, match="TestMine must set trial_class"):
        mine._trial_class()
    with pytest.raises(NotImplementedError, match=r"TestMine must override weights\(path\)"):
        mine().weights(Path())
    with pytest.raises(NotImplementedError, match=r"TestMine must override replace_weights\(path, source\)"):
        mine().replace_weights(Path(), Path())
    with pytest.raises(AssertionError, match="Local is defined inside a function.*move it to the top"):
        type("TestMine", (FrameworkCompliance,), {"trial_class": Local})._trial_class()
