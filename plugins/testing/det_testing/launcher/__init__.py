"""Compliance suite for launchers. With a launcher that passes it, trials train as on this machine.

A file with these lines tests your registered launcher (`docs/launchers.md`)::

    class TestMyLauncher(LauncherCompliance):
        name = "my_launcher"
        options = {"slots": 2}
"""

from __future__ import annotations

from det_testing.launcher._exit_tests import LaunchEndTests
from det_testing.launcher._experiment_tests import LaunchedExperimentTests
from det_testing.launcher._log_tests import LaunchLogTests
from det_testing.launcher._registration_tests import LauncherRegistrationTests
from det_testing.launcher._resource_tests import LaunchResourceTests
from det_testing.launcher._secret_tests import LaunchSecretTests
from det_testing.launcher._slot_tests import LaunchSlotTests
from det_testing.launcher._stop_tests import LaunchStopTests
from det_testing.launcher._worker_tests import LaunchedWorkerTests
from det_testing.launcher.launcher_suite import IsRunning, Launch
from det_testing.launcher.watched_launch import Line, WatchedLaunch

__all__ = ["IsRunning", "Launch", "LauncherCompliance", "Line", "WatchedLaunch"]


class LauncherCompliance(
    LauncherRegistrationTests,
    LaunchedWorkerTests,
    LaunchEndTests,
    LaunchLogTests,
    LaunchStopTests,
    LaunchResourceTests,
    LaunchSlotTests,
    LaunchSecretTests,
    LaunchedExperimentTests,
):
    """Base class for the tests of a launcher. Subclasses set ``name`` and ``options``.

    Attributes describe the launcher: ``blocks``, ``slots``, ``queues``, ``orders``, ``numbers_slots``, ``has_engine``,
    ``outlives_connection``, ``is_local``, ``sends_secrets``, ``code_size``, ``limit``, ``expected_failures``. The
    fixtures ``is_running`` and ``lose_connection`` may be overridden. Redefining a test is an error.
    """
