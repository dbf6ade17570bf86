"""Complete observer plugin in one file, which appends each event to a file as one line of JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import det_core
from det_core.events import Event, ExperimentStarted, LogsRecorded
from det_core.interfaces.observer import Observer, ObserverContext
from det_core.specs import ObserverSpec


@det_core.hookimpl
def det_observers() -> Iterator[ObserverSpec]:
    yield ObserverSpec(name="jsonl", target="det_jsonl:JsonLines", config_model="det_jsonl:JsonLinesConfig")


class JsonLinesConfig(BaseModel):
    directory: Path
    """Directory of the files, one per experiment, that all processes of the experiment can write to."""
    logs: bool = False
    """Whether to write the lines of the log, too."""


class JsonLines(Observer):
    """Observer that collects lines and appends them to the file of the experiment."""

    def __init__(self, config: JsonLinesConfig) -> None:
        self.config = config
        self.lines: list[str] = []

    def open(self, context: ObserverContext) -> None:
        self.config.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.config.directory / f"experiment-{context.experiment_id}.jsonl"

    def notify(self, event: Event) -> None:
        if isinstance(event, LogsRecorded) and not self.config.logs:
            return
        values = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        if not isinstance(event, ExperimentStarted):
            values.pop("config", None)  # it is the same in all events
        self.lines.append(json.dumps({"event": event.name, **values}, default=to_json) + "\n")

    def flush(self) -> None:
        with self.path.open("ab", buffering=0) as file:  # other processes append to the same file
            file.write("".join(self.lines).encode())
        self.lines.clear()


def to_json(value: Any) -> Any:
    """Return a value that JSON can represent."""
    if isinstance(value, datetime):
        return value.isoformat()
    return vars(value) if dataclasses.is_dataclass(value) else str(value)
