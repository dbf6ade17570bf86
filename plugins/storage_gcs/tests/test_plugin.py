"""Registration of the plugin and validation of its config block."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from det_storage_gcs._config import GCSConfig
from pydantic import ValidationError

from det_core.plugins import plugin_registry
from det_core.storage import ObjectStorage, open_storage


@pytest.mark.integration
def test_importing_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, det_storage_gcs.plugin\n"
        "print([name for name in sys.modules if name.startswith(('google', 'requests', 'urllib3', 'pydantic'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("server")
def test_the_name_gcs_opens_the_store() -> None:
    spec = plugin_registry().find("storage", "gcs")
    assert plugin_registry().config_model(spec) is GCSConfig
    assert isinstance(open_storage("gcs", GCSConfig(bucket="b")), ObjectStorage)


def test_slashes_around_the_prefix_do_not_matter() -> None:
    assert GCSConfig(bucket="b", prefix="/a//./b/").prefix == "a/b"
    assert GCSConfig(bucket="b").prefix == ""


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "bucket"),
        ({"bucket": ""}, "bucket"),
        ({"bucket": "gs://b/some/where"}, "write bucket: b and prefix: some/where"),
        ({"bucket": "b/"}, "write bucket: b"),
        ({"bucket": "b", "prefix": "../x"}, r"contains '\.\.'"),
        ({"bucket": "b", "timeout": 0}, "timeout"),
        ({"bucket": "b", "credentials": "x"}, "credentials"),
    ],
)
def test_invalid_blocks_are_rejected(block: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        GCSConfig.model_validate(block)
