"""The command ``det slots``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from det_core.home import user_name
from det_core.launch import gpu_slots
from det_core.launch.machine_slots import SlotReservation, reserve_slots

from .conftest import Det


def reserve(*slots: str, count: int, priority: int, trial: int) -> SlotReservation:
    submitted = datetime(2026, 5, 17, tzinfo=timezone.utc)
    return reserve_slots(
        slots, count, priority=priority, submitted=submitted, cluster_id="0a1b", experiment_id=12, trial_id=trial
    )


@pytest.fixture
def busy() -> Iterator[None]:
    """Let trial 31 hold a slot, and trials 32 and 33 wait for it."""
    reservations = [
        reserve("gpu-0", count=1, priority=42, trial=31),
        reserve("gpu-0", "gpu-1", count=2, priority=42, trial=33),
        reserve("gpu-0", count=1, priority=7, trial=32),
    ]
    assert [one.poll() for one in reservations] == [[0], None, None]
    yield
    for one in reservations:
        one.close()


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpus" / "0000:18:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:18:00.0" / "information").write_text("Model: \t NVIDIA H100\nDevice Minor: \t 0\n")
    for minor in (0, 1):
        (tmp_path / f"nvidia{minor}").touch()
    monkeypatch.setattr(gpu_slots, "_DEVICES", tmp_path)
    monkeypatch.setattr(gpu_slots, "_DRIVER", tmp_path / "gpus")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def rows(text: str) -> list[list[str]]:
    return [re.split(r" {2,}", line) for line in text.splitlines()]


@pytest.mark.usefixtures("busy", "two_gpus")
def test_holders_and_the_queue_are_shown(det: Det) -> None:
    header, held, free, _, queue, first, second = rows(det("slots").out)
    assert header == ["SLOT", "GPU", "STATE", "USER", "EXPERIMENT", "TRIAL", "PRIORITY", "SINCE"]
    assert held[:-1] == ["gpu-0", "NVIDIA H100", "in use", user_name(), "12", "31", "42"]
    assert free == ["gpu-1", "-", "free", *["-"] * 5]
    assert queue == ["TURN", "SLOTS", "STATE", "USER", "EXPERIMENT", "TRIAL", "PRIORITY", "SINCE"]
    assert first[:-1] == ["1", "1", "waiting", user_name(), "12", "32", "7"]
    assert second[:-1] == ["2", "2", "waiting", user_name(), "12", "33", "42"]


@pytest.mark.usefixtures("busy", "two_gpus")
def test_json_has_all_details(det: Det) -> None:
    found = det("slots", "--json").json
    assert [(one["slot"], one["gpu"], one["in_use"]) for one in found["slots"]] == [
        ("gpu-0", "NVIDIA H100", True),
        ("gpu-1", None, False),
    ]
    holder = found["slots"][0]["holder"]
    assert (holder["trial_id"], holder["held"], holder["pid"]) == (31, ["gpu-0"], os.getpid())
    assert holder["submitted"] == "2026-05-17T00:00:00+00:00"
    assert [(one["trial_id"], one["slots"], one["responding"]) for one in found["waiting"]] == [
        (32, ["gpu-0"], True),
        (33, ["gpu-0", "gpu-1"], True),
    ]


def test_an_unused_host_has_no_slots_to_show(det: Det, slots_directory: Path, det_home: Path) -> None:
    assert det("slots").out == "No slot is in use.\n\nNo trial waits.\n"
    assert det("slots", "--json").json == {"slots": [], "waiting": []}
    assert not slots_directory.exists()
    assert not det_home.exists()


@pytest.mark.usefixtures("busy")
def test_a_holder_whose_ticket_cannot_be_read_is_unknown(det: Det, slots_directory: Path) -> None:
    for ticket in slots_directory.glob("ticket-*"):
        ticket.write_bytes(b"?")
    assert rows(det("slots").out)[1] == ["gpu-0", "-", "in use", *["-"] * 5]


def test_an_unsafe_directory_is_an_error(det: Det, slots_directory: Path) -> None:
    slots_directory.symlink_to("/tmp")
    result = det("slots")
    assert (result.code, "cannot hold the slots of this host" in result.err) == (1, True)
