"""Default checkpoint storage of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from det_server._default_storage import read_default_storage
from det_server._runner_keeper import RunnerKeeper

from det_core.config import parse_config
from det_core.errors import DetError
from det_core.interfaces.tracking import TrackingStore
from det_core.plugins import plugin_registry
from det_core.runner import explain_storage, use_server_storage
from det_core.tracking.access_tokens import remember_token

from .serving import local_access, served, site_without_server
from .submitting import submission


@pytest.fixture
def block(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "shared").mkdir()
    return {"type": "shared_fs", "host_path": str(tmp_path / "shared")}


@pytest.fixture
def file(tmp_path: Path, block: dict[str, Any]) -> Path:
    path = tmp_path / "storage.yaml"
    path.write_text(f"checkpoint_storage:\n  type: shared_fs\n  host_path: {block['host_path']}\n")
    return path


@pytest.mark.parametrize("given", [None, {"save_trial_best": 7}, {"type": "directory", "container_path": "PATH"}])
def test_experiments_without_a_storage_get_the_default(
    store: TrackingStore,
    file: Path,
    block: dict[str, Any],
    given: dict[str, Any] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RunnerKeeper, "start_runner", lambda *_: None)
    site = site_without_server(store, local_access, checkpoint_storage=file)
    if given and "type" in given:
        given["container_path"] = str(tmp_path)
    answer = site.commands.call("/api/experiments", submission(tmp_path / "code", checkpoint_storage=given))
    recorded = store.experiment(answer.json["id"]).config["checkpoint_storage"]
    expected = given if given and "type" in given else {**block, **(given or {})}
    assert expected.items() <= recorded.items()


def test_a_submission_cannot_move_the_default(store: TrackingStore, file: Path, tmp_path: Path) -> None:
    """Its secrets would go to another place."""
    site = site_without_server(store, local_access, checkpoint_storage=file)
    moved = submission(tmp_path / "code", checkpoint_storage={"host_path": str(tmp_path), "save_trial_best": 1})
    answer = site.commands.call("/api/experiments", moved)
    assert answer.status == 400
    assert "checkpoint_storage has host_path, but no type" in answer.text
    assert store.experiments() == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "cannot be read"),
        ("type: shared_fs", "expected nothing but a block"),
        ("checkpoint_storage: {save_trial_best: 1}", "expected nothing but a block"),
        ("checkpoint_storage: {type: shared_fs, host_path: /x}\nname: y", "expected nothing but a block"),
        ("checkpoint_storage: {type: shared_fs}", "host_path"),
        ("checkpoint_storage: {type: shared_fs, host_path: /proc/nowhere}", "/proc/nowhere"),
    ],
)
def test_an_unusable_default_ends_the_start_with_its_reason(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "storage.yaml").write_text(text)
    with pytest.raises(DetError, match=problem):
        read_default_storage(tmp_path / "storage.yaml")
    with pytest.raises(DetError, match="cannot be read"):
        read_default_storage(tmp_path / "missing.yaml")


BUCKET = """\
import os
from det_core import hookimpl
from det_core.errors import StorageError
from det_core.specs import StorageSpec
from det_core.storage.config import DirectoryConfig
from det_core.storage.directory import DirectoryStorage


class Config(DirectoryConfig):
    api_key: str | None = None


class Bucket(DirectoryStorage):
    def __init__(self, config):
        super().__init__(config)
        self._key = config.api_key or os.environ.get("BUCKET_KEY")

    def location(self, storage_id):
        return f"bucket://checkpoints/{storage_id}"

    def put(self, storage_id, path, source):
        if self._key is None:
            raise StorageError("no credentials; set BUCKET_KEY")
        return super().put(storage_id, path, source)


@hookimpl
def det_storage():
    return [StorageSpec(name="bucket", target="bucket_plugin:Bucket", config_model="bucket_plugin:Config")]
"""


def test_a_client_that_trains_uses_a_bucket_with_credentials_of_its_own(
    store: TrackingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = tmp_path / "site" / "bucket_plugin-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bucket-plugin\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[det]\nbucket = bucket_plugin\n")
    (tmp_path / "site" / "bucket_plugin.py").write_text(BUCKET)
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugin_registry.cache_clear()
    (tmp_path / "storage.yaml").write_text(
        f"checkpoint_storage: {{type: bucket, container_path: {tmp_path}/bucket, api_key: hunter2}}"
    )
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    config = parse_config({"searcher": searcher, "checkpoint_storage": {"save_trial_best": 7}})
    with served(store, local_access, checkpoint_storage=tmp_path / "storage.yaml") as site:
        url = remember_token(f"{site.site.url}/?token={site.site.access.command_line_token}")  # type: ignore[attr-defined]
        assert "hunter2" not in site.commands.get("/api/info").text
        assert use_server_storage(config, url) == config
        assert "cannot use the default storage" in caplog.text
        monkeypatch.setenv("BUCKET_KEY", "my own")
        chosen = use_server_storage(config, url)
        named = parse_config({"searcher": searcher, "checkpoint_storage": {"type": "shared_fs", "host_path": "/x"}})
        assert use_server_storage(named, url) == named
    block = chosen.dump()["checkpoint_storage"]
    assert (block["type"], block["api_key"], block["save_trial_best"]) == ("bucket", None, 7)
    assert explain_storage(chosen, url).startswith("Checkpoints go to type bucket, container_path")


def test_a_client_that_trains_keeps_files_that_a_server_has_no_bucket_for(
    store: TrackingStore, file: Path, det_home: Path
) -> None:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    config = parse_config({"searcher": searcher})
    with served(store, local_access, checkpoint_storage=file) as site:
        url = remember_token(f"{site.site.url}/?token={site.site.access.command_line_token}")  # type: ignore[attr-defined]
        assert use_server_storage(config, url) == config
    told = explain_storage(config, url)
    assert f"stay on this machine (type directory, container_path {det_home / 'checkpoints'})" in told
    assert f"others see their records at {url}, and cannot read the files" in told
