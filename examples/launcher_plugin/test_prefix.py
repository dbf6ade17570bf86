"""The plugin passes det's compliance suite.

To run it, type ``pip install 'det-core[testing]' .``, then ``pytest test_prefix.py``.
"""

from __future__ import annotations

from det_testing.launcher import LauncherCompliance


class TestPrefix(LauncherCompliance):
    name = "prefix"
    options = {"command": ["nice", "-n", "1"], "slots": 2}  # noqa: RUF012
    queues = False  # a launch without free slots is refused with LaunchDelayed
