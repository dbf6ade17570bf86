"""SQLite database of the tracking store, a single file in WAL mode."""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from det_core.disk_errors import explain_disk_error, format_free_space
from det_core.errors import CallTooLarge, StoreBusy, StoreCorrupt, StoreUnsuitable, TrackingError
from det_core.json_values import NON_FINITE
from det_core.tracking._column_types import FINITE
from det_core.tracking._database import TOO_SLOW, Database
from det_core.tracking._outage import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy.exc import DBAPIError

_log = logging.getLogger("det.tracking")

SYNC_INTERVAL = 5.0
"""Maximum number of seconds until a commit is durable, provided that its process is alive."""


class WalSync:
    """Background sync of a write-ahead log, some seconds after commits that were not durable themselves.

    Args:
        database: path of the database.
    """

    def __init__(self, database: Path) -> None:
        self._wal = f"{database}-wal"
        self._timer: threading.Timer | None = None
        self._has_failed = False

    def schedule(self) -> None:
        """Make everything committed so far durable within `SYNC_INTERVAL` seconds, if the disk allows it."""
        timer = self._timer  # which the thread of the timer sets to None at any time
        if timer is None or not timer.is_alive():  # a forked child inherits the object without its thread
            timer = self._timer = threading.Timer(SYNC_INTERVAL, self._sync)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # there is no free thread
                self._sync()

    def close(self) -> None:
        """Make everything committed so far durable, if the disk allows it."""
        if timer := self._timer:
            timer.cancel()
            self._sync()

    def _sync(self) -> None:
        self._timer = None  # first, because later commits need another timer
        try:
            # SQLite holds no locks on this file that closing a descriptor could drop.
            log = os.open(self._wal, os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)
        except FileNotFoundError:
            pass  # the last connection merged it into the database
        except OSError as error:  # what was committed is there, and a later durable transaction fails if this persists
            if not self._has_failed:
                _log.warning("%s cannot be synced: %s; a power cut may undo what was recorded last", self._wal, error)
            self._has_failed = True


# With NORMAL, a power cut may undo the last transactions, but never one without all later ones. The metrics reported
# before a COMPLETED checkpoint are therefore present. A killed process loses nothing.
_SYNCHRONOUS = {True: "FULL", False: "NORMAL"}
"""SQLite's level of durability, for durable and for other transactions."""
_PAUSE = 0.01
"""Number of seconds between two attempts to switch to WAL."""
_LONGEST_WAIT = 0.5
"""Maximum number of seconds that SQLite itself waits for a lock."""

_OPERATIONS = 20_000
"""Number of operations of SQLite between two looks at the clock."""
_PLAIN = re.compile(r"[ !#-\[\]-~]+")
"""Names of metrics without quotes, backslashes and characters that JSON may escape."""
_NETWORK = frozenset(
    """
    9p afs beegfs ceph cifs gfs2 glusterfs gpfs lustre nfs nfs4 ocfs2 orangefs panfs pvfs2 smb2 smb3 smbfs wekafs
    fuse.beegfs fuse.ceph fuse.ceph-fuse fuse.gcsfuse fuse.glusterfs fuse.juicefs fuse.rclone fuse.s3fs fuse.sshfs
    """.split()  # noqa: SIM905  (a list literal is three times as long)
)

_BUSY = "was locked by another process for {wait:g} s. `fuser {path}` shows which: wait for it or end it"
_DAMAGED = (
    "is damaged or is not a database. Nothing was changed: move it away together with its -wal and -shm files. Then "
    "restore a backup: det store restore FILE"
)
_FULL = "is on a full disk ({free}): free space, or set DET_HOME to a directory on another disk"
_FAILED = (
    "could not be read, written or synced, because its disk ({free}) failed or a quota is exhausted; `dmesg` and `df` "
    "may say more. Repair this, or set DET_HOME to a directory on another disk"
)
_READ_ONLY_DISK = (
    "is on a disk ({free}) that is read-only; `dmesg` says whether it has failed. Mount it again, or set DET_HOME to a "
    "directory on another disk"
)
_READ_ONLY = "cannot be written: its file or directory is read-only. Make it writable, or set DET_HOME"
_MOVED = (
    "{path} was deleted, renamed or replaced while this process had it open, so nothing more can be recorded. "
    "Put it back, or restart"
)
_NOT_THERE = "cannot be opened: its directory is missing or not accessible. Fix this, or set DET_HOME"
_SCARCE = (
    "could not be opened, although it is accessible: this process (see `ulimit -n`) or host has too many open files"
)

# Part of SQLite's message, det's error and its message. Errors are found by text, as Python 3.10 gives no error codes.
_MEANINGS: tuple[tuple[str, type[TrackingError], str], ...] = (
    ("locked", Unavailable, _BUSY),
    ("not a database", StoreCorrupt, _DAMAGED),
    ("malformed", StoreCorrupt, _DAMAGED),
    ("could not decode", StoreCorrupt, _DAMAGED),
    ("disk is full", Unavailable, _FULL),
    ("disk i/o error", Unavailable, _FAILED),
    ("readonly", TrackingError, _READ_ONLY),
    ("unable to open", TrackingError, _NOT_THERE),
)


class Sqlite(Database):
    """SQLite database in a file, which is created if needed.

    Args:
        path: absolute path of the file.
        url: URL of the file.
        wait: number of seconds for which transactions wait for a locked database.

    Raises:
        StoreUnsuitable: the file is on a network file system.
        TrackingError: the file cannot be created.
    """

    most_writers = 1  # SQLite lets waiting writers poll its lock, in no order
    most_seconds = 1.0
    clock = sa.literal_column("(julianday('now') - 2440587.5) * 86400.0")

    def __init__(self, path: Path, url: str, wait: float) -> None:
        self._path = path
        refuse_network(path, _mounts())
        _create_file(path)
        self._identity = _identity(path)
        self._wal_sync = WalSync(path)
        super().__init__(self._engine(min(wait, _LONGEST_WAIT)), wait)
        self.url = url  # with SQLAlchemy 2.0, that of the engine is not quoted

    def lock_out_others(self, connection: sa.Connection) -> None:
        """Do nothing, because BEGIN IMMEDIATE already excludes other writers."""

    def commit(self, connection: sa.Connection) -> None:
        connection.commit()
        self._check_in_place()
        if not connection.get_execution_options().get("det_durable"):
            self._wal_sync.schedule()

    def close(self) -> None:
        super().close()
        self._wal_sync.close()

    def curves(
        self, connection: sa.Connection, query: sa.Select[Any], parameters: Mapping[str, Any]
    ) -> Iterator[tuple[int, int, float | None]]:
        # A row per trial, because sqlite3 releases the GIL at each row and then waits for every thread that took it.
        rows = query.order_by(None).subquery().c
        # quote() writes some numbers with 15 digits although they need 17.
        value = sa.case((rows.value.is_not(None), sa.func.printf("%!.20e", rows.value)), else_=rows.name)
        steps, values = (sa.func.group_concat(column) for column in (rows.steps_completed, value))
        packed = sa.select(rows.trial_id, steps, values).where(value.is_not(None)).group_by(rows.trial_id)
        for trial_id, of_steps, of_values in connection.execute(packed, parameters):
            points = zip(map(int, of_steps.split(",")), map(float, of_values.split(",")), strict=True)
            yield from ((trial_id, step, value) for step, value in sorted(points))

    @staticmethod
    def number(of: sa.FromClause, metric: str) -> sa.ColumnElement[Any]:
        return _value(of, metric, lambda value, kind: sa.and_(kind.in_(("integer", "real")), value.between(*FINITE)))

    @staticmethod
    def non_finite(of: sa.FromClause, metric: str) -> sa.ColumnElement[Any]:
        return _value(of, metric, lambda value, kind: sa.and_(kind == "text", value.in_(list(NON_FINITE))))

    @staticmethod
    def json_number(column: sa.Column[Any], path: Sequence[str]) -> sa.ColumnElement[Any]:
        return _json_value(column, path, lambda value, kind: [(kind.in_(("integer", "real")), value)])

    @staticmethod
    def json_text(column: sa.Column[Any], path: Sequence[str]) -> sa.ColumnElement[Any]:
        return _json_value(
            column, path, lambda value, kind: [(kind == "text", value), (kind.in_(("true", "false")), kind)]
        )

    @staticmethod
    def json_array(column: sa.Column[Any], paths: Sequence[Sequence[str]]) -> sa.ColumnElement[Any]:
        return _readable_json(column, lambda source: sa.func.json_extract(source, *map(_json_path, paths)))

    @contextmanager
    def limit_time(self, connection: sa.Connection, message: str = TOO_SLOW) -> Iterator[None]:
        raw: Any = connection.connection.dbapi_connection
        deadline = time.thread_time() + self.most_seconds
        raw.set_progress_handler(lambda: time.thread_time() > deadline, _OPERATIONS)
        try:
            yield
        except sa.exc.OperationalError as error:
            if "interrupted" not in str(error.orig):
                raise
            raise CallTooLarge(message.format(self.most_seconds)) from None
        finally:
            raw.set_progress_handler(None, 0)

    @staticmethod
    def seconds(time: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return (sa.func.julianday(time) - 2440587.5) * 86400.0

    def explain(self, error: DBAPIError) -> TrackingError:
        said = str(error.orig)
        if "unable to open" in said and _is_accessible(self._path):
            return Unavailable(f"{self._path} {_SCARCE} (SQLite: {said}).")
        for words, kind, meaning in _MEANINGS:
            if words in said.lower():
                if meaning in (_READ_ONLY, _NOT_THERE) and _is_mounted_read_only(self._path.parent):
                    kind, meaning = StoreBusy, _READ_ONLY_DISK
                text = meaning.format(path=self._path, wait=self._wait, free=format_free_space(self._path))
                return kind(f"{self._path} {text} (SQLite: {said}).")
        return TrackingError(f"{self._path}: SQLite says: {said}.")

    def _engine(self, wait: float) -> sa.Engine:
        def connect() -> sqlite3.Connection:
            self._check_in_place()
            return sqlite3.connect(self._path, timeout=wait, check_same_thread=False)

        def begin(connection: sa.Connection) -> None:
            self._check_in_place()
            _on_begin(connection)

        url = sa.URL.create("sqlite", database=str(self._path))
        engine = sa.create_engine(url, creator=connect, pool_size=2, max_overflow=-1)
        sa.event.listen(engine, "connect", partial(_on_connect, wait))
        sa.event.listen(engine, "begin", begin)
        return engine

    def _check_in_place(self) -> None:
        """Raise TrackingError unless the path still leads to the file that was opened."""
        if _identity(self._path) != self._identity:
            raise TrackingError(_MOVED.format(path=self._path))


def _value(
    of: sa.FromClause, metric: str, is_wanted: Callable[[Any, Any], sa.ColumnElement[bool]]
) -> sa.ColumnElement[Any]:
    """Return an SQL expression for a metric, which is NULL unless the condition for its value and type holds."""
    if _PLAIN.fullmatch(metric):  # paths cannot express every key
        path = f'$."{metric}"'
        value, kind = (sa.func.json_extract(of.c.metrics, path), sa.func.json_type(of.c.metrics, path))
        return sa.case((is_wanted(value, kind), value))
    items = sa.func.json_each(of.c.metrics).table_valued("key", "value", "type")
    found = sa.select(items.c.value).where(items.c.key == metric, is_wanted(items.c.value, items.c.type))
    return found.correlate(of).scalar_subquery()


def _json_value(
    column: sa.Column[Any],
    path: Sequence[str],
    of_kind: Callable[[Any, Any], list[tuple[sa.ColumnElement[bool], sa.ColumnElement[Any]]]],
) -> sa.ColumnElement[Any]:
    """Return an SQL expression for a value in JSON, given cases of its value and type."""
    if any('"' in key for key in path):  # paths cannot express it
        return sa.null()
    steps = _json_path(path)

    def read(source: Any) -> sa.ColumnElement[Any]:
        return sa.case(*of_kind(sa.func.json_extract(source, steps), sa.func.json_type(source, steps)))

    return _readable_json(column, read)


def _json_path(path: Sequence[str]) -> str:
    return "$" + "".join(f".{json.dumps(key)}" for key in path)


def _readable_json(
    column: sa.Column[Any], read: Callable[[sa.ColumnElement[Any]], sa.ColumnElement[Any]]
) -> sa.ColumnElement[Any]:
    """Return an SQL expression that reads JSON with Python's NaN and Infinity, or NULL if SQLite cannot read it."""
    text: sa.ColumnElement[Any] = sa.type_coerce(column, sa.Text)
    strict = text
    for before in ":,[":
        for name in NON_FINITE:
            strict = sa.func.replace(strict, before + name, f"{before}null")
    return sa.case((sa.func.json_valid(text) == 1, read(text)), (sa.func.json_valid(strict) == 1, read(strict)))


def _on_connect(wait: float, connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # the driver opens no transactions, because _on_begin does
    _switch_to_wal(connection, wait)
    connection.execute("PRAGMA foreign_keys = ON")


def _switch_to_wal(connection: sqlite3.Connection, wait: float) -> None:
    # SQLite's own time limit does not apply here. While another process switches a new file, this fails at once.
    deadline = time.monotonic() + wait
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def _on_begin(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("det_writes"):
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous = {_SYNCHRONOUS[options.get('det_durable', False)]}")
    # A transaction that reads first and writes later could conflict with another, so a writer locks from the start.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at the path, or None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_accessible(path: Path) -> bool:
    """Return whether this process may read and write a file, and create others next to it."""
    return path.is_file() and os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


def _create_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless it exists. SQLite copies its mode to -wal and -shm."""
    try:
        # O_EXCL, because closing a descriptor of a file that this process has open elsewhere would drop SQLite's locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        reason = explain_disk_error(error, path) or error.strerror
        raise TrackingError(
            f"{path} cannot be created: {reason}. Give a directory that exists and is writable, or set DET_HOME."
        ) from error


def _is_mounted_read_only(directory: Path) -> bool:
    with suppress(OSError):
        return bool(os.statvfs(directory).f_flag & os.ST_RDONLY)
    return False


def refuse_network(path: Path, mounts: str) -> None:
    """Raise StoreUnsuitable if ``path`` lies on a network file system, where SQLite's locks and WAL do not hold.

    Args:
        path: path of the database.
        mounts: text of ``/proc/self/mountinfo``.
    """
    kind = _file_system(Path(os.path.realpath(path)), mounts)
    if kind in _NETWORK:
        raise StoreUnsuitable(
            f"{path} is on a network file system ({kind}), where SQLite loses data. "
            "Set DET_HOME to a directory on a local disk, or give a postgresql:// URL."
        )


def _file_system(path: Path, mounts: str) -> str:
    deepest, kind = Path("/"), ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4]))  # a space is \040
        if path.is_relative_to(point) and point.is_relative_to(deepest):  # a later mount hides an earlier one
            deepest, kind = point, after.split()[0]
    return kind


def _mounts() -> str:
    table = Path("/proc/self/mountinfo")  # psutil has the same, but its import would add 16 ms to every command
    return table.read_text(errors="replace", encoding="utf-8") if table.exists() else ""
