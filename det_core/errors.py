"""All exceptions that det raises on purpose. Messages say what was wrong, what was expected and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class DetError(Exception):
    """Base class of all errors that a user can act on. The CLI prints them without a traceback."""


@dataclass(frozen=True)
class Problem:
    """One error in a config.

    Args:
        file: file name of the config.
        line: line number from 1, or None if there is no text to refer to.
        path: dotted path of the key.
        message: what is wrong, and what was expected.
    """

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(DetError):
    """The experiment config is invalid. ``str()`` lists the problems with file, line and path."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems found in the config."""
        return tuple(problem for problem in self.args if isinstance(problem, Problem))


class PluginError(DetError):
    """A requested plugin cannot be used."""


class PluginNotFound(PluginError):
    """No installed plugin offers the requested name."""


class PluginClash(PluginError):
    """Several plugins offer the same name or claim the same trial, and nothing determines which one to use."""


class TrackingError(DetError):
    """The tracking store could not be read or written."""


class RecordNotFound(TrackingError):
    """No such experiment, trial, checkpoint or model in the tracking store."""


class RecordExists(TrackingError):
    """The name is already in use."""


class RecordInUse(TrackingError):
    """The deletion was refused because something else in the tracking store refers to the record."""


class StoreCorrupt(TrackingError):
    """The database is damaged, or was written by a newer release."""


class CallTooLarge(TrackingError):
    """A call of the tracking store, or its answer, is too large to be made at once."""


class FilterError(TrackingError):
    """A filter of a list, or the name by which to sort it, cannot be used. The message names the position."""


class StoreBusy(TrackingError):
    """The database was locked by another process, or unavailable, for longer than the time limit."""


class StoreUnsuitable(TrackingError):
    """The database cannot work in this location, such as SQLite on a network file system."""


class StaleRun(TrackingError):
    """The write came from a run that was replaced by a newer run of the same trial."""


class MetricsConflict(TrackingError):
    """Metrics contradict those already reported for the same group and step."""


class UnwritableText(TrackingError, ValueError):
    """The text contains NUL or half of a surrogate pair, which no database can store."""


class ExperimentBusy(TrackingError):
    """Another runner that is still alive holds the experiment."""


class StorageError(DetError):
    """Checkpoint storage could not be read or written."""


class DiskError(StorageError):
    """A disk is full, over a quota, read-only or broken. Trials that meet it are paused until it can be used again."""


class CheckpointNotFound(StorageError):
    """The storage holds no complete checkpoint under this id."""


class NoCheckpoint(DetError, AssertionError):
    """No checkpoint in the tracking store matches the request.

    It is also an AssertionError, for scripts that catch one.
    """


class CheckpointCorrupt(StorageError):
    """A stored file differs from the checkpoint's manifest."""


class UntrustedCheckpoint(StorageError):
    """Reading the checkpoint could run code that it contains, and the caller did not declare it trusted."""


_MOST_NAMED = 10


class SecretMissing(DetError):
    """Secrets of a recorded config are missing from their files on this host.

    Attributes:
        files: positions of the secrets in the config, mapped to their files.
        places: the first of the positions, as text.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = dict(files)
        shown = list(self.files.items())[:_MOST_NAMED]
        more = f" and {len(self.files) - len(shown)} more" if len(shown) < len(self.files) else ""
        which = "; ".join(f"{place} is not in {path}" for place, path in shown) + more
        self.places = ", ".join(place for place, _ in shown) + more
        super().__init__(
            f"{which} (or cannot be read). The tracking store records only where secrets are, not the secrets. Write "
            "each one as text to its file, or run det experiment resume in a terminal, which asks for it. If you have "
            "changed this block of the config, write its secrets into the config again"
        )


class LaunchError(DetError):
    """The processes of a trial could not be started."""


class LaunchDelayed(LaunchError):
    """The processes of a trial could not be started at the moment. A later attempt may succeed."""


class CommError(DetError):
    """The workers of a trial could not communicate."""


class PeerLost(CommError):
    """A worker died, stopped or did not arrive. The context that raised this is unusable from now on.

    Attributes:
        rank: rank of that worker, the lowest if several are missing, or None if only its machine is known.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class PeerLate(PeerLost):
    """A worker is alive, but did not join the others within the time limit."""


class OutOfStep(CommError):
    """Workers called different collectives where all must call the same one."""


class RankFailed(DetError, RuntimeError):
    """Another rank raised in a step that all ranks take together. The message names the rank and its error."""


class ExperimentFailed(DetError):
    """The awaited experiment ended with an error."""


class InvalidTrial(DetError):
    """The trial's code violates the contract of its framework."""


class InvalidExperimentException(DetError):
    """The experiment cannot run as configured. Existing scripts catch it under this name."""


class InvalidHP(Exception):
    """Exception for a trial to raise if its hyperparameters cannot work. The trial is not restarted."""
