"""docs/guides/ray.md describes what is there, and its configs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from det_ray._config import RayConfig
from det_ray.driver import explain_wait
from det_testing.disturbed_experiment import run_experiment

from det_core.config import parse_config
from det_core.interfaces.tracking import TrackingStore

TEXT = (Path(__file__).parents[3] / "docs" / "guides" / "ray.md").read_text()
CONFIGS: list[dict[str, Any]] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
SCRIPT = """
import det_core as det

lr = det.get_cluster_info().trial.hparams["lr"]
with det.core.init() as core_context:
    core_context.train.report_validation_metrics(steps_completed=100, metrics={"validation_loss": lr})
"""


def test_the_table_lists_all_options() -> None:
    table = TEXT.partition("## Options")[2].partition("## Waiting")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert listed == [*RayConfig.model_fields, "max_interruptions"]


@pytest.mark.parametrize("launcher", [config["launcher"] for config in CONFIGS if "launcher" in config])
def test_configs_are_valid(launcher: dict[str, Any]) -> None:
    assert parse_config({**CONFIGS[0], "launcher": launcher}).launcher.type == "ray"


def test_waits_are_explained_as_the_table_says() -> None:
    nodes = [{"Alive": True, "Resources": {"GPU": count}} for count in (8.0, 2.0)]
    for shown in (explain_wait(nodes, {"GPU": 3.0}, {"GPU": 8.0}, 1), explain_wait(nodes[1:], {}, {"GPU": 8.0}, 1)):
        assert f"| `{shown}` |" in TEXT


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_laptops_config_and_three_lines_run_on_the_cluster(store: TrackingStore, tmp_path: Path) -> None:
    laptop, more, *_ = CONFIGS
    assert len(yaml.safe_dump(more).splitlines()) == 3
    (tmp_path / "train.py").write_text(SCRIPT)
    storage = {"type": "directory", "container_path": str(tmp_path / "checkpoints")}
    assert len(run_experiment(store, {**laptop, **more, "checkpoint_storage": storage}, tmp_path)) == 4
