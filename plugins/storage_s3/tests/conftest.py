"""Fixtures that start one Ceph server for all tests of this distribution, and create buckets in it."""

from __future__ import annotations

import functools
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from det_storage_s3._config import S3Config
from det_testing.requirements import skip_or_fail_in_ci

sys.path.insert(0, str(Path(__file__).parent))

from rgw import Server, missing, rgw


@pytest.fixture(scope="session", autouse=True)
def _tables_are_read_once() -> Iterator[None]:
    """Let all clients share botocore's tables, which otherwise each client parses again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(botocore.session.create_loader))
        yield


@pytest.fixture(scope="session")
def ceph() -> Iterator[Server]:
    if why := missing():
        skip_or_fail_in_ci(why)
    with rgw() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_other_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the credentials and settings of this machine."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))


@pytest.fixture
def make_config(ceph: Server) -> Callable[..., S3Config]:
    """Create an empty bucket, and return a function that makes a config for it from the given keys and defaults."""
    name = f"det-{uuid.uuid4().hex}"
    ceph.client().create_bucket(Bucket=name)

    def make(**keys: Any) -> S3Config:
        ours = {"access_key": ceph.access_key, "secret_key": ceph.secret_key, "endpoint_url": ceph.endpoint}
        return S3Config.model_validate({"bucket": name, "prefix": "some/where", "timeout": 60, **ours, **keys})

    return make
