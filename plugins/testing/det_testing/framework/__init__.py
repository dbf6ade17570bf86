"""Compliance suite for frameworks. A framework that passes it trains exactly, even if runs are killed.

A file with these lines tests your framework (`docs/frameworks.md`)::

    class TestMyFramework(FrameworkCompliance):
        plugin = "det_mine.plugin"
        trial_class = Tiny

        def weights(self, path):
            return json.loads((path / "weights.json").read_text())

        def replace_weights(self, path, source):
            shutil.copy(source / "weights.json", path)
"""

from __future__ import annotations

from det_testing.framework._checkpoint_tests import FrameworkCheckpointTests
from det_testing.framework._incidents import reach_point
from det_testing.framework._registration_tests import FrameworkRegistrationTests
from det_testing.framework._rehearsal_tests import FrameworkRehearsalTests
from det_testing.framework._slot_tests import FrameworkSlotTests
from det_testing.framework._stop_tests import FrameworkStopTests
from det_testing.framework._training_tests import FrameworkTrainingTests

__all__ = ["FrameworkCompliance", "reach_point"]


class FrameworkCompliance(
    FrameworkRegistrationTests,
    FrameworkTrainingTests,
    FrameworkRehearsalTests,
    FrameworkStopTests,
    FrameworkCheckpointTests,
    FrameworkSlotTests,
):
    """Base class for the tests of a framework. Subclasses set ``plugin`` and ``trial_class``, and define `weights` and
    `replace_weights`.

    Further attributes: ``hyperparameters``, ``metric``, ``config``, ``expected_failures``. Redefining a test is an
    error.
    """
