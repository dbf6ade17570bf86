"""Values of the argument ``checkpoint_storage`` of `core.init`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from det_core import core
from det_core.core._storage_block import default_storage, make_storage_block
from det_core.errors import ConfigError
from det_core.package_commands import package_command
from det_core.tracking import open_store


@pytest.mark.parametrize(
    ("given", "block"),
    [
        ("some/where", {"type": "directory", "container_path": "some/where"}),
        ("/a://b?c", {"type": "directory", "container_path": "/a://b?c"}),
        (Path("/a#b?c"), {"type": "directory", "container_path": "/a#b?c"}),
        ("file:///a/b%20c", {"type": "directory", "container_path": "/a/b c"}),
        ("s3://bucket", {"type": "s3", "bucket": "bucket", "prefix": ""}),
        ("s3://bucket/a/b/", {"type": "s3", "bucket": "bucket", "prefix": "a/b"}),
        ("gs://bucket/a", {"type": "gcs", "bucket": "bucket", "prefix": "a"}),
        ({"type": "directory", "container_path": "/x"}, {"type": "directory", "container_path": "/x"}),
    ],
)
def test_paths_uris_and_blocks_are_accepted(given: Any, block: dict[str, Any]) -> None:
    assert make_storage_block(given) == block


@pytest.mark.parametrize("given", [None, ""])
def test_none_and_empty_text_select_the_default(det_home: Path, given: Any) -> None:
    assert (
        make_storage_block(given)
        == default_storage()
        == {"type": "directory", "container_path": f"{det_home}/checkpoints"}
    )


@pytest.mark.parametrize(
    "given",
    [
        *("file://host/a", "file://", "s3://", "s3://bucket?x=hunter2", "gs:///a", "s3://bucket#part", "ftp://host/a"),
        "s3://ada:hunter2@bucket",
    ],
)
def test_ambiguous_uris_are_rejected(given: str) -> None:
    with pytest.raises(ValueError, match="expected a directory, file:///directory, s3://bucket/prefix") as rejected:
        make_storage_block(given)
    assert "hunter2" not in str(rejected.value)


def test_shared_fs_is_rejected_with_the_directory_to_pass() -> None:
    with pytest.raises(ValueError, match="'/mnt/shared'"):
        make_storage_block({"type": "shared_fs", "host_path": "/mnt/shared"})


@pytest.mark.usefixtures("only_det_core")
@pytest.mark.parametrize(
    ("given", "message"),
    [("s3://bucket/a", package_command("install", "det-storage-s3")), ({"type": "directory"}, "container_path")],
)
def test_an_unusable_storage_is_rejected_before_anything_is_recorded(det_home: Path, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        core.init(checkpoint_storage=given)
    with open_store() as store:
        assert store.experiments() == []
