"""Servers that break, freeze or refuse, processes that are killed, and what errors show."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from det_storage_fsspec._config import FsspecConfig
from det_storage_fsspec._connections import Connections
from det_storage_fsspec._storage import FsspecStorage
from fsspec.implementations.local import LocalFileSystem

from det_core.errors import StorageError
from tests.killed_trial import train_with_kills
from tests.sshd import SshHosts

pytestmark = pytest.mark.integration

Make = Callable[..., FsspecConfig]


@contextmanager
def frozen(sshd: SshHosts) -> Iterator[None]:
    """Stop the server and its connections."""
    server = sshd.servers["store"]
    stopped = [server, *server.children(recursive=True)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)


# paramiko reads ahead in a thread, which ends with the error of its connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_transfers_survive_broken_connections(
    sshd: SshHosts, make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, count, take = FsspecStorage(make_config(), (0.1,) * 20), itertools.count(1), Connections._take
    files = {f"file-{number}": tmp_path / f"file-{number}" for number in range(30)}
    for name, file in files.items():
        file.write_text(name * 10_000)

    def take_and_break(self: Connections) -> Any:
        connection = take(self)
        if next(count) % 10 == 0:  # also those that other threads use at the moment
            sshd.kill_connections("store")
        return connection

    monkeypatch.setattr(Connections, "_take", take_and_break)
    storage.put_files("one", files)
    targets = {name: (tmp_path / f"got-{name}", file.stat().st_size) for name, file in files.items()}
    storage.get_files("one", targets)
    assert all(target.read_text() == name * 10_000 for name, (target, _) in targets.items())
    assert storage.list("one") == {name: file.stat().st_size for name, file in files.items()}
    assert next(count) > 70


def test_a_directory_that_others_remove_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, removed = LocalFileSystem.put_file, list[Path]()

    def remove_and_put(self: Any, source: str, target: str) -> None:
        if not removed:
            removed.append(Path(target).parent)
            removed[0].rmdir()
        put(self, source, target)

    monkeypatch.setattr(LocalFileSystem, "put_file", remove_and_put)
    storage = FsspecStorage(FsspecConfig(url=f"file://{tmp_path}/stored"), ())
    (tmp_path / "file").write_text("x")
    storage.put("one", "directory/file", tmp_path / "file")
    assert storage.list("one") == {"directory/file": 1}
    assert removed == [tmp_path / "stored/one/directory"]


def test_a_frozen_server_is_an_error_after_the_time_limit(
    sshd: SshHosts, make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_storage_fsspec._storage.INTERACTIVE_TIMEOUT", 1)
    monkeypatch.setattr("det_storage_fsspec._storage.PAUSES", ())
    storage = FsspecStorage(make_config(timeout=600)).with_few_retries()
    (tmp_path / "file").write_text("x")
    storage.put("one", "file", tmp_path / "file")
    with frozen(sshd):
        began = time.monotonic()
        with pytest.raises(StorageError, match="TimeoutError"):
            storage.put("one", "file", tmp_path / "file")
        with pytest.raises(StorageError, match="correct checkpoint_storage"):  # no new connection either
            storage.list("one")
        assert time.monotonic() - began < 20
    assert storage.list("one") == {"file": 1}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"host_key_policy": "reject"}, "not found in known_hosts"),
        ({"key_filename": "/no/such/hunter2"}, "No such file"),
        ({"key_filename": None, "allow_agent": False, "password": "hunter2"}, "Authentication"),
        ({"hunter2": True}, "hunter2"),
    ],
)
def test_a_refused_connection_says_why_and_shows_no_secret(
    make_config: Make, options: dict[str, Any], expected: str
) -> None:
    config = make_config()
    changed = FsspecConfig(url=config.url, storage_options={**config.storage_options, **options}, timeout=5)
    with pytest.raises(StorageError, match=expected) as refused:
        FsspecStorage(changed, ()).list("one")
    assert refused.value.__cause__ is None
    assert "hunter2" not in str(refused.value) or "hunter2" in options
    assert str(refused.value).startswith(f"cannot use {config.url}: ")


def test_an_unknown_server_is_refused(make_config: Make, tmp_path: Path) -> None:
    (tmp_path / ".ssh/known_hosts").unlink()
    config = make_config()
    with pytest.raises(StorageError, match=r"the key of .127.0.0.1.:\d+ is not in .*connect once with ssh"):
        FsspecStorage(config, ()).list("one")
    options = {**config.storage_options, "host_key_policy": "auto_add"}
    assert FsspecStorage(FsspecConfig(url=config.url, storage_options=options), ()).list("one") == {}


def test_remains_of_killed_uploads_are_hidden_and_removed(make_config: Make, tmp_path: Path) -> None:
    storage, directory = FsspecStorage(make_config()), tmp_path / "stored/one"
    (directory / "sub").mkdir(parents=True)
    for name in ("a", "a.det-upload-01234567", "sub/b.det-upload-89abcdef"):
        (directory / name).write_text("x")
    assert storage.list("one") == {"a": 1}
    storage.abort_uploads("one", lambda path: path == "sub/b")
    assert sorted(path.name for path in directory.iterdir()) == ["a", "a.det-upload-01234567"]
    storage.abort_uploads("one", lambda path: True)
    assert [path.name for path in directory.iterdir()] == ["a"]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_trial_that_is_killed_resumes_from_its_checkpoints(make_config: Make, tmp_path: Path, kills: int) -> None:
    options = make_config().options | {"password": "hunter2"}
    block = {"type": "fsspec", "url": make_config().url, "storage_options": options}
    train_with_kills(tmp_path, {}, kills, checkpoint_storage=block)
    assert any((tmp_path / "stored").glob("*/metadata.json"))
    recorded = [path for path in (tmp_path / "det-home").rglob("*") if path.is_file() and "secrets" not in path.parts]
    assert recorded and not any(b"hunter2" in path.read_bytes() for path in recorded)
