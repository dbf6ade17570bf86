"""Checkpoints that slots wrote in parts are read in one process."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from det_torch._checkpoints import _reader, _shards
from det_torch._checkpoints._packing import unpack_state
from torch import nn
from torch.distributed.checkpoint import metadata as dcp

from det_core.errors import CheckpointCorrupt, UntrustedCheckpoint

LISTING = Path("shards", ".metadata")


class Remembering(nn.Linear):
    """Layer with a version number and state that is not a tensor."""

    _version = 7

    def get_extra_state(self) -> Any:
        return {"seen": 3}

    def set_extra_state(self, state: Any) -> None:
        assert state == {"seen": 3}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        assert local_metadata["version"] == 7
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


@pytest.fixture
def _one_slot() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def trained() -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    """Return two models with gradients of one, and two optimizers, one of which has two groups."""
    first, second = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), Remembering(3, 2)
    groups = [{"params": first[2].parameters(), "lr": 0.5}, {"params": first[0].parameters(), "betas": (0.5, 0.9)}]
    optimizers = [torch.optim.Adam(groups, amsgrad=True), torch.optim.SGD(second.parameters(), 0.1, momentum=0.9)]
    for _ in range(2):
        (first(torch.rand(4, 3)).sum() + second(torch.rand(4, 3)).sum()).backward()
        for optimizer in optimizers:
            optimizer.step()
    first.zero_grad()
    return [first, second], optimizers


@pytest.fixture
def checkpoint(tmp_path: Path, trained: Any, _one_slot: None) -> Path:
    _shards.write_shards(tmp_path, *trained)
    torch.save({"rng_state": None, "lr_schedulers_state_dict": []}, tmp_path / "state_dict.pth")
    return tmp_path


def test_a_checkpoint_in_parts_equals_one_of_a_single_slot(checkpoint: Path, trained: Any, fingerprint: Any) -> None:
    models, optimizers = trained
    state = unpack_state(_reader.read_checkpoint(checkpoint))
    for kind, expected in {"models": models, "optimizers": optimizers}.items():
        assert fingerprint(state[f"{kind}_state_dict"]) == fingerprint([dict(one.state_dict()) for one in expected])
    assert fingerprint(state["gradients"]) == fingerprint([{}, {n: w.grad for n, w in models[1].named_parameters()}])
    for model, saved in zip(models, state["models_state_dict"], strict=True):
        model.load_state_dict(saved)
    assert "models_state_dict" not in _reader.read_checkpoint(checkpoint, shards=False)


def test_the_listing_runs_no_code(checkpoint: Path) -> None:
    (checkpoint / LISTING).write_bytes(pickle.dumps(Malicious(checkpoint / "ran")))
    with pytest.raises(UntrustedCheckpoint, match=r"\.metadata .* calls (posix|nt)\.mkdir"):
        _reader.read_checkpoint(checkpoint)
    assert not (checkpoint / "ran").exists()


def test_an_entry_of_bytes_is_refused(checkpoint: Path) -> None:
    """DCP would unpickle such an entry."""
    listing: Any = pickle.loads((checkpoint / LISTING).read_bytes())
    key, _ = listing.state_dict_metadata.popitem()
    listing.state_dict_metadata[key] = dcp.BytesStorageMetadata()
    (checkpoint / LISTING).write_bytes(pickle.dumps(listing))
    with pytest.raises(UntrustedCheckpoint, match="BytesStorageMetadata"):
        _reader.read_checkpoint(checkpoint)
    with pytest.raises(CheckpointCorrupt, match="BytesStorageMetadata; expected tensors only"):
        _reader.read_checkpoint(checkpoint, trust=True)


def test_the_parts_run_no_code(checkpoint: Path) -> None:
    (part,) = checkpoint.glob("shards/*.distcp")
    torch.save(Malicious(checkpoint / "ran"), part)
    listing: Any = pickle.loads((checkpoint / LISTING).read_bytes())
    for place in listing.storage_data.values():
        place.offset, place.length = 0, part.stat().st_size
    (checkpoint / LISTING).write_bytes(pickle.dumps(listing))
    with pytest.raises(CheckpointCorrupt, match="Weights only load failed"):
        _reader.read_checkpoint(checkpoint)
    assert not (checkpoint / "ran").exists()


def outside(listing: Any) -> None:
    next(iter(listing.storage_data.values())).relative_path = "../elsewhere"


def smaller(listing: Any) -> None:
    next(iter(listing.state_dict_metadata.values())).chunks.clear()


def huge(listing: Any) -> None:
    entry = next(iter(listing.state_dict_metadata.values()))
    entry.size = entry.chunks[0].sizes = torch.Size([2**62])


@pytest.mark.parametrize("change", [outside, smaller, huge])
def test_a_wrong_listing_is_damage(checkpoint: Path, change: Any) -> None:
    listing: Any = pickle.loads((checkpoint / LISTING).read_bytes())
    change(listing)
    (checkpoint / LISTING).write_bytes(pickle.dumps(listing))
    with pytest.raises(CheckpointCorrupt, match="shards is damaged"):
        _reader.read_checkpoint(checkpoint)


@pytest.mark.parametrize("name", [".metadata", "state_dict.pth", "__0_0.distcp"])
@pytest.mark.parametrize("left", [0, 0.5, None])
def test_damaged_files_are_reported(checkpoint: Path, name: str, left: float | None) -> None:
    file = checkpoint / "shards" / name
    if left is None:
        file.unlink()
    else:
        os.truncate(file, int(file.stat().st_size * left))
    with pytest.raises(CheckpointCorrupt):
        _reader.read_checkpoint(checkpoint)


class Malicious:
    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._directory,)
