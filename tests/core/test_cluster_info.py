"""`det.get_cluster_info` with valid, incomplete and damaged files of the launcher."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import det_core as det
from det_core.errors import LaunchError

CLUSTER: dict[str, Any] = {
    "master_url": "sqlite:///x",
    "cluster_id": "local",
    "agent_id": "node-1",
    "slot_ids": [0, 1],
    "task_id": "trial-3",
    "allocation_id": "a",
    "session_token": "hush",
    "latest_checkpoint": "uuid",
}
TRIAL: dict[str, Any] = {
    "trial_id": 3,
    "experiment_id": 2,
    "trial_seed": 7,
    "hparams": {"lr": 0.1, "bound": float("inf"), "big": 2**80},
    "config": {"data": {"path": "/data"}},
    "steps_completed": 5,
    "trial_run_id": 4,
}
RENDEZVOUS = {"container_addrs": ["10.0.0.1", "10.0.0.2"], "container_rank": 1, "container_slot_counts": [2, 2]}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DET_INFO_DIR", str(tmp_path))
    for name, content in (("cluster", CLUSTER), ("trial", TRIAL), ("rendezvous", RENDEZVOUS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_all_values_are_read_from_the_files(files: Path) -> None:
    info = det.get_cluster_info()
    assert isinstance(info, det.ClusterInfo)
    assert isinstance(info.trial, det.TrialInfo)
    assert isinstance(info.rendezvous, det.RendezvousInfo)
    assert {name: getattr(info, name) for name in CLUSTER} == CLUSTER
    assert {name: getattr(info.trial, name) for name in TRIAL} == TRIAL
    assert {name: getattr(info, name) for name in RENDEZVOUS} == RENDEZVOUS
    assert (info.task_type, info.user_data) == ("TRIAL", {"path": "/data"})
    assert (info.trial.debug, info.trial.inter_node_network_interface) == (False, None)
    assert "hush" not in repr(info)


def test_the_files_are_read_once(files: Path) -> None:
    info = det.get_cluster_info()
    (files / "cluster.json").write_text("changed")
    assert det.get_cluster_info() is info


def test_a_task_without_trial_and_rendezvous_has_one_host(files: Path) -> None:
    for name in ("trial.json", "rendezvous.json"):
        (files / name).unlink()
    info = det.get_cluster_info()
    assert info
    assert (info.trial, info.rendezvous, info.user_data) == (None, None, {})
    assert (info.container_addrs, info.container_rank, info.container_slot_counts) == (["127.0.0.1"], 0, [2])


def test_removed_files_raise_an_error_with_advice(files: Path) -> None:
    (files / "cluster.json").unlink()
    with pytest.raises(LaunchError, match=r"which has no cluster\.json.*unset DET_INFO_DIR"):
        det.get_cluster_info()


def test_unknown_keys_of_a_newer_launcher_are_ignored(files: Path) -> None:
    (files / "cluster.json").write_text(json.dumps({**CLUSTER, "moon": "full"}))
    assert det.get_cluster_info()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("cluster.json", "{", r"cluster\.json is damaged.*Expecting property name"),
        ("cluster.json", "[]", r"cluster\.json is damaged; expected a JSON object"),
        ("cluster.json", "{}", r"cluster\.json is damaged.*master_url is missing"),
        ("cluster.json", json.dumps({**CLUSTER, "slot_ids": 1}), r"slot_ids: 1 is a int, expected a list"),
        ("trial.json", "", r"trial\.json is damaged"),
        ("trial.json", json.dumps({**TRIAL, "trial_id": "3"}), r"trial\.json.*trial_id: '3' is a str, expected an int"),
        ("rendezvous.json", "{}", r"rendezvous\.json is damaged.*container_addrs is missing"),
    ],
)
def test_a_damaged_file_raises_an_error_with_the_reason(files: Path, file: str, content: str, message: str) -> None:
    (files / file).write_text(content)
    with pytest.raises(LaunchError, match=message):
        det.get_cluster_info()
