"""Checks, backups and upgrades of a tracking store, without the code that trains."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from det_core.errors import DetError, StoreBusy, StoreCorrupt, TrackingError
from det_core.package_commands import package_command
from det_core.scratch import scratch_directory
from det_core.tracking._open import _database, _parse, database_file, file_url, open_store
from det_core.tracking._schema import VERSION, schema, tables

if TYPE_CHECKING:
    from det_core.tracking._database import Database

_TOOL_SECONDS = 4 * 3600.0
"""Maximum number of seconds that PostgreSQL's programs may take."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
"""Error numbers of file systems without hard links, such as exFAT and those of some network disks."""
_WAIT = 10.0
"""Seconds to wait for a locked or unavailable database."""


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """State of a tracking store.

    Attributes:
        url: the store, without its password.
        version: version of its tables.
        rows: numbers of rows by table.
        problems: what is damaged.
    """

    url: str
    version: int
    rows: Mapping[str, int]
    problems: Sequence[str] = ()


def check_database(url: str) -> StoreReport:
    """Check the integrity of a tracking store without changing it.

    Args:
        url: URL of the store.

    Raises:
        TrackingError: there is no store, or it cannot be opened.
    """
    problems: list[str] = []
    if file := _existing_file(url):
        try:
            with closing(_read_only(file)) as connection:
                problems += _sqlite_problems(connection)
        except sqlite3.DatabaseError as error:
            problems.append(str(error))
        if problems:
            return StoreReport(url=file_url(file), version=0, rows={}, problems=problems)
    with _connected(url) as (database, connection):
        known = sa.inspect(connection).get_table_names()
        rows = {
            name: connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for name, table in tables.tables.items()
            if name in known
        }
        return StoreReport(url=_shown(database), version=_stored_version(connection), rows=rows)


def back_up(url: str, target: Path) -> None:
    """Write a consistent copy of a tracking store, while experiments go on.

    Args:
        url: URL of the store.
        target: file to write: a SQLite database, or an archive of pg_dump. It is complete, or absent.

    Raises:
        DetError: the file exists, or the program pg_dump is missing or fails.
        StoreCorrupt: the store is damaged.
        TrackingError: there is no store, or it cannot be read.
    """
    if target.exists():
        raise DetError(f"{target} exists and is not overwritten; choose another FILE, or remove it")
    if not target.absolute().parent.is_dir():
        raise DetError(f"the directory {target.absolute().parent} does not exist; create it")
    database = _existing_file(url)
    with scratch_directory("backup", target.absolute().parent) as directory:  # the next one removes it after a kill
        partial = directory / "copy"
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # it contains configs and logs
        if database:
            _copy_sqlite(database, partial)
        else:
            with _connected(url):
                pass  # a clearer error than that of pg_dump
            _run_tool("pg_dump", _parse(url), "--format=custom", "--no-owner", f"--file={partial}")
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        _move_new(partial, target)


def _move_new(file: Path, target: Path) -> None:
    """Give a file another name, which fails if there is such a file by now."""
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno not in _NO_LINKS or target.exists():
            raise
        file.rename(target)


def restore_backup(url: str, source: Path, *, overwrite: bool = False) -> None:
    """Replace the contents of a tracking store by those of a backup, completely or not at all.

    Args:
        url: URL of the store, which is created if it does not exist.
        source: file that `back_up` wrote.
        overwrite: whether to replace a store that has experiments or models.

    Raises:
        DetError: the store is not empty and ``overwrite`` is False, or the program pg_restore is missing or fails.
        StoreBusy: an experiment of the store is running.
        StoreCorrupt: the file is damaged or no backup, or a newer release wrote it.
    """
    if not source.is_file():
        raise DetError(f"there is no file {source}; expected a file that det store backup wrote")
    database = database_file(url)
    if database:
        _check_backup(source)
    if database is None or database.exists():
        _check_replaceable(url, overwrite)
    if database is None:
        _run_tool(
            "pg_restore",
            _parse(url),
            "--clean",
            "--if-exists",
            "--no-owner",
            "--single-transaction",
            str(source),
            to="--dbname",
        )
        return
    open_store(url, wait=_WAIT).close()  # creates the file with the right mode, and refuses network file systems
    try:
        with closing(_read_only(source)) as backup, closing(sqlite3.connect(database, timeout=_WAIT)) as connection:
            backup.backup(connection)  # a single transaction
    except sqlite3.OperationalError as error:
        raise StoreBusy(f"{database} cannot be replaced: {error}; end the processes that use it") from error


def upgrade_store(url: str) -> tuple[int, int]:
    """Upgrade the tables of a tracking store to this release, and return the versions before and after.

    Args:
        url: URL of the store.

    Raises:
        StoreCorrupt: a newer release wrote the store.
        TrackingError: there is no store, or it cannot be upgraded.
    """
    _existing_file(url)
    with _connected(url) as (_, connection):
        before = _stored_version(connection)
    open_store(url, wait=_WAIT).close()
    return before, VERSION


def _existing_file(url: str) -> Path | None:
    """Return the path of a database file, which must exist, or None if the database is not a file."""
    path = database_file(url)
    if path and not path.is_file():
        raise TrackingError(f"there is no tracking store {path}; set DET_HOME, or give its URL with --url")
    return path


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_WAIT)


def _sqlite_problems(connection: sqlite3.Connection) -> Iterator[str]:
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
    if found != ["ok"]:
        yield from found
        return
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"row {row} of {table} refers to a row of {parent} that does not exist"


def _copy_sqlite(path: Path, target: Path) -> None:
    try:
        with closing(_read_only(path)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that the copy is a single file
            problems = list(_sqlite_problems(copy))
    except sqlite3.DatabaseError as error:
        raise StoreCorrupt(f"{path} cannot be copied: {error}; type: det store check") from error
    if problems:
        raise StoreCorrupt(f"{path} is damaged: {problems[0]}; restore an older backup")


def _check_backup(source: Path) -> None:
    try:
        with closing(_read_only(source)) as connection:
            problems = list(_sqlite_problems(connection))
            if not problems:
                [(version, release)] = connection.execute("SELECT version, release FROM det_schema").fetchall()
    except (sqlite3.DatabaseError, ValueError) as error:
        raise StoreCorrupt(f"{source} is no backup of a tracking store: {error}") from error
    if problems:
        raise StoreCorrupt(f"{source} is damaged: {problems[0]}; choose another backup")
    if version > VERSION:
        raise StoreCorrupt(
            f"{source} was written by det-core {release}, which is newer: "
            f"{package_command('install', f'det-core>={release}')}"
        )


def _check_replaceable(url: str, overwrite: bool) -> None:
    with closing(open_store(url, wait=_WAIT)) as store:
        if running := store.lease_holders():
            number = min(running)
            raise StoreBusy(
                f"experiment {number} is being run by {running[number]}; "
                f"to stop it first: det experiment pause {number}"
            )
        experiments, models = len(store.experiments(brief=True)), len(store.models(brief=True))
    if (experiments or models) and not overwrite:
        raise DetError(
            f"the tracking store is not empty ({experiments} experiments, {models} models), and restoring replaces "
            "all of it; back it up, then add --yes"
        )


@contextmanager
def _connected(url: str) -> Iterator[tuple[Database, sa.Connection]]:
    """Open a reading transaction without upgrading the tables."""
    database = _database(url, _WAIT)
    try:
        with database.read() as connection:
            yield database, connection
    finally:
        database.close()


def _stored_version(connection: sa.Connection) -> int:
    if not sa.inspect(connection).has_table(schema.name):
        return 0
    return int(connection.scalar(sa.select(schema.c.version)) or 0)


def _shown(database: Database) -> str:
    return repr(sa.make_url(database.url)).replace("postgresql+psycopg", "postgresql")


def _run_tool(program: str, url: sa.URL, *arguments: str, to: str = "--dbname") -> None:
    """Run one of PostgreSQL's programs on the database. The password is not on its command line."""
    found = shutil.which(program)
    if found is None:
        raise DetError(
            f"the program {program} is not installed; install PostgreSQL's client programs, such as: "
            "apt install postgresql-client"
        )
    address = url._replace(drivername="postgresql", password=None).render_as_string()  # set() ignores None
    password = {"PGPASSWORD": str(url.password)} if url.password else {}
    try:
        done = subprocess.run(
            [found, f"{to}={address}", "--no-password", *arguments],
            env={**os.environ, **password},
            capture_output=True,
            encoding="utf-8",
            timeout=_TOOL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise DetError(f"{program} was stopped after {_TOOL_SECONDS / 3600:g} hours") from error
    if done.returncode:
        raise DetError(f"{program} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
