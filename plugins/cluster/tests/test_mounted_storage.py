"""Nodes find out whether they see the directory of the checkpoints by a file in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from det_cluster.mounted_storage import mark_mounted_storage
from det_testing.launcher.watched_launch import refuse_calls

from det_core.errors import LaunchError
from det_core.interfaces.launcher import LaunchRequest
from tests.forked_child import ending_children


def request(storage: dict[str, Any] | None) -> LaunchRequest:
    info = {"trial.json": {"config": {"checkpoint_storage": storage}}}
    return LaunchRequest(key="k", argv=["true"], code=b"", info=info, slots=1, log=print, call=refuse_calls)


def test_a_file_marks_the_directory_of_the_checkpoints(tmp_path: Path) -> None:
    """A forked child that leaves the block does not remove it."""
    storage = request({"type": "directory", "container_path": str(tmp_path / "new")})
    with ending_children(), mark_mounted_storage(storage) as marker:
        if not (child := os.fork()):
            raise SystemExit
        os.waitpid(child, 0)
        assert marker and [marker] == list((tmp_path / "new").iterdir())
    assert not marker.exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "file")}
    with (
        pytest.raises(LaunchError, match="cannot write to the directory of checkpoint_storage"),
        mark_mounted_storage(request(storage)),
    ):
        pass


def test_other_trials_have_no_mark() -> None:
    with mark_mounted_storage(request(None)) as marker:
        assert marker is None
