"""Compliance suite for distributed backends, which tests how workers start, find each other, and end.

A file with these lines tests your backend (`docs/backends.md`)::

    class TestMyBackend(BackendCompliance):
        plugin = "my_backend.plugin"
"""

from __future__ import annotations

from det_testing.backend.failure_tests import BackendFailureTests
from det_testing.backend.launch_tests import BackendLaunchTests
from det_testing.backend.registration_tests import BackendRegistrationTests

__all__ = ["BackendCompliance"]


class BackendCompliance(BackendRegistrationTests, BackendLaunchTests, BackendFailureTests):
    """Base class for the tests of a backend. Subclasses set ``plugin``, and ``name`` if it offers several backends.

    Other attributes describe requirements and limitations of the backend: ``options``, ``slots``, ``several_nodes``,
    ``joins``, ``limit``, ``expected_failures``. Redefining a test is an error.
    """
