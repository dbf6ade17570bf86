"""Validation of the config block, and the cost of the plugin's import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from det_storage_fsspec._config import FsspecConfig
from det_storage_fsspec._storage import FsspecStorage
from pydantic import ValidationError

from det_core.errors import StorageError
from det_core.plugins import plugin_registry


def test_the_plugin_is_light_and_registered() -> None:
    code = "import sys, det_storage_fsspec.plugin; print([m for m in ('fsspec', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
    assert plugin_registry().load(plugin_registry().find("storage", "fsspec")) is FsspecStorage


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"url": "/data"}, "is not the URL of a directory"),
        ({"url": "simplecache::s3://bucket"}, "is not the URL of a directory"),
        ({"url": "https://host/data?sig=very-secret"}, "the URL has a '.' or '#'"),
        ({"url": "FILE:///data"}, "capital letter; write file://"),
        ({"url": " file:///data"}, "begins with a blank"),
        ({"url": "file:///"}, "does not name an absolute path"),
        ({"url": "file:///my%20data"}, "contains '%'; write the path as it is"),
        ({"url": "memory://data"}, "lost with each process"),
        ({"url": "file://data"}, "does not name an absolute path"),
        ({"url": "sftp://ada:very-secret@host/data"}, "contains a password.*storage_options"),
        ({"url": "sftp://ada:very/very-secret@host"}, "invalid host or port"),
        ({"url": "sftp://host:65536/data"}, "invalid host or port"),
        ({"url": "sftp://host:0/data"}, "has no host, or the port 0"),
        ({"url": "sftp:///data"}, "has no host"),
        ({"storage_options": {"port": 65536}}, "port is not a number from 1 to 65535"),
        ({"storage_options": {"port": "22"}}, "write it without quotes"),
        ({"storage_options": {"password": 123456}}, "password is a number; write it in quotes"),
        ({"storage_options": {"client_kwargs": {"api_key": 1.5}}}, "api_key is a number; write it in quotes"),
        ({"url": "s3://bucket/data"}, "det's own store for s3://, which is checkpoint_storage: {type: s3}"),
        ({"url": "gs://bucket/data", "writes": "direct"}, "{type: gcs}"),
        ({"url": "abfss://bucket/data"}, "{type: azure}"),
        ({"url": "oss://bucket/data"}, "does not know whether oss"),
        ({"url": "webdav://host/data"}, "does not know whether webdav.*writes: rename"),
        ({"writes": "append"}, "writes"),
        ({"timeout": 0}, "timeout"),
    ],
)
def test_an_invalid_config_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        FsspecConfig.model_validate({"url": "sftp://host/data", **keys})
    assert "very-secret" not in refused.value.errors(include_input=False)[0]["msg"]


def test_all_texts_in_the_options_are_secrets() -> None:
    options = {"username": "ada", "port": 22, "client_kwargs": {"token": "abc", "deep": True}, "empty": None}
    config = FsspecConfig.model_validate({"url": "sftp://host/data/", "storage_options": options})
    assert (config.url, config.options, config.way) == ("sftp://host/data", options, "rename")
    assert "ada" not in repr(config)
    assert "abc" not in repr(config)


def test_a_protocol_without_its_library_is_an_error() -> None:
    with pytest.raises(StorageError, match="library for webhdfs3|Protocol not known: webhdfs3"):
        FsspecStorage(FsspecConfig(url="webhdfs3://host/data", writes="rename"))


@pytest.mark.parametrize("url", ["ftp://store.example.com/d", "sftp://store.example.com/d"])
def test_a_client_for_a_user_who_waits_has_a_time_limit(url: str) -> None:
    config = FsspecConfig.model_validate({"url": url, "writes": "rename", "storage_options": {"timeout": 900}})
    waiting = FsspecStorage(config).with_few_retries()
    assert waiting._config.options["timeout"] == waiting._config.timeout == 10
