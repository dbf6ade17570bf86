"""Interface of a distributed backend, which starts the workers of a trial and assigns their ranks.

A backend has two halves. `Backend`, in this module, starts the workers of one node with the backend's own launcher, and
determines the rank of each worker process. Its adapters, one per framework (`BackendSpec.adapters`), change how that
framework trains (gradients, sharding). Each framework's package defines the interface of these adapters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class NodePlacement:
    """One node of a trial, as its agent sees it.

    Args:
        hosts: address of every node in the order of their ranks, the chief's first.
        node: index of this node, 0 <= node < len(hosts).
        slots: number of workers on each node, >= 1.
        port: free port on the chief's node for the rendezvous of the workers.
        directory: directory for this launch on this node only. It is removed afterwards.
    """

    hosts: Sequence[str]
    node: int
    slots: int
    port: int
    directory: Path


@dataclass(frozen=True, kw_only=True)
class WorkerCommand:
    """Command that starts all workers of one node, with additional environment variables.

    The command ends when all workers have ended, or, with a nonzero exit code, soon after one of them failed. It passes
    on each line that a worker prints, on the same stream, after ``[rank=N]`` and a space, with the worker's rank. It
    stores no output in files, because a full disk would end the training.

    Args:
        argv: command line.
        env: variables to add to its environment.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerRanks:
    """Rank of a worker process, as the arguments of `det_core.core.DistributedContext` with the same names."""

    rank: int
    """Index of the worker in the job, 0 <= rank < size."""
    size: int
    """Number of workers in the job."""
    local_rank: int
    """Index of the worker on its node, 0 <= local_rank < local_size."""
    local_size: int
    """Number of workers on the node."""
    cross_rank: int
    """Index of the node, 0 <= cross_rank < cross_size."""
    cross_size: int
    """Number of nodes."""


class Backend(ABC):
    """Launcher of one node's workers. Constructed with the options of the config's ``distributed`` block.

    It is constructed in the process that starts the workers of a node, and in every worker.
    """

    @abstractmethod
    def start(self, place: NodePlacement, worker: Sequence[str]) -> WorkerCommand:
        """Return the command that starts the workers of a node.

        Args:
            place: the node.
            worker: command line of each worker.

        Raises:
            det_core.errors.LaunchError: the workers cannot be started there. The message says why and what to do.
        """

    @abstractmethod
    def ranks(self) -> WorkerRanks:
        """Return the rank of this process. Called in a process that the command of `start` started.

        Raises:
            det_core.errors.LaunchError: the process was started in another way.
        """
