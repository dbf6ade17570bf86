"""The compliance suite for distributed backends: how workers start, find each other, and end.

A file with these lines tests yours (`docs/backends.md`)::

    class TestMyBackend(BackendCompliance):
        plugin = "my_backend.plugin"
"""

from __future__ import annotations

from det_core.testing.backend._ends import Ends
from det_core.testing.backend._launches import Launches
from det_core.testing.backend._plugin import Plugin

__all__ = ["BackendCompliance"]


class BackendCompliance(Plugin, Launches, Ends):
    """Derive from it, and say ``plugin``; more than one backend in it: ``name``, too.

    Other attributes say what the backend needs or cannot do: ``options``, ``slots``, ``several_nodes``, ``limit``,
    ``expected_failures``. Redefining a test is an error.
    """
