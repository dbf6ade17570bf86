"""Checks of ``det doctor``, and the remedies that it names."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from det_core.package_commands import package_command

from .conftest import Det

CONFIG = "entrypoint: m:T\nsearcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
CHECKS = [
    *("python", "plugins", "extras", "record", "storage", "slots", "launcher", "host name", "ports", "backend"),
    "rehearsal",
]


def failed(det: Det, *argv: object) -> dict[str, str]:
    """Return the details of the failed checks, by name of the check."""
    result = det("doctor", *argv, "--json")
    assert result.json["ok"] is (result.code == 0)
    assert [one["check"] for one in result.json["checks"] if one["check"] != "config"] == CHECKS
    return {one["check"]: one["detail"] for one in result.json["checks"] if not one["ok"]}


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "const.yaml"
        path.write_text(CONFIG + text)
        return path

    return write


@pytest.mark.usefixtures("only_det_core")
def test_all_checks_pass(det: Det, config: Any) -> None:
    assert failed(det) == failed(det, config("")) == {}
    rows = det("doctor", config("")).out.splitlines()
    assert [row.split("  ")[0].strip() for row in rows] == ["CHECK", "config", *CHECKS]


@pytest.mark.usefixtures("only_det_core")
def test_the_config_is_an_option_too(det: Det, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.cli.commands._doctor_checks.count_gpus", lambda: 0)
    path = config("resources: {slots_per_trial: 2}\n")
    assert "the trial needs 2 slots" in failed(det, "--config", path)["slots"]
    assert "slots" not in failed(det, "--config", path, "--config", "launcher.slots=2")
    for wrong in ([path, "--config", path], ["--config", "launcher.slots=2"]):
        assert "expected one config, got " in det("doctor", *wrong).err


@pytest.mark.usefixtures("only_det_core")
def test_missing_extras_are_listed(det: Det, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    (detail,) = (one["detail"] for one in det("doctor", "--json").json["checks"] if one["check"] == "extras")
    assert f"for encrypted connections between hosts: {package_command('install', 'det-core[tls]')}" in detail


@pytest.mark.usefixtures("only_det_core")
def test_missing_requirements_of_a_config_are_found(det: Det, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_core.cli.commands._doctor_checks.count_gpus", lambda: 0)
    found = failed(
        det,
        config(
            "resources: {slots_per_trial: 3}\n"
            "checkpoint_storage: {type: directory, container_path: /dev/null/checkpoints}\n"
        ),
    )
    assert found.keys() == {"storage", "slots", "backend", "rehearsal"}
    assert "cannot write checkpoints under /dev/null" in found["storage"]
    assert "set launcher: {type: local, slots: N}" in found["slots"]
    assert package_command("install", "det-torch-distributed") in found["backend"]


@pytest.mark.usefixtures("only_det_core")
def test_a_wrong_config_does_not_prevent_other_checks(det: Det, config: Any) -> None:
    found = failed(det, config("slots: 3\n"))
    assert list(found) == ["config"]
    assert "const.yaml:3: slots: unknown key" in found["config"]
    assert det("doctor", "missing.yaml").code == 1


@pytest.mark.usefixtures("only_det_core")
def test_an_unknown_host_name_and_an_unwritable_database_are_found(
    det: Det, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "no-such-host.invalid")

    def refuse(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DET_HOME", str(tmp_path / "file" / "home"))
    found = failed(det)
    assert "`127.0.0.1 no-such-host.invalid` to /etc/hosts" in found["host name"]
    assert "Set DET_HOME to a directory that you can write to" in found["record"]
