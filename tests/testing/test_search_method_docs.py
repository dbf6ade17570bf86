"""The plugin in docs/searching.md works. It is installed, previews a search, and passes the suite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from det_core.testing.search_method import SearchMethodCompliance
from tests.testing.documents import declared_attributes, first_column, require_example, snippets
from tests.testing.installed_examples import Run, install_example

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "search_method_plugin"
DOCUMENT = ROOT / "docs" / "searching.md"
(SPACE,) = snippets(ROOT / "docs" / "guides" / "search.md", "yaml")
_, SEARCHER = snippets(DOCUMENT, "yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a module next to the example's test, with the example installed by pip."""
    return install_example(tmp_path_factory.mktemp("docs"), EXAMPLE, "test_halton.py")


@pytest.mark.integration
def test_the_search_method_passes_the_suite(run: Run) -> None:
    told = run("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_halton.py")
    assert re.search(r"^\d+ passed, 2 skipped in ", told, re.MULTILINE), told  # it has no snapshots


@pytest.mark.integration
@pytest.mark.slow
def test_a_config_selects_the_search_method(run: Run, tmp_path: Path) -> None:
    assert "search method halton" in run("det_core.cli", "plugins", "list")
    assert run("det_core.cli", "plugins", "check").endswith("exit code 0")
    config = tmp_path / "search.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(SPACE), **yaml.safe_load(SEARCHER)}))
    told = run("det_core.cli", "preview-search", config)
    assert "halton: 16 trials" in told and told.endswith("exit code 0"), told


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    others = [code for code in snippets(DOCUMENT, language) if code.startswith("# until_good.py")]
    require_example(DOCUMENT, language, EXAMPLE, others=others)


def test_every_attribute_is_in_the_table() -> None:
    declared = declared_attributes(SearchMethodCompliance) | {"context_dir"}
    assert first_column(DOCUMENT) == declared
