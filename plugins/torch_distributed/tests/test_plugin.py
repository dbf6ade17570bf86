"""Launch arguments and environment of the workers, without starting them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from det_torch.torchrun import Torchrun
from det_torch_distributed._options import TorchDistributedOptions

from det_core.config import DistributedConfig
from det_core.errors import LaunchError
from det_core.interfaces.backend import NodePlacement, WorkerRanks
from det_core.plugins import plugin_registry

ENVIRONMENT = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}  # fmt: skip
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def test_ranks_are_those_that_torchrun_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    expected = WorkerRanks(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2)
    assert Torchrun(TorchDistributedOptions()).ranks() == expected
    monkeypatch.delenv("GROUP_RANK")
    with pytest.raises(LaunchError, match=r"'GROUP_RANK'.*python -m det_core.launch BACKEND"):
        Torchrun(TorchDistributedOptions()).ranks()


def test_every_node_gets_the_same_rendezvous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in INTERFACES:
        monkeypatch.delenv(name, raising=False)
    starts = []
    for node in range(2):
        place = NodePlacement(hosts=["127.0.0.1", "127.0.0.2"], node=node, slots=3, port=2345, directory=tmp_path)
        starts.append(Torchrun(TorchDistributedOptions()).start(place, ["python3", "train.py"]))
    assert [option for option in starts[0].argv if option not in starts[1].argv] == ["--rdzv-conf=rank=0"]
    assert starts[0].argv[-3:] == ["--no-python", "python3", "train.py"]
    assert {"--rdzv-endpoint=127.0.0.1:2345", "--nnodes=2", "--max-restarts=0"} <= set(starts[0].argv)
    assert starts[1].env == {**starts[0].env, "CROSS_RANK": "1"}
    assert {starts[0].env[name] for name in INTERFACES} == {"lo"}


def test_one_node_stays_on_loopback_whatever_its_name(tmp_path: Path) -> None:
    place = NodePlacement(hosts=["no.such.host.invalid"], node=0, slots=3, port=2345, directory=tmp_path)
    assert "--rdzv-endpoint=127.0.0.1:2345" in Torchrun(TorchDistributedOptions()).start(place, ["train.py"]).argv


def test_users_choose_the_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    place = NodePlacement(hosts=["127.0.0.1"], node=0, slots=3, port=2345, directory=tmp_path)
    assert Torchrun(TorchDistributedOptions()).start(place, ["train.py"]).env["GLOO_SOCKET_IFNAME"] == "ib0"


def test_options_are_checked() -> None:
    block = {"backend": "torch_distributed", "find_unused_parameters": True}
    options = DistributedConfig.model_validate(block).options
    assert options == TorchDistributedOptions(find_unused_parameters=True)
    with pytest.raises(ValueError, match="find_unused"):
        DistributedConfig.model_validate({"backend": "torch_distributed", "find_unused": True})


def test_the_plugin_is_imported_without_torch() -> None:
    program = "import sys, det_torch_distributed.plugin, det_torch.torchrun; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    spec = plugin_registry().find("backend", "torch_distributed")
    assert plugin_registry().load(spec) is Torchrun
