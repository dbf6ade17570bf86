"""The plugin in docs/commands.md works. It is installed, runs, and passes the suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from det_core.testing.command import CommandCompliance
from tests.testing.documents import declared_attributes, first_column, require_example
from tests.testing.installed_examples import Run, install_example

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "command_plugin"
DOCUMENT = ROOT / "docs" / "commands.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a module next to the example's test, with the example installed by pip."""
    return install_example(tmp_path_factory.mktemp("docs"), EXAMPLE, "test_progress.py")


@pytest.mark.integration
def test_the_command_passes_the_suite(run: Run) -> None:
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_progress.py")
    assert re.search(r"^\d+ passed in ", told, re.MULTILINE), told


@pytest.mark.integration
@pytest.mark.slow
def test_the_command_is_listed_and_runs(run: Run) -> None:
    assert "command progress" in run("det_core.cli", "plugins", "list")
    assert run("det_core.cli", "plugins", "check").endswith("exit code 0")
    assert run("det_core.cli", "progress", "--json") == "[]\n\nexit code 0"


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    require_example(DOCUMENT, language, EXAMPLE)


def test_every_attribute_is_in_the_table() -> None:
    assert first_column(DOCUMENT) == declared_attributes(CommandCompliance) | {"directory"}
