"""Commands that start runners, with a runner that ends at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_core.interfaces.records import State
from det_core.interfaces.tracking import TrackingStore
from det_core.runner import _background

from .conftest import Det, Record

CONFIG = """
entrypoint: python3 train.py
searcher: {name: single, metric: accuracy, smaller_is_better: false, max_length: {batches: 300}}
"""


class Runners:
    """Runners that end in a state, after a line of output."""

    def __init__(self) -> None:
        self.state = State.COMPLETED
        self.started: list[tuple[int, dict[str, bool]]] = []

    def start(self, store: TrackingStore, experiment_id: int, **options: bool) -> None:
        self.started.append((experiment_id, options))
        store.set_experiment_state(experiment_id, self.state)


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> Runners:
    runners = Runners()
    monkeypatch.setattr(_background, "start_detached", runners.start)
    return runners


@pytest.fixture
def submit(det: Det, tmp_path: Path, runners: Runners) -> Det:
    """Return a function that submits an experiment, with more arguments."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "const.yaml").write_text(CONFIG)
    (code / "train.py").touch()
    return lambda *arguments: det("experiment", "create", code / "const.yaml", code, *arguments)


def test_create_prints_the_experiment(submit: Det, runners: Runners) -> None:
    result = submit()
    assert (result.code, result.out) == (0, "Created experiment 1\n")
    row = submit("--json").json
    assert (row["id"], row["state"]) == (2, "COMPLETED")
    assert runners.started == [(1, {}), (2, {})]


@pytest.mark.parametrize(("state", "code"), [(State.COMPLETED, 0), (State.ERROR, 1), (State.PAUSED, 1)])
def test_following_returns_how_the_experiment_ended(submit: Det, runners: Runners, state: State, code: int) -> None:
    runners.state = state
    result = submit("--follow")
    assert result.code == code
    assert result.out.startswith("Created experiment 1\n")
    assert "Experiment 1 " in result.out.partition("\n")[2]
    followed = submit("--follow", "--json")
    assert (followed.code, followed.json["id"], followed.json["state"]) == (code, 2, state.value)


def interrupted(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_only_stops_the_following(submit: Det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.cli.render.trial_watcher.follow_experiment", interrupted)
    result = submit("--follow")
    assert result.code == 130
    assert "experiment 1 continues" in result.out
    assert "det experiment logs 1 --follow" in result.out and "det experiment pause 1" in result.out
    assert submit("--follow", "--json").code == 130


@pytest.fixture
def ended(record: Record, runners: Runners) -> Record:
    """Pause an experiment that printed a line."""
    record.log("printed before")
    record.end(State.PAUSED)
    return record


def test_resume_skips_what_was_printed_before(det: Det, ended: Record, runners: Runners) -> None:
    result = det("experiment", "resume", 1, "--follow", "--from-beginning")
    assert result.code == 0, result.err
    assert result.out.startswith("Resumed experiment 1\n")
    assert "printed before" not in result.out
    assert runners.started == [(1, {"from_beginning": True})]


def test_what_runs_is_not_resumed(det: Det, ended: Record, runners: Runners) -> None:
    ended.store.acquire_lease(1, "somebody", seconds=60)
    result = det("experiment", "resume", 1)
    assert (result.code, result.out, runners.started) == (1, "", [])
    assert result.err == (
        "det: error: experiment 1 is running already; watch it with: det experiment logs 1 -f, "
        "stop it with: det experiment pause 1\n"
    )


def test_a_completed_experiment_continues(submit: Det, det: Det, runners: Runners) -> None:
    submit()
    refused = det("experiment", "resume", 1)
    assert (refused.code, "det experiment continue 1 --config" in refused.err) == (1, True)
    result = det("experiment", "continue", 1, "--config", "searcher.max_length={batches: 600}")
    assert (result.code, result.out) == (0, "Continued experiment 1\n")
    assert runners.started == [(1, {}), (1, {})]
    assert det("experiment", "continue", 1, "--checkpoint", "nowhere").code == 1
