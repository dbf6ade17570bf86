"""Examples of docs/guides/search.md and docs/searching.md, except for its plugin."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from det_testing.search_method.search_player import SCENARIOS, play_search

from det_core.interfaces.records import ExperimentRecord, State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import ExperimentRunner

DOCS = Path(__file__).parents[2] / "docs"
METHODS = (DOCS / "guides" / "search.md").read_text().partition("## Choose a method")[2].partition("\n## ")[0]
PAGE = (DOCS / "searching.md").read_text().partition("## Publish a search method")[0]
(BLOCK,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
(METHOD,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("name", re.findall(r"^\| `(\w+)` \|", METHODS, re.MULTILINE))
def test_the_search_methods_of_the_document_exist(name: str) -> None:
    from det_core.plugins import plugin_registry

    assert plugin_registry().find("search_method", name).name == name


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_custom_method_of_the_document_ends(scenario: str) -> None:
    defined: dict[str, Any] = {}
    exec(METHOD, defined)
    options = yaml.safe_load(BLOCK)["searcher"]["options"]
    player = play_search(defined["UntilGood"](options, {}, 0), SCENARIOS[scenario], most_events=100)
    assert player.created.keys() == player.closed
    assert len(player.created) <= options["most"]


@pytest.mark.integration
def test_the_custom_method_of_the_document_searches(
    store: TrackingStore, new_experiment: Callable[..., ExperimentRecord], context_dir: Path
) -> None:
    (context_dir / "until_good.py").write_text(METHOD)
    block: dict[str, Any] = yaml.safe_load(BLOCK)
    experiment = new_experiment(**block, hyperparameters={"x": {"type": "double", "minval": 0.0, "maxval": 1.0}})
    assert ExperimentRunner(store, experiment.id).run() is State.COMPLETED
    events = [event.event for event in store.search_events(experiment.id)]
    losses = [event[3] for event in events[1:]]
    assert len(losses) <= 5
    assert all(loss > 0.5 for loss in losses[:-1])
    assert losses[-1] <= 0.5 or len(losses) == 5
