"""Observers with one defect each, and the tests of the suite that catch it.

test_observer.py registers them as a plugin and runs the tests.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import time
import unittest.mock  # noqa: F401  (adds more modules than the budget allows)
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr, field_validator

import det_core
from det_core import events
from det_core.interfaces.observer import Observer, ObserverContext
from det_core.specs import ObserverSpec

PIN = "four-secret-digits"


class Config(BaseModel):
    directory: Path
    pin: SecretStr
    unreachable: bool = False
    retries: int = 1


class Sound(Observer):
    """Base class of all observers here, which appends lines to a file and has no defect but its module's imports."""

    config_model: ClassVar[type[BaseModel]] = Config
    module_budget: ClassVar[int] = 10_000
    arriving: ClassVar[tuple[str, ...]] = ("metrics_reported", "model_version_registered")

    def __init__(self, config: Any) -> None:
        self.config = config
        self.lines: list[str] = []

    def open(self, context: ObserverContext) -> None:
        self.config.directory.mkdir(exist_ok=True)
        self.path = self.config.directory / "lines"

    def metrics_reported(self, event: events.MetricsReported) -> None:
        self.lines.append(json.dumps({"metrics": event.metrics}))

    def model_version_registered(self, event: events.ModelVersionRegistered) -> None:
        self.lines.append(event.model)

    def flush(self) -> None:
        self.write()

    def write(self) -> None:
        if self.config.unreachable:
            raise ConnectionError("the destination does not answer")
        with self.path.open("a") as file:
            file.write("".join(f"{line}\n" for line in self.lines))
        self.lines.clear()


class IsHeavy(Sound):
    module_budget = 50


class MisspellsAnEvent(Sound):
    def metric_reported(self, event: events.MetricsReported) -> None:
        self.lines.append(str(event))


class DoublesAnOption(Sound):
    class config_model(Config):
        @field_validator("retries")
        @classmethod
        def _twice(cls, retries: int) -> int:
            return 2 * retries


class IgnoresOptions(Sound):
    class config_model(Config):
        model_config = ConfigDict(extra="ignore")


class ShowsThePin(Sound):
    class config_model(Config):
        pin: str  # type: ignore[assignment]


class SendsThePin(Sound):
    def open(self, context: ObserverContext) -> None:
        super().open(context)
        self.lines.append(f"opened with {self.config.pin.get_secret_value()}")


class FailsForModels(Sound):
    def model_version_registered(self, event: events.ModelVersionRegistered) -> None:
        raise KeyError(event.model)


class RefusesNaN(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        self.lines.append(json.dumps(event.metrics, allow_nan=False))


class FailsInScripts(Sound):
    def open(self, context: ObserverContext) -> None:
        super().open(context)
        self.level = {"runner": 1, "worker": 2, "client": 0}[context.place]


class ExitsTheProcess(Sound):
    def model_version_registered(self, event: events.ModelVersionRegistered) -> None:
        sys.exit(f"unknown model {event.model}")


class SwallowsErrors(Sound):
    def flush(self) -> None:
        with suppress(OSError):
            super().flush()


class KeepsOneReportPerStep(Sound):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.steps: dict[int, str] = {}

    def metrics_reported(self, event: events.MetricsReported) -> None:
        self.steps[event.steps_completed] = json.dumps({"metrics": event.metrics})

    def flush(self) -> None:
        self.lines += self.steps.values()
        self.steps.clear()
        super().flush()


class SendsInBatches(Sound):
    def flush(self) -> None:
        if len(self.lines) >= 4:
            super().flush()


class RoundsValues(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        self.lines.append(f"{event.metrics['loss']:g}")


class Overwrites(Sound):
    def write(self) -> None:
        self.path.write_text("".join(f"{line}\n" for line in self.lines))
        self.lines.clear()


class TakesFromTheConfig(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        super().metrics_reported(event)
        event.config["observers"].clear()


class FailsAtTheEnd(Sound):
    def close(self) -> None:
        self.file.close()  # type: ignore[attr-defined]


class LeavesAThread(Sound):
    def open(self, context: ObserverContext) -> None:
        super().open(context)
        threading.Thread(target=time.sleep, args=[30], daemon=True).start()


class SendsTwice(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        super().metrics_reported(event)
        super().metrics_reported(event)


class SendsModelsTwice(Sound):
    arriving = ("model_version_registered",)

    def model_version_registered(self, event: events.ModelVersionRegistered) -> None:
        super().model_version_registered(event)
        super().model_version_registered(event)


class SendsAgain(Sound):
    def flush(self) -> None:
        lines = [*self.lines]
        self.write()
        self.lines = lines


class SendsModelsAgain(SendsAgain):
    arriving = ("model_version_registered",)


class SendsEverythingTwice(Sound):
    arriving = ("checkpoint_saved", "trial_finished", "experiment_finished", "logs_recorded", "artifacts_stored")

    def notify(self, event: events.Event) -> None:
        values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        self.lines += 2 * [json.dumps(values, default=str)]


class WaitsForTheEnd(Sound):
    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.write()


class LocksTheDestination(Sound):
    def open(self, context: ObserverContext) -> None:
        super().open(context)
        self.lock = self.config.directory / f"lock-of-{context.place}"
        self.lock.touch(exist_ok=False)

    def close(self) -> None:
        self.lock.unlink()


class SendsOneByOne(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        super().metrics_reported(event)
        time.sleep(0.01)


class TakesFromMetrics(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        super().metrics_reported(event)
        event.metrics.pop("loss", None)  # type: ignore[attr-defined]


class WaitsTooLong(Sound):
    def flush(self) -> None:
        if self.config.unreachable:
            time.sleep(30)
        super().flush()


class ClosesWhatItNeverOpened(Sound):
    def metrics_reported(self, event: events.MetricsReported) -> None:
        self.count = len(event.metrics)

    def close(self) -> None:
        self.lines.append(f"the last of {self.count}")


class LeavesFilesOpen(Sound):
    files: ClassVar[list[Any]] = []

    def open(self, context: ObserverContext) -> None:
        super().open(context)
        self.files.append(self.path.open("a"))


CAUGHT_BY: dict[type[Sound], list[str]] = {
    IsHeavy: ["the_plugin_module_is_quick_to_import"],
    MisspellsAnEvent: ["it_receives_events"],
    DoublesAnOption: ["options_can_be_recorded"],
    IgnoresOptions: ["an_unknown_option_is_refused"],
    ShowsThePin: ["secret_options_are_secrets"],
    SendsThePin: ["no_secret_arrives"],
    FailsForModels: ["every_event_is_accepted[client]"],
    RefusesNaN: ["unusual_values_are_accepted"],
    FailsInScripts: ["every_event_is_accepted[script]"],
    ExitsTheProcess: ["every_event_is_accepted[client]"],
    SwallowsErrors: ["an_unreachable_destination_is_harmless"],
    KeepsOneReportPerStep: ["a_flush_sends_everything_once"],
    SendsInBatches: ["each_event_arrives_once"],
    RoundsValues: ["each_event_arrives_once"],
    Overwrites: ["each_event_arrives_once"],
    TakesFromTheConfig: ["events_are_left_unchanged"],
    FailsAtTheEnd: ["it_can_be_closed_without_events"],
    LeavesAThread: ["close_releases_what_open_acquired"],
    SendsTwice: ["each_event_arrives_once"],
    SendsModelsTwice: ["each_event_arrives_once"],
    SendsModelsAgain: ["each_event_arrives_once"],
    SendsEverythingTwice: ["each_event_arrives_once"],
    SendsAgain: ["a_flush_sends_everything_once"],
    WaitsForTheEnd: ["a_flush_sends_everything_once"],
    LocksTheDestination: ["a_restarted_trial_continues"],
    SendsOneByOne: ["many_reports_keep_up"],
    TakesFromMetrics: ["events_are_left_unchanged"],
    WaitsTooLong: ["an_unreachable_destination_is_harmless"],
    ClosesWhatItNeverOpened: ["it_can_be_closed_without_events"],
    LeavesFilesOpen: ["close_releases_what_open_acquired"],
}


@det_core.hookimpl
def det_observers() -> Iterator[ObserverSpec]:
    for observer in (Sound, *CAUGHT_BY):
        target = f"{__name__}:{observer.__name__}"
        config_model = f"{__name__}:_{observer.__name__}Config"
        yield ObserverSpec(name=observer.__name__, target=target, config_model=config_model)


for _observer in (Sound, *CAUGHT_BY):
    globals()[f"_{_observer.__name__}Config"] = _observer.config_model
