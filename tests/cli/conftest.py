"""Fixtures that record one experiment and that call `det` in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from det_testing.plugin_metadata import write_plugin_metadata

from det_core.cli import main
from det_core.interfaces.records import ExperimentRecord, LogLine, Machine, MetricsReport, State, TrialRecord
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.plugins._registry import DISABLE_VARIABLE
from det_core.storage import open_storage, save_checkpoint, scan_directory
from det_core.storage.config import DirectoryConfig
from det_core.tracking import open_store

from ..runner.conftest import toy_site  # noqa: F401

CONFIG = {
    "name": "digits",
    "searcher": {
        "name": "single",
        "metric": "accuracy",
        "smaller_is_better": False,
        "max_length": {"batches": 1000},
    },
}


Install = Callable[..., None]


def disable_plugins_except(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Disable other installed distributions. Some need software that this machine may lack, such as Horovod."""
    others = (report.name for report in plugin_registry().reports if report.name not in names)
    monkeypatch.setenv(DISABLE_VARIABLE, ",".join(others))
    plugin_registry.cache_clear()


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable all other installed distributions."""
    disable_plugins_except(monkeypatch, "det-core")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a distribution with one module."""

    def add(name: str, code: str) -> None:
        site = tmp_path / name
        write_plugin_metadata(site, name)
        (site / f"{name.replace('-', '_')}.py").write_text(code)
        monkeypatch.syspath_prepend(site)
        plugin_registry.cache_clear()

    return add


def command_plugin(*specs: str) -> str:
    """Return the code of a plugin that offers commands, each given as the arguments of its `CommandSpec`."""
    return (
        "from det_core import hookimpl\nfrom det_core.specs import CommandSpec\n"
        f"@hookimpl\ndef det_commands():\n    return [{', '.join(f'CommandSpec({spec})' for spec in specs)}]\n"
    )


@dataclass(frozen=True)
class Result:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


Det = Callable[..., Result]


@pytest.fixture
def det(capsys: pytest.CaptureFixture[str]) -> Det:
    """Return a function that runs a command in this process, such as ``det("experiment", "list")``."""

    def call(*argv: object) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in argv])
        return Result(code, *capsys.readouterr())

    return call


@dataclass
class Record:
    """Writer of the records and files that a trial produces."""

    store: TrackingStore
    experiment: ExperimentRecord
    trial: TrialRecord
    directory: Path

    def report(self, step: int, group: str = "training", **metrics: object) -> None:
        report = MetricsReport(
            trial_id=self.trial.id, run_id=self.run_id, group=group, steps_completed=step, metrics=metrics
        )
        self.store.report_metrics([report])

    def log(self, *lines: str, stdtype: str = "stdout") -> None:
        now = datetime.now(timezone.utc)
        self.store.add_logs(
            [
                LogLine(trial_id=self.trial.id, run_id=self.run_id, rank=0, stdtype=stdtype, log=line, time=now)
                for line in lines
            ]
        )

    def checkpoint(self, uuid: str, step: int, files: Mapping[str, str] | None = None, **metadata: str) -> None:
        storage = {"type": "directory", "container_path": str(self.directory / "storage")}
        source = self.directory / "source" / uuid
        source.mkdir(parents=True)
        for name, text in (files or {"weights": "w"}).items():
            (source / name).write_text(text)
        self.store.begin_checkpoint(uuid, trial_id=self.trial.id, run_id=self.run_id, storage=storage)
        manager = open_storage(
            "directory", DirectoryConfig.model_validate({"container_path": self.directory / "storage"})
        )
        described = {"steps_completed": step, **metadata}
        resources = save_checkpoint(manager, uuid, scan_directory(source), described)
        self.store.complete_checkpoint(
            uuid, run_id=self.run_id, steps_completed=step, resources=resources, metadata=described
        )

    def end(self, state: State, error: str | None = None) -> None:
        self.store.set_trial_state(self.trial.id, state)
        self.store.set_experiment_state(self.experiment.id, state, error=error)

    @property
    def run_id(self) -> int:
        return self.store.trial(self.trial.id).run_id


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as opened:
        yield opened


@pytest.fixture
def record(store: TrackingStore, tmp_path: Path) -> Record:
    """Create experiment 1 with trial 1 in its first run."""
    storage = {"type": "directory", "container_path": str(tmp_path / "storage")}
    config = {**CONFIG, "checkpoint_storage": storage}
    experiment = store.create_experiment(config=config, original_config="name: digits", owner="ada")
    trial = store.create_trial(experiment.id, hparams={"lr": 0.1, "nested": {"depth": 2}}, seed=7)
    store.start_run(trial.id, allocation_id="first")
    store.set_experiment_state(experiment.id, State.ACTIVE)
    return Record(store, experiment, trial, tmp_path)


@pytest.fixture
def trained(record: Record) -> Record:
    """Complete experiment 1, with its best checkpoint at batch 200 and another one at batch 300."""
    for step, accuracy in ((100, 0.5), (200, 0.75), (300, 0.7)):
        record.report(step, loss=step / 1000)
        record.report(step, "validation", accuracy=accuracy)
    record.log("hello")
    record.store.record_machine(1, 1, Machine(host="n1", cpus=8, packages={"torch": "2.11.0"}))
    record.checkpoint("best-one", 200)
    record.checkpoint("last-one", 300)
    record.end(State.COMPLETED)
    return record
