"""Tests that need GPUs, run by ``make gpu``."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
import torch
from det_torch._checkpoints._staging import HostStaging, _lock_for_gpus
from det_torch._metrics import materialize_metrics, training_metrics
from det_torch._random import forked, rng_state, set_rng_state

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
several = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@several
def test_every_gpu_is_waited_for() -> None:
    """If only the current GPU were waited for, the part of the other one could hold old values."""
    tensors = [torch.zeros(1 << 24, device=f"cuda:{index}") for index in range(2)]
    for tensor in tensors:
        with torch.cuda.device(tensor.device):
            torch.cuda._sleep(1 << 28)  # type: ignore[no-untyped-call]
            tensor.add_(1)
    assert all(bool((copied == 1).all()) for copied in HostStaging().copy(tensors))


@several
@pytest.mark.parametrize("own", range(2))
def test_the_generator_of_every_gpu_is_restored(own: int) -> None:
    """All generators are restored, whichever GPU the process uses as its own."""
    with torch.cuda.device(own):
        state = rng_state()
        drawn = [torch.rand(3, device=f"cuda:{index}").tolist() for index in range(2)]
        set_rng_state(state)
        assert [torch.rand(3, device=f"cuda:{index}").tolist() for index in range(2)] == drawn


def test_a_forked_block_does_not_change_the_generator_of_the_gpu() -> None:
    """Checkpoints of one GPU keep the state under the name that older checkpoints use."""
    torch.rand(1, device="cuda")
    state = rng_state()
    drawn = torch.rand(3, device="cuda").tolist()
    set_rng_state(state)
    with forked(3):
        torch.rand(5, device="cuda")
    assert torch.rand(3, device="cuda").tolist() == drawn
    assert isinstance(state["gpu"], torch.Tensor)


def test_buffers_for_tensors_of_a_gpu_are_page_locked_and_reused() -> None:
    """This requires a host that allows page-locking."""
    staging, tensor = HostStaging(), torch.arange(1000, device="cuda")
    first = staging.copy([tensor])[0]
    tensor.add_(1)
    again = staging.copy([tensor])[0]
    assert first.is_pinned() and first.data_ptr() == again.data_ptr()
    assert again.tolist() == list(range(1, 1001))


def test_page_locked_buffers_are_not_rounded_up() -> None:
    """Torch's allocator is not used, because it takes a power of two for each buffer."""
    state = {
        "large": torch.rand(3, (1 << 20) + 1, device="cuda").t(),
        "small": [torch.full((size,), size, device="cuda", dtype=torch.int16) for size in range(1, 300)],
        "step": torch.ones((), device="cuda"),
    }
    before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    staging = HostStaging()
    for _ in range(2):
        copied = staging.copy(state)
        state["step"].add_(1)  # type: ignore[attr-defined]
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == before
    for found, expected in zip((copied["large"], *copied["small"]), (state["large"], *state["small"]), strict=True):
        assert found.is_pinned() and found.stride() == expected.stride() and torch.equal(found, expected.cpu())
    assert copied["step"].item() == 2


def test_pages_are_unlocked_again() -> None:
    """Otherwise CUDA would refuse to lock the pages a second time."""
    with mmap.mmap(-1, 1 << 16) as pages:
        address = torch.frombuffer(pages, dtype=torch.uint8).data_ptr()
        for _ in range(2):
            unlock = _lock_for_gpus(address, len(pages))
            assert torch.frombuffer(pages, dtype=torch.uint8).is_pinned()
            unlock()


def test_a_refused_lock_leaves_no_error_behind() -> None:
    """Otherwise CUDA would report the error again after the next kernel."""
    with pytest.raises(RuntimeError):
        _lock_for_gpus(0, 4096)
    assert torch.ones(3, device="cuda").add_(1).tolist() == [2, 2, 2]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_metrics_of_any_shape_stay_on_the_gpu() -> None:
    """Otherwise every batch with metrics of several elements would wait for the GPU."""
    loss, classes = torch.zeros((), device="cuda"), torch.zeros(3, device="cuda")
    rows: list[dict[str, Any]] = []
    try:
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3):
            loss += 1
            classes += 1
            rows.append(training_metrics({"loss": loss, "classes": classes}))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    materialize_metrics(rows)
    assert [row["loss"] for row in rows] == [1.0, 2.0, 3.0]
    assert [row["classes"].tolist() for row in rows] == [[number] * 3 for number in (1.0, 2.0, 3.0)]
