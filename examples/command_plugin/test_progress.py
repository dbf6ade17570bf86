"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]' .``, then ``pytest test_progress.py``.
"""

from __future__ import annotations

from det_testing.command import CommandCompliance


class TestProgress(CommandCompliance):
    name = "progress"
    failing = ("7",)  # there is no such experiment
    waiting = ("--watch", "60")
