"""Ranks and names of the workers of a job."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """Place of one worker in its job.

    Args:
        rank: index of the worker in the job, from 0.
        size: number of workers in the job.
        local_rank: index of the worker on its machine, from 0.
        local_size: number of workers on its machine.
        cross_rank: index of its machine, from 0.
        cross_size: number of machines.

    Raises:
        ValueError: the six numbers contradict each other.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    def __post_init__(self) -> None:
        for name in ("", "local_", "cross_"):
            index, count = getattr(self, f"{name}rank"), getattr(self, f"{name}size")
            if not 0 <= index < count:
                raise ValueError(
                    f"{name}rank is {index} and {name}size is {count}; expected 0 <= {name}rank < {name}size"
                )
        if self.local_size > self.size:
            raise ValueError(f"local_size is {self.local_size} and size is {self.size}; expected local_size <= size")
        if (self.local_size == self.size) != (self.cross_size == 1):
            raise ValueError(
                f"{self.local_size} of {self.size} workers are on this machine and cross_size is {self.cross_size}; "
                "expected cross_size 1 if and only if local_size is size"
            )
        if (self.rank == 0) != (self.is_hub and self.cross_rank == 0):
            raise ValueError(
                f"rank {self.rank} is local_rank {self.local_rank} of cross_rank {self.cross_rank}; "
                "expected rank 0, and only it, to be local_rank 0 of cross_rank 0"
            )

    @property
    def is_hub(self) -> bool:
        """Whether this worker is the first one of its machine and connects it to the others."""
        return self.local_rank == 0


@dataclass(frozen=True)
class Peer:
    """Name of a worker for messages.

    Attributes:
        rank: index of the worker in the job.
        local_rank: index of the worker on its machine.
        pid: process id of the worker.
        host: host name of its machine.
    """

    rank: int
    local_rank: int
    pid: int
    host: str

    @classmethod
    def myself(cls, ranks: Ranks) -> Peer:
        """Return the name of the worker in this process."""
        return cls(ranks.rank, ranks.local_rank, os.getpid(), socket.gethostname())

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"
