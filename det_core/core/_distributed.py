"""Which worker this process is among the workers of its trial."""

from __future__ import annotations

from typing import Any


class DistributedContext:
    """The rank of this worker and simple exchange between workers.

    Args:
        rank: index of this worker in the whole job, 0 <= rank < size.
        size: number of workers in the whole job; 1 in this release.
        local_rank: index of this worker on its machine.
        local_size: number of workers on this machine.
        cross_rank: index of this machine.
        cross_size: number of machines.

    Raises:
        ValueError: the numbers contradict each other.
        NotImplementedError: ``size`` is more than 1.
    """

    def __init__(
        self, *, rank: int, size: int, local_rank: int, local_size: int, cross_rank: int, cross_size: int
    ) -> None:
        for name, index, count in (
            ("", rank, size),
            ("local_", local_rank, local_size),
            ("cross_", cross_rank, cross_size),
        ):
            if not 0 <= index < count:
                raise ValueError(
                    f"{name}rank is {index} and {name}size is {count}; expected 0 <= {name}rank < {name}size"
                )
        if size > 1:
            raise NotImplementedError(
                f"a trial of {size} workers needs a later release; this one trains on one process"
            )
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = local_rank, local_size
        self.cross_rank, self.cross_size = cross_rank, cross_size

    def get_rank(self) -> int:
        """Rank of this process in the trial."""
        return self.rank

    def get_local_rank(self) -> int:
        """Rank of this process among those of the trial on the same machine."""
        return self.local_rank

    def get_size(self) -> int:
        """Number of slots that the trial runs on."""
        return self.size

    def get_num_agents(self) -> int:
        """Number of machines that the trial runs on."""
        return self.cross_size

    def gather(self, stuff: Any) -> list[Any] | None:
        """The chief gets the list of every worker's ``stuff`` in order of rank, the others None."""
        return [stuff]

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """As `gather`, among the workers of this machine."""
        return [stuff]

    def allgather(self, stuff: Any) -> list[Any]:
        """Every worker gets the list of every worker's ``stuff`` in order of rank."""
        return [stuff]

    def allgather_local(self, stuff: Any) -> list[Any]:
        """As `allgather`, among the workers of this machine."""
        return [stuff]

    def broadcast(self, stuff: Any) -> Any:
        """Every worker gets the chief's ``stuff``."""
        return stuff

    def broadcast_local(self, stuff: Any = None) -> Any:
        """As `broadcast`, among the workers of this machine."""
        return stuff


def single_process() -> DistributedContext:
    """The context of a job of one worker."""
    return DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)
