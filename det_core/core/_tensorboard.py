"""TensorBoard files of one worker, in a local directory and as a copy in checkpoint storage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from det_core.errors import StorageError
from det_core.interfaces.records import MetricsReport
from det_core.interfaces.storage import StorageManager
from det_core.owner_process import OwnerProcess
from det_core.scratch import keep_directory, scratch_directory

if TYPE_CHECKING:
    from det_core.core._event_file import EventFile

PathSelector = Callable[[Path], bool]
PathMangler = Callable[[Path, int], PurePath]

_log = logging.getLogger("det.core")

_SYNC_INTERVAL = 10.0
"""Seconds between two searches for changed files."""
_MAX_SYNC_SHARE = 0.1
"""Maximum share of the time that is spent on copying. Event files grow, and are always copied as a whole."""
_CLOSE_TIMEOUT = 180.0
"""Seconds to wait for a copy in progress when the context exits."""


class TensorboardMode(str, Enum):
    """Ways to write and store TensorBoard files."""

    AUTO = "AUTO"
    """The chief writes the scalars of all reports. All files in its TensorBoard directory are stored automatically."""
    MANUAL = "MANUAL"
    """Nothing is automatic. Your code writes files and calls `TrainContext.upload_tensorboard_files`."""


class TensorboardDirectory:
    """TensorBoard directory of one worker and its copy in checkpoint storage.

    Args:
        mode: whether files are written and stored automatically.
        storage: checkpoint storage of the copy.
        storage_id: storage id of the copy.
        folder: path of the copy below ``storage_id``.
        rank: rank of this worker. Only rank 0 writes and stores files automatically.
        on_stored: function called with the storage id, and with the sizes of files that were just stored by path.
    """

    def __init__(
        self,
        mode: TensorboardMode,
        storage: StorageManager,
        storage_id: str,
        folder: str,
        *,
        rank: int,
        on_stored: Callable[[str, Mapping[str, int]], None] = lambda _, __: None,
    ) -> None:
        self.mode = TensorboardMode(mode)
        self._by_itself = self.mode is TensorboardMode.AUTO and rank == 0
        self._storage = storage
        self._storage_id = storage_id
        self._folder = folder
        self._rank = rank
        self._on_stored = on_stored
        self._owner = OwnerProcess("the TensorBoard directory")
        self._scratch = ExitStack()
        self._directory: Path | None = None
        self._file: EventFile | None = None
        self._stored: dict[tuple[Path, PurePath], tuple[int, int]] = {}
        """Latest stored versions of files by path and stored path, as (time of modification in ns, size in bytes)."""
        self._creating = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self.dispensable: PathSelector = lambda _: False
        """Function that takes a file's path and returns whether the file may be removed without being stored."""

    def path(self) -> Path:
        """Return the directory, which only this user can read. The first call creates it."""
        return self._directory or self._create()

    def write(self, reports: Sequence[MetricsReport]) -> None:
        """Write the scalars of reports to an event file. Do nothing if this worker writes no files automatically."""
        if not self._by_itself:
            return
        from det_core.core._event_file import EventFile, encode_scalars  # imported only if something is reported

        events = [
            encode_scalars(report.time.timestamp() if report.time else time.time(), scalars_by_step(report))
            for report in reports
        ]
        try:
            self._file = self._file or EventFile(self.path())
            self._file.write(b"".join(events))
        except OSError as error:
            self._by_itself = False  # readers cannot continue after an incomplete event
            _log.warning("stopped writing TensorBoard files to %s: %s", self._directory, error)

    def upload(self, selector: PathSelector = lambda _: True, mangler: PathMangler = lambda path, _: path) -> None:
        """Store the files that are new or have changed since they were last stored.

        Args:
            selector: takes a file's path and returns whether to store it.
            mangler: takes the path relative to the directory and this worker's rank, and returns the relative path to
                store the file under.

        Raises:
            ValueError: the mangler's path is not relative, or contains ``..``.
            StorageError, OSError: a file could not be stored. All other files are stored first.
        """
        errors: list[Exception] = []
        stored: dict[str, int] = {}
        for path in self._files():
            if not selector(path):
                continue
            relative = path.relative_to(self.path())
            target = _inside(mangler(relative, self._rank), relative)
            try:
                version = _version(path)  # before the copy, because the file may grow during it
                if version != self._stored.get((relative, target)):
                    name = f"{self._folder}/{target.as_posix()}"
                    self._storage.put(self._storage_id, name, path)
                    self._stored[relative, target] = version
                    _, stored[name] = version
            except (OSError, StorageError) as error:
                if path.exists():  # otherwise the program that wrote it has removed it, as profilers do
                    errors.append(error)
        if stored:
            self._on_stored(self._storage_id, stored)
        if errors:
            raise errors[0]

    def try_to_upload(
        self, selector: PathSelector = lambda _: True, mangler: PathMangler = lambda path, _: path
    ) -> None:
        """Store changed files like `upload`, but log a warning instead of raising errors."""
        try:
            self.upload(selector, mangler)
        except Exception as error:  # noqa: BLE001  (must not stop the training)
            _log.warning("TensorBoard files could not be stored, will retry: %s", error)

    def sync(self) -> None:
        """Request that changed files are stored soon, in the background."""
        self._wake.set()

    def close(self) -> None:
        """Store all remaining files, then remove the directory. Keep it if some files could not be stored."""
        if self._directory is None:
            return
        self._closing = True
        if self._file:
            self._file.close()
        if self._thread:
            self._wake.set()
            self._thread.join(_CLOSE_TIMEOUT)
            if not self._thread.is_alive():
                self.try_to_upload()
        left = self._not_stored()
        if left:
            keep_directory(self._directory)
            _log.warning("%d TensorBoard files that were not stored are left in %s", len(left), self._directory)
        self._scratch.close()

    def _create(self) -> Path:
        self._owner.require()
        with self._creating:
            if self._directory is None:
                self._directory = self._scratch.enter_context(scratch_directory("tensorboard"))
                if self._by_itself:
                    self._thread = threading.Thread(target=self._sync_until_closed, name="det-tensorboard", daemon=True)
                    self._thread.start()
        return self._directory

    def _files(self) -> list[Path]:
        return sorted(path for path in self._directory.rglob("*") if path.is_file()) if self._directory else []

    def _not_stored(self) -> list[Path]:
        stored = {(source, version) for (source, _), version in self._stored.items()}
        return [
            path
            for path in self._files()
            if not self.dispensable(path) and (path.relative_to(self.path()), _version(path)) not in stored
        ]

    def _sync_until_closed(self) -> None:
        pause = _SYNC_INTERVAL
        while not self._closing:
            self._wake.wait(pause)
            self._wake.clear()
            start = time.monotonic()
            if not self._closing:
                self.try_to_upload()
            pause = max(_SYNC_INTERVAL, (time.monotonic() - start) / _MAX_SYNC_SHARE)


def _version(path: Path) -> tuple[int, int]:
    """Return the time of modification of a file in ns, and its size in bytes."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def scalars_by_step(report: MetricsReport) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the steps of a report, each with its scalars by tag.

    The steps of the batches come first. The last step contains the scalars that no batch contains.
    """
    in_batches: set[str] = set()
    batches = report.batch_metrics or ()
    for step, batch in enumerate(batches, report.steps_completed - len(batches)):
        if values := _by_tag(report.group, batch):
            yield step, values
        in_batches.update(values)
    scalars = _by_tag(report.group, report.metrics)
    if rest := {tag: value for tag, value in scalars.items() if tag not in in_batches}:
        yield report.steps_completed, rest


def _by_tag(group: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    return {_tag(group, name): value for name, value in metrics.items() if isinstance(value, (int, float))}


@cache
def _tag(group: str, name: str) -> str:
    if group == "training" or (group == "validation" and name.startswith("val")):
        return f"Determined/{name}"
    return f"Determined/{'val' if group == 'validation' else group}_{name}"


def _inside(target: PurePath, source: Path) -> PurePath:
    if target.is_absolute() or ".." in target.parts or not target.parts:
        raise ValueError(
            f"the mangler returned {str(target)!r} for {str(source)!r}; expected a relative path without '..'"
        )
    return target
