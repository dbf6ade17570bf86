"""Checks, backups and upgrades of the tracking store, and the commands for them."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, nullcontext
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import pytest

from det_core.cli import main
from det_core.errors import DetError, StoreBusy, StoreCorrupt, TrackingError
from det_core.interfaces.records import CheckpointRecord
from det_core.tracking import maintenance, open_store
from det_core.tracking._open import default_url
from det_core.tracking._schema import VERSION
from det_core.tracking._sql_store import SqlTrackingStore


@pytest.fixture
def filled(url: str) -> str:
    """Return the URL of a database with two experiments."""
    with open_store(url) as store:
        for name in ("one", "two"):
            experiment = store.create_experiment(config={"name": name})
            store.create_trial(experiment.id, hparams={}, seed=0)
    return url


def names(url: str) -> list[str]:
    with open_store(url) as store:
        return [one.name for one in store.experiments(reverse=True)]


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_a_backup_is_consistent_and_complete_while_others_write(filled: str, tmp_path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        with open_store(filled) as store:
            while not stop.is_set():
                experiment = store.create_experiment(config={"name": "more"})
                store.create_trial(experiment.id, hparams={}, seed=0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        maintenance.back_up(filled, tmp_path / "copy")
    finally:
        stop.set()
        writer.join(60)
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".copy")] == []
    with pytest.raises(DetError, match="not empty .* add --yes"):
        maintenance.restore_backup(filled, tmp_path / "copy")
    before = len(names(filled))
    maintenance.restore_backup(filled, tmp_path / "copy", overwrite=True)
    report = maintenance.check_database(filled)
    assert not report.problems
    assert names(filled)[:2] == ["one", "two"] and 2 <= report.rows["experiments"] <= before
    assert report.rows["experiments"] - report.rows["trials"] in (0, 1)


def test_open_stores_see_the_restored_contents(filled: str, tmp_path: Path) -> None:
    with open_store(filled) as store:
        maintenance.back_up(filled, tmp_path / "copy")
        store.create_experiment(config={"name": "three"})
        maintenance.restore_backup(filled, tmp_path / "copy", overwrite=True)
        assert [one.name for one in store.experiments()] == ["two", "one"]
        assert store.create_experiment(config={"name": "four"}).id == 3


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_backup_is_written_to_a_file_system_without_hard_links(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(number, os.strerror(number))))
    maintenance.back_up(home, tmp_path / "copy")
    assert maintenance.check_database(f"sqlite:///{tmp_path}/copy").problems == ()
    with pytest.raises(OSError, match=os.strerror(number)):
        maintenance._move_new(tmp_path / "mine", tmp_path / "copy")


def test_a_running_experiment_prevents_a_restore(filled: str, tmp_path: Path) -> None:
    maintenance.back_up(filled, tmp_path / "copy")
    with open_store(filled) as store:
        store.acquire_lease(2, "somebody", seconds=60)
        with pytest.raises(StoreBusy, match="experiment 2 is being run by somebody; to stop it first: det experiment"):
            maintenance.restore_backup(filled, tmp_path / "copy", overwrite=True)


def test_nothing_is_overwritten(filled: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DetError, match="exists and is not overwritten"):
        maintenance.back_up(filled, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
    with pytest.raises(DetError, match="does not exist"):
        maintenance.back_up(filled, tmp_path / "no" / "copy")
    with pytest.raises(DetError, match="there is no file"):
        maintenance.restore_backup(filled, tmp_path / "nothing")


def test_a_file_that_is_no_backup_leaves_the_store_as_it_was(filled: str, tmp_path: Path) -> None:
    for content in (b"", b"text", b"PGDMP damaged", sqlite_file(tmp_path, "CREATE TABLE other (id)")):
        (tmp_path / "wrong").write_bytes(content)
        with pytest.raises(DetError):
            maintenance.restore_backup(filled, tmp_path / "wrong", overwrite=True)
        assert names(filled) == ["one", "two"]


def sqlite_file(directory: Path, *statements: str) -> bytes:
    path = directory / "made.db"
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path.read_bytes()


@pytest.fixture
def home(det_home: Path) -> str:
    """Return the URL of the embedded store, with one experiment."""
    with open_store() as store:
        store.create_experiment(config={"name": "one"})
    return default_url()


def test_a_backup_of_a_newer_release_is_refused(home: str, tmp_path: Path) -> None:
    maintenance.back_up(home, tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as connection:
        connection.execute("UPDATE det_schema SET version = 99, release = '9.9'")
        connection.commit()
    with pytest.raises(StoreCorrupt, match="newer: .*pip install 'det-core>=9.9'"):
        maintenance.restore_backup(home, tmp_path / "copy", overwrite=True)


def test_damage_is_found(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(home)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(file.read_bytes())
    content[4096 * 2 : 4096 * 3] = b"\xff" * 4096
    file.write_bytes(content)
    assert maintenance.check_database(home).problems
    assert main(["store", "check", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False
    with pytest.raises(StoreCorrupt):
        maintenance.back_up(home, file.with_name("copy"))
    assert not file.with_name("copy").exists()


def test_dangling_references_are_found(home: str) -> None:
    with open_store() as store:
        store.create_trial(1, hparams={}, seed=0)
    with closing(sqlite3.connect(file_of(home))) as connection:
        connection.execute("DELETE FROM experiments")
        connection.commit()
    [problem] = maintenance.check_database(home).problems
    assert problem == "row 1 of trials refers to a row of experiments that does not exist"


def test_an_older_store_is_upgraded_only_on_request(det_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    det_home.mkdir()
    url = default_url()
    with closing(sqlite3.connect(file_of(url))) as connection:
        connection.executescript((Path(__file__).parent / "version_1" / "sqlite.sql").read_text())
    assert maintenance.check_database(url).version == 1
    assert main(["store", "check"]) == 0
    assert "To upgrade them" in capsys.readouterr().out
    assert maintenance.check_database(url).version == 1
    assert main(["store", "upgrade"]) == 0
    assert f"from version 1 to {VERSION}" in capsys.readouterr().out
    assert main(["store", "upgrade", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"before": VERSION, "after": VERSION}


def test_a_store_that_does_not_exist_is_not_created(det_home: Path) -> None:
    url = default_url()
    for work in (maintenance.check_database, maintenance.upgrade_store):
        with pytest.raises(TrackingError, match="there is no tracking store"):
            work(url)
    with pytest.raises(TrackingError, match="there is no tracking store"):
        maintenance.back_up(url, det_home / "copy")
    assert list(det_home.iterdir()) == []


def test_lost_checkpoints_are_named(home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block: dict[str, Any] = {"type": "directory", "container_path": str(tmp_path / "storage")}
    with open_store() as store:
        trial = store.create_trial(1, hparams={}, seed=0)
        run = store.start_run(trial.id, allocation_id="a")
        store.begin_checkpoint("gone", trial_id=trial.id, run_id=run.run_id, storage=block)
        store.complete_checkpoint("gone", run_id=run.run_id, steps_completed=1, resources={}, metadata={})
    assert main(["store", "check"]) == 1
    assert f"checkpoint gone of trial 1 is not in {tmp_path / 'storage' / 'gone'}" in capsys.readouterr().out


def test_checkpoints_that_are_removed_meanwhile_are_not_lost(
    home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(home) as store:
        run = store.start_run(store.create_trial(1, hparams={}, seed=0).id, allocation_id="a")
        block = {"type": "directory", "container_path": str(tmp_path)}
        store.begin_checkpoint("removed", trial_id=run.trial_id, run_id=run.run_id, storage=block)
        store.complete_checkpoint("removed", run_id=run.run_id, steps_completed=1, resources={}, metadata={})
    listed = SqlTrackingStore.checkpoints

    def checkpoints(store: SqlTrackingStore, **options: Any) -> list[CheckpointRecord]:
        found = listed(store, **options)
        store.delete_checkpoint("removed")
        return found

    monkeypatch.setattr(SqlTrackingStore, "checkpoints", checkpoints)
    assert main(["store", "check"]) == 0
    assert "result" in capsys.readouterr().out


def test_a_killed_backup_leaves_nothing_after_the_next_one(home: str, tmp_path: Path) -> None:
    script = """
    import os, sys
    from pathlib import Path
    from det_core.tracking import maintenance
    os.fsync = lambda _: os._exit(9)
    maintenance.back_up(sys.argv[1], Path(sys.argv[2]))
    """
    assert subprocess.run([sys.executable, "-c", dedent(script), home, tmp_path / "copy"]).returncode == 9
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("det-backup-")]) == 1
    maintenance.back_up(home, tmp_path / "copy")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("det-backup-")]


def test_the_commands_back_up_and_restore(home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = str(tmp_path / "copy")
    assert main(["store", "backup", copy]) == 0
    assert main(["store", "restore", copy]) == 1
    assert "add --yes" in capsys.readouterr().err
    assert main(["store", "restore", copy, "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": copy}
    assert main(["store", "restore", copy, "--url", f"sqlite:///{tmp_path}/new.db"]) == 0
    assert names(f"sqlite:///{tmp_path}/new.db") == ["one"]


PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" "$PGPASSWORD" >"$0.arguments"
echo "no such role" >&2
exit {code}
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the programs of PostgreSQL by scripts that note their arguments, and return their directory."""
    monkeypatch.setattr(maintenance, "_connected", lambda url: nullcontext())
    monkeypatch.setattr(maintenance, "_check_replaceable", lambda url, overwrite: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, code in (("pg_dump", 0), ("pg_restore", 3)):
        (tmp_path / name).write_text(PROGRAM.format(code=code))
        (tmp_path / name).chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    "url",
    ["postgresql://ada:secret@db.example/runs", "postgresql://ada@db.example/runs?password=secret"],
    ids=["address", "option"],
)
def test_the_programs_of_postgresql_get_its_address_but_no_password_as_arguments(programs: Path, url: str) -> None:
    maintenance.back_up(url, programs / "copy")
    *arguments, file, password = (programs / "pg_dump.arguments").read_text().splitlines()
    address = "--dbname=postgresql://ada@db.example/runs"
    assert arguments == [address, "--no-password", "--format=custom", "--no-owner"]
    assert file.startswith(f"--file={programs}/det-backup-")
    assert password == "secret"
    with pytest.raises(DetError, match="^pg_restore failed: no such role$"):
        maintenance.restore_backup(url, programs / "copy")
    assert (programs / "pg_restore.arguments").read_text().splitlines() == [
        *(address, "--no-password", "--clean", "--if-exists", "--no-owner", "--single-transaction"),
        *(str(programs / "copy"), "secret"),
    ]


@pytest.mark.integration
def test_missing_programs_of_postgresql_are_named(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = server.create_database()
    open_store(url).close()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DetError, match="pg_dump is not installed.*apt install postgresql-client"):
        maintenance.back_up(url, tmp_path / "copy")
