"""Every exception that det raises on purpose. Messages say what was wrong, what was expected and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class DetError(Exception):
    """Base of all errors that a person can act on; the CLI prints them without a traceback."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a config; ``line`` counts from 1, None where there is no text to point at."""

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigError(DetError):
    """The experiment config is wrong. ``str()`` lists every problem with file, line and path."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.args if isinstance(problem, Problem))


class PluginError(DetError):
    """A plugin that was asked for cannot be used."""


class PluginNotFound(PluginError):
    """No installed plugin offers the name that was asked for."""


class PluginClash(PluginError):
    """Several plugins offer the name, or claim the trial, and nothing says which one is meant."""


class TrackingError(DetError):
    """The record of experiments could not be read or written."""


class RecordNotFound(TrackingError):
    """No such experiment, trial, checkpoint or model in the record."""


class RecordExists(TrackingError):
    """The name is taken."""


class RecordInUse(TrackingError):
    """Something else in the record needs what was to be deleted."""


class StoreCorrupt(TrackingError):
    """The database is damaged, or was written by a newer release."""


class StoreBusy(TrackingError):
    """The database was locked by another process, or unavailable, for longer than the time limit."""


class StoreUnsuitable(TrackingError):
    """The database cannot live where it was asked to, such as SQLite on a network file system."""


class StaleRun(TrackingError):
    """The write came from a run that a newer run of the same trial has replaced."""


class MetricsConflict(TrackingError):
    """Metrics contradict what was already reported for the same group and step."""


class UnwritableText(TrackingError, ValueError):
    """The text contains NUL or half of a surrogate pair, which no database can store."""


class ExperimentBusy(TrackingError):
    """Another living runner holds the experiment."""


class StorageError(DetError):
    """Checkpoint storage could not be read or written."""


class CheckpointNotFound(StorageError):
    """The storage holds no complete checkpoint under this id."""


class NoCheckpoint(DetError, AssertionError):
    """No checkpoint in the record fits what was asked for (an AssertionError for the scripts that catch one)."""


class CheckpointCorrupt(StorageError):
    """A stored file differs from what the checkpoint's manifest promises."""


class UntrustedCheckpoint(StorageError):
    """Reading the checkpoint could run code that it brings along, and the caller did not say that it is trusted."""


class SecretMissing(DetError):
    """Secrets of a recorded config are not in their files on this host.

    Attributes:
        files: where each stands in the config -> its file.
    """

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = dict(files)
        which = "; ".join(f"{place} is not in {path}" for place, path in self.files.items())
        super().__init__(
            f"{which} (or cannot be read): the record does not hold secrets, only where they are; write it there as "
            "text, or in a terminal: det experiment resume asks for it"
        )


class LaunchError(DetError):
    """The processes of a trial could not be started."""


class LaunchDelayed(LaunchError):
    """The processes of a trial could not be started for now. A later attempt may succeed."""


class CommError(DetError):
    """The workers of a trial could not talk to each other."""


class PeerLost(CommError):
    """A worker died, left, or did not come. The context that raised this is of no further use.

    Attributes:
        rank: the rank of that worker (the lowest, if several are missing); None where only its machine is known.
    """

    def __init__(self, message: str, rank: int | None = None) -> None:
        super().__init__(message)
        self.rank = rank


class PeerLate(PeerLost):
    """A worker is alive, but did not join the others within the timeout."""


class OutOfStep(CommError):
    """Workers called different collectives where all must call the same one."""


class RankFailed(DetError, RuntimeError):
    """Another rank raised in a step that all ranks take together. Names the rank and its error."""


class ExperimentFailed(DetError):
    """The experiment that was waited for ended with an error."""


class InvalidTrial(DetError):
    """The trial's code breaks the contract of its framework."""


class InvalidExperimentException(DetError):
    """The experiment cannot run as configured (the name that existing scripts catch)."""


class InvalidHP(Exception):
    """Raised by a trial: these hyperparameters cannot work, so do not retry them."""
