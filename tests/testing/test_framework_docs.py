"""The example in docs/frameworks.md works. The framework is installed, trains an experiment, and passes the suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from det_core.testing.framework import FrameworkCompliance
from tests.testing.documents import first_column, snippets
from tests.testing.installed_examples import Run, install_example

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "framework_plugin"
DOCUMENT = ROOT / "docs" / "frameworks.md"
(CONFIG,) = snippets(DOCUMENT, "yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a module next to the example's test and config, with the example installed by pip."""
    files = {"const.yaml": CONFIG}
    return install_example(tmp_path_factory.mktemp("docs"), EXAMPLE, "test_descent.py", files)


@pytest.mark.integration
@pytest.mark.slow
def test_the_framework_passes_the_suite(run: Run) -> None:
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_descent.py")
    assert re.search(r"^\d+ passed, 1 skipped in ", told, re.MULTILINE), told  # `loading`


@pytest.mark.integration
@pytest.mark.slow
def test_the_config_trains_with_the_framework(run: Run) -> None:
    assert "det-descent" in run("det_core.cli", "plugins", "list")
    assert run("det_core.cli", "plugins", "check").endswith("exit code 0")
    told = run("det_core.cli", "run", "const.yaml")
    assert told.endswith("exit code 0"), told
    assert "trial 1: batch 20 " in told


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    example = "\n".join(path.read_text() for path in EXAMPLE.iterdir() if path.is_file())
    assert [code for code in snippets(DOCUMENT, language) if code not in example] == []


def test_every_attribute_is_in_the_table() -> None:
    suite = [base for base in FrameworkCompliance.__mro__ if base.__module__.startswith("det_core.testing")]
    declared = {name for base in suite for name in vars(base).get("__annotations__", {})}
    assert first_column(DOCUMENT) == declared | {"weights"}
