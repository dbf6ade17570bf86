"""Registration and options of the plugin, without workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from det_deepspeed._options import DeepSpeedOptions

from det_core.config import DistributedConfig
from det_core.plugins import plugin_registry


def test_ds_config_is_a_file_or_a_block_and_other_options_are_errors() -> None:
    block = {"backend": "deepspeed", "ds_config": "ds.json", "overwrites": {"steps_per_print": 5}}
    assert DistributedConfig.model_validate(block).options == DeepSpeedOptions(
        ds_config=Path("ds.json"), overwrites={"steps_per_print": 5}
    )
    given = DistributedConfig.model_validate({"backend": "deepspeed", "ds_config": {"bf16": {"enabled": True}}})
    assert given.options == DeepSpeedOptions(ds_config={"bf16": {"enabled": True}})
    with pytest.raises(ValueError, match="zero_stage"):
        DistributedConfig.model_validate({"backend": "deepspeed", "zero_stage": 3})


def test_importing_the_plugin_imports_neither_torch_nor_deepspeed() -> None:
    program = "import sys, det_deepspeed.plugin; assert not {'torch', 'deepspeed'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_torchrun_starts_the_workers() -> None:
    """The launcher is that of torch_distributed, whose tests cover it."""
    launchers = [
        plugin_registry().load(plugin_registry().find("backend", name)) for name in ("deepspeed", "torch_distributed")
    ]
    assert launchers[0] is launchers[1]
