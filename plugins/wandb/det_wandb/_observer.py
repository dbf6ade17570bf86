"""Observer that records an experiment in Weights & Biases. Importing this module imports W&B's client."""

from __future__ import annotations

import gc
import logging
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import requests
import wandb
from pydantic import ValidationError
from wandb import errors

from det_core import events
from det_core.errors import DetError
from det_core.interfaces.addresses import check_address
from det_core.interfaces.observer import Observer, ObserverContext
from det_core.interfaces.records import MetricsReport, searcher_metric
from det_wandb._config import REFUSED_IN_PROJECTS, WandbConfig

_log = logging.getLogger("det.wandb")

AXIS: Final = "batches"
"""Name of the metric with the number of batches trained, which is the x-axis of all others."""
_CAPACITY: Final = 100_000
"""Maximum number of reports that wait for a run. Beyond it, the oldest ones are dropped and counted."""
_TIMEOUT: Final = 8.0
"""Number of seconds to wait for the service. det's limit for the end of a process allows two attempts."""


class WandbError(DetError):
    """W&B cannot be used."""


class WandbObserver(Observer):
    """Observer that records each trial as a run.

    W&B can neither replace steps nor continue a run offline. An offline run is therefore written anew from the tracking
    store when its trial is resumed, and replaces the directory of the earlier one. An online run continues, and the
    steps that it has already are skipped.

    Args:
        config: the config block.
    """

    def __init__(self, config: WandbConfig) -> None:
        self._config = config
        self._first: events.TrialEvent | None = None
        self._end: events.WorkerFinished | None = None
        self._run: wandb.Run | None = None
        self._reports: deque[events.MetricsReported] = deque(maxlen=_CAPACITY)
        self._lost = 0
        self._recorded_steps = -1

    def open(self, context: ObserverContext) -> None:
        self._context = context

    def worker_started(self, event: events.WorkerStarted) -> None:
        self._first = self._first or event

    def metrics_reported(self, event: events.MetricsReported) -> None:
        self._first = self._first or event
        self._lost += len(self._reports) == _CAPACITY
        self._reports.append(event)

    def worker_finished(self, event: events.WorkerFinished) -> None:
        self._end = event

    def flush(self) -> None:
        if self._first is None:
            return
        if self._run is None:
            self._run = self._begin(self._first)
        while self._reports:
            self._log(self._run, [self._reports[0]])
            self._reports.popleft()

    def close(self) -> None:
        if lost := self._lost + len(self._reports):
            _log.warning("%d reports of trial %s are not in W&B", lost, self._context.trial_id)
        if self._run is None:
            return
        if self._end and self._end.preempted:
            self._run.mark_preempting()
        failed = self._end is None or self._end.preempted or self._end.error
        self._run.finish(exit_code=1 if failed else 0)
        self._run = None
        gc.collect()  # W&B's client leaves the files of a run in reference cycles

    def _begin(self, first: events.TrialEvent) -> wandb.Run:
        # Reports of this run are still to come, or wait.
        earlier = [report for report in self._context.fetch_metrics() if report.run_id != first.run_id]
        run = self._init(first)
        metric, smaller_is_better = searcher_metric(self._context.config)
        run.define_metric("*", step_metric=AXIS)
        if metric:
            run.define_metric(f"validation/{metric}", step_metric=AXIS, summary="min" if smaller_is_better else "max")
        if run.resumed:
            self._recorded_steps = run.summary.get(AXIS, -1)
        self._log(run, earlier)
        if self._config.mode == "offline":
            self._remove_earlier_directories(Path(run.settings.sync_dir))
        place = run.url if self._config.mode == "online" else run.settings.sync_dir  # others warn that they have no URL
        _log.info("trial %d is recorded in W&B: %s", first.trial_id, place)
        return run

    def _init(self, first: events.TrialEvent) -> wandb.Run:
        config, context = self._config, self._context
        settings: dict[str, Any] = {"base_url": config.base_url} if config.base_url else {}
        if config.api_key:
            settings["api_key"] = config.api_key.get_secret_value()
        try:
            config.dir.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=config.dir).close()  # W&B would write elsewhere
        except OSError as error:
            raise WandbError(
                f"cannot write to {config.dir}: {error.strerror}; correct observers.wandb.dir or its permissions"
            ) from error
        try:
            if config.mode == "online":
                _require_service(config.base_url or wandb.setup().settings.base_url)
            return wandb.init(
                id=f"{context.cluster_id}-trial-{first.trial_id}",
                name=f"trial {first.trial_id}",
                project=config.project or _to_project(context.config.get("name")),
                entity=config.entity,
                group=config.group or (f"experiment {context.experiment_id}" if context.is_search else None),
                tags=config.tags or None,
                mode=config.mode,
                dir=config.dir,
                config={
                    **first.hparams,
                    "det": {
                        "cluster_id": context.cluster_id,
                        "experiment_id": context.experiment_id,
                        "trial_id": first.trial_id,
                    },
                },
                resume="allow" if config.mode == "online" else None,
                reinit="create_new",  # the code of the trial may have runs of its own
                settings=wandb.Settings(
                    console="off", silent=True, init_timeout=_TIMEOUT, finish_timeout=_TIMEOUT, **settings
                ),
            )
        except errors.Error as error:
            raise WandbError(
                f"W&B cannot begin a run: {error}; correct observers.wandb, type wandb login on the hosts of the "
                "workers, or set mode: offline"
            ) from error
        except ValidationError as error:
            names = ", ".join(str(part) for each in error.errors() for part in each["loc"])
            raise WandbError(
                f"W&B refuses its setting {names}; correct observers.wandb, or the variable of the workers, such as "
                "WANDB_MODE or WANDB_BASE_URL"
            ) from None  # the cause quotes the value, which may contain credentials

    def _log(self, run: wandb.Run, reports: Iterable[events.MetricsReported | MetricsReport]) -> None:
        for report in reports:
            if report.steps_completed > self._recorded_steps:
                named = {f"{report.group}/{name}": value for name, value in report.metrics.items()}
                run.log({**named, AXIS: report.steps_completed})

    @staticmethod
    def _remove_earlier_directories(current: Path) -> None:
        """Remove what earlier runs of the trial have written, unless it was uploaded."""
        run_id = current.name.split("-", 3)[-1]
        for earlier in current.parent.glob(f"offline-run-*-{run_id}"):
            if earlier != current and not any(earlier.glob("*.synced")):
                shutil.rmtree(earlier)


def _to_project(name: object) -> str:
    return REFUSED_IN_PROJECTS.sub("-", str(name or "")).strip()[:128] or "det"


def _require_service(address: str) -> None:
    """Check that the service can be reached, because W&B's client tries for minutes, whatever its time limit."""
    try:
        check_address(address, "the key api_key")
    except ValueError as error:
        raise WandbError(f"WANDB_BASE_URL: {error}") from error
    try:
        requests.head(address, timeout=_TIMEOUT)
    except requests.RequestException as error:
        raise WandbError(
            f"cannot reach W&B at {address}: {type(error).__name__}; correct observers.wandb.base_url or the proxy, or "
            "set mode: offline"
        ) from error
