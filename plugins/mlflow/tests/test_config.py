"""Validation of the config block, and the cost of the plugin's import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from det_mlflow._config import MLflowConfig
from pydantic import ValidationError

from det_core.config import parse_config
from det_core.errors import ConfigError
from det_core.plugins import plugin_registry

URI = "http://127.0.0.1:5000"


@pytest.mark.integration
def test_importing_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys; known = {*sys.modules}; import det_mlflow.plugin\n"
        "added = sys.modules.keys() - known\n"
        "print([name for name in added if name.startswith(('pydantic', 'urllib', 'http', 'ssl'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_name_mlflow_selects_the_observer() -> None:
    plugins = plugin_registry()
    assert plugins.config_model(plugins.find("observer", "mlflow")) is MLflowConfig
    config = {"entrypoint": "true", "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}}}
    assert parse_config({**config, "observers": {"mlflow": {"tracking_uri": URI}}}).dump()["observers"]["mlflow"]
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI"):
        parse_config({**config, "observers": {"mlflow": {}}})


def test_the_address_is_recorded_when_the_experiment_is_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{URI}/")
    assert MLflowConfig().model_dump()["tracking_uri"] == URI


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "MLFLOW_TRACKING_URI"),
        ({"tracking_uri": "sqlite:///mlflow.db"}, "mlflow server .* --backend-store-uri sqlite:///mlflow.db"),
        ({"tracking_uri": "./mlruns"}, "begins with http"),
        ({"tracking_uri": "databricks"}, "begins with http"),
        ({"tracking_uri": "http://"}, "begins with http"),
        ({"tracking_uri": "postgresql://me:hunter2@host/db"}, "credentials as the keys username and password"),
        ({"tracking_uri": URI, "checkpoints": "all"}, "'reference' or 'copy'"),
        ({"tracking_uri": URI, "timeout": 0}, "timeout"),
        ({"tracking_uri": URI, "tags": {"a\nb": "c"}}, "tags"),
        ({"tracking_uri": URI, "password": "x"}, "username"),
        ({"tracking_uri": URI, "username": "x", "token": "y"}, "exclude each other"),
        ({"tracking_uri": URI, "experiment": "x"}, "experiment"),
    ],
)
def test_invalid_blocks_are_rejected(block: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        MLflowConfig.model_validate(block)
    assert "hunter2" not in caught.value.errors()[0]["msg"]
