"""The plugin in docs/commands.md works. It is registered, runs, and passes the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import test_progress
from det_testing.command import CommandCompliance

from plugins.testing.tests.document_parts import declared_attributes, first_column, require_example

EXAMPLE = Path(__file__).parents[3] / "examples" / "command_plugin"
DOCUMENT = Path(__file__).parents[3] / "docs" / "commands.md"


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
class TestExample(test_progress.TestProgress):
    pass


@pytest.mark.integration
def test_the_command_is_listed_and_runs(det: Callable[..., str]) -> None:
    assert "command progress" in det("plugins", "list")
    assert det("plugins", "check", "det-progress").endswith("exit code 0")
    assert det("progress", "--json") == "[]\n\nexit code 0"


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    require_example(DOCUMENT, language, EXAMPLE)


def test_every_attribute_is_in_the_table() -> None:
    assert first_column(DOCUMENT) == declared_attributes(CommandCompliance) | {"directory"}
