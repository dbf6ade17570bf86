"""Steps of several ranks that succeed on all of them or raise on all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from det_core.core._distributed import DistributedContext
from det_core.errors import CommError, RankFailed

__all__ = ["RankGroup", "all_ranks_group"]

_T = TypeVar("_T")


@dataclass(frozen=True)
class RankGroup:
    """Ranks that work together. The rank with ``index`` 0 is their chief."""

    rank: int
    """Rank of this process in the trial, for error messages."""
    index: int
    """Index of this process in the group."""
    allgather: Callable[[Any], list[Any]]
    """Collective that returns the objects of all ranks to each of them, in order of their index."""
    broadcast: Callable[[Any], Any]
    """Collective that returns the chief's object to all ranks."""

    @property
    def is_chief(self) -> bool:
        """Return whether this process is the chief of the group."""
        return self.index == 0

    def together(self, work: Callable[[], _T]) -> list[_T]:
        """Call a function on every rank and return the results of all ranks, in order of their index.

        A rank whose function raises an error raises this error.

        Args:
            work: the function. Each rank passes its own.

        Raises:
            RankFailed: the functions of other ranks raised. The message names these ranks and their errors.
            CommError: the connection to other ranks is lost.
        """
        result, error = _attempt(work)
        outcomes = self._exchange(self.allgather, result, error)
        _refuse(outcomes)
        return [result for result, _ in outcomes]

    def by_chief(self, work: Callable[[], _T]) -> _T:
        """Call a function on the chief and return its result on all ranks.

        If the function raises an error, the chief raises this error.

        Args:
            work: the function. Only the chief's is called.

        Raises:
            RankFailed: the chief's function raised. The message contains its error.
            CommError: the connection to other ranks is lost.
        """
        result, error = _attempt(work) if self.is_chief else (None, None)
        outcome = self._exchange(self.broadcast, result, error)
        _refuse([outcome])
        return cast("_T", outcome[0])

    def _exchange(self, collective: Callable[[Any], Any], result: object, error: BaseException | None) -> Any:
        """Send the result or the error of this rank to the others, then raise the error.

        If the other ranks are lost, raise CommError from the error, because their loss may be its cause.
        """
        failure = error and f"rank {self.rank}: {type(error).__name__}: {error}"
        try:
            outcome = collective((result, failure))
        except CommError as lost:
            raise lost from error
        if error is not None:
            raise error
        return outcome


def single_rank_group() -> RankGroup:
    """Return the group of this process only."""
    return RankGroup(0, 0, lambda stuff: [stuff], lambda stuff: stuff)


def all_ranks_group(ranks: DistributedContext) -> RankGroup:
    """Return the group of all ranks of the trial."""
    return RankGroup(ranks.rank, ranks.rank, ranks.allgather, ranks.broadcast)


def local_ranks_group(ranks: DistributedContext) -> RankGroup:
    """Return the group of the ranks on this host."""
    return RankGroup(ranks.rank, ranks.local_rank, ranks.allgather_local, ranks.broadcast_local)


def _attempt(work: Callable[[], _T]) -> tuple[_T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001  # raised again once the other ranks know
        return None, error


def _refuse(outcomes: list[tuple[Any, str | None]]) -> None:
    failures = [failure for _, failure in outcomes if failure]
    if failures:
        raise RankFailed("; ".join(failures))
