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
from det_core.interfaces.records import State
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.search.method_selection import open_search_method
from det_core.tracking import open_store
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
    begun, resumed, same = (sampled({"most": 9, "length": 4}, space, seed) for seed in (1, 2, 1))
    recorded = [("start", (), begun.start()), ("on_validation", (0, 4, 0.5), begun.on_validation(0, 4, 0.5))]
    for method in (resumed, same):
        assert [method.replay(*event) for event in recorded] == [actions for *_, actions in recorded]
    assert resumed.sampler.results == begun.sampler.results
    assert resumed.on_exit(1, "error")[0].request_id == 2
    assert same.on_exit(1, "error") == begun.on_exit(1, "error")


MEDIAN = {
    "entrypoint": "python3 train.py",
    "searcher": {
        "name": "custom",
        "metric": "loss",
        "method": "median:Median",
        "options": {"max_length": {"batches": 2}, "max_trials": 3, "max_concurrent_trials": 1},
        "unit": "batches",
    },
    "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    "max_restarts": 0,
}
SCRIPT = """
import time
import det_core as det

with det.core.init() as core:
    trial = core.info.trial.trial_id
    deadline = time.monotonic() + 120
    for batch in (1, 2):
        core.train.report_validation_metrics(steps_completed=batch, metrics={"loss": float(trial)})
        while trial == 3 and not core.preempt.should_preempt():  # the runner stops it after its first report
            assert time.monotonic() < deadline
            time.sleep(0.02)
        if core.preempt.should_preempt():
            break
"""


def test_a_method_that_stops_trials_between_two_lengths_searches(tmp_path: Path) -> None:
    write_named_files(DOCUMENT, tmp_path)
    with open_search_method(parse_config(MEDIAN), tmp_path) as method:
        player = play_search(method, SCENARIOS["mixed"], most_events=200)
    assert not player.ordered and not player.problems
    assert player.created.keys() == player.closed


@pytest.mark.integration
@pytest.mark.usefixtures("det_home")
def test_a_method_stops_a_trial_between_two_lengths(tmp_path: Path) -> None:
    write_named_files(DOCUMENT, tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    config = parse_config({**MEDIAN, "checkpoint_storage": storage})
    with open_store() as store:
        experiment = submit_experiment(store, config, tmp_path).id
        assert ExperimentRunner(store, experiment).run() is State.COMPLETED
        trials = store.trials(experiment)
        events = [event.event for event in store.search_events(experiment)]
    assert [(trial.state, trial.steps_completed) for trial in trials] == [
        (State.COMPLETED, 2), (State.COMPLETED, 2), (State.COMPLETED, 1)
    ]  # fmt: skip
    assert [event[:3] for event in events[-2:]] == [["on_report", 2, 1], ["on_exit", 2, "stopped"]]
    assert events[1][:4] == ["on_report", 0, 1, {"loss": 1.0}]


@pytest.mark.parametrize("language", ["python", "toml"])
def test_the_document_shows_the_example(language: str) -> None:
    others = [code for code in snippets(DOCUMENT, language) if code.startswith("# ")]
    require_example(DOCUMENT, language, EXAMPLE, others=others)


def test_every_attribute_is_in_the_table() -> None:
    declared = declared_attributes(SearchMethodCompliance) | {"context_dir"}
    assert first_column(DOCUMENT) == declared
