"""FSDP passes the suite for adapters, except for random kills and several hosts, and the checks of sharded.py."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from det_torch.testing.interruptions import InterruptionSuite
from det_torch.testing.slot_equivalence import SlotEquivalenceSuite
from det_torch_distributed._fsdp_units import choose_fsdp_units
from det_torch_distributed._options import TorchDistributedOptions
from torch import nn

PROGRAM = Path(__file__).with_name("sharded.py")


@pytest.mark.slow
class TestShards(SlotEquivalenceSuite, InterruptionSuite):
    backend = "torch_distributed"
    options: ClassVar = {"sharding": "fsdp", "units": ["Linear"]}
    tolerance = 1e-6
    compresses = False


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of two slots that run all checks."""
    done = subprocess.run(
        [sys.executable, "-m", "det_core.launch", "torch_distributed", "--slots=2", "--", PROGRAM],
        env={**os.environ, "DET_HOME": str(tmp_path_factory.mktemp("home")), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    return done.stdout + done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("check", runpy.run_path(str(PROGRAM))["CHECKS"])
def test_the_check_passes_on_two_slots(check: str, passed: str) -> None:
    assert all(f"[rank={rank}] {check} passed" in passed for rank in range(2)), passed


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))


def test_units_are_large_blocks_of_lists() -> None:
    large, small = [block(1000), block(1000)], block(10)
    network = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ModuleList([*large, small])))
    assert choose_fsdp_units(network, []) == [*large, network]
    assert choose_fsdp_units(large[0], []) == [*large[0].children(), large[0]], "without a list, blocks of sequences"
    assert choose_fsdp_units(nn.Linear(2000, 2000), ["Linear"])[:-1] == []


def test_units_are_the_named_classes_inner_ones_first() -> None:
    network = nn.Sequential(block(2), nn.Tanh(), nn.Linear(2, 2))
    inner = [*network[0].children(), network[0], network[2]]
    assert choose_fsdp_units(network, ["Linear", "Sequential"]) == [*inner, network]


def test_a_unit_shares_no_weight_with_others() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    network[2].weight = network[0].weight
    assert choose_fsdp_units(network, ["Linear"]) == [network[1], network]


@pytest.mark.parametrize(
    "options",
    [
        {"units": ["Block"]},
        {"param_dtype": "bfloat16"},
        {"sharding": "fsdp", "find_unused_parameters": True},
        {"sharding": "fsdp", "sync_batch_norm": True},
        {"sharding": "fsdp", "broadcast_buffers": True},
    ],
)
def test_options_without_effect_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="has no meaning with `sharding: (none|fsdp)`; remove it"):
        TorchDistributedOptions.model_validate(options)
