"""Compliance suite for stores and layout of keys, both tested with Ceph, and the config block."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from det_storage_s3._bucket import open_s3_storage
from det_storage_s3._config import S3Config
from det_testing.storage import Opener, StorageCompliance
from rgw import Server

from det_core import storage
from det_core.plugins import plugin_registry

MAKE = Callable[..., S3Config]


@pytest.mark.integration
class TestS3(StorageCompliance):
    large_file = (16 << 20) + 12345
    longest_part = 900

    @pytest.fixture
    def opener(self, make_config: MAKE) -> Opener:
        return functools.partial(open_s3_storage, make_config())

    @pytest.fixture
    def broken(self, make_config: MAKE) -> Opener:
        return functools.partial(open_s3_storage, make_config(bucket="no-such-bucket"))


@pytest.mark.integration
def test_a_bucket_that_the_original_wrote_can_be_restored(ceph: Server, make_config: MAKE, tmp_path: Path) -> None:
    config, storage_id = make_config(), str(uuid.uuid4())
    metadata = {"steps_completed": 7, "framework": "torch"}
    files = {
        "state_dict.pth": b"weights",
        "code/model_def.py": b"x = 1\n",
        "metadata.json": json.dumps(metadata).encode(),
    }
    for path, content in {**files, "code/": b"", "empty/": b""}.items():
        ceph.client().put_object(Bucket=config.bucket, Key=f"some/where/{storage_id}/{path}", Body=content)
    manager = open_s3_storage(config)
    with pytest.warns(UserWarning, match="no checksums"):
        assert storage.read_checkpoint_metadata(manager, storage_id) == metadata
    with pytest.warns(UserWarning, match="no checksums"):
        storage.restore_checkpoint(manager, storage_id, tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert found == {*files, "code", "empty"}
    assert (tmp_path / "out/state_dict.pth").read_bytes() == b"weights"
    assert manager.stored().keys() == {storage_id}


@pytest.mark.integration
def test_keys_are_prefix_uuid_path(ceph: Server, make_config: MAKE, tmp_path: Path) -> None:
    config = make_config(prefix="/a/b/")
    (tmp_path / "dir").mkdir()
    (tmp_path / "f").write_bytes(b"x")
    manager = open_s3_storage(config)
    manager.put("id", "f", tmp_path / "f")
    manager.put("id", "dir/", tmp_path / "dir")
    entries = ceph.client().list_objects_v2(Bucket=config.bucket)["Contents"]
    assert {entry["Key"]: entry["Size"] for entry in entries} == {"a/b/id/f": 1, "a/b/id/dir/": 0}


def test_the_plugin_is_light_and_registered() -> None:
    code = (
        "import sys, det_storage_s3.plugin; print([m for m in ('boto3', 'botocore', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    spec = plugin_registry().find("storage", "s3")
    assert plugin_registry().load(spec) is open_s3_storage


GOOD: dict[str, Any] = {"bucket": "bkt"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"bucket": ""}, "bucket"),
        ({"bucket": "s3://AK:SK-very-secret@bkt"}, "bucket"),
        ({"prefix": "a/../b"}, r"contains '\.\.'"),
        ({"access_key": "AK"}, "belong together"),
        ({"secret_key": "SK-very-secret"}, "belong together"),
        ({"endpoint_url": "store.example:80"}, "begins with http:// or https://"),
        (
            {"endpoint_url": "https://me:SK-very-secret@store.example"},
            "credentials as the keys access_key and secret_key",
        ),
        ({"request_checksum_calculation": "never"}, "when_required"),
        ({"timeout": 0}, "timeout"),
        ({"bukket": "x"}, "bukket"),
    ],
)
def test_an_invalid_config_is_rejected(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        S3Config.model_validate({**GOOD, **keys})
    assert "very-secret" not in str(caught.value)


def test_the_config_has_defaults_and_hides_secrets() -> None:
    config = S3Config.model_validate(
        {**GOOD, "prefix": "//a/.//b/", "access_key": "AKID1", "secret_key": "SK-very-secret"}
    )
    assert (config.prefix, config.timeout, config.request_checksum_calculation) == ("a/b", 60, "when_supported")
    assert "AKID1" not in repr(config)
    assert "very-secret" not in repr(config)
