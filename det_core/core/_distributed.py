"""Rank of this process among the workers of its trial, and exchange of objects between the workers."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from det_core import comm

if TYPE_CHECKING:
    from typing_extensions import Self

_PORT: Final = 12360
_PORT_VARIABLE: Final = "INTER_TRAIN_PROCESS_COMM_PORT_1"
_TORCHRUN: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
_DEEPSPEED: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")


class DistributedContext:
    """Rank of this worker, and collectives that exchange picklable objects between the workers of a job.

    The constructor is a rendezvous, which returns once all ``size`` workers have called it. The collectives are meant
    for coordination. Use the collectives of your training framework for gradients.

    All workers call the same methods in the same order, from one thread each. `channel` opens an independent stream
    for another thread. Calls wait for workers that are alive. If a worker dies or closes its context, all others
    raise `PeerLost`, and every later call raises the same error. Objects are pickled. They are unpickled only if the
    sender is the same user on the same host, or knows ``DET_COMM_KEY``.

    Workers on one host communicate over a Unix socket in a private directory, and pass large objects through shared
    memory. Workers on several hosts communicate over TCP with TLS 1.3, which requires the same secret in
    ``DET_COMM_KEY`` and ``pip install 'det-core[tls]'`` on all hosts.

    Args:
        rank: index of this worker in the job, 0 <= rank < size. The chief is rank 0.
        size: number of workers in the job.
        local_rank: index of this worker on its machine, 0 for the chief.
        local_size: number of workers on this machine.
        cross_rank: index of this machine.
        cross_size: number of machines.
        chief_ip: address or name of the chief's machine. It is required for several machines, otherwise ignored.
        pub_port: the chief listens on ``pub_port + port_offset``. The sum also distinguishes jobs on one host.
        pull_port: ignored.
        port_offset: added to ``pub_port``.
        force_tcp: whether to use TCP within a host, too. Requires ``DET_COMM_KEY``.
        timeout: seconds to wait at the rendezvous, and for a live worker in each call. A call waits a few seconds
            longer for a worker that may itself be waiting. None = 600 s at the rendezvous, and no limit in a call.

    Raises:
        ValueError: the arguments contradict each other, or ``DET_COMM_KEY`` is required but missing or unsuitable.
        PeerLost: workers did not arrive at the rendezvous. The error lists their ranks.
        CommError: another job uses the same port, or TCP is needed and ``det-core[tls]`` is not installed.
    """

    def __init__(
        self,
        *,
        rank: int,
        size: int,
        local_rank: int,
        local_size: int,
        cross_rank: int,
        cross_size: int,
        chief_ip: str | None = None,
        pub_port: int = _PORT,
        pull_port: int = 12376,
        port_offset: int = 0,
        force_tcp: bool = False,
        timeout: float | None = None,
    ) -> None:
        ranks = comm.Ranks(rank, size, local_rank, local_size, cross_rank, cross_size)
        if cross_size > 1 and not chief_ip:
            raise ValueError(
                f"the workers are on {cross_size} machines, so each needs the address of the chief: "
                "pass chief_ip, the address of the machine of rank 0"
            )
        if not 0 < pub_port + port_offset < 1 << 16:
            raise ValueError(f"pub_port + port_offset is {pub_port + port_offset}; expected 1 to 65535")
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}; expected seconds > 0, or None")
        mesh = None
        if size > 1:
            host = chief_ip if chief_ip and cross_size > 1 else "127.0.0.1"
            mesh = comm.Mesh(ranks, chief_ip=host, port=pub_port + port_offset, force_tcp=force_tcp, timeout=timeout)
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = local_rank, local_size
        self.cross_rank, self.cross_size = cross_rank, cross_size
        self._mesh = mesh
        self._collective_channel = mesh.channel if mesh else None
        self._listeners: list[Callable[[str], None]] = []
        self._channels: list[DistributedContext] = []

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> Self:
        """Create the context of a process that horovodrun started.

        Args:
            hvd: the initialized module, such as ``horovod.torch``.
            chief_ip: address of the chief's machine. None = the environment variable ``DET_CHIEF_IP``.
        """
        names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        return cls._make([getattr(hvd, name)() for name in names], chief_ip)

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> Self:
        """Create the context of a process that the ``deepspeed`` launcher started.

        Args:
            chief_ip: address of the chief's machine. None = the environment variable ``DET_CHIEF_IP``.

        Raises:
            ValueError: the launcher's environment variables are missing.
        """
        return cls._make(_from_environment(_DEEPSPEED, "deepspeed --num_gpus 2 train.py"), chief_ip)

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> Self:
        """Create the context of a process that torchrun started.

        Args:
            chief_ip: address of the chief's machine. None = the environment variable ``DET_CHIEF_IP``.

        Raises:
            ValueError: the launcher's environment variables are missing.
        """
        return cls._make(_from_environment(_TORCHRUN, "torchrun --nproc-per-node 2 train.py"), chief_ip)

    @classmethod
    def _make(cls, ranks: list[int], chief_ip: str | None) -> Self:
        rank, size, local_rank, local_size, cross_rank, cross_size = ranks
        return cls(
            rank=rank,
            size=size,
            local_rank=local_rank,
            local_size=local_size,
            cross_rank=cross_rank,
            cross_size=cross_size,
            chief_ip=chief_ip or os.environ.get("DET_CHIEF_IP"),
            pub_port=_number(_PORT_VARIABLE) if _PORT_VARIABLE in os.environ else _PORT,
        )

    def channel(self) -> DistributedContext:
        """Open another stream of collectives among the same workers, such as for a background thread.

        All workers must call this method. Each channel has its own order of calls, so one thread may use it while
        another thread is in a collective of this context. Closing this context closes its channels.
        """
        return self._channel(self._mesh.timeout if self._mesh else None)

    def _channel(self, timeout: float | None) -> DistributedContext:
        """Open a `channel` with its own timeout."""
        channel = copy.copy(self)
        channel._channels = []
        if self._mesh and self._collective_channel:
            channel._collective_channel = self._mesh.open_channel(self._collective_channel, timeout)
        self._channels.append(channel)
        return channel

    def close(self) -> None:
        """Disconnect from the other workers.

        Workers that wait for this one raise `PeerLost`. Objects that were sent before still arrive.
        """
        for channel in self._channels:
            channel.close()
        if self._collective_channel:
            self._collective_channel.close()
            if self._mesh and self._collective_channel is self._mesh.channel:
                self._mesh.close()

    def get_rank(self) -> int:
        """Return the rank of this process in the trial."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return the rank of this process among the processes of the trial on the same machine."""
        return self.local_rank

    def get_size(self) -> int:
        """Return the number of slots that the trial runs on."""
        return self.size

    def get_num_agents(self) -> int:
        """Return the number of machines that the trial runs on."""
        return self.cross_size

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return the objects of all workers, in order of rank, to the chief, and None to the others.

        No worker returns before all of them have called. The list contains the chief's own object, not a copy.

        Args:
            stuff: this worker's object.
        """
        if self._collective_channel is None:
            return [stuff]
        gathered = self._collective_channel.gather(comm.pickle_payload(stuff))
        return None if gathered is None else comm.unpickle_payloads(gathered, 0, stuff)

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """Return the objects of this machine's workers, in order of local rank, to local rank 0, and None to others.

        As with `gather`, no worker returns before all workers of the machine have called.

        Args:
            stuff: this worker's object.
        """
        if self._collective_channel is None:
            return [stuff]
        gathered = self._collective_channel.gather(comm.pickle_payload(stuff), local=True)
        return None if gathered is None else comm.unpickle_payloads(gathered, 0, stuff)

    def allgather(self, stuff: Any) -> list[Any]:
        """Return the objects of all workers to every worker, in order of rank.

        The list contains the worker's own object, not a copy.

        Args:
            stuff: this worker's object.
        """
        if self._collective_channel is None:
            return [stuff]
        return comm.unpickle_payloads(self._collective_channel.allgather(comm.pickle_payload(stuff)), self.rank, stuff)

    def allgather_local(self, stuff: Any) -> list[Any]:
        """Return the objects of this machine's workers to each of them, in order of local rank. See `allgather`.

        Args:
            stuff: this worker's object.
        """
        if self._collective_channel is None:
            return [stuff]
        return comm.unpickle_payloads(
            self._collective_channel.allgather(comm.pickle_payload(stuff), local=True), self.local_rank, stuff
        )

    def broadcast(self, stuff: Any) -> Any:
        """Return the chief's object to every worker. The chief gets the object itself, not a copy.

        The chief does not wait for the others, unless it is so far ahead that the kernel's buffers are full.

        Args:
            stuff: the object. Only the chief's is used.
        """
        return self._broadcast(stuff, is_root=self.rank == 0, local=False)

    def broadcast_local(self, stuff: Any = None) -> Any:
        """Return the object of local rank 0 to the workers of this machine. See `broadcast`.

        Args:
            stuff: the object. Only that of local rank 0 is used.
        """
        return self._broadcast(stuff, is_root=self.local_rank == 0, local=True)

    def _broadcast(self, stuff: Any, *, is_root: bool, local: bool) -> Any:
        if self._collective_channel is None:
            return stuff
        payload = self._collective_channel.broadcast(comm.pickle_payload(stuff) if is_root else b"", local=local)
        return stuff if is_root else comm.unpickle_payload(payload)

    def _notify(self, text: str) -> None:
        """Send a notice to the chief's listeners. Any thread may call this at any time, even during a collective."""
        if self._mesh:
            self._mesh.notices.send(text)
        for listener in self._listeners:
            listener(text)

    def _listen(self, callback: Callable[[str], None]) -> None:
        """Call a function with every notice, including those sent before. For the chief only.

        The function is usually called in a background thread.
        """
        if self._mesh:
            self._mesh.notices.listen(callback)
        else:
            self._listeners.append(callback)


def single_process() -> DistributedContext:
    """Return the context of a job with one worker."""
    return DistributedContext(rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1)


def _from_environment(names: tuple[str, ...], command: str) -> list[int]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(f"the environment lacks {', '.join(missing)}; start the workers with `{command}`")
    return [_number(name) for name in names]


def _number(name: str) -> int:
    try:
        return int(os.environ[name])
    except ValueError:
        raise ValueError(f"{name} is {os.environ[name]!r}; expected a whole number, as the launcher sets it") from None
