"""What the observer records offline, its options, and a service that is away."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from det_wandb._config import WandbConfig
from pydantic import ValidationError

from det_core import events
from det_core.interfaces.observer import ObserverContext
from det_core.interfaces.records import MetricsReport

HPARAMS = {"lr": 0.1, "optimizer": {"name": "sgd"}}
TIME = datetime(2026, 1, 2, tzinfo=timezone.utc)

Open = Callable[..., Any]


class Observation:
    """Observer of run 2 of trial 3, which is called as det calls it."""

    def __init__(
        self, directory: Path, stored: Sequence[MetricsReport], searcher: str, name: str = "digits", **options: Any
    ) -> None:
        from det_wandb._observer import WandbObserver

        self.observer = WandbObserver(WandbConfig.model_validate({"mode": "offline", "dir": directory, **options}))
        by = {"name": searcher, "metric": "accuracy", "smaller_is_better": False}
        self.observer.open(
            ObserverContext(
                place="worker",
                cluster_id="cluster",
                experiment_id=7,
                trial_id=3,
                config={"name": name, "searcher": by},
                fetch_files=lambda *_: None,
                fetch_metrics=lambda: stored,
            )
        )

    def send(self, kind: type[events.Event], **fields: Any) -> None:
        common = {"experiment_id": 7, "config": {}, "trial_id": 3, "run_id": 2, "hparams": HPARAMS}
        self.observer.notify(kind(**common, **fields))

    def report(self, step: int, group: str = "training", **metrics: Any) -> None:
        self.send(events.MetricsReported, group=group, steps_completed=step, metrics=metrics, time=TIME)

    def end(self, error: str | None = None, *, preempted: bool = False) -> None:
        self.send(events.WorkerFinished, error=error, preempted=preempted)
        self.observer.flush()
        self.observer.close()


@pytest.fixture
def observe(tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens an observer. All of them are closed at the end, and so is W&B's process."""
    import wandb

    opened: list[Observation] = []

    def start(stored: Sequence[MetricsReport] = (), searcher: str = "random", **options: Any) -> Observation:
        opened.append(Observation(tmp_path, stored, searcher, **options))
        return opened[-1]

    yield start
    for each in opened:
        with suppress(Exception):
            each.observer.close()
    wandb.teardown()


def stored_report(run_id: int, step: int, **metrics: Any) -> MetricsReport:
    return MetricsReport(trial_id=3, run_id=run_id, group="training", steps_completed=step, metrics=metrics, time=TIME)


def only_run(directory: Path) -> Any:
    from .history import offline_runs

    (run,) = offline_runs(directory)
    return run


@pytest.mark.integration
def test_a_run_has_the_names_config_and_summary_of_its_trial(observe: Open, tmp_path: Path) -> None:
    worker = observe(tags=["baseline"], entity="vision", api_key="0123456789" * 4)
    worker.report(10, loss=0.5, rate=math.inf)
    worker.report(10, "validation", accuracy=0.25)
    worker.report(1, "epochs", seconds=3)
    worker.end()
    run = only_run(tmp_path)
    assert (run.run.project, run.run.entity, run.run.run_group) == ("digits", "vision", "experiment 7")
    assert (run.run.display_name, list(run.run.tags), run.exit_code) == ("trial 3", ["baseline"], 0)
    ids = {"cluster_id": "cluster", "experiment_id": 7, "trial_id": 3}
    assert {name: run.config[name] for name in ("lr", "optimizer", "det")} == HPARAMS | {"det": ids}
    rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in run.history]
    assert rows == [
        {"training/loss": 0.5, "training/rate": math.inf, "batches": 10},
        {"validation/accuracy": 0.25, "batches": 10},
        {"epochs/seconds": 3, "batches": 1},
    ]
    assert run.summaries["validation/accuracy"] == "max"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("error", "preempted", "code"), [(None, False, 0), ("ValueError: no", False, 1), (None, True, 1)]
)
def test_the_end_of_a_run_is_recorded(
    observe: Open, tmp_path: Path, error: str | None, preempted: bool, code: int
) -> None:
    worker = observe(searcher="single")
    worker.send(events.WorkerStarted, steps_completed=0)
    worker.end(error, preempted=preempted)
    run = only_run(tmp_path)
    assert (run.run.run_group, run.exit_code, run.is_preempting) == ("", code, preempted)


@pytest.mark.integration
def test_a_resumed_trial_replaces_its_directory_unless_it_was_uploaded(observe: Open, tmp_path: Path) -> None:
    from .history import offline_runs

    uploaded = tmp_path / "wandb" / "offline-run-20260101_000000-cluster-trial-3"
    other = tmp_path / "wandb" / "offline-run-20260101_000000-cluster-trial-33"
    earlier = tmp_path / "wandb" / "offline-run-20260101_000001-cluster-trial-3"
    for directory in (uploaded, other, earlier):
        directory.mkdir(parents=True)
    (uploaded / "run-cluster-trial-3.wandb.synced").touch()
    worker = observe([stored_report(1, 1, loss=0.5), stored_report(2, 2, loss=0.25)])
    worker.report(2, loss=0.25)
    worker.end()
    assert (uploaded.exists(), other.exists(), earlier.exists()) == (True, True, False)
    histories = [run.history for run in offline_runs(tmp_path)]
    assert [[(row["batches"], row["training/loss"]) for row in rows] for rows in histories if rows] == [
        [(1, 0.5), (2, 0.25)]
    ]


@pytest.mark.integration
def test_a_service_that_is_away_is_an_error_that_says_what_to_do(
    observe: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from det_wandb._observer import WandbError

    worker = observe(mode="online", base_url="http://127.0.0.1:9", api_key="0123456789" * 4)
    worker.report(1, loss=0.5)
    with pytest.raises(WandbError, match=r"reach W&B at http://127.0.0.1:9: ConnectionError; .*mode: offline"):
        worker.end()
    worker.observer.close()
    assert "1 reports of trial 3 are not in W&B" in caplog.text


@pytest.mark.integration
def test_credentials_in_the_address_of_the_environment_are_not_shown(
    observe: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    from det_wandb._observer import WandbError

    monkeypatch.setenv("WANDB_BASE_URL", "https://hunter2@wandb.example.com")
    worker = observe(mode="online")
    worker.report(1, loss=0.5)
    with pytest.raises(WandbError, match="WANDB_BASE_URL: .*credentials as the key api_key") as refused:
        worker.observer.flush()
    assert "hunter2" not in str(refused.value)


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_a_variable_that_wandb_refuses_is_an_error_that_does_not_quote_it(
    observe: Open, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    import wandb
    from det_wandb._observer import WandbError

    wandb.teardown()
    monkeypatch.setenv("WANDB_BASE_URL", "https://ada:hunter2@no host")
    worker = observe(mode=mode)
    worker.report(1, loss=0.5)
    with pytest.raises(WandbError, match="refuses its setting base_url; correct .* WANDB_BASE_URL") as refused:
        worker.observer.flush()
    assert (refused.value.__cause__, refused.value.__suppress_context__) == (None, True)


@pytest.mark.integration
def test_nothing_is_recorded_if_the_mode_is_disabled(observe: Open, tmp_path: Path) -> None:
    worker = observe(mode="disabled")
    worker.report(1, loss=0.5)
    worker.end()
    assert list(tmp_path.glob("wandb/*run-*")) == []


@pytest.mark.integration
def test_a_directory_that_cannot_be_written_is_an_error_that_names_it(observe: Open, tmp_path: Path) -> None:
    from det_wandb._observer import WandbError

    (tmp_path / "file").touch()
    worker = observe(dir=tmp_path / "file")
    worker.report(1, loss=0.5)
    with pytest.raises(WandbError, match=r"cannot write to .*/file: File exists; correct observers.wandb.dir"):
        worker.observer.flush()


@pytest.mark.integration
def test_names_of_experiments_become_names_of_projects(observe: Open, tmp_path: Path) -> None:
    worker = observe(name="team/digits: 50%")
    worker.report(1, loss=0.5)
    worker.end()
    assert only_run(tmp_path).run.project == "team-digits- 50-"


def test_defaults_are_those_of_the_environment_at_the_submission(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = WandbConfig()
    assert (plain.mode, plain.project, plain.dir) == ("online", None, tmp_path)
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_PROJECT", "mine"), ("WANDB_DIR", "runs")):
        monkeypatch.setenv(name, value)
    given = WandbConfig()
    assert (given.mode, given.project, given.dir) == ("offline", "mine", tmp_path / "runs")
    for name in ("WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.setenv(name, "")
    assert WandbConfig() == plain


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert WandbConfig.model_validate({"dir": "~/runs"}).dir == tmp_path / "runs"


@pytest.mark.parametrize(("value", "mode"), [("dryrun", "offline"), ("run", "online"), ("disabled", "disabled")])
def test_other_names_of_modes_are_those_of_wandb(monkeypatch: pytest.MonkeyPatch, value: str, mode: str) -> None:
    monkeypatch.setenv("WANDB_MODE", value)
    assert WandbConfig().mode == mode


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"mode": "shared"}, "mode"),
        ({"project": "team/digits"}, "is not the name of a W&B project"),
        ({"project": "a\nb"}, "is not the name of a W&B project"),
        ({"project": " "}, "is not the name of a W&B project"),
        ({"project": "a" * 129}, "128 characters"),
        ({"base_url": "wandb.example.com"}, "expected the address of a server"),
        ({"base_url": "https://hunter2@wandb.example.com"}, "credentials as the key api_key"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected) as refused:
        WandbConfig.model_validate(options)
    assert "hunter2" not in refused.value.errors(include_input=False)[0]["msg"]
