"""Parts of several slots in one checkpoint. The slots are threads in these tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from det_torch._checkpoints._packing import pack_state, unpack_state
from det_torch._checkpoints._slot_state import SLOT_PARTS, gather_slot_parts, seed_slot, select_slot_state
from det_torch._checkpoints._staging import HostStaging

from det_core.comm import pickle_payload
from det_core.core import DistributedContext
from tests.comm.job import free_port

SIZE = 3
LARGE = 100_000


def average() -> torch.Tensor:
    return torch.arange(LARGE, dtype=torch.float32)


def part(rank: int) -> dict[str, Any]:
    """Return a part with a large average that all slots have, and values that differ between slots."""
    tied = torch.full((3,), 7.0)
    return {
        "gradients": [{"weight": average().t(), **({"bias": torch.ones(2)} if rank != 1 else {})}],
        "rng_state": {"cpu": torch.tensor([rank], dtype=torch.uint8)},
        "callbacks": {
            "ema": {
                "average": average(),
                "array": np.arange(LARGE),
                "own": torch.full((4,), float(rank)),
                "half": torch.ones(2, 3, dtype=torch.bfloat16).t(),
                "conjugated": torch.tensor([1 + 2j]).conj(),
                "repeated": torch.ones(()).expand(4),
                "empty": torch.ones(0),
                # Two tensors on the chief are one on the second slot.
                "tied": [tied, tied if rank == 1 else tied.clone()],
                "equal": [torch.zeros(2), torch.zeros(2)],
                "seen": Counter("ab"),
            }
        },
    }


def on_slots(work: Callable[[DistributedContext], Any], port: int) -> list[Any]:
    def meet(rank: int) -> Any:
        place: dict[str, Any] = {"rank": rank, "local_rank": rank, "cross_rank": 0, "cross_size": 1}
        with closing(DistributedContext(**place, size=SIZE, local_size=SIZE, pub_port=port, timeout=100)) as slot:
            return work(slot)

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(meet, range(SIZE)))


def test_only_several_slots_draw_numbers_of_their_own() -> None:
    """A single slot keeps its generators as they are, and det begins a trial as earlier releases did."""

    def drawn(size: int, rank: int) -> list[float]:
        torch.manual_seed(5)
        seed_slot(SimpleNamespace(size=size, rank=rank), seed=7, batch=0)  # type: ignore[arg-type]
        return torch.rand(3).tolist()

    alone, several = drawn(1, 0), [drawn(2, 0), drawn(2, 1)]
    torch.manual_seed(5)
    assert alone == torch.rand(3).tolist()
    assert len(set(map(tuple, [alone, *several]))) == 3


@pytest.fixture(scope="module")
def sent() -> list[int]:
    """Return a list for the number of bytes that each slot sent. The fixture `saved` fills it."""
    return [0] * SIZE


@pytest.fixture(scope="module")
def saved(sent: list[int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("checkpoint") / "state.pth"

    def save(slot: DistributedContext) -> None:
        own, staging = part(slot.rank), HostStaging()

        def copy(value: Any) -> Any:
            sent[slot.rank] = len(pickle_payload(value))
            return staging.copy(value)

        others = gather_slot_parts(own, slot, copy)
        if others is not None:
            torch.save(staging.copy({**pack_state(own), SLOT_PARTS: others}), file)

    on_slots(save, free_port())
    return file


def test_tensors_that_equal_the_chiefs_are_neither_sent_nor_stored_again(saved: Path, sent: list[int]) -> None:
    """Otherwise an average of 20 MB would take 60 MB of a three-slot checkpoint and of the chief's memory."""
    assert max(sent) < 20_000
    once = 2 * LARGE * 4 + LARGE * 8
    assert once < saved.stat().st_size < once + 50_000


@pytest.mark.parametrize("rank", range(SIZE))
def test_every_slot_gets_its_own_part_back(saved: Path, rank: int) -> None:
    """Content, memory layout, types and sharing are unchanged."""
    ranks: Any = type("Slot", (), {"rank": rank, "size": SIZE})
    found: Any = select_slot_state(unpack_state(torch.load(saved, weights_only=True)), ranks)
    expected: Any = part(rank)
    assert found["gradients"][0].keys() == expected["gradients"][0].keys()
    assert torch.equal(found["gradients"][0]["weight"], average())
    assert found["rng_state"]["cpu"].tolist() == [rank]
    found, expected = found["callbacks"]["ema"], expected["callbacks"]["ema"]
    assert found.keys() == expected.keys()
    for name in ("average", "own", "half", "conjugated", "repeated", "empty"):
        assert torch.equal(found[name], expected[name]) and found[name].dtype == expected[name].dtype, name
    assert found["half"].stride() == expected["half"].stride()
    assert type(found["array"]) is np.ndarray and (found["array"] == expected["array"]).all()
    assert found["seen"] == Counter("ab")
    one, other = found["tied"]
    assert (one.data_ptr() == other.data_ptr()) == (rank == 1) and one.tolist() == other.tolist() == [7, 7, 7]
    one, other = found["equal"]
    assert one.data_ptr() != other.data_ptr(), "equal tensors are not merged"


def test_a_checkpoint_continues_on_another_number_of_slots(saved: Path) -> None:
    """Gradients become the mean over all slots, including those that the file has only once."""
    ranks: Any = type("Slot", (), {"rank": 1, "size": 2})
    state: Any = select_slot_state(unpack_state(torch.load(saved, weights_only=True)), ranks)
    (gradients,) = state["gradients"]
    assert torch.equal(gradients["weight"], average())
    assert torch.allclose(gradients["bias"], torch.full((2,), 2 / 3))
