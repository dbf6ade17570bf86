"""Steps that ranks take together: either all of them succeed, or all of them raise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from det_core.core._distributed import DistributedContext
from det_core.errors import CommError, RankFailed

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """The ranks that work together; ``index`` 0 is their chief."""

    rank: int
    """In the whole trial, for errors."""
    index: int
    """In the group."""
    allgather: Callable[[Any], list[Any]]
    broadcast: Callable[[Any], Any]

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def together(self, work: Callable[[], T]) -> list[T]:
        """Do this rank's share. Every rank gets the results of all, in order of their index.

        Raises:
            RankFailed: other ranks raised; names them and their errors. They themselves raise those.
        """
        result, error = _attempt(work)
        outcomes = self._exchange(self.allgather, result, error)
        _refuse(outcomes)
        return [result for result, _ in outcomes]

    def by_chief(self, work: Callable[[], T]) -> T:
        """The chief does the work and all get its result. Raises as `together`."""
        result, error = _attempt(work) if self.is_chief else (None, None)
        outcome = self._exchange(self.broadcast, result, error)
        _refuse([outcome])
        return cast("T", outcome[0])

    def _exchange(self, collective: Callable[[Any], Any], result: object, error: BaseException | None) -> Any:
        """Others hear of the error before it goes on. Where they are lost, that is the error, since it may be why."""
        failure = error and f"rank {self.rank}: {type(error).__name__}: {error}"
        try:
            outcome = collective((result, failure))
        except CommError as lost:
            raise lost from error
        if error is not None:
            raise error
        return outcome


def alone() -> Group:
    """This process by itself."""
    return Group(0, 0, lambda stuff: [stuff], lambda stuff: stuff)


def everyone(ranks: DistributedContext) -> Group:
    """All ranks of the trial."""
    return Group(ranks.rank, ranks.rank, ranks.allgather, ranks.broadcast)


def this_host(ranks: DistributedContext) -> Group:
    """The ranks on this host."""
    return Group(ranks.rank, ranks.local_rank, ranks.allgather_local, ranks.broadcast_local)


def _attempt(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # noqa: BLE001  # raised again once the others know
        return None, error


def _refuse(outcomes: list[tuple[Any, str | None]]) -> None:
    failures = [failure for _, failure in outcomes if failure]
    if failures:
        raise RankFailed("; ".join(failures))
