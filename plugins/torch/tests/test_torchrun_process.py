"""The program that runs torchrun, without workers."""

from __future__ import annotations

import inspect
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from subprocess import Popen
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from det_torch import torchrun_process
from det_torch.torchrun_process import _limit_closing, _listen, _relay_output, create_rendezvous
from torch.distributed.elastic.multiprocessing.api import PContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler
from torch.distributed.elastic.rendezvous import RendezvousParameters

from tests.comm.job import free_port


def listening(port: int) -> set[str]:
    return {
        one.laddr.ip
        for one in psutil.Process().net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port
    }


def test_the_store_listens_at_the_address_of_the_endpoint_only() -> None:
    port = free_port()
    node = create_rendezvous(RendezvousParameters("det", f"127.0.0.1:{port}", "run", 1, 1, rank="0"))
    found = node.next_rendezvous()
    assert (node.get_backend(), found.rank, found.world_size) == ("det", 0, 1)
    found.store.set("key", "value")
    assert found.store.get("key") == b"value"
    assert listening(port) == {"127.0.0.1"}


def test_a_port_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"cannot listen at 127\.0\.0\.1, port {port}: .*; choose another port"):
            _listen("127.0.0.1", port)


def test_a_failed_worker_is_named_without_the_traceback_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(argv: Sequence[str]) -> None:
        raise ChildFailedError("train.py", {1: ProcessFailure(local_rank=1, pid=7, exitcode=-9, error_file="")})

    monkeypatch.setattr(torchrun_process.run, "main", fail)
    for patch in ("_limit_closing", "_relay_output"):  # which change torchrun
        monkeypatch.setattr(torchrun_process, patch, lambda _: None)
    with pytest.raises(SystemExit, match=r"(?s)train.py FAILED.*Signal 9 \(SIGKILL\)"):
        torchrun_process.main(["train.py"])


def test_workers_are_killed_after_the_timeout_also_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun itself would give the other workers 30 s after the failure of one."""
    assert [*inspect.signature(PContext.close).parameters] == ["self", "death_sig", "timeout"]
    seen: list[tuple[Any, int]] = []
    monkeypatch.setattr(PContext, "close", lambda self, death_sig=None, timeout=30: seen.append((death_sig, timeout)))
    _limit_closing(5)
    context: Any = SimpleNamespace()
    PContext.close(context)
    PContext.close(context, death_sig=2, timeout=30)  # type: ignore[arg-type]
    PContext.close(context, timeout=1)
    assert seen == [(None, 5), (2, 5), (None, 1)]


def test_output_of_workers_is_relayed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Popen[bytes], int]] = []
    relay: Any = SimpleNamespace(add_worker=lambda worker, rank: started.append((worker, rank)))
    monkeypatch.setattr(SubprocessHandler, "_popen", SubprocessHandler._popen)  # restored at the end
    _relay_output(relay)
    SubprocessHandler(sys.executable, ("-c", "print('text')"), {"RANK": "3"}, None, None, 0, None)
    ((worker, rank),) = started
    assert (worker.communicate(timeout=60)[0], rank) == (b"text\n", 3)
