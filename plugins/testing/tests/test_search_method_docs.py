"""The plugin in docs/searching.md works. It is registered, previews a search, and passes the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest
import test_halton
import yaml
from det_testing.search_method import SearchMethodCompliance
from det_testing.search_method.search_player import SCENARIOS, play_search

from det_core.config import parse_config
from det_core.search.method_selection import open_search_method
from plugins.testing.tests.document_parts import (
    declared_attributes,
    first_column,
    require_example,
    snippets,
    write_named_files,
)

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "search_method_plugin"
DOCUMENT = ROOT / "docs" / "searching.md"
SPACE, *_ = snippets(ROOT / "docs" / "guides" / "search.md", "yaml")
_, DERIVED, SEARCHER = snippets(DOCUMENT, "yaml")


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


def test_a_method_that_wraps_one_of_det_searches(tmp_path: Path) -> None:
    config = parse_config(yaml.safe_load(DERIVED))
    write_named_files(DOCUMENT, tmp_path)
    with open_search_method(config, tmp_path) as method:
        player = play_search(method, SCENARIOS["mixed"], most_events=200)
    assert not player.ordered and not player.problems
    assert {trial.hparams["width"] * trial.hparams["depth"] > 500 for trial in player.created.values()} == {True}


def test_a_sampler_may_answer_otherwise_after_a_resume(tmp_path: Path) -> None:
    write_named_files(DOCUMENT, tmp_path)
    sampled = run_path(str(tmp_path / "sampled.py"))["Sampled"]
    space = parse_config(yaml.safe_load(DERIVED)).hyperparameters
    begun, resumed = (sampled({"most": 9, "length": 4}, space, seed) for seed in (1, 2))
    recorded = [("start", (), begun.start()), ("on_validation", (0, 4, 0.5), begun.on_validation(0, 4, 0.5))]
    assert [resumed.replay(*event) for event in recorded] == [actions for *_, actions in recorded]
    assert resumed.sampler.results == begun.sampler.results
    assert resumed.on_exit(1, "error")[0].request_id == 2


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    others = [code for code in snippets(DOCUMENT, language) if code.startswith("# ")]
    require_example(DOCUMENT, language, EXAMPLE, others=others)


def test_every_attribute_is_in_the_table() -> None:
    declared = declared_attributes(SearchMethodCompliance) | {"context_dir"}
    assert first_column(DOCUMENT) == declared
