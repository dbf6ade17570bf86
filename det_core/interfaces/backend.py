"""What a distributed backend implements: how the workers of one trial start, and how they find each other.

A backend has two halves. `Backend`, here, starts the workers of one node with the backend's own launcher, and tells
inside of a worker which rank it is. What it does to a framework's training (gradients, sharding) is in its adapters,
one per framework (`BackendSpec.adapters`); each framework's package says what those implement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Place:
    """One node among those of a trial, as its agent knows it.

    Args:
        hosts: the address of every node, in the order of their ranks; the chief's is first.
        node: index of this one, 0 <= node < len(hosts).
        slots: workers on each node, >= 1.
        port: free on the chief's node, for the rendezvous of the workers.
        directory: private to this launch on this node, removed afterwards.
    """

    hosts: Sequence[str]
    node: int
    slots: int
    port: int
    directory: Path


@dataclass(frozen=True, kw_only=True)
class Start:
    """A command that starts all workers of one node, and what to add to its environment.

    It ends when they have ended, or soon after one of them failed, then not with 0. Each line that a worker prints
    leaves it on the same stream, after ``[rank=N] `` with the worker's rank.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """Which worker a process is: the arguments of `det_core.core.DistributedContext` of the same names."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


class Backend(ABC):
    """Constructed with the options of the config's ``distributed`` block, in the runner and in every worker."""

    @abstractmethod
    def start(self, place: Place, worker: Sequence[str]) -> Start:
        """How to start the workers of a node.

        Args:
            worker: the command line of each.

        Raises:
            det_core.errors.LaunchError: they cannot be started there; says why and what to do.
        """

    @abstractmethod
    def ranks(self) -> Ranks:
        """Which worker this process is; called in a process that the command of `start` started.

        Raises:
            det_core.errors.LaunchError: it was not started so.
        """
