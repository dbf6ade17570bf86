"""Fixtures that start one SSH server for all tests, and give each test a directory of its own on it."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from det_storage_fsspec._config import FsspecConfig
from det_testing.requirements import skip_or_fail_in_ci

from det_core.plugins import plugin_registry
from tests.sshd import SshHosts, missing, ssh_hosts


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "det-home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    plugin_registry.cache_clear()


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    if lacking := missing():
        skip_or_fail_in_ci(lacking)
    directory = tmp_path_factory.mktemp("sshd")
    with ssh_hosts(directory, directory, "store") as hosts:
        yield hosts


@pytest.fixture
def make_config(sshd: SshHosts, tmp_path: Path) -> Callable[..., FsspecConfig]:
    """Return a function that makes the config block of a directory that is reached by SFTP."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").write_text((sshd.directory / "known_hosts").read_text())
    port = int((sshd.directory / "store.conf").read_text().split("127.0.0.1:")[1].split()[0])
    options = {"username": getpass.getuser(), "key_filename": str(sshd.directory / "user_key"), "look_for_keys": False}

    def make(directory: str = "stored", **keys: Any) -> FsspecConfig:
        url = f"sftp://127.0.0.1:{port}{tmp_path}/{directory}"
        return FsspecConfig.model_validate({"url": url, "storage_options": options, "timeout": 10, **keys})

    return make
