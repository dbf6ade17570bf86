"""docs/guides/kubernetes.md and role.yaml describe what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from det_kubernetes._config import ClaimedEnvironment, ClaimedResources, KubernetesConfig
from det_kubernetes._launcher import RIGHTS

from det_core.config import parse_config

TEXT = (Path(__file__).parents[3] / "docs" / "guides" / "kubernetes.md").read_text(encoding="utf-8")
CONFIGS: list[dict[str, Any]] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]
ROLE = Path(__file__).parents[1] / "role.yaml"


def test_the_tables_list_all_options() -> None:
    options, keys = TEXT.partition("## Options")[2].partition("## Rights")[0].split("These keys of the config")
    listed = re.findall(r"^\| `(\w+)` \|", options, re.MULTILINE)
    assert sorted(listed) == sorted([*KubernetesConfig.model_fields, "max_interruptions"])
    claimed = {*ClaimedEnvironment.model_fields, *ClaimedResources.model_fields}
    rows = "".join(re.findall(r"^\| (`.+?) \|", keys, re.MULTILINE))
    assert set(re.findall(r"`(?:\w+\.)?(\w+)`", rows)) == claimed


@pytest.mark.parametrize("config", [one for one in CONFIGS if "launcher" in one])
def test_configs_are_valid(config: dict[str, Any]) -> None:
    assert parse_config({**CONFIGS[0], **config}).launcher.type == "kubernetes"


def test_the_role_has_the_rights_that_the_doctor_checks() -> None:
    _, role, _ = yaml.safe_load_all(ROLE.read_text(encoding="utf-8"))
    allowed = {(verb, name) for rule in role["rules"] for verb in rule["verbs"] for name in rule["resources"]}
    assert allowed == {(verb, f"{resource}/{sub}" if sub else resource) for verb, resource, sub in RIGHTS}
