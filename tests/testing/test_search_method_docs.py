"""The plugin in docs/searching.md works. It is registered, previews a search, and passes the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import test_halton
import yaml

from det_core.testing.search_method import SearchMethodCompliance
from tests.testing.documents import declared_attributes, first_column, require_example, snippets

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "search_method_plugin"
DOCUMENT = ROOT / "docs" / "searching.md"
(SPACE,) = snippets(ROOT / "docs" / "guides" / "search.md", "yaml")
_, SEARCHER = snippets(DOCUMENT, "yaml")


@pytest.mark.integration
@pytest.mark.usefixtures("registered")
class TestExample(test_halton.TestHalton):
    pass


@pytest.mark.usefixtures("registered")
def test_too_many_ranges_are_refused() -> None:
    test_halton.test_too_many_ranges_are_refused()


@pytest.mark.integration
def test_a_config_selects_the_search_method(det: Callable[..., str], tmp_path: Path) -> None:
    assert "search method halton" in det("plugins", "list")
    assert det("plugins", "check", "det-halton").endswith("exit code 0")
    config = tmp_path / "search.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(SPACE), **yaml.safe_load(SEARCHER)}))
    told = det("preview-search", config)
    assert "halton: 16 trials" in told and told.endswith("exit code 0"), told


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    others = [code for code in snippets(DOCUMENT, language) if code.startswith("# until_good.py")]
    require_example(DOCUMENT, language, EXAMPLE, others=others)


def test_every_attribute_is_in_the_table() -> None:
    declared = declared_attributes(SearchMethodCompliance) | {"context_dir"}
    assert first_column(DOCUMENT) == declared
