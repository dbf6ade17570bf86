"""Compliance suite for distributed backends, which tests how workers start, find each other, and end.

A file with these lines tests your backend (`docs/backends.md`)::

    class TestMyBackend(BackendCompliance):
        plugin = "my_backend.plugin"
"""

from __future__ import annotations

from det_core.testing.backend._ends import Ends
from det_core.testing.backend._launches import Launches
from det_core.testing.backend._plugin import Plugin

__all__ = ["BackendCompliance"]


class BackendCompliance(Plugin, Launches, Ends):
    """Base class for the tests of a backend. Subclasses set ``plugin``, and ``name`` if it offers several backends.

    Other attributes describe requirements and limitations of the backend: ``options``, ``slots``, ``several_nodes``,
    ``joins``, ``limit``, ``expected_failures``. Redefining a test is an error.
    """
