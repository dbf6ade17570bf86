"""Which worker this process is among the workers of its trial, and simple exchange between them."""

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
    """The rank of this worker, and exchange of any picklable object between the workers.

    Making one is a rendezvous: it returns once all ``size`` workers have made theirs. It is meant for coordination,
    not for gradients: use your training framework's own collectives for those.

    All workers call the same methods in the same order, from one thread each; `channel` gives another thread a
    stream of its own. A worker that lives is waited for. One that died or left is a `PeerLost` in all others, after
    which the context raises the same error for every call. What is sent is pickled, and unpickled only when it comes
    from this user on this host, or from a holder of ``DET_COMM_KEY``.

    Workers on one host talk over a Unix socket in a private directory; large objects go through shared memory.
    Several hosts talk over TCP under TLS 1.3, for which ``DET_COMM_KEY`` must be set to the same secret everywhere.

    Args:
        rank: index of this worker in the whole job, 0 <= rank < size. The chief is rank 0.
        size: number of workers in the whole job.
        local_rank: index of this worker on its machine; the chief's is 0.
        local_size: number of workers on this machine.
        cross_rank: index of this machine.
        cross_size: number of machines.
        chief_ip: address or name of the chief's machine; required if there are several machines, else not used.
        pub_port: ``pub_port + port_offset`` is where the chief listens, and tells jobs on one host apart.
        pull_port: not used.
        port_offset: added to ``pub_port``.
        force_tcp: use TCP within a host, too. Needs ``DET_COMM_KEY``.
        timeout: seconds to wait at the rendezvous, and for a living worker in each call (a few more for one that may
            itself be waiting). None = 600 at the rendezvous, and for ever in a call.

    Raises:
        ValueError: the arguments contradict each other, or ``DET_COMM_KEY`` is needed and not good.
        PeerLost: workers did not come; it lists their ranks.
        CommError: another job is in the way.
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
                f"the workers are on {cross_size} machines, so each must know the chief's: "
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
        self._lane = mesh.lane if mesh else None
        self._listeners: list[Callable[[str], None]] = []
        self._channels: list[DistributedContext] = []

    @classmethod
    def from_horovod(cls, hvd: Any, chief_ip: str | None = None) -> Self:
        """Make the context of a process that horovodrun started.

        Args:
            hvd: the initialized module, such as ``horovod.torch``.
            chief_ip: address of the chief's machine; None = the environment variable ``DET_CHIEF_IP``.
        """
        names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        return cls._make([getattr(hvd, name)() for name in names], chief_ip)

    @classmethod
    def from_deepspeed(cls, chief_ip: str | None = None) -> Self:
        """Make the context of a process that the ``deepspeed`` launcher started; ``chief_ip`` as in `from_horovod`.

        Raises:
            ValueError: the launcher's environment variables are missing.
        """
        return cls._make(_from_environment(_DEEPSPEED, "deepspeed --num_gpus 2 train.py"), chief_ip)

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> Self:
        """Make the context of a process that torchrun started; ``chief_ip`` as in `from_horovod`.

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
        """Another stream of collectives among the same workers, such as for a background thread.

        All workers call it in step. Each channel keeps its own order, so one thread may use it while another is in
        a collective of this context. Closing this context closes its channels.
        """
        return self._channel(self._mesh.timeout if self._mesh else None)

    def _channel(self, timeout: float | None) -> DistributedContext:
        """Open a `channel` with its own timeout."""
        channel = copy.copy(self)
        channel._channels = []
        if self._mesh and self._lane:
            channel._lane = self._mesh.open_lane(self._lane, timeout)
        self._channels.append(channel)
        return channel

    def close(self) -> None:
        """Leave the other workers; those who wait for this one raise `PeerLost`. What was sent before still arrives."""
        for channel in self._channels:
            channel.close()
        if self._lane:
            self._lane.close()
            if self._mesh and self._lane is self._mesh.lane:
                self._mesh.close()

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
        """The chief gets the list of every worker's ``stuff`` in order of rank, the others None.

        Nobody returns before all have called it. The chief's own ``stuff`` is in the list as it is, not a copy.
        """
        if self._lane is None:
            return [stuff]
        gathered = self._lane.gather(comm.dumps(stuff))
        return None if gathered is None else comm.loads_all(gathered, 0, stuff)

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """As `gather`, among the workers of this machine: the list goes to local rank 0, in order of local rank."""
        if self._lane is None:
            return [stuff]
        gathered = self._lane.gather(comm.dumps(stuff), local=True)
        return None if gathered is None else comm.loads_all(gathered, 0, stuff)

    def allgather(self, stuff: Any) -> list[Any]:
        """Every worker gets the list of every worker's ``stuff`` in order of rank; its own as it is, not a copy."""
        if self._lane is None:
            return [stuff]
        return comm.loads_all(self._lane.allgather(comm.dumps(stuff)), self.rank, stuff)

    def allgather_local(self, stuff: Any) -> list[Any]:
        """As `allgather`, among the workers of this machine, in order of local rank."""
        if self._lane is None:
            return [stuff]
        return comm.loads_all(self._lane.allgather(comm.dumps(stuff), local=True), self.local_rank, stuff)

    def broadcast(self, stuff: Any) -> Any:
        """Every worker gets the chief's ``stuff``; the chief the same object. What the others pass is ignored.

        The chief does not wait for the others, unless it is so far ahead that the kernel's buffers are full.
        """
        return self._broadcast(stuff, is_root=self.rank == 0, local=False)

    def broadcast_local(self, stuff: Any = None) -> Any:
        """As `broadcast`, from local rank 0 to the workers of this machine."""
        return self._broadcast(stuff, is_root=self.local_rank == 0, local=True)

    def _broadcast(self, stuff: Any, *, is_root: bool, local: bool) -> Any:
        if self._lane is None:
            return stuff
        payload = self._lane.broadcast(comm.dumps(stuff) if is_root else b"", local=local)
        return stuff if is_root else comm.loads(payload)

    def _notify(self, text: str) -> None:
        """Let the chief's listeners know, from any thread, whatever the collectives do."""
        if self._mesh:
            self._mesh.notices.send(text)
        for listener in self._listeners:
            listener(text)

    def _listen(self, callback: Callable[[str], None]) -> None:
        """On the chief: call back with every notice, also those sent before; mostly from a background thread."""
        if self._mesh:
            self._mesh.notices.listen(callback)
        else:
            self._listeners.append(callback)


def single_process() -> DistributedContext:
    """The context of a job of one worker."""
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
