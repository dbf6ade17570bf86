"""Compliance suite for commands. A command that passes it behaves as det's own do.

A file with these lines tests your registered command (`docs/commands.md`)::

    class TestStale(CommandCompliance):
        name = "stale"
        arguments = ("--days", "7")
        failing = ("--days", "7", "no-such-directory")
"""

from __future__ import annotations

from det_testing.command._help_tests import CommandHelpTests
from det_testing.command._run_tests import CommandRunTests

__all__ = ["CommandCompliance"]


class CommandCompliance(CommandHelpTests, CommandRunTests):
    """Base class for the tests of a command. Subclasses set ``name``, ``arguments`` and ``failing``.

    Further attributes: ``waiting``, ``module_budget``, ``expected_failures``. The fixture ``directory`` may be
    overridden. Redefining a test is an error.
    """
