"""User state passes through a file that loads safely, and comes back unchanged."""

from __future__ import annotations

import enum
import itertools
import math
import random
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from det_torch._checkpoints._packing import pack_state, unpack_state
from det_torch._checkpoints._staging import HostMemory, HostStaging
from torch import nn

from det_core.errors import InvalidTrial


def through_a_file(value: Any, directory: Path) -> Any:
    torch.save(HostStaging().copy(pack_state({"state": value})), directory / "state.pth")
    return unpack_state(torch.load(directory / "state.pth", weights_only=True))["state"]


def assert_same(found: Any, expected: Any) -> None:
    """Assert that two values and the types of all nested values are equal."""
    assert type(found) is type(expected)
    if isinstance(expected, (np.ndarray, np.generic)):
        assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
        assert found.tobytes() == expected.tobytes()
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    elif isinstance(expected, dict):
        assert getattr(found, "default_factory", None) is getattr(expected, "default_factory", None)
        assert_same(list(found), list(expected))
        assert_same(list(found.values()), list(expected.values()))
    elif isinstance(expected, (list, tuple, deque)):
        assert len(found) == len(expected) and getattr(found, "maxlen", None) == getattr(expected, "maxlen", None)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(found)
    else:
        assert found == expected


STATES: list[Any] = [
    np.float64(0.1),
    np.float32(np.nan),
    np.int8(-3),
    np.uint64(2**64 - 1),
    np.bool_(True),
    np.float16(0.5),
    np.complex64(1 + 2j),
    np.arange(6, dtype=np.uint16).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.zeros((0, 3)),
    np.array(1.5),
    (1, (2.0, None), [True, "x"], b"\0y", bytearray(b"z"), 1 - 2j, 10**400, math.inf, math.nan),
    {1, "a", (2, None)},
    {np.int64(1), frozenset({2, 3})},
    frozenset({Path("a"), np.float64(0.5)}),
    deque([1, np.float32(2), deque()], maxlen=7),
    OrderedDict([("b", np.int64(1)), ("a", 2)]),
    defaultdict(list, {"a": [np.float64(1)], "b": []}),
    defaultdict(None, {1: defaultdict(int, x=2)}),
    Counter("hello"),
    Counter({np.int64(3): 2}),
    Path("/data/set"),
    [range(3, 9, 2), timedelta(1, 2, 3), datetime(2024, 2, 29, 1, 2, 3, 4, fold=1)],
    datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    {(1, "a"): 1, None: 2, 0.5: 3, np.int64(4): (np.arange(2),), frozenset("x"): 5, Path("p"): 6},
    {"det.type": "deque", "value": [1], "argument": None},
    {"a": {"det.type": np.int64(1)}, 2: []},
    (torch.arange(3), torch.Size([2]), torch.bfloat16, torch.device("cpu")),
    np.random.RandomState(3).get_state(),
    np.random.default_rng(3).bit_generator.state,
    random.Random(3).getstate(),
]


@pytest.mark.parametrize("state", STATES, ids=lambda state: type(state).__name__)
def test_state_comes_back_unchanged(state: Any, tmp_path: Path) -> None:
    assert_same(through_a_file(state, tmp_path), state)
    assert_same(through_a_file({"deep": [(state,)]}, tmp_path), {"deep": [(state,)]})
    assert_same(unpack_state(unpack_state(pack_state(pack_state(state)))), state)


@pytest.mark.parametrize("array", [np.arange(4)[::-1], np.frombuffer(bytes(8), np.int32), np.arange(9)[::2]])
def test_arrays_that_torch_cannot_share_are_copied(array: Any, tmp_path: Path) -> None:
    assert np.array_equal(through_a_file(array, tmp_path), array)


def test_state_that_loads_safely_is_not_copied() -> None:
    class Net(nn.Sequential):
        pass

    weights = Net(nn.BatchNorm1d(2)).state_dict()
    state = {"weights": weights, "parameter": nn.Parameter(torch.ones(2)), "steps": (1, {2, 3}), "best": [0.5]}
    assert pack_state(state) is state
    assert unpack_state(state) is state


def test_tensors_are_passed_by_reference() -> None:
    tensor, array = torch.zeros(2), np.zeros(2)
    packed = pack_state({"tensor": tensor, "array": array})
    tensor[0], array[0] = 1, 2
    assert packed["tensor"] is tensor
    assert packed["array"]["value"].tolist() == [2, 0]


def test_the_versions_in_a_modules_state_survive(tmp_path: Path) -> None:
    weights = nn.BatchNorm1d(2).state_dict()
    versions = weights._metadata
    weights["extra"] = np.float64(1)
    found = through_a_file(weights, tmp_path)
    assert found._metadata == versions
    assert type(found["extra"]) is np.float64


class Colour(enum.Enum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"ema": {"shadow": object()}},
            r"^callbacks\.ema\.shadow is a builtins\.object, which a checkpoint cannot hold",
        ),
        ({"ema": [1, (Colour.RED,)]}, r"^callbacks\.ema\[1\]\[0\] is a test_packing\.Colour, .*an Enum's \.name"),
        ({"my ema": {2: Point(1, 2)}}, r"^callbacks\['my ema'\]\[2\] is a test_packing\.Point"),
        ({"ema": {Colour.RED: 1}}, r"^callbacks\.ema\[<Colour\.RED: 1>\] is a test_packing\.Colour"),
        ({"ema": {Colour.RED}}, r"^callbacks\.ema\[<Colour\.RED: 1>\] is a test_packing\.Colour"),
        ({"ema": deque([np.str_("x")])}, r"^callbacks\.ema\[0\] is a numpy\.str_ \(.*\), which"),
        ({"ema": np.array(["x"])}, r"^callbacks\.ema is a numpy\.ndarray \(.*numpy\.str_"),
        ({"ema": np.array([object()])}, r"^callbacks\.ema is a numpy\.ndarray \(.*numpy\.object_"),
        ({"ema": np.zeros(1, ">f4")}, r"^callbacks\.ema is a numpy\.ndarray \("),
        (
            {"ema": defaultdict(lambda: 0)},
            r"^callbacks\.ema is a collections\.defaultdict \(its default_factory is <fun",
        ),
        ({"ema": datetime.now(ZoneInfo("UTC"))}, r"^callbacks\.ema is a datetime\.datetime \(its tzinfo is zoneinfo"),
        ({"ema": nn.Linear(1, 1)}, r"^callbacks\.ema is a torch\.nn\.modules\.linear\.Linear"),
    ],
)
def test_other_types_are_refused_with_their_place(state: Any, message: str) -> None:
    with pytest.raises(InvalidTrial, match=message.replace("test_packing", __name__.replace(".", r"\."))):
        pack_state({"callbacks": state})


def test_a_copy_shares_nothing_with_the_state() -> None:
    """Training continues and changes the state while the copy is written."""
    state: Any = {"set": {1}, "bytes": bytearray(b"x"), "count": Counter("ab"), "list": [[1]], "tensor": torch.ones(2)}
    copied = HostStaging().copy(pack_state(state))
    state["set"].add(2)
    state["bytes"].extend(b"y")
    state["count"]["a"] += 1
    state["list"][0].append(2)
    state["tensor"].add_(1)
    assert copied.pop("tensor").tolist() == [1, 1]
    assert copied == {"set": {1}, "bytes": b"x", "count": Counter("ab"), "list": [[1]]}
    assert type(copied["count"]) is Counter


def test_views_of_one_memory_keep_their_values() -> None:
    """Torch conjugates and negates lazily."""
    numbers = torch.tensor([1 + 2j])
    views = [numbers, numbers.conj(), numbers.conj().imag, numbers.imag]
    assert [view.tolist() for view in HostStaging().copy(views)] == [[1 + 2j], [1 - 2j], [-2], [2]]


class Locked:
    """Stand-in for page-locking that only counts the bytes."""

    def __init__(self, limit: int = 1 << 40) -> None:
        self.sizes: dict[int, int] = {}
        self.limit = limit

    def __call__(self, address: int, size: int) -> Callable[[], object]:
        if self.bytes + size > self.limit:
            raise RuntimeError("limit reached")
        self.sizes[address] = size
        return lambda: self.sizes.pop(address)

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


@pytest.mark.parametrize("seed", range(3))
def test_page_locked_memory_is_hardly_larger_than_the_tensors(seed: int) -> None:
    """Torch rounds every tensor up to a power of two, which would take up to twice the memory."""
    chance = random.Random(seed)
    sizes = [int(2 ** chance.uniform(0, 23)) for _ in range(300)] + [HostMemory.LARGE - 1, HostMemory.LARGE] * 2
    chance.shuffle(sizes)
    locked = Locked()
    memory = HostMemory(locked)
    buffers = [memory.like(torch.empty(size, dtype=torch.uint8), lock=True) for size in sizes]
    assert locked.bytes < 1.1 * sum(sizes) + HostMemory.BLOCK
    places = sorted((buffer.data_ptr(), len(buffer)) for buffer in buffers)
    assert all(begin + size <= after for (begin, size), (after, _) in itertools.pairwise(places))
    assert all(place % 64 == 0 for place, _ in places)


def test_page_locked_memory_is_released() -> None:
    """A page is unlocked when no tensor uses it any more."""
    locked = Locked()
    memory = HostMemory(locked)
    small, large = (memory.like(torch.empty(size), lock=True) for size in (10, HostMemory.LARGE))
    del memory
    assert locked.bytes == HostMemory.BLOCK + large.nbytes
    part = small[3:]
    del small, large
    assert locked.bytes == HostMemory.BLOCK
    part.fill_(1)
    del part
    assert not locked.sizes


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, 3).t(),
        torch.ones((), dtype=torch.bfloat16),
        torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        torch.ones(3, 1, dtype=torch.complex64).conj().expand(3, 4),
        torch.ones(1200, 1100).t(),
        torch.ones(0, 2),
    ],
)
def test_page_locked_buffers_have_the_layout_of_tensors(tensor: torch.Tensor) -> None:
    """The layout equals that of torch's copies, even in memory that several tensors share."""
    memory, expected = HostMemory(Locked()), torch.empty_like(tensor)
    memory.like(torch.ones(3, dtype=torch.uint8), lock=True)
    found = memory.like(tensor, lock=True)
    assert found.untyped_storage().nbytes() == expected.untyped_storage().nbytes(), "torch.save() would write all of it"
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert torch.equal(found.copy_(tensor), tensor)


def test_buffers_use_ordinary_memory_if_locking_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    """Refused memory must not end the training at its first checkpoint."""
    locked = Locked(limit=HostMemory.BLOCK)
    memory = HostMemory(locked)
    buffers = [memory.like(torch.ones(size, 3).t(), lock=True) for size in (2, HostMemory.LARGE, 4, HostMemory.LARGE)]
    assert [(buffer.shape, buffer.stride()) for buffer in buffers] == [
        ((3, size), (1, 3)) for size in (2, HostMemory.LARGE, 4, HostMemory.LARGE)
    ]
    assert locked.bytes == HostMemory.BLOCK
    (said,) = caplog.messages
    assert "the host refused page-locked memory: limit reached" in said
