"""The page for users has valid configs, and its table lists all states of jobs and all options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from det_slurm._config import SlurmConfig
from det_slurm._end_causes import STATES

from det_core.config import parse_config

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "slurm.md").read_text()


@pytest.mark.parametrize("config", re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_configs_are_valid(config: str) -> None:
    assert isinstance(parse_config(config).launcher.options, SlurmConfig)


def test_the_table_has_the_causes_of_all_states() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `") and line.count("|") == 6]
    found = {
        state: row.split("|")[4].strip(" `") for row in rows for state in re.findall("`([A-Z_]+)`", row.split("|")[1])
    }
    assert {state: found.get(state) for state in STATES} == {state: cause.name for state, cause in STATES.items()}


def test_all_options_are_listed() -> None:
    rows = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert [name for name in SlurmConfig.model_fields if f"`{name}`" not in rows] == []
