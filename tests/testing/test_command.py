"""Every test of the suite for commands catches a command with a defect."""

from __future__ import annotations

import pytest

from det_core.testing.command import CommandCompliance
from tests.testing.broken_commands import CAUGHT_BY, Sound
from tests.testing.failing_tests import find_failures, list_defects
from tests.testing.plugin_sites import plugin_environment

CAUGHT = list_defects(CAUGHT_BY)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Run the tests that should fail, and return those that did as (command, test)."""
    env = plugin_environment(tmp_path_factory.mktemp("site"), "tests.testing.broken_commands")
    return find_failures("broken_commands", CAUGHT, "Sound", env=env)


@pytest.mark.integration
@pytest.mark.parametrize(("command", "test"), CAUGHT)
def test_a_defect_is_caught(failed: set[tuple[str, str]], command: str, test: str) -> None:
    assert (command, test) in failed


@pytest.mark.integration
def test_a_command_without_a_defect_passes(failed: set[tuple[str, str]]) -> None:
    assert {test for command, test in failed if command == "Sound"} == {*CAUGHT_BY[Sound]}


def test_every_test_of_the_suite_catches_a_defect() -> None:
    tests = {name for name in dir(CommandCompliance) if name.startswith("test_")}
    assert {f"test_{test}" for caught in CAUGHT_BY.values() for test in caught} == tests
