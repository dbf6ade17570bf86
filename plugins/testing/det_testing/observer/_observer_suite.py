"""Attributes and fixtures that all parts of the suite for observers share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from det_core import events, storage
from det_core.config import ExperimentConfig, parse_config
from det_core.core.event_stream import EventStream, make_fetch_files
from det_core.interfaces.observer import Observer, Place
from det_core.interfaces.records import MetricsReport
from det_core.plugins import plugin_registry
from det_core.specs import ObserverSpec
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage
from det_core.tracking.secret_files import extract_secrets
from det_testing.observer._events import CHECKPOINT, HPARAMS, UNLOCATED_CHECKPOINT
from det_testing.suite import ComplianceSuite

_CONFIG: Mapping[str, Any] = {
    "name": "observed",
    "entrypoint": "model_def:Trial",
    "hyperparameters": HPARAMS,
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": 100}},
    "environment": {"environment_variables": ["API_KEY=a secret of the experiment"]},
}

Arrived = Callable[[], str]
"""Function that returns everything that has reached the observer's destination, as text."""
OpenStream = Callable[..., EventStream]
"""Function that opens the observer in one process of an experiment: ``open_stream(place, run_id=1, options=None)``."""


class _ReportingStream(EventStream):
    """Stream that keeps reported metrics for `fetch_metrics`, as the tracking store does."""

    reports: list[MetricsReport]

    def __init__(self, *arguments: Any, trial: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, trial=trial, **options)
        self._ids = {name: trial[name] for name in ("trial_id", "run_id")} if trial else {}

    def emit(self, kind: type[events.Event], **fields: Any) -> None:
        if kind is events.MetricsReported:
            self.reports.append(MetricsReport(**self._ids, **fields))
        super().emit(kind, **fields)


class ObserverSuite(ComplianceSuite):
    """Attributes that describe the observer, set by subclasses."""

    name: ClassVar[str] = ""
    """Name of the observer, as in the block ``observers``. Its distribution must be installed."""
    arriving: ClassVar[Collection[str]] = ("metrics_reported",)
    """Names of the events whose contents can be found in the text that ``arrived`` returns."""
    secrets: ClassVar[Sequence[str]] = ()
    """Names of the options that are secrets. The fixture ``options`` sets all of them."""
    module_budget: ClassVar[int] = 50
    """Maximum number of modules that the plugin module loads beyond those of det-core."""

    @pytest.fixture
    def options(self, tmp_path: Path) -> Mapping[str, Any]:
        """Return the options of the observer. Subclasses override this fixture if there are any to set.

        The destination should be empty at the beginning of each test.
        """
        return {}

    @pytest.fixture
    def arrived(self, options: Mapping[str, Any]) -> Arrived | None:
        """Return a function that returns what has reached the destination as text, in any format.

        Each event is contained once, so the text must not repeat what the destination shows in several places.
        Without it, the tests of what arrives are skipped.
        """
        return None

    @pytest.fixture
    def unreachable(self) -> Mapping[str, Any] | None:
        """Return options with a destination that cannot be reached, or None if there is no such destination."""
        return None

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))

    @pytest.fixture
    def spec(self) -> ObserverSpec:
        """Return the spec of the observer."""
        assert self.name, f"{type(self).__name__} must set name = 'my-observer'"
        return cast("ObserverSpec", plugin_registry().find("observer", self.name))

    @pytest.fixture
    def target(self, spec: ObserverSpec) -> type[Observer]:
        """Return the class of the observer."""
        target = plugin_registry().load(spec)
        assert isinstance(target, type), f"{spec.target} is a function; det_testing.observer tests classes"
        return target

    @pytest.fixture
    def stored(self, tmp_path: Path) -> DirectoryStorage:
        """Return checkpoint storage that contains the checkpoints and the artifacts of the events."""
        manager = DirectoryStorage(DirectoryConfig(container_path=tmp_path / "det-storage"))
        weights = tmp_path / "weights"
        weights.write_text("0.5", encoding="utf-8")
        files = {"weights": weights}
        for storage_id in (CHECKPOINT, UNLOCATED_CHECKPOINT):
            storage.save_checkpoint(manager, storage_id, files, {"steps_completed": 7})
        manager.put("artifacts", "plots/loss.png", weights)
        return manager

    @pytest.fixture
    def open_stream(self, options: Mapping[str, Any], stored: DirectoryStorage) -> Iterator[OpenStream]:
        """Return a function that opens the observer as det does, in a thread of its own.

        Streams that are still open at the end of a test are closed.
        """
        opened: list[EventStream] = []
        reports: list[MetricsReport] = []

        def start(place: Place = "worker", run_id: int = 1, options: Mapping[str, Any] = options) -> EventStream:
            trial = {"trial_id": 1, "run_id": run_id, "hparams": HPARAMS} if place in ("worker", "script") else {}
            stream = _ReportingStream(
                place,
                cluster_id="observed",
                experiment_id=1,
                config=extract_secrets(self.parsed(options).dump()),
                trial=trial,
                fetch_files=make_fetch_files(lambda: stored),
                fetch_metrics=lambda: list(reports),
            )
            stream.reports = reports
            stream.open()
            opened.append(stream)
            return stream

        yield start
        for stream in opened:
            stream.close()

    def parsed(self, options: Mapping[str, Any]) -> ExperimentConfig:
        """Return an experiment config with these options of the observer."""
        return parse_config({**_CONFIG, "observers": {self.name: dict(options)}})

    @staticmethod
    def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
        """Return what det has logged about the observer: calls that failed, events that were dropped, and so on."""
        records = [record for record in caplog.records if record.name == "det.observers"]
        return [logging.Formatter().format(record) for record in records]
