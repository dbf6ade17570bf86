"""Validation of the config block, and the cost of the plugin's import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from det_storage_azure._config import AzureConfig
from det_storage_azure._container import AzureContainer, open_azure_storage
from pydantic import ValidationError

from det_core.plugins import plugin_registry

URL = "https://myaccount.blob.core.windows.net"
CONNECTION = "DefaultEndpointsProtocol=https;AccountName=mine;AccountKey=very-secret;EndpointSuffix=core.windows.net"


def test_the_plugin_is_light_and_registered() -> None:
    code = "import sys, det_storage_azure.plugin; print([m for m in ('azure', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
    assert plugin_registry().load(plugin_registry().find("storage", "azure")) is open_azure_storage


@pytest.mark.parametrize(
    "keys",
    [
        {"container": "checkpoints", "connection_string": CONNECTION},
        {"container": "checkpoints", "account_url": URL, "credential": "very-secret"},
        {"container": "checkpoints", "account_url": URL},
    ],
)
def test_configs_of_the_original_are_accepted_and_hide_their_secrets(keys: dict[str, Any]) -> None:
    assert "very-secret" not in repr(AzureConfig.model_validate(keys))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"container": "Upper"}, "container"),
        ({"container": "ab"}, "container"),
        ({"account_url": None}, "either connection_string or account_url"),
        ({"connection_string": CONNECTION}, "either connection_string or account_url"),
        ({"account_url": None, "connection_string": CONNECTION, "credential": "very-secret"}, "credential needs"),
        ({"account_url": None, "connection_string": "very-secret"}, "names no account"),
        ({"account_url": None, "connection_string": "AccountName=;AccountKey=very-secret"}, "names no account"),
        ({"account_url": f"{URL}?sv=1&sig=very-secret"}, "credentials as the key credential"),
        ({"account_url": "myaccount"}, "expected the address of a server"),
        ({"account_url": CONNECTION}, "expected the address of a server"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_an_invalid_config_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        AzureConfig.model_validate({"container": "checkpoints", "account_url": URL, **keys})
    assert "very-secret" not in str([error["msg"] for error in refused.value.errors(include_input=False)])


@pytest.mark.parametrize(
    "endpoint", [f"{URL}?sig=very-secret", f"{URL}#very-secret", URL.replace("//", "//me:very-secret@")]
)
def test_the_url_in_messages_has_no_secret(endpoint: str) -> None:
    config = AzureConfig(container="checkpoints", connection_string=f"{CONNECTION};BlobEndpoint={endpoint}")
    url = AzureContainer(config).url
    assert url.startswith(URL)
    assert "very-secret" not in url
