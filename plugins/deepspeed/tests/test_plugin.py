"""What starts the workers, without starting them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from det_deepspeed._launcher import Launcher
from det_deepspeed._options import Options

from det_core.config import DistributedConfig
from det_core.errors import LaunchError
from det_core.interfaces.backend import Place, Ranks
from det_core.plugins import registry

ENVIRONMENT = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
}  # fmt: skip


def test_ranks_are_those_that_torchrun_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    expected = Ranks(rank=3, size=4, local_rank=1, local_size=2, cross_rank=1, cross_size=2)
    assert Launcher(Options()).ranks() == expected
    monkeypatch.setenv("GROUP_RANK", "first")
    with pytest.raises(LaunchError, match=r"python -m det_core.launch deepspeed"):
        Launcher(Options()).ranks()


def test_every_node_gets_the_same_rendezvous(tmp_path: Path) -> None:
    starts = []
    for node in range(2):
        place = Place(hosts=["10.0.0.1", "10.0.0.2"], node=node, slots=3, port=2345, directory=tmp_path)
        starts.append(Launcher(Options()).start(place, ["python3", "train.py"]))
    assert [option for option in starts[0].argv if option not in starts[1].argv] == ["--node-rank=0"]
    assert {"--master-addr=10.0.0.1", "--master-port=2345", "--nnodes=2", "--max-restarts=0"} <= set(starts[0].argv)
    assert not starts[0].env


def test_options_are_a_file_or_a_block_and_checked() -> None:
    block = {"backend": "deepspeed", "ds_config": "ds.json", "overwrites": {"steps_per_print": 5}}
    assert DistributedConfig.model_validate(block).options == Options(
        ds_config=Path("ds.json"), overwrites={"steps_per_print": 5}
    )
    given = DistributedConfig.model_validate({"backend": "deepspeed", "ds_config": {"bf16": {"enabled": True}}})
    assert given.options == Options(ds_config={"bf16": {"enabled": True}})
    with pytest.raises(ValueError, match="zero_stage"):
        DistributedConfig.model_validate({"backend": "deepspeed", "zero_stage": 3})


def test_the_plugin_is_light() -> None:
    program = (
        "import sys, det_deepspeed.plugin, det_deepspeed._launcher; assert not {'torch', 'deepspeed'} & {*sys.modules}"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
    assert registry().load(registry().find("backend", "deepspeed")) is Launcher
