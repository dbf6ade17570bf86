"""Every test of the suite for commands notices a command with a defect."""

from __future__ import annotations

import pytest
from det_testing.command import CommandCompliance

from plugins.testing.tests import broken_commands
from plugins.testing.tests.broken_commands import CAUGHT_BY, Sound, command_name
from plugins.testing.tests.defects import caught_tests, list_tests, make_defect_tests

pytestmark = pytest.mark.usefixtures("registered")

PLUGIN = broken_commands.__name__


class BrokenCommands(CommandCompliance):
    arguments = (".",)
    failing = ("no-such-directory",)
    waiting = ("--watch",)


INTEGRATION = list_tests(CommandCompliance) - {"test_help_describes_every_option", "test_every_command_has_a_function"}
globals().update(
    make_defect_tests(
        BrokenCommands, CAUGHT_BY, lambda command: {"name": command_name(command)}, integration=INTEGRATION
    )
)


@pytest.mark.integration
class TestCommandWithoutDefect(BrokenCommands):
    name = command_name(Sound)
    module_budget = 10_000


def test_every_test_of_the_suite_notices_a_defect() -> None:
    assert caught_tests(CAUGHT_BY) == list_tests(CommandCompliance)
