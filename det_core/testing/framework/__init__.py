"""Compliance suite for frameworks. A framework that passes it trains exactly, even if runs are killed.

A file with these lines tests your framework (`docs/frameworks.md`)::

    class TestMyFramework(FrameworkCompliance):
        plugin = "det_mine.plugin"
        trial_class = Tiny

        def weights(self, path):
            return json.loads((path / "weights.json").read_text())
"""

from __future__ import annotations

from det_core.testing.framework._checkpoints import Checkpoints
from det_core.testing.framework._course import reached
from det_core.testing.framework._leaving import Leaving
from det_core.testing.framework._plugin import Plugin
from det_core.testing.framework._training import Training

__all__ = ["FrameworkCompliance", "reached"]


class FrameworkCompliance(Plugin, Training, Leaving, Checkpoints):
    """Base class for the tests of a framework. Subclasses set ``plugin`` and ``trial_class``, and define `weights`.

    Further attributes: ``hyperparameters``, ``metric``, ``expected_failures``. Redefining a test is an error.
    """
