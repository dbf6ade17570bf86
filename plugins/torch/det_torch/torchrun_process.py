"""Program that runs torchrun with a store that listens at one address only, and without files for output.

Usage: ``python -m det_torch.torchrun_process ARGUMENT...``.

The static rendezvous of torchrun listens on all interfaces, where any client can read and change its store. Its option
``--tee`` stores all output of the workers in files, which fill the disk, and a full disk ends the workers.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NoReturn

from torch.distributed import TCPStore, run  # type: ignore[attr-defined]  # not in its __all__
from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint

from det_core.launch.engine_signals import shield_from_engine
from det_core.launch.worker_output import OutputRelay
from det_core.launch.worker_processes import Worker, start_worker
from det_torch.torchrun import RENDEZVOUS

_RENDEZVOUS_TIMEOUT = 600
"""Seconds that all nodes have to join the rendezvous."""
_EXIT_TIMEOUT = 5
"""Seconds that the other workers have to end after one failed or after a signal, before they are killed."""


class OneAddressRendezvous(StaticTCPRendezvous):
    """Static rendezvous whose store listens at the endpoint's address only."""

    def get_backend(self) -> str:
        return RENDEZVOUS

    def next_rendezvous(self) -> RendezvousInfo:
        if self.rank == 0 and self._store is None:
            self._store = TCPStore(
                self.master_addr,
                self.master_port,
                self.world_size,
                is_master=True,
                timeout=self.timeout,
                multi_tenant=True,
                master_listen_fd=_listen(self.master_addr, self.master_port),
            )
        return super().next_rendezvous()


def create_rendezvous(parameters: RendezvousParameters) -> RendezvousHandler:
    """Create the rendezvous of this node, whose index is ``rank`` of ``--rdzv-conf``."""
    address, port = parse_rendezvous_endpoint(parameters.endpoint, -1)
    rank = int(parameters.config["rank"])
    return OneAddressRendezvous(address, port, rank, parameters.max_nodes, parameters.run_id, _RENDEZVOUS_TIMEOUT)


def main(argv: Sequence[str]) -> None:
    """Start the workers and wait for them."""
    rendezvous_handler_registry.register(RENDEZVOUS, create_rendezvous)
    _limit_closing(_EXIT_TIMEOUT)
    with closing(OutputRelay()) as relay:
        _relay_output(relay)
        # Besides the signal, torchrun would count a failure of all workers.
        try:
            run.main(["--signals-to-handle=SIGINT", *argv] if shield_from_engine() else argv)
        except ChildFailedError as error:
            sys.exit(str(error))  # without the traceback of torchrun, which says nothing about the worker


def run_and_end(argv: Sequence[str]) -> NoReturn:
    """Do the same as `main`, and end this process without freeing torch, which takes as long as its import."""
    code: str | int | None = None
    try:
        main(argv)
    except SystemExit as stop:
        code = stop.code
    if isinstance(code, str):
        print(code, file=sys.stderr)  # noqa: T201
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _listen(address: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family).detach()
    except OSError as error:
        sys.exit(
            f"the rendezvous cannot listen at {address}, port {port}: {error.strerror}; choose another port with --port"
        )


def _limit_closing(seconds: int) -> None:
    """End workers within this time instead of torchrun's 30 s.

    torch 2.11 lacks the option ``--shutdown-timeout``, and that of later releases applies to signals only.
    """
    close = PContext.close

    def limited(self: PContext, death_sig: signal.Signals | None = None, timeout: int = seconds) -> None:
        close(self, death_sig, min(timeout, seconds))

    PContext.close = limited  # type: ignore[method-assign]


def _relay_output(relay: OutputRelay) -> None:
    """Let torchrun start workers whose output is passed on through pipes."""

    def start(self: SubprocessHandler, args: Sequence[str], env: Mapping[str, str]) -> Worker:
        worker = start_worker(args, env)
        relay.add_worker(worker, int(env["RANK"]))
        return worker

    SubprocessHandler._popen = start  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    run_and_end(sys.argv[1:])
