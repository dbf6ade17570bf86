"""Location, damage, locks and upgrades of the database."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import sqlalchemy as sa
from det_testing.small_disk import fill_disk, remount_read_only, small_disk

from det_core.cli import main
from det_core.errors import StoreBusy, StoreCorrupt, StoreUnsuitable, TrackingError
from det_core.home import home_directory
from det_core.interfaces.records import MetricsReport, SystemMetrics
from det_core.interfaces.tracking import TrackingStore
from det_core.tracking import _schema, _sqlite, open_store
from det_core.tracking._open import file_url
from det_core.tracking._outage import Unavailable
from det_core.tracking._postgresql import Postgresql
from det_core.tracking._sqlite import WalSync

from ..postgresql import PostgreSQL

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _quick_records() -> None:
    """Create each database from nothing."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "det.db"


def opened(file: Path, wait: float = 60.0) -> TrackingStore:
    return open_store(f"sqlite:///{file}", wait=wait)


def test_the_default_is_a_private_file_under_det_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", str(tmp_path / "deep" / "home"))
    with open_store() as store:
        assert store.url == f"sqlite:///{tmp_path}/deep/home/det.db"
        number = store.create_experiment(config={"name": "x"}).id
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in home_directory().iterdir()}
        assert modes == {"det.db": 0o600, "det.db-wal": 0o600, "det.db-shm": 0o600}
    assert stat.S_IMODE(home_directory().stat().st_mode) == 0o700
    with open_store(store.url) as again:
        assert again.experiment(number).name == "x"


NAMES = ("a", "a?b=c", "a#b", "aA", "a%41", "a%", "a b", "ü日", "a@b:c", "~")
"""Names of directories, most of which contain characters that have a meaning in URLs."""
READ = """
import sys
from det_core.tracking import open_store

for url in sys.argv[1:]:
    with open_store(url) as store:
        print(*(one.name for one in store.experiments()))
"""


def test_homes_with_characters_of_urls_have_databases_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: Callable[..., subprocess.Popen[str]]
) -> None:
    urls = []
    for number, name in enumerate(NAMES):
        monkeypatch.setenv("DET_HOME", str(tmp_path / name))
        with open_store() as store:
            assert store.create_experiment(config={"name": f"e{number}"}).id == 1
            urls.append(store.url)
        assert (tmp_path / name / "det.db").is_file()
        with open_store(store.url) as later:
            assert [one.name for one in later.experiments()] == [f"e{number}"]
    assert python(READ, *urls).communicate()[0].split() == [f"e{number}" for number in range(len(NAMES))]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", ["a?b", "a%41"])
def test_a_url_with_quoted_characters_selects_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setenv("DET_MASTER", file_url(tmp_path / name / "det.db"))
    with open_store() as store:
        store.create_experiment(config={})
    assert main(["store", "check"]) == main(["store", "backup", str(tmp_path / "copy?")]) == 0
    restored = tmp_path / name / "restored"
    assert main(["store", "restore", str(tmp_path / "copy?"), "--url", file_url(restored)]) == 0
    with closing(sqlite3.connect(restored)) as connection:
        assert connection.execute("SELECT count(*) FROM experiments").fetchall() == [(1,)]


def test_relative_urls_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///det.db") as store:
        assert store.url == f"sqlite:///{tmp_path}/det.db"


def test_importing_the_package_imports_no_database_library() -> None:
    heavy = {"sqlalchemy", "sqlite3", "platformdirs"}
    code = f"import sys, det_core.tracking; print({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("det.db", "'det.db' is not a database URL. Accepted: sqlite:////absolute/path/det.db, postgresql://"),
        ("http://master:8080", "would send your token over the network without encryption; use https://"),
        ("postgresql//det:a/b@h/x", r"'\*\*\*@h/x' is not a database URL"),
        ("postgresql://det:pw@h:port/x", r"'\*\*\*@h:port/x' is not a database URL"),
        ("postgresql://h:port/x?password=pw&a=b", r"h:port/x\?password=\*\*\*&a=b' is not a database URL"),
        ("mysql://x/y", "'mysql' is not a supported database. Accepted: sqlite:"),
        ("sqlite://", "the tracking store needs a file"),
        ("sqlite:///:memory:", "the tracking store needs a file"),
        ("sqlite:////proc/version/det.db", "/proc/version/det.db cannot be created: Not a directory"),
        ("sqlite:////nowhere/det.db", "cannot be created: No such file or directory. Give a directory that exists"),
        ("sqlite:////proc/det.db", "cannot be created"),
        ("sqlite:////tmp", "/tmp cannot be opened"),
        ("sqlite:////tmp/a?b/det.db", r"options after '\?'; if .* write: sqlite:////tmp/a%3Fb/det.db"),
        ("sqlite://home/det.db", "names the host 'home'; if .* write: sqlite:////home/det.db"),
        (
            "postgresql://nobody:secret@localhost:1/x",
            r"postgresql\+psycopg://nobody:\*\*\*@localhost:1/x: PostgreSQL says",
        ),
        ("sqlite:///~nobody-of-this-name/det.db", "there is no user 'nobody-of-this-name' .* sqlite:////absolute"),
    ],
)
def test_an_unusable_url_raises_an_error(url: str, message: str) -> None:
    with pytest.raises(TrackingError, match=message):
        open_store(url, wait=0.2)


def test_a_home_whose_name_is_no_text_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_HOME", f"{tmp_path}/\udce9")
    with pytest.raises(TrackingError, match=r"/\\udce9' is not UTF-8\. Set DET_HOME"):
        open_store()
    assert list(tmp_path.iterdir()) == []


def test_an_impossible_home_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DET_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(TrackingError, match=r"home cannot be created: Not a directory\. Set DET_HOME"):
        open_store()


@pytest.mark.parametrize("content", [b"these are no pages" * 999, os.urandom(8192)], ids=["text", "random"])
def test_a_file_that_is_not_a_database_is_not_changed(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=f"{file} is damaged or is not a database. Nothing was changed: move it"):
        opened(file)
    assert file.read_bytes() == content


def fill(file: Path) -> None:
    with opened(file) as store:
        trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0).id
        store.start_run(trial, allocation_id="a")
        store.report_metrics(
            [
                MetricsReport(trial_id=trial, run_id=1, group="training", steps_completed=step, metrics={"x": step})
                for step in range(5000)
            ]
        )


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_a_truncated_database_raises_an_error(file: Path, keep: float) -> None:
    fill(file)
    os.truncate(file, int(file.stat().st_size * keep))
    with pytest.raises(StoreCorrupt, match="is damaged"), opened(file) as store:
        list(store.metrics(1))


def test_damage_is_found_when_it_is_read(file: Path) -> None:
    fill(file)
    size = file.stat().st_size
    with file.open("r+b") as pages:
        pages.seek(size // 2 // 4096 * 4096)
        pages.write(os.urandom(size // 4))
    with pytest.raises(StoreCorrupt, match="is damaged"), opened(file) as store:
        list(store.metrics(1))


def test_a_locked_database_blocks_writers_but_not_readers(file: Path) -> None:
    with opened(file, wait=0.2) as store:
        locker = sqlite3.connect(file, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match=f"{file} was locked by another process for 0.2 s. `fuser"):
            store.create_experiment(config={})
        assert store.experiments() == []  # readers are not blocked
        locker.execute("ROLLBACK")
        locker.close()
        store.create_experiment(config={})


@contextmanager
def another_that_switches(file: Path) -> Iterator[sqlite3.Connection]:
    """Hold the lock of a process that switches a new file to WAL mode."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as locker:
        locker.execute("BEGIN IMMEDIATE")
        yield locker


def test_a_new_database_that_another_process_creates_is_waited_for(file: Path) -> None:
    with another_that_switches(file) as locker:
        timer = threading.Timer(0.3, locker.execute, ["ROLLBACK"])
        timer.start()
        with opened(file, wait=30) as store:
            assert store.experiments() == []
        timer.join()


def test_a_new_database_that_stays_locked_raises_an_error(file: Path) -> None:
    with another_that_switches(file), pytest.raises(StoreBusy, match=f"{file} was locked by another process for 0.2 s"):
        opened(file, wait=0.2)


@pytest.mark.parametrize("freed", [True, False])
def test_a_full_disk_is_waited_for(file: Path, freed: bool) -> None:
    with opened(file, wait=30 if freed else 0.3) as store:
        pages = iter([1] * 2 + [1_000_000] * 9 if freed else [1] * 9)
        database = store._database  # type: ignore[attr-defined]
        sa.event.listen(
            database._readers, "begin", lambda c: c.exec_driver_sql(f"PRAGMA max_page_count = {next(pages)}")
        )
        with (
            nullcontext() if freed else pytest.raises(StoreBusy, match=r"is on a full disk \(\d+ MB free\): free space")
        ):
            store.create_experiment(config={"x": "y" * 1_000_000})
        assert len(store.experiments()) == freed


def test_a_disk_that_fails_is_named(file: Path) -> None:
    with opened(file, wait=0) as store:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 100_000, limit[1]))  # then the kernel refuses
        try:
            with pytest.raises(StoreBusy, match=r"synced, because its disk \(\d+ MB free\) failed"):
                store.create_experiment(config={"x": "y" * 1_000_000})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert store.create_experiment(config={"x": "y" * 1_000_000}).id == 1


def test_a_disk_that_is_full_or_read_only_pauses(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size=1 << 20) as disk, opened(disk / "det.db", wait=0.3) as store:
        ballast = fill_disk(disk)
        full = rf"{disk}/det.db is on a full disk \(0 MB free\): free space"
        with pytest.raises(StoreBusy, match=full):
            store.create_experiment(config={})
        ballast.unlink()
        assert store.create_experiment(config={}).id == 1
        store.close()
        remount_read_only(disk)
        with pytest.raises(StoreBusy, match=rf"{disk}/det.db is on a disk \(\d MB free\) that is read-only"):
            opened(disk / "det.db").create_experiment(config={})


def test_a_log_that_cannot_be_synced_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "db-wal").symlink_to("/dev/null")  # which the kernel cannot sync
    sync = WalSync(tmp_path / "db")
    for _ in range(2):
        sync.schedule()
        sync.close()
    [record] = caplog.records
    assert record.message.startswith(f"{tmp_path}/db-wal cannot be synced: [Errno 22] Invalid argument; a power cut")


@pytest.mark.parametrize("step", [WalSync.schedule, WalSync.close])
def test_a_timer_may_end_at_any_time(tmp_path: Path, step: Callable[[WalSync], None]) -> None:
    class Ending(WalSync):
        looks = -1

        @property
        def _timer(self) -> threading.Timer | None:
            self.looks += 1
            return None if self.looks else threading.Timer(0, print)

        @_timer.setter
        def _timer(self, timer: threading.Timer | None) -> None:
            """Ignore the new one."""

    step(Ending(tmp_path / "db"))


def test_without_a_free_thread_a_log_is_synced_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "db-wal").symlink_to("/dev/null")  # which the kernel cannot sync
    monkeypatch.setattr(threading.Timer, "start", mock.Mock(side_effect=RuntimeError("can't start new thread")))
    WalSync(tmp_path / "db").schedule()
    assert f"{tmp_path}/db-wal cannot be synced" in caplog.text


def test_a_read_only_database_raises_an_error(file: Path) -> None:
    with opened(file) as store:
        database = store._database  # type: ignore[attr-defined]
        sa.event.listen(database._readers, "begin", lambda c: c.exec_driver_sql("PRAGMA query_only = 1"))
        with pytest.raises(TrackingError, match="cannot be written: its file or directory is read-only"):
            store.create_experiment(config={})


MOUNTS = r"""
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / /home rw shared:1 - nfs4 server:/home rw,vers=4.2
31 30 254:1 / /home/local rw - xfs /dev/vdb rw
32 22 0:31 / /mnt/my\040data rw master:1 - fuse.sshfs host: rw
33 22 0:32 / /scratch rw - lustre mgs:/x rw
34 22 0:33 / /over rw - ext4 /dev/vdc rw
35 22 0:34 / /over rw - cifs //x/y rw
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/det.db", None),
        ("/home/ada/det.db", "nfs4"),
        ("/home/local/det.db", None),
        ("/homes/det.db", None),
        ("/mnt/my data/x/det.db", "fuse.sshfs"),
        ("/scratch/det.db", "lustre"),
        ("/over/det.db", "cifs"),
    ],
)
def test_network_file_systems_are_refused(path: str, kind: str | None) -> None:
    if kind is None:
        _sqlite.refuse_network(Path(path), MOUNTS)
        return
    with pytest.raises(StoreUnsuitable, match=rf"network file system \({kind}\).*Set DET_HOME.*postgresql://"):
        _sqlite.refuse_network(Path(path), MOUNTS)


def test_open_store_checks_the_mounts(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite, "_mounts", lambda: "22 1 0:1 / / rw - nfs server:/ rw")
    with pytest.raises(StoreUnsuitable, match="nfs"):
        opened(file)
    assert not file.exists()


def test_the_error_names_the_newer_release_to_install(store: TrackingStore, url: str) -> None:
    database = store._database  # type: ignore[attr-defined]
    with database.write() as connection:
        connection.execute(_schema.schema.update().values(version=99, release="7.1.0"))
    with pytest.raises(StoreCorrupt, match=r"written by det-core 7.1.0, .*: .*pip install 'det-core>=7.1.0'"):
        open_store(url)


def test_an_older_database_is_upgraded_once(store: TrackingStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_migrations(*statements: str) -> None:
        def step(statement: str) -> Callable[[sa.Connection], None]:
            return lambda connection: connection.execute(sa.text(statement)) and None

        migrations = [*_schema.MIGRATIONS, *map(step, statements)]
        monkeypatch.setattr(_schema, "MIGRATIONS", migrations)
        monkeypatch.setattr(_schema, "VERSION", 1 + len(migrations))

    add_migrations("CREATE TABLE one (x INTEGER)", "INSERT INTO one VALUES (1)")
    for _ in range(2):
        with open_store(url) as upgraded, upgraded._database.read() as connection:  # type: ignore[attr-defined]
            assert connection.execute(sa.text("SELECT x FROM one")).all() == [(1,)]
    add_migrations("DROP TABLE one", "no SQL")
    with pytest.raises(TrackingError, match="syntax"):
        open_store(url)
    with store._database.read() as connection:  # type: ignore[attr-defined]
        assert connection.execute(sa.text("SELECT x FROM one")).all() == [(1,)]  # all migrations take effect, or none


@pytest.mark.integration
def test_a_locked_row_in_postgresql_raises_an_error(server: PostgreSQL) -> None:
    import psycopg

    url = server.create_database()
    with open_store(url, wait=0.2) as store, psycopg.connect(url) as other:
        number = store.create_experiment(config={}).id
        other.execute("SELECT * FROM experiments FOR UPDATE")
        with pytest.raises(StoreBusy, match=r"another session held a lock for 0.2 s"):
            store.set_experiment_progress(number, 0.5)


@pytest.mark.integration
def test_postgresql_returns_times_at_the_ends_of_what_python_has(server: PostgreSQL) -> None:
    with open_store(f"{server.create_database()}&options=-c%20timezone%3DAsia/Tokyo") as store:
        trial = store.create_trial(store.create_experiment(config={}).id, hparams={}, seed=0)
        run = store.start_run(trial.id, allocation_id="a")
        times = [datetime.min.replace(tzinfo=timezone.utc), datetime.max.replace(tzinfo=timezone.utc)]
        which: dict[str, Any] = {"trial_id": run.trial_id, "run_id": run.run_id, "group": "cpu", "metrics": {}}
        store.report_system_metrics([SystemMetrics(**which, time=time) for time in times])
        assert [sample.time for sample in store.system_metrics(run.trial_id)] == times


class Refusal(Exception):
    """Error of psycopg. An error of a connection has no state."""

    def __init__(self, sqlstate: str | None, text: str) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("refusal", "kind", "message"),
    [
        (Refusal("55P03", "canceling statement due to lock timeout"), StoreBusy, "another session held a lock for 5 s"),
        (Refusal("57P01", "terminating connection"), Unavailable, "PostgreSQL says: terminating connection"),
        (Refusal("53100", "could not extend file"), Unavailable, "PostgreSQL says: could not extend file"),
        (Refusal("42601", "syntax error"), TrackingError, "PostgreSQL says: syntax error"),
        (Refusal(None, "Connection refused"), Unavailable, "Connection refused"),
        (Refusal(None, "password authentication failed"), TrackingError, "authentication failed"),
        (Refusal(None, "number of parameters must be between 0 and 65535"), TrackingError, "number of parameters"),
    ],
    ids=["locked", "restarted", "full disk", "wrong", "unreachable", "refused", "too many values"],
)
def test_an_error_of_postgresql_says_whether_a_repetition_may_help(
    refusal: Refusal, kind: type[TrackingError], message: str
) -> None:
    pytest.importorskip("psycopg")
    with closing(Postgresql(sa.make_url("postgresql://det:password@host/det?sslpassword=secret"), 5.0)) as database:
        error = database.explain(sa.exc.OperationalError("SELECT 1", {}, refusal))
    assert type(error) is kind
    assert message in str(error)
    assert "det:***@host/det:" in str(error)


@pytest.mark.parametrize("how", ["deleted", "renamed", "replaced"])
def test_a_home_that_disappears_under_an_open_store_is_an_error(tmp_path: Path, how: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with opened(home / "det.db") as store:
        number = store.create_experiment(config={}).id
        if how == "deleted":
            shutil.rmtree(home)
        else:
            home.rename(tmp_path / "elsewhere")
        if how == "replaced":
            home.mkdir()
            opened(home / "det.db").close()
        message = f"{home}/det.db was deleted, renamed or replaced while this process had it open"
        for call in (lambda: store.set_experiment_progress(number, 0.5), store.experiments):
            with pytest.raises(TrackingError, match=message):
                call()
        assert how == "replaced" or not (home / "det.db").exists()
        if how == "renamed":
            (tmp_path / "elsewhere").rename(home)
            store.set_experiment_progress(number, 0.5)
            assert store.experiment(number).progress == 0.5


def test_a_home_that_disappears_during_a_write_is_an_error(file: Path) -> None:
    with opened(file) as store:
        database = store._database  # type: ignore[attr-defined]
        sa.event.listen(database._writers, "commit", lambda _: file.rename(f"{file}.old"))
        number = store.create_experiment(config={}).id
        with pytest.raises(TrackingError, match="was deleted, renamed or replaced"):
            store.set_experiment_progress(number, 0.5)


def test_a_connection_in_use_is_closed_when_its_transaction_ends(tmp_path: Path) -> None:
    database = _sqlite.Sqlite(tmp_path / "det.db", file_url(tmp_path / "det.db"), wait=1)
    with database.read() as connection:
        used = connection.connection.dbapi_connection
        assert isinstance(used, sqlite3.Connection)
        database.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        used.execute("SELECT 1")
    with database.read() as connection:
        assert connection.scalar(sa.text("SELECT 1")) == 1
        late = connection.connection.dbapi_connection
    assert isinstance(late, sqlite3.Connection)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        late.execute("SELECT 1")
