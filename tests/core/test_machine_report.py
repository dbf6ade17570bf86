"""Descriptions of machines that workers record."""

from __future__ import annotations

import logging
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from det_core import core
from det_core.core import _machine_report
from det_core.core._machine_report import describe_machine, installed_packages
from det_core.errors import StaleRun
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import open_store
from det_core.tracking._sql_store import SqlTrackingStore


@pytest.fixture
def store(det_home: Path) -> Iterator[TrackingStore]:
    with open_store() as store:
        yield store


def test_a_script_records_its_machine(store: TrackingStore) -> None:
    with core.init() as context:
        pass
    (machine,) = store.machines(context.trial.trial_id)[1]
    assert machine == describe_machine(0)
    assert (machine.host, machine.node, machine.python) == (os.uname().nodename, 0, platform.python_version())
    assert machine.cpus == os.cpu_count()
    assert machine.memory > 1 << 28
    assert os.uname().release in machine.kernel
    assert machine.system
    assert machine.packages["pytest"] == version("pytest")
    assert "sqlalchemy" in machine.packages


def test_a_machine_that_cannot_be_recorded_does_not_end_a_script(
    store: TrackingStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise StaleRun("there is a newer run")

    monkeypatch.setattr(SqlTrackingStore, "record_machine", refuse)
    with caplog.at_level(logging.WARNING), core.init():
        pass
    assert "the machine of this run is not recorded: there is a newer run" in caplog.text


def test_the_first_directory_with_a_package_counts(tmp_path: Path) -> None:
    for place, name in (
        ("a", "google_crc32c-1.5.0.dist-info"),
        ("a", "Old.Name-2.0-py3.9.egg-info"),
        ("a", "odd-name-1.0+cu12.dist-info"),
        ("a", "without_version.egg-info"),
        ("b", "google_crc32c-9.dist-info"),
        ("b", "module"),
        ("b", "not-ascii-1é.dist-info"),
    ):
        (tmp_path / place / name).mkdir(parents=True)
    expected = {"google-crc32c": "1.5.0", "odd-name": "1.0+cu12", "old-name": "2.0"}
    assert installed_packages([str(tmp_path / place) for place in ("missing", "a", "b")]) == expected


def test_packages_fit_into_a_record(tmp_path: Path, store: TrackingStore) -> None:
    for number in range(400):
        (tmp_path / f"p{number:03}{'x' * 200}-1.0.dist-info").mkdir()
    with core.init() as context, pytest.MonkeyPatch.context() as patch:
        context._machine.close()
        patch.setattr(sys, "path", [str(tmp_path)])
        machine = describe_machine(1)
    assert 200 < len(machine.packages) < 400
    store.record_machine(context.trial.trial_id, 1, machine)
    assert store.machines(context.trial.trial_id)[1][1].packages == machine.packages


@pytest.mark.parametrize("visible", ["", "0,GPU-12ab", "MIG-12ab", None])
def test_gpus_come_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, visible: str | None) -> None:
    (tmp_path / "nvidia0").touch()
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "NVIDIA H100 80GB HBM3, 81559, 570.1"\necho "$*, [N/A], 1"\n')
    program.chmod(0o700)
    monkeypatch.setattr(_machine_report, "_DEVICES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    gpus = describe_machine(0).gpus
    if visible == "":
        assert gpus == []
        return
    assert gpus[0] == {"name": "NVIDIA H100 80GB HBM3", "memory": 81559 << 20, "driver": "570.1"}
    assert gpus[1]["memory"] == 0
    assert re.findall("-i (.*)", str(gpus[1]["name"])) == ([visible] if visible == "0,GPU-12ab" else [])
    program.write_text("#!/bin/sh\nexit 1\n")
    assert describe_machine(0).gpus == []
