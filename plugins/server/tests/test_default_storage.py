"""Default checkpoint storage of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from det_server._default_storage import read_default_storage
from det_server._runner_keeper import RunnerKeeper

from det_core.errors import DetError
from det_core.interfaces.tracking import TrackingStore

from .serving import local_access, site_without_server
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
