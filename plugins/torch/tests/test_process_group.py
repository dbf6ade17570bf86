"""Closing of the process group of a slot."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist
from det_torch.process_group import ProcessGroup, finishes_within

from tests.comm.job import free_port


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of a single slot."""
    place = {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))


def leave_by_an_error(group: ProcessGroup) -> None:
    try:
        raise ZeroDivisionError
    finally:
        group.close()


@pytest.mark.integration
def test_the_group_is_closed_after_success_and_after_an_error(alone: None) -> None:
    """The next trial in the process can then create its own group."""
    ProcessGroup(torch.device("cpu")).close()
    assert not dist.is_initialized()
    with pytest.raises(ZeroDivisionError):
        leave_by_an_error(ProcessGroup(torch.device("cpu")))
    assert not dist.is_initialized()


def test_work_that_never_ends_is_abandoned() -> None:
    """NCCL may wait forever for slots that have ended."""
    never = threading.Event()
    assert not finishes_within(0.01, never.wait)
    never.set()
    assert finishes_within(10, never.wait)
    with pytest.raises(ZeroDivisionError):
        finishes_within(10, lambda: 1 / 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_after_an_error_the_group_of_a_busy_gpu_is_aborted(alone: None) -> None:
    """A single slot has no peer to wait for, so this only shows that abort() works."""
    device = torch.device("cuda", 0)
    group = ProcessGroup(device)
    dist.all_reduce(torch.ones(3, device=device))
    torch.cuda._sleep(1 << 32)  # type: ignore[no-untyped-call]
    dist.all_reduce(torch.ones(3, device=device))
    with pytest.raises(ZeroDivisionError):
        leave_by_an_error(group)
    assert not dist.is_initialized()
