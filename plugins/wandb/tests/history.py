"""What W&B has written into the directories of offline runs."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore


class OfflineRun:
    """Contents of the directory of one run."""

    def __init__(self, directory: Path) -> None:
        self.history: list[dict[str, Any]] = []
        self.run = Record().run
        self.summaries: dict[str, str] = {}
        self.exit_code: int | None = None
        self.is_preempting = False
        for record in itertools.chain.from_iterable(map(_records, directory.glob("run-*.wandb"))):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.run = record.run
            elif kind == "history":
                self.history.append(_items(record.history.item))
            elif kind == "metric":
                self.summaries[record.metric.name] = "max" if record.metric.summary.max else "min"
            elif kind == "exit":
                self.exit_code = record.exit.exit_code
            elif kind == "preempting":
                self.is_preempting = True

    @property
    def config(self) -> dict[str, Any]:
        return _items(self.run.config.update)


def offline_runs(directory: Path) -> list[OfflineRun]:
    """Return the runs below a directory in the order of their directories.

    W&B writes the end of a file after its client has returned, so those without an end are read again for a while.
    """
    deadline = time.monotonic() + 2
    while True:
        runs = [OfflineRun(path) for path in sorted((directory / "wandb").glob("offline-run-*"))]
        if all(run.exit_code is not None for run in runs) or time.monotonic() > deadline:
            return runs
        time.sleep(0.05)


def _items(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(path: Path) -> list[Any]:
    store, records = DataStore(), []
    store.open_for_scan(str(path))
    with closing(store):
        while data := store.scan_data():
            record = Record()
            record.ParseFromString(data)
            records.append(record)
    return records
