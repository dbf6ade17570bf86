"""What the search tells Optuna, and what a resumed search repeats."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
from det_optuna._search import OptunaSearch
from optuna.trial import TrialState

from det_core.config import parse_config
from det_core.errors import ConfigError
from det_core.interfaces.records import State
from det_core.interfaces.search_method import WORST, Action, Close, Create, Train
from det_core.runner import ExperimentRunner, submit_experiment
from det_core.search.method_selection import open_search_method
from det_core.search.simulation import SimulatedOutcome, SimulateTraining, simulate_search
from det_core.tracking import open_store
from tests.waiting import wait_for

SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
    "optimizer": {
        "type": "categorical",
        "vals": [{"name": "sgd", "momentum": {"type": "double", "minval": 0, "maxval": 1}}, {"name": "adamw"}],
    },
    "a.b": {"type": "int", "minval": 1, "maxval": 9},
    "a": {"b": {"type": "int", "minval": 11, "maxval": 19}},
}


def config(hyperparameters: Any = SPACE, **searcher: Any) -> dict[str, Any]:
    options = {"name": "optuna", "metric": "loss", "max_length": 16, "max_trials": 24, "max_concurrent_trials": 1}
    return {
        "entrypoint": "python3 train.py",
        "searcher": {**options, **searcher},
        "hyperparameters": hyperparameters,
        "reproducibility": {"experiment_seed": 5},
    }


@contextmanager
def search(hyperparameters: Any = SPACE, **searcher: Any) -> Iterator[OptunaSearch]:
    with open_search_method(parse_config(config(hyperparameters, **searcher)), Path()) as method:
        assert isinstance(method, OptunaSearch)
        yield method


class Recorder:
    """Search whose events and answers are recorded, as the runner does."""

    def __init__(self, method: OptunaSearch) -> None:
        self.method = method
        self.log: list[tuple[str, tuple[Any, ...], Sequence[Action]]] = []

    def __getattr__(self, event: str) -> Any:
        def call(*arguments: Any) -> Sequence[Action]:
            answer = getattr(self.method, event)(*arguments)
            self.log.append((event, arguments, answer))
            return answer

        return call

    @property
    def hparams(self) -> list[Any]:
        return [one.hparams for *_, answer in self.log for one in answer if isinstance(one, Create)]


def succeed(trial: int, hparams: Any, start: int, length: int | None) -> SimulatedOutcome:
    return SimulatedOutcome((length or 0) - start, abs(hparams["lr"] - 0.01))


def played(method: OptunaSearch, train: SimulateTraining = succeed) -> Recorder:
    recorder = Recorder(method)
    for _ in simulate_search(recorder, train, slots=1):  # type: ignore[arg-type]
        pass
    return recorder


SAMPLERS: list[dict[str, Any]] = [
    {},
    {"name": "TPESampler", "n_startup_trials": 3, "multivariate": False},
    {"name": "NSGAIISampler", "population_size": 4},
    {"name": "RandomSampler", "seed": 3},
    {"name": "QMCSampler", "scramble": True},
    {"name": "CmaEsSampler", "n_startup_trials": 1, "popsize": 4, "consider_pruned_trials": True},
]


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda one: one.get("name", "default"))
def test_a_search_that_is_killed_after_any_event_has_the_same_trials(sampler: dict[str, Any]) -> None:
    space = {name: SPACE[name] for name in ("a", "a.b", "lr")} if sampler else SPACE

    def train(trial: int, *order: Any) -> SimulatedOutcome:
        return replace(succeed(trial, *order), exit="error" if trial % 7 == 5 else "")

    with search(space, sampler=sampler, max_trials=12) as method:
        whole = played(method, train)
    for killed in range(0, len(whole.log), 3):
        with search(space, sampler=sampler, max_trials=12) as method:
            for event, arguments, answer in whole.log[:killed]:
                assert list(method.replay(event, arguments, answer)) == list(answer)
            for event, arguments, answer in whole.log[killed:]:
                assert list(getattr(method, event)(*arguments)) == list(answer), f"killed before event {killed}"


def test_another_release_of_optuna_continues_with_the_recorded_trials() -> None:
    with search(sampler={"seed": 1}) as method:
        log = played(method).log[:20]
    recorded = [one for *_, answer in log for one in answer if isinstance(one, Create)]
    with search(sampler={"seed": 2}) as method:  # proposes others
        for event, arguments, answer in log:
            assert list(method.replay(event, arguments, answer)) == list(answer)
        known = [method._trials[one.request_id].params for one in recorded]
    assert [one["lr"] for one in known] == [one.hparams["lr"] for one in recorded]
    momenta = [one.hparams["optimizer"].get("momentum") for one in recorded]
    assert [one.get("optimizer.0.momentum") for one in known] == momenta
    assert [(one[r"a\.b"], one["a.b"]) for one in known] == [
        (one.hparams["a.b"], one.hparams["a"]["b"]) for one in recorded
    ]


def test_optuna_learns_the_results_of_all_rungs() -> None:
    with search({"x": {"type": "double", "minval": 0, "maxval": 1}}, max_trials=6, bracket_rungs=[2]) as method:
        first = method.start()[0]
        assert isinstance(first, Create) and first.hparams == method._study.trials[0].params
        assert method.on_validation(0, 4, 0.5) == [Train(0, 16)]
        assert method._study.trials[0].state is TrialState.RUNNING
        assert Close(0) in method.on_validation(0, 16, 0.25)
        assert Close(1) in method.on_validation(1, 4, 0.9)
        assert Close(2) in method.on_validation(2, 4, WORST)
        method.on_exit(3, "error")
        told = [(one.state, one.value, one.intermediate_values) for one in method._study.trials]
    assert told[:2] == [(TrialState.COMPLETE, 0.25, {4: 0.5, 16: 0.25}), (TrialState.PRUNED, 0.9, {4: 0.9})]
    assert [state for state, *_ in told[2:]] == [TrialState.FAIL, TrialState.FAIL, TrialState.RUNNING]


# block, words of the error
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "TPESampler", "n_startup_trails": 3}, "unexpected keyword argument 'n_startup_trails'"),
    ({"name": "TPSampler"}, "expected one of CmaEsSampler, GPSampler, "),
    ({"name": "GridSampler", "search_space": {}}, "use the searcher grid"),
    ({"name": "NSGAIISampler", "population_size": 1}, "`population_size` must be greater than or equal to 2"),
    ({"gamma": 5}, "gamma: expected no value, because only Python code can give one, got 5"),
    ({"constraints_func": 3}, "constraints_func: expected no value, because"),
    ({"n_startup_trials": "ten"}, "n_startup_trials: expected a value of the type int, got 'ten'"),
    ({"n_startup_trials": True}, "n_startup_trials: expected a value of the type int, got True"),
    ({"n_ei_candidates": 10**9}, "n_ei_candidates: expected at most 10000, got 1000000000"),
    ({"n_startup_trials": 50, "n_ei_candidates": -1}, "TPESampler does not work with these arguments: ValueError: neg"),
    ({"seed": -1}, "Seed must be between 0 and"),
    ({"name": "CmaEsSampler", "x0": {"learning_rate": 1.0}}, "must contain all distributions"),
]


@pytest.mark.parametrize(("sampler", "words"), REFUSED, ids=str)
def test_a_sampler_that_cannot_be_made_is_refused_with_the_config(sampler: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(config(sampler=sampler))
    assert str(caught.value).startswith("<config>: searcher") and words in str(caught.value)


def test_more_hyperparameters_than_a_sampler_can_learn_are_refused_with_the_config() -> None:
    with pytest.raises(ConfigError, match="searcher: expected at most 500 hyperparameters, .* got 501; use random"):
        parse_config(config({f"x{number}": SPACE["lr"] for number in range(501)}))


def test_a_sampler_whose_library_is_missing_is_refused_with_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_optuna._config.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"searcher\.sampler\.name: .*`pip install scipy torch`"):
        parse_config(config(sampler={"name": "GPSampler"}))


def test_a_study_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    verbosity = optuna.logging.get_verbosity()
    with search() as method:
        played(method)
    assert (*capfd.readouterr(), optuna.logging.get_verbosity()) == ("", "", verbosity)


SCRIPT = """
import det_core as det

with det.core.init() as core:
    for op in core.searcher.operations():
        loss = abs(core.info.trial.hparams["lr"] - 0.01)
        core.train.report_validation_metrics(steps_completed=op.length, metrics={"loss": loss})
        op.report_completed(loss)
"""
RUNNER = """
import sys
from det_core.runner import ExperimentRunner
from det_core.tracking import open_store
with open_store() as store:
    ExperimentRunner(store, int(sys.argv[1])).run()
"""


@pytest.mark.integration
def test_an_experiment_whose_runner_is_killed_has_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "home"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(SCRIPT)
    options = {"max_length": {"batches": 16}, "max_trials": 6, "max_rungs": 2, "sampler": {"n_startup_trials": 2}}
    block = {
        **config(**options),
        "checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "saved")},
    }
    with search(**options) as method:
        expected = played(method)
    with open_store() as store:
        experiment = submit_experiment(store, parse_config(block), tmp_path / "code").id

        def has_begun(trials: int, runner: subprocess.Popen[bytes]) -> bool:
            assert runner.poll() is None
            return len(store.trials(experiment)) >= trials

        for trials in (2, 4):
            with subprocess.Popen([sys.executable, "-c", RUNNER, str(experiment)], stdin=subprocess.DEVNULL) as runner:
                try:
                    wait_for(partial(has_begun, trials, runner), 240)
                finally:
                    runner.kill()
            assert runner.returncode == -signal.SIGKILL
        assert ExperimentRunner(store, experiment).run() is State.COMPLETED
        assert [trial.hparams for trial in store.trials(experiment)] == expected.hparams
